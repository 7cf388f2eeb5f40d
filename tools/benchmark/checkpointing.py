"""Checkpoints: saves in turns with torch.distributed.checkpoint and plain writes, and restarts from them."""
import random
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean
from typing import Callable

from cases import GPT2_WIDE, Contestant, ours
from contestants import Inputs, Run, Tools, deck_of, settings_of, start_ours, start_peer
from paired import paired, spread
from processes import jobs
from results import CaseResult, Measure
from startup import seconds_to_first_step
from training import SEED, make_inputs
from turns import Log, Turn, take_turns, wait_for_records

STEPS_BETWEEN = 8       # asynchronous saves, so that one has ended before the next begins
ENDLESS = 1_000_000
LIMIT = 600.0
MINE = ours(micro_batch=2)
PEER = Contestant("DCP", "fsdp2", micro_batch=2)
SAVE, ASYNC, DCP, DCP_ASYNC, PLAIN = "FullShard", "FullShard async", "DCP", "DCP async", "plain writes"


def start_saver(name: str, tools: Tools, inputs: Inputs, folder: Path) -> Run:
    folder.mkdir(parents=True)
    if name in (SAVE, ASYNC):
        one = replace(MINE, name=name)
        keys = deck_of(one, GPT2_WIDE, inputs, folder, ENDLESS)
        keys |= {"checkpoint.keep_last": 1, "checkpoint.every": 1 if name == SAVE else STEPS_BETWEEN,
                 "checkpoint.async": "on" if name == ASYNC else "off", "checkpoint.on_error": "abort"}
        return start_ours(tools, one, keys, folder)
    one = replace(PEER, name=name)
    way = {DCP: "dcp", DCP_ASYNC: "dcp_async", PLAIN: "plain"}[name]
    settings = settings_of(one, GPT2_WIDE, inputs, folder, ENDLESS) | {"way": way, "pause": STEPS_BETWEEN}
    return start_peer(tools, one, settings, folder, "checkpoint.py")


def saves_of(run: Run, turn: Turn, key: str) -> float:
    """The mean over the turn's saves, without the one that the turn's begin may have interrupted."""
    inside = [record for record in run.files[0].of_kind("checkpoint") if turn.begin <= record["time"] <= turn.end]
    return mean(record[key] for record in inside[1:])


def measure_saves(tools: Tools, inputs: Inputs, folder: Path, rounds: int, log: Log, result: CaseResult) -> None:
    names = (SAVE, ASYNC, DCP, DCP_ASYNC, PLAIN)
    with jobs() as started:
        runs = []
        for number, name in enumerate(names):
            log(f"  {name}: starting")
            run = start_saver(name, tools, inputs, folder / f"save-{number}")
            started.append(run.job)
            runs.append(run)
            wait_for_records(run, "checkpoint", 2)
            run.job.hold()
        log(f"  {rounds} rounds of turns")
        turns = take_turns(runs, "checkpoint", 1, rounds, random.Random(SEED))
        seconds = {name: [saves_of(run, turn, "seconds") for turn in turns[i]]
                   for i, (name, run) in enumerate(zip(names, runs))}
        stalls = {name: [saves_of(run, turn, "stall_s") for turn in turns[i]]
                  for i, (name, run) in enumerate(zip(names, runs))}
    result.raw |= {"seconds": seconds, "stall_s": stalls}
    result.measures += [Measure.of(f"{name}: save", "s", spread(values)) for name, values in seconds.items()]
    result.measures += [
        Measure.of("FullShard / DCP: save", "x", paired(seconds[DCP], seconds[SAVE])),
        Measure.of("FullShard / plain writes: save", "x", paired(seconds[PLAIN], seconds[SAVE])),
        Measure.of("FullShard: stall of an asynchronous save", "%",
                   paired(stalls[ASYNC], seconds[SAVE], lambda stall, whole: 100 * stall / whole)),
        Measure.of("DCP: stall of an asynchronous save", "%",
                   paired(stalls[DCP_ASYNC], seconds[DCP], lambda stall, whole: 100 * stall / whole))]


