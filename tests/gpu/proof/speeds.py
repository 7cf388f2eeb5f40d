"""Speeds of models of real size: beside PyTorch in the same run, and of sharding beside none."""
import json
import subprocess
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

from cases import Contestant, Model, TrainingCase, ours
from mistakes import CaseError
from results import CaseResult
from setting import CannotRun, Setting
from training import make_inputs, measure_speeds

ROUNDS = 9
STEPS_OF_A_TURN = 10
REHEARSED_STEPS_OF_A_TURN = 2

# 50257 tokens with rows up to a multiple of 128, as inputs/gpt2-*.ini have them.
GPT2_124M = Model("gpt2", vocab_size=50304, d_model=768, num_heads=12, num_layers=12, d_ff=3072, sequence=1024)
GPT2_1558M = Model("gpt2", vocab_size=50304, d_model=1600, num_heads=25, num_layers=48, d_ff=6400, sequence=1024)
REHEARSED = Model("gpt2", vocab_size=512, d_model=64, num_heads=2, num_layers=2, d_ff=128, sequence=32)

PAIRS = (("FullShard", "eager"), ("FullShard", "torch.compile"))
SHARDED, WHOLE = "FullShard full_shard", "FullShard no_shard"
LEAST_SHARDED = 0.97  # of the speed without sharding: its overhead is below 3 %


@dataclass(frozen=True)
class SpeedCase:
    """`needs_gib` of GPU memory for all contestants together, which hold theirs while others have their turn."""
    case: TrainingCase
    needs_gib: int


# Of all contestants. Small: without warm-up a model this large leaves the rails at the rate of small ones, and bf16
# losses that agree to 2^-8 need a smooth start.
COMMON = {"ranks": 1, "threads": 4, "precision": "bf16", "device": "cuda", "learning_rate": 1e-4}


def contest(name: str, title: str, model: Model, micro_batch: int, needs_gib: int) -> SpeedCase:
    common = {**COMMON, "micro_batch": micro_batch}
    contestants = (ours(**common), Contestant("eager", "eager", **common),
                   Contestant("torch.compile", "compiled", **common))
    return SpeedCase(TrainingCase(name, title, model, contestants, PAIRS, steps_of_a_turn=STEPS_OF_A_TURN), needs_gib)


def sharding_contest() -> SpeedCase:
    common = {**COMMON, "micro_batch": 8}
    contestants = (ours(SHARDED, **common), ours(WHOLE, strategy="no_shard", **common))
    return SpeedCase(TrainingCase("sharding", "full_shard beside no_shard, GPT-2 124M, 1 rank", GPT2_124M, contestants,
                                  ((SHARDED, WHOLE),), steps_of_a_turn=STEPS_OF_A_TURN), 40)


SMALL = contest("gpt2-124m", "GPT-2 124M in bf16, micro-batch 8", GPT2_124M, micro_batch=8, needs_gib=50)
LARGE = contest("gpt2-1558m", "GPT-2 1558M in bf16, micro-batch 2", GPT2_1558M, micro_batch=2, needs_gib=115)
SHARDING = sharding_contest()


def rehearsed(case: TrainingCase) -> TrainingCase:
    """The same on CPUs, at a size at which it takes seconds."""
    contestants = tuple(replace(one, device="cpu", threads=1, micro_batch=2) for one in case.contestants)
    return replace(case, model=REHEARSED, contestants=contestants, steps_of_a_turn=REHEARSED_STEPS_OF_A_TURN)


def versions_in(python: Path, needs_gpu: bool, compiles: bool) -> dict[str, str]:
    """Of PyTorch and its libraries. Throws CannotRun where a GPU is needed and PyTorch cannot use one."""
    script = "import json, torch\nversions = {'PyTorch': torch.__version__, 'CUDA': torch.version.cuda}\n"
    if needs_gpu:
        script += ("assert torch.cuda.is_available(), 'torch.cuda.is_available() is false'\n"
                   "versions |= {'cuDNN': str(torch.backends.cudnn.version()),\n"
                   "             'NCCL': '.'.join(map(str, torch.cuda.nccl.version()))}\n")
        if compiles:
            script += "import triton\nversions['Triton'] = triton.__version__\n"
    done = subprocess.run([python, "-c", script + "print(json.dumps(versions))"], capture_output=True, text=True)
    if done.returncode != 0:
        last = done.stderr.strip().splitlines()[-1:] or ["it says nothing"]
        raise CannotRun(f"PyTorch cannot be used from {python}: {last[0]}")
    return json.loads(done.stdout)


def measure(setting: Setting, speed: SpeedCase, result: CaseResult, folder: Path) -> None:
    case, rounds = speed.case, ROUNDS
    if setting.gpu is None:
        case, rounds = rehearsed(case), 2
    else:
        if setting.gpu.memory_mib < speed.needs_gib * 1024:
            raise CannotRun(f"it needs {speed.needs_gib} GiB of GPU memory, {setting.gpu.name} has "
                            f"{setting.gpu.memory_mib / 1024:.0f}")
    result.raw["versions"] = versions_in(setting.python(), setting.gpu is not None,
                                         compiles=any(one.kind == "compiled" for one in case.contestants))
    folder.mkdir(parents=True)
    with tempfile.TemporaryDirectory(prefix="inputs-", dir=folder) as place:  # up to 6 GB
        inputs = make_inputs(setting.tools, case.model, Path(place) / "files", setting.device)
        measure_speeds(setting.tools, case, inputs, folder, rounds, setting.say, result)


def check_small(setting: Setting, result: CaseResult, folder: Path) -> None:
    measure(setting, SMALL, result, folder)


def check_large(setting: Setting, result: CaseResult, folder: Path) -> None:
    measure(setting, LARGE, result, folder)


def require_least(result: CaseResult, name: str, least: float) -> None:
    found = result.measure(name)
    if found is None:
        raise CaseError(f"{name} was not measured")
    result.measures[result.measures.index(found)] = replace(found, least=least)
    if not found.value >= least:
        raise CaseError(f"{name} is {found.value:.3f}, less than {least}")


def check_sharding(setting: Setting, result: CaseResult, folder: Path) -> None:
    measure(setting, SHARDING, result, folder)
    if setting.gpu is not None:  # times of a rehearsal mean nothing
        require_least(result, f"{SHARDED} / {WHOLE}", LEAST_SHARDED)
