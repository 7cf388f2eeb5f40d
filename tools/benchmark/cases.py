"""What is compared: models, contestants, and the named set of training cases."""
from dataclasses import asdict, dataclass, replace

OURS = "fullshard"  # kind of the contestants that are this project; all others are kinds of peer/contenders.py


@dataclass(frozen=True)
class Model:
    family: str
    vocab_size: int
    d_model: int
    num_heads: int
    num_layers: int
    d_ff: int
    sequence: int
    dropout: float = 0.0

    def sizes(self) -> dict:
        return {**asdict(self), "max_positions": self.sequence}


@dataclass(frozen=True)
class Contestant:
    """A program and its settings. `micro_batch` is in sequences of a rank, `threads` of a rank."""
    name: str
    kind: str
    ranks: int = 2
    threads: int = 1
    micro_batch: int = 1
    accumulation: int = 1
    precision: str = "fp32"
    strategy: str = "full_shard"  # of FullShard; the kind says it for peers
    gemm: str = "preferred"       # of FullShard, on CPUs
    learning_rate: float = 1e-3
    device: str = "cpu"           # or "cuda": FullShard and the kinds of a single process

    def sequences(self) -> int:
        """Of a step, over all ranks."""
        return self.ranks * self.micro_batch * self.accumulation


@dataclass(frozen=True)
class TrainingCase:
    name: str
    title: str
    model: Model
    contestants: tuple[Contestant, ...]
    pairs: tuple[tuple[str, str], ...]  # whose speeds are divided: (above, below)
    alone: tuple[str, ...] = ()         # whose memory and phases are measured, each running alone
    checked_by: str = ""                # with dropout no losses agree: the case without it that checks them
    steps_of_a_turn: int = 2

    def precision_of_losses(self) -> str:
        """The coarsest of the contestants'."""
        return "bf16" if any(one.precision == "bf16" for one in self.contestants) else "fp32"


GPT2 = Model("gpt2", vocab_size=8192, d_model=384, num_heads=6, num_layers=6, d_ff=1536, sequence=256)
SIMPLE = Model("simple_transformer", vocab_size=1000, d_model=256, num_heads=4, num_layers=3, d_ff=2048, sequence=128)
# For checkpoints: 49 M parameters, and steps that take no longer than they must.
GPT2_WIDE = replace(GPT2, d_model=768, num_heads=12, d_ff=3072, sequence=16)
SMOKE = Model("simple_transformer", vocab_size=64, d_model=32, num_heads=2, num_layers=2, d_ff=64, sequence=16)


def ours(name: str = "FullShard", **settings) -> Contestant:
    return Contestant(name, OURS, **settings)


def main_contest(micro_batch: int) -> tuple[Contestant, ...]:
    """Two ranks of a thread each, and a single process with two threads and the same batch of a step."""
    return (ours(micro_batch=micro_batch),
            ours("FullShard, PyTorch's gemm", micro_batch=micro_batch, gemm="libtorch"),
            Contestant("FSDP2", "fsdp2", micro_batch=micro_batch),
            Contestant("DDP", "ddp", micro_batch=micro_batch),
            Contestant("eager", "eager", ranks=1, threads=2, micro_batch=2 * micro_batch))


MAIN_PAIRS = (("FullShard", "FSDP2"), ("FullShard", "DDP"), ("FullShard", "eager"),
              ("FullShard, PyTorch's gemm", "FSDP2"), ("FullShard, PyTorch's gemm", "DDP"),
              ("FullShard, PyTorch's gemm", "eager"))

STRATEGIES = (
    ours(), ours("FullShard shard_grad_op", strategy="shard_grad_op"), ours("FullShard no_shard", strategy="no_shard"),
    Contestant("FSDP2 without resharding", "fsdp2_keep"), Contestant("FSDP1 FULL_SHARD", "fsdp1_full_shard"),
    Contestant("FSDP1 SHARD_GRAD_OP", "fsdp1_shard_grad_op"), Contestant("FSDP1 NO_SHARD", "fsdp1_no_shard"))

TRAINING_CASES = (
    TrainingCase("gpt2", "GPT-2 of 14 M parameters, micro-batch 4", GPT2, main_contest(4), MAIN_PAIRS,
                 alone=("FullShard", "FullShard, PyTorch's gemm", "FSDP2", "DDP", "eager")),
    TrainingCase("gpt2-small-batch", "GPT-2 of 14 M parameters, micro-batch 1", GPT2, main_contest(1), MAIN_PAIRS,
                 alone=("FullShard", "FSDP2")),
    TrainingCase("gpt2-strategies", "the same, by strategy", GPT2, STRATEGIES,
                 (("FullShard", "FSDP1 FULL_SHARD"), ("FullShard shard_grad_op", "FSDP2 without resharding"),
                  ("FullShard shard_grad_op", "FSDP1 SHARD_GRAD_OP"), ("FullShard no_shard", "FSDP1 NO_SHARD"))),
    TrainingCase("gpt2-ranks", "the same, 8 sequences a step on 1 rank of 2 threads, 2 ranks, 4 ranks", GPT2,
                 (ours(micro_batch=4), ours("FullShard, 1 rank", ranks=1, threads=2, micro_batch=8),
                  ours("FullShard, 4 ranks", ranks=4, micro_batch=2),
                  Contestant("FSDP2, 4 ranks", "fsdp2", ranks=4, micro_batch=2)),
                 (("FullShard, 4 ranks", "FullShard"), ("FullShard, 1 rank", "FullShard"),
                  ("FullShard, 4 ranks", "FSDP2, 4 ranks"))),
    TrainingCase("gpt2-accumulation", "the same, 4 accumulated micro-batches of 1", GPT2,
                 (ours(accumulation=4), Contestant("FSDP2", "fsdp2", accumulation=4),
                  Contestant("DDP", "ddp", accumulation=4)),
                 (("FullShard", "FSDP2"), ("FullShard", "DDP"))),
    TrainingCase("gpt2-bf16", "the same in bf16, micro-batch 1", GPT2,
                 (ours(precision="bf16"), ours("FullShard fp32"), Contestant("FSDP2", "fsdp2", precision="bf16")),
                 (("FullShard", "FSDP2"), ("FullShard", "FullShard fp32"))),
    TrainingCase("simple", "SimpleTransformer of 4.5 M parameters, micro-batch 4, no dropout", SIMPLE,
                 main_contest(4), MAIN_PAIRS),
    TrainingCase("simple-dropout", "the same with dropout 0.1", replace(SIMPLE, dropout=0.1), main_contest(4),
                 MAIN_PAIRS, checked_by="simple"),
)
