"""checkpoint.py SETTINGS: one rank that trains and saves with torch.distributed.checkpoint, or writes plainly.

SETTINGS is that of train.py and "way": "dcp" (saves after each step), "dcp_async" (saves while training goes on, the
next one `pause` steps after the end of the last), "plain" (each rank writes and syncs its part of as many bytes), or
"dcp_once" (one save, then the end). Rank 0 writes a record of each save: "seconds", and "stall_s" for which training
stood still.
"""
import json
import os
import shutil
import sys
import time
from pathlib import Path
from typing import Callable, Iterator

import contenders
import models
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict
from train import steps_of

Log = Callable[[dict], None]


def record(begin: float, stall: float) -> dict:
    return {"kind": "checkpoint", "seconds": time.perf_counter() - begin, "stall_s": stall, "time": time.time()}


def state_of(contender: contenders.Contender, optimizer) -> dict:
    model_state, optimizer_state = get_state_dict(contender.model, optimizer)
    return {"model": model_state, "optimizer": optimizer_state}


def remove(folder: Path) -> None:
    dist.barrier()
    if contenders.rank() == 0:
        shutil.rmtree(folder)
    dist.barrier()


def save_after_steps(contender, optimizer, steps: Iterator[dict], place: Path, log: Log) -> None:
    for step in steps:
        dist.barrier()
        begin = time.perf_counter()
        dcp.save(state_of(contender, optimizer), checkpoint_id=place / str(step["step"]))
        dist.barrier()
        log(record(begin, time.perf_counter() - begin))
        remove(place / str(step["step"]))


def save_beside_steps(contender, optimizer, steps: Iterator[dict], place: Path, pause: int, log: Log) -> None:
    # A thread of its own makes collective calls: among those of training they would not match.
    group = dist.new_group(backend="gloo")
    for step in steps:
        dist.barrier()
        begin = time.perf_counter()
        future = dcp.async_save(state_of(contender, optimizer), checkpoint_id=place / str(step["step"]),
                                process_group=group)
        stall = time.perf_counter() - begin
        for _ in range(pause):
            next(steps)
        future.result()
        log(record(begin, stall))
        remove(place / str(step["step"]))


def write_plainly(bytes_of_rank: int, place: Path, log: Log) -> None:
    block = os.urandom(1 << 22)
    path = place / f"plain-{contenders.rank()}"
    while True:
        dist.barrier()
        begin = time.perf_counter()
        with open(path, "wb", buffering=0) as file:
            for written in range(0, bytes_of_rank, len(block)):
                file.write(memoryview(block)[:bytes_of_rank - written])
            os.fsync(file.fileno())
        dist.barrier()
        log(record(begin, time.perf_counter() - begin))
        path.unlink()


def main() -> None:
    settings = json.loads(Path(sys.argv[1]).read_text())
    contenders.start(settings)
    place = Path(settings["dir"])
    with open(place / f"rank-{contenders.rank()}.jsonl", "w", buffering=1) as file:
        def log(entry: dict) -> None:
            file.write(json.dumps(entry) + "\n")

        model = models.make(settings["model"])
        if settings["way"] == "plain":
            elements = sum(parameter.numel() for parameter in model.parameters())
            write_plainly(3 * 4 * elements // contenders.ranks(), place, log)  # weights and two moments in fp32
        models.load(model, Path(settings["weights"]))
        matrices = contenders.decaying(model)
        contender = contenders.wrap(model, settings)
        optimizer = contenders.optimizer_of(contender.model, matrices, settings)
        steps = steps_of(contender, optimizer, settings)
        if settings["way"] == "dcp":
            save_after_steps(contender, optimizer, steps, place, log)
        elif settings["way"] == "dcp_async":
            save_beside_steps(contender, optimizer, steps, place, settings["pause"], log)
        else:
            next(steps)
            dcp.save(state_of(contender, optimizer), checkpoint_id=place / "saved")


if __name__ == "__main__":
    main()
