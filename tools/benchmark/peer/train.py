"""train.py SETTINGS: one rank of a peer's training, started by mpirun as FullShard is.

SETTINGS is a JSON file (tools/benchmark/contestants.py writes it). Each rank writes a record of every step to
DIR/rank-N.jsonl: the time of day of its end, the loss of its own batch, and seconds of its phases, in which a
GPU may only have been told what to do: the loss is read after them. "load" is a checkpoint to start from.
"""
import json
import sys
import time
from pathlib import Path
from typing import Iterator

import contenders
import models
import numpy as np
import torch
from torch import Tensor

HEADER_BYTES = 1024  # of a token file of llm.c


class Batches:
    """Sequences in the order of the file: micro-batch a of rank r takes those of number a W + r."""

    def __init__(self, settings: dict):
        self.tokens = np.memmap(settings["tokens"], dtype="<u2", mode="r", offset=HEADER_BYTES)
        self.length, self.rows = settings["model"]["sequence"], settings["micro_batch"]
        self.accumulation, self.device = settings["accumulation"], settings["device"]
        self.available = (len(self.tokens) - 1) // self.length

    def load(self, step: int, accumulation: int) -> tuple[Tensor, Tensor]:
        micro_batch = (step * self.accumulation + accumulation) * contenders.ranks() + contenders.rank()
        first = micro_batch * self.rows % self.available * self.length
        rows = np.stack([self.tokens[begin:begin + self.length + 1] for begin in
                         range(first, first + self.rows * self.length, self.length)]).astype(np.int64)
        rows = torch.from_numpy(rows).to(self.device)
        return rows[:, :-1], rows[:, 1:]


def steps_of(contender: contenders.Contender, optimizer: torch.optim.Optimizer, settings: dict) -> Iterator[dict]:
    """Trains, and gives a record of each step."""
    batches = Batches(settings)
    accumulation = settings["accumulation"]
    for step in range(settings["steps"]):
        loss, forward, backward = torch.zeros((), device=settings["device"]), 0.0, 0.0
        for a in range(accumulation):
            inputs, targets = batches.load(step, a)
            with contender.sync(last=a + 1 == accumulation):
                begin = time.perf_counter()
                part = contender.model(inputs, targets) / accumulation
                middle = time.perf_counter()
                part.backward()
                end = time.perf_counter()
            loss += part.detach()
            forward, backward = forward + middle - begin, backward + end - middle
        begin = time.perf_counter()
        optimizer.step()
        optimizer.zero_grad()
        seconds = time.perf_counter() - begin
        yield {"kind": "step", "step": step + 1, "loss": loss.item(), "forward": forward, "backward": backward,
               "optimizer": seconds, "time": time.time()}


def restore(contender: contenders.Contender, optimizer: torch.optim.Optimizer, folder: Path) -> None:
    """Weights and moments from what torch.distributed.checkpoint saved on any number of ranks."""
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
    model_state, optimizer_state = get_state_dict(contender.model, optimizer)
    state = {"model": model_state, "optimizer": optimizer_state}
    dcp.load(state, checkpoint_id=folder)
    set_state_dict(contender.model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])


def main() -> None:
    settings = json.loads(Path(sys.argv[1]).read_text())
    contenders.start(settings)
    with torch.device(settings["device"]):
        model = models.make(settings["model"])
    models.load(model, Path(settings["weights"]))
    matrices = contenders.decaying(model)
    contender = contenders.wrap(model, settings)
    optimizer = contenders.optimizer_of(contender.model, matrices, settings)
    if "load" in settings:
        restore(contender, optimizer, Path(settings["load"]))
    with open(Path(settings["dir"]) / f"rank-{contenders.rank()}.jsonl", "w", buffering=1) as log:
        for record in steps_of(contender, optimizer, settings):
            log.write(json.dumps(record) + "\n")


if __name__ == "__main__":
    main()