def remove_runs(folder: Path) -> None:
    for path in folder.glob("save-*"):
        shutil.rmtree(path)


@dataclass(frozen=True)
class Saved:
    """Checkpoints of the same training on two ranks."""
    ours: Path
    peer: Path


def save_once(tools: Tools, inputs: Inputs, folder: Path) -> Saved:
    mine, peer = folder / "ours", folder / "peer"
    for place in (mine, peer):
        place.mkdir(parents=True)
    with jobs() as started:
        keys = deck_of(MINE, GPT2_WIDE, inputs, mine, 1) | {"checkpoint.every": 1}
        started.append(start_ours(tools, MINE, keys, mine).job)
        started[-1].wait(LIMIT)
        settings = settings_of(PEER, GPT2_WIDE, inputs, peer, 1) | {"way": "dcp_once"}
        started.append(start_peer(tools, PEER, settings, peer, "checkpoint.py").job)
        started[-1].wait(LIMIT)
    return Saved(mine / "run/checkpoints/step-00000001", peer / "saved")


def measure_restarts(tools: Tools, inputs: Inputs, saved: Saved, ranks: int, folder: Path, rounds: int, log: Log,
                     result: CaseResult) -> None:
    """Of a start with and without a checkpoint; the difference is what loading costs."""
    batch = MINE.sequences() // ranks
    mine, peer = (replace(one, ranks=ranks, micro_batch=batch) for one in (MINE, PEER))

    def time_ours(place: Path, resume: bool) -> float:
        # The checkpoint is that of step 1: the resumed run does step 2.
        keys = deck_of(mine, GPT2_WIDE, inputs, place, 2 if resume else 1)
        if resume:
            keys["checkpoint.resume"] = saved.ours
        return seconds_to_first_step(start_ours(tools, mine, keys, place))

    def time_peer(place: Path, resume: bool) -> float:
        settings = settings_of(peer, GPT2_WIDE, inputs, place, 1)
        if resume:
            settings["load"] = str(saved.peer)
        return seconds_to_first_step(start_peer(tools, peer, settings, place))

    starts: dict[str, Callable[[Path], float]] = {
        "FullShard": lambda place: time_ours(place, True), "FullShard fresh": lambda place: time_ours(place, False),
        "DCP": lambda place: time_peer(place, True), "DCP fresh": lambda place: time_peer(place, False)}
    seconds: dict[str, list[float]] = {name: [] for name in starts}
    chance = random.Random(SEED)
    for number in range(rounds):
        log(f"  restarts on {ranks} ranks: round {number + 1} of {rounds}")
        for name in chance.sample(list(starts), len(starts)):
            place = folder / "restart"
            place.mkdir(parents=True)
            seconds[name].append(starts[name](place))
            shutil.rmtree(place)
    result.raw[f"restarts_on_{ranks}"] = seconds
    label = f"2 to {ranks} ranks"
    for name in ("FullShard", "DCP"):
        loading = paired(seconds[name], seconds[f"{name} fresh"], lambda resumed, fresh: resumed - fresh)
        result.measures += [Measure.of(f"{name}: restart, {label}", "s", spread(seconds[name])),
                            Measure.of(f"{name}: restart - fresh start, {label}", "s", loading)]
    result.measures.append(Measure.of(f"DCP / FullShard: restart, {label}", "x",
                                      paired(seconds["DCP"], seconds["FullShard"])))


def run_checkpoint(tools: Tools, result: CaseResult, folder: Path, rounds: int, log: Log) -> None:
    inputs = make_inputs(tools, GPT2_WIDE, folder)
    measure_saves(tools, inputs, folder, rounds, log, result)
    remove_runs(folder)
    saved = save_once(tools, inputs, folder / "saved")
    for ranks in (2, 4):
        measure_restarts(tools, inputs, saved, ranks, folder, max(2, rounds // 3), log, result)
    shutil.rmtree(folder / "saved")
