"""Turns a contestant into a command, and its files into records."""
import json
import socket
from dataclasses import dataclass
from pathlib import Path

from cases import OURS, Contestant, Model
from processes import Job, environment, mpirun
from records import Record, RecordFile

PEER = Path(__file__).parent / "peer"
ENDLESS = 1_000_000  # steps of a run that is ended from outside
SEED = 7


@dataclass(frozen=True)
class Tools:
    """The programs that take part."""
    build: Path   # bin/ is below
    python: Path  # has torch, numpy and matplotlib

    @property
    def fullshard(self) -> Path:
        return self.build / "bin/fullshard"


@dataclass(frozen=True)
class Inputs:
    """Weights and tokens that all contestants of a case read."""
    weights: Path
    tokens: Path


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def deck_of(one: Contestant, model: Model, inputs: Inputs, folder: Path, steps: int) -> dict[str, object]:
    """Keys of FullShard's deck. Patience is long: a contestant stands still while others have their turn."""
    keys: dict[str, object] = {
        "run.dir": folder / "run", "model.family": model.family, "model.dropout": model.dropout,
        "data.source": "llmc", "data.path": inputs.tokens, "data.sequence": model.sequence, "data.shuffle": "off",
        "data.validation_fraction": 0, "train.steps": steps, "train.micro_batch": one.micro_batch,
        "train.grad_accum_steps": one.accumulation, "optimizer.lr": one.learning_rate, "checkpoint.every": 0,
        "checkpoint.resume": "never", "shard.strategy": one.strategy, "precision.param": one.precision,
        "kernels.threads": one.threads, "comm.timeout_s": 7200, "comm.start_timeout_s": 7200,
    }
    if one.device == "cuda":
        keys |= {"device.kind": "cuda", "reduce.order": "fast"}
    else:
        keys["kernels.gemm"] = one.gemm
    if model.family == "gpt2":
        keys |= {"model.config": inputs.weights, "model.init_from": inputs.weights}
    else:
        keys |= {f"model.{name}": getattr(model, name)
                 for name in ("vocab_size", "d_model", "num_heads", "num_layers", "d_ff")}
        keys["model.init_from"] = inputs.weights / "model.safetensors"
    return keys


def settings_of(one: Contestant, model: Model, inputs: Inputs, folder: Path, steps: int) -> dict[str, object]:
    """What peer/*.py read."""
    return {"kind": one.kind, "threads": one.threads, "micro_batch": one.micro_batch,
            "accumulation": one.accumulation, "precision": one.precision, "device": one.device, "steps": steps,
            "lr": one.learning_rate, "model": model.sizes(), "weights": str(inputs.weights),
            "tokens": str(inputs.tokens), "dir": str(folder), "port": free_port()}


@dataclass
class Run:
    """A contestant that has been started. Its first file's records give the times."""
    contestant: Contestant
    job: Job
    files: list[RecordFile]

    def ends_by_file(self, kind: str) -> list[list[float]]:
        return [[record["time"] for record in file.of_kind(kind)] for file in self.files]

    def ends_of(self, kind: str) -> list[float]:
        return self.ends_by_file(kind)[0]

    def records(self) -> list[list[Record]]:
        return [file.refresh() for file in self.files]


def start_ours(tools: Tools, one: Contestant, keys: dict[str, object], folder: Path) -> Run:
    words = [word for key, value in keys.items() for word in (f"--{key}", value)]
    deck = folder / "empty.ini"
    deck.write_text("")
    job = Job(one.name, mpirun(one.ranks, [tools.fullshard, "train", deck, *words]), environment(one.threads),
              folder / "output.log")
    return Run(one, job, [RecordFile(folder / "run/metrics.jsonl")])


def start_peer(tools: Tools, one: Contestant, settings: dict[str, object], folder: Path,
               script: str = "train.py") -> Run:
    path = folder / "settings.json"
    path.write_text(json.dumps(settings))
    job = Job(one.name, mpirun(one.ranks, [tools.python, PEER / script, path]), environment(one.threads),
              folder / "output.log")
    return Run(one, job, [RecordFile(folder / f"rank-{rank}.jsonl") for rank in range(one.ranks)])


def start(tools: Tools, one: Contestant, model: Model, inputs: Inputs, folder: Path, steps: int = ENDLESS) -> Run:
    folder.mkdir(parents=True)
    if one.kind == OURS:
        return start_ours(tools, one, deck_of(one, model, inputs, folder, steps), folder)
    return start_peer(tools, one, settings_of(one, model, inputs, folder, steps), folder)
