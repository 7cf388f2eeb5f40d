"""Checks that a GPU trains as CPUs do, whatever ranks share it and wherever a run goes on; its memory and overlap."""
import shutil
from pathlib import Path

from hardware import PeakMemory, memory_used
from mistakes import CaseError
from processes import jobs
from results import CaseResult, Measure
from setting import Setting
from trainings import DECKS, GPT2, TOLERANCES, Comparisons, start

# Steps after which the run goes on elsewhere.
PARTS = ((7, "device"), (14, "cpu"), (20, "device"))

# A step's 8 sequences are those of any of these.
BATCH = {"train.global_batch": 8, "train.micro_batch": 2, "train.steps": 10}
SHARED = (("2 ranks, full_shard", 2, {}),
          ("2 ranks, hybrid_shard, groups of 1", 2, {"shard.strategy": "hybrid_shard", "shard.group_size": 1}),
          ("4 ranks, full_shard", 4, {}),
          ("4 ranks, hybrid_shard, groups of 2", 4, {"shard.strategy": "hybrid_shard", "shard.group_size": 2}))

MEMORY_STEPS = 8
GPT2_124M = {
    **GPT2, "model.vocab_size": 50304, "model.d_model": 768, "model.num_heads": 12, "model.num_layers": 12,
    "model.d_ff": 3072, "data.sequence": 1024, "train.micro_batch": 8, "train.steps": MEMORY_STEPS,
    "precision.param": "bf16"}
REHEARSED = {**GPT2, "train.steps": MEMORY_STEPS, "precision.param": "bf16"}
GIB = 2.0**30


def check_equal(setting: Setting, result: CaseResult, folder: Path) -> None:
    comparisons = Comparisons(result)
    for deck, keys in DECKS.items():
        for precision, tolerance in TOLERANCES.items():
            name = f"{deck}, {precision}"
            place = folder / name.replace(" ", "-").replace(",", "")
            with comparisons.attempt(name), jobs() as running:
                pair = [start(setting, running, f"{name} on {device}", place / part,
                              {**keys, "precision.param": precision}, device)
                        for part, device in (("expected", "cpu"), ("device", setting.device))]
                expected, losses = [training.finish() for training in pair]
                comparisons.add(name, losses, expected, tolerance)
    comparisons.require_all()


def check_restart(setting: Setting, result: CaseResult, folder: Path) -> None:
    keys = {**GPT2, "checkpoint.every": 1000}  # and after a run's last step
    with jobs() as running:
        whole = start(setting, running, "uninterrupted", folder / "whole", keys, setting.device)
        for steps, where in PARTS:
            device = setting.device if where == "device" else where
            part = start(setting, running, f"until step {steps} on {device}", folder / "parts",
                         {**keys, "train.steps": steps}, device)
            losses = part.finish()
        expected = whole.finish()
    for place in ("whole", "parts"):
        shutil.rmtree(folder / place / "run/checkpoints")
    comparisons = Comparisons(result)
    comparisons.add("device to CPU and back", losses, expected, TOLERANCES["fp32"])
    comparisons.require_all()


def check_ranks(setting: Setting, result: CaseResult, folder: Path) -> None:
    keys = {**GPT2, **BATCH}
    comparisons = Comparisons(result)
    with jobs() as running:
        expected = start(setting, running, "1 rank", folder / "1-rank", keys, setting.device).finish()
    for number, (name, ranks, changes) in enumerate(SHARED):
        with comparisons.attempt(name), jobs() as running:
            losses = start(setting, running, name, folder / f"{number}-{ranks}-ranks", {**keys, **changes},
                           setting.device, ranks).finish()
            comparisons.add(name, losses, expected, TOLERANCES["fp32"])
    comparisons.require_all()


def check_overlap(setting: Setting, result: CaseResult, folder: Path) -> None:
    keys: dict[str, object] = {**GPT2, **BATCH, "trace.steps": "6,7"}
    if setting.gpu is None:  # ranks of CPUs that share memory have nothing in flight
        keys |= {"shard.store": "slotted", "comm.node_shared": "off"}
    with jobs() as running:
        training = start(setting, running, "2 ranks, full_shard", folder, keys, setting.device, 2)
        training.finish()
    summary = training.record("summary")
    if "overlap" not in summary:
        raise CaseError("the trace of steps 6 and 7 has no gather or reduction in flight")
    result.measures.append(Measure.once("gathers and reductions hidden behind computing, 2 ranks", "%",
                                        100 * float(summary["overlap"])))


def bytes_of(items: list[dict]) -> dict[str, int]:
    return {item["purpose"]: item["bytes"] for item in items}


def compare_memory(summary: dict, result: CaseResult) -> int:
    """The summary's plan beside what was allocated; gives the bytes of the latter."""
    predicted, allocated = (bytes_of(summary[f"memory_{kind}"]) for kind in ("predicted", "allocated"))
    result.raw["memory"] = {"predicted": predicted, "allocated": allocated}
    result.measures += [Measure.once("state and slots, predicted", "GiB", sum(predicted.values()) / GIB),
                        Measure.once("state and slots, allocated", "GiB", sum(allocated.values()) / GIB)]
    wrong = [f"{purpose} has {allocated.get(purpose)} bytes for {predicted.get(purpose)}"
             for purpose in {**predicted, **allocated} if predicted.get(purpose) != allocated.get(purpose)]
    if wrong:
        raise CaseError("; ".join(wrong))
    return sum(allocated.values())


def check_memory(setting: Setting, result: CaseResult, folder: Path) -> None:
    gpu = setting.gpu
    with jobs() as running:
        if gpu is None:
            training = start(setting, running, "GPT-2", folder, REHEARSED, setting.device)
            training.finish()
        else:
            with PeakMemory(lambda: memory_used(gpu)) as used:
                training = start(setting, running, "GPT-2 124M", folder, GPT2_124M, setting.device)
                training.finish()
    allocated = compare_memory(training.record("summary"), result)
    if gpu is None:
        return
    peak = used.mib()
    if peak is None:
        setting.say("  nvidia-smi does not tell how much memory is used: what is allocated is all there is to show")
        return
    measured = peak * 2.0**20
    result.measures += [Measure.once("used of the GPU at the peak", "GiB", measured / GIB),
                        Measure.once("of it activations, libraries and context", "GiB", (measured - allocated) / GIB)]
    if measured < allocated:
        raise CaseError(f"the GPU's memory in use grew by {measured / GIB:.2f} GiB, less than what was allocated: "
                        "something else has freed some, or the state is not there")
