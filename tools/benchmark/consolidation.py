"""fullshard-ckpt beside cp, on a synthetic checkpoint: jobs in random order, each with its output on disk."""
import json
import os
import random
import shutil
import struct
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Callable, Sequence

from contestants import Tools
from mistakes import CaseError, UsageError
from paired import paired, spread
from results import CaseResult, Measure
from turns import Log

BYTES = 4_000_000_000
MEMORY = "256M"  # the limit that the tool is given
LAYERS = 24
COLUMNS = 4096
PIECE = 1 << 22
SEED = 7


def write_weights(path: Path, total_bytes: int) -> None:
    """A safetensors file of LAYERS large tensors and as many small ones."""
    rows = total_bytes // LAYERS // 4 // COLUMNS
    header, offset = {}, 0
    for layer in range(LAYERS):
        for name, shape in (("bias", [COLUMNS]), ("weight", [rows, COLUMNS])):
            end = offset + 4 * shape[0] * (shape[1] if len(shape) == 2 else 1)
            header[f"layers.{layer}.{name}"] = {"dtype": "F32", "shape": shape, "data_offsets": [offset, end]}
            offset = end
    text = json.dumps(header).encode()
    # Exponents of ordinary numbers, so that casts meet no infinities.
    block = struct.pack("<1024f", *(i / 1024 for i in range(1024))) * (PIECE // 4096)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        while offset > 0:
            file.write(block[:min(offset, PIECE)])
            offset -= PIECE


@dataclass(frozen=True)
class Cost:
    seconds: float
    peak_mib: float


def run(words: Sequence[object]) -> Cost:
    begin = time.monotonic()
    child = subprocess.Popen([str(word) for word in words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if status != 0:
        raise CaseError(f"{' '.join(map(str, words))} failed with status {child.returncode}")
    return Cost(time.monotonic() - begin, usage.ru_maxrss / 1024)


def copy(source: Path, out: Path) -> Cost:
    copied, synced = run(["cp", source, out]), run(["sync", out])
    return Cost(copied.seconds + synced.seconds, copied.peak_mib)


def run_consolidation(tools: Tools, result: CaseResult, folder: Path, rounds: int, log: Log) -> None:
    folder.mkdir(parents=True)
    tool = tools.build / "bin/fullshard-ckpt"
    if not tool.exists():
        raise UsageError(f"{tool} does not exist; build it (cmake --build --preset release --target fullshard-ckpt)")
    if shutil.disk_usage(folder).free < 5 * BYTES:
        raise CaseError(f"{folder} has no room for {5 * BYTES / 1e9:.0f} GB; give --out a folder that has")
    log(f"  importing {BYTES / 1e9:.0f} GB")
    weights = folder / "weights.safetensors"
    write_weights(weights, BYTES)
    run([tool, "import", weights, "--out", folder / "runs"])
    weights.unlink()
    checkpoint = folder / "runs/step-00000000"

    def consolidate(out: str, *words: str) -> Cost:
        return run([tool, "consolidate", checkpoint, "--out", folder / out, "--memory", MEMORY, "--max-shard", "1TB",
                    *words])

    jobs: dict[str, Callable[[], Cost]] = {
        "cp": lambda: copy(checkpoint / "state.h5", folder / "out.copy"),
        "safetensors": lambda: consolidate("out.safetensors"),
        "hdf5": lambda: consolidate("out.h5"),
        "pt": lambda: consolidate("out.pt"),
        "safetensors in bf16": lambda: consolidate("out.safetensors", "--dtype", "bf16"),
        "verify": lambda: run([tool, "verify", checkpoint]),
    }
    costs: dict[str, list[Cost]] = {name: [] for name in jobs}
    chance = random.Random(SEED)
    for number in range(rounds):
        log(f"  round {number + 1} of {rounds}")
        for name in chance.sample(list(jobs), len(jobs)):
            costs[name].append(jobs[name]())
            for out in folder.glob("out.*"):
                out.unlink()
    seconds = {name: [cost.seconds for cost in values] for name, values in costs.items()}
    result.raw |= {"bytes": BYTES, "seconds": seconds,
                   "peak_mib": {name: [cost.peak_mib for cost in values] for name, values in costs.items()}}
    for name in jobs:
        if name != "cp":
            result.measures.append(Measure.of(f"speed of {name} / cp", "x", paired(seconds["cp"], seconds[name])))
            result.measures.append(Measure.of(f"{name}: peak memory", "MiB",
                                              spread([cost.peak_mib for cost in costs[name]])))
    shutil.rmtree(folder)
