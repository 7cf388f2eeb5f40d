"""Start-up: from the start of mpirun to the end of the first step, everything in the page cache."""
import random
import shutil
from pathlib import Path

from cases import SMOKE, Contestant, ours
from contestants import Run, Tools, deck_of, settings_of, start_ours, start_peer
from paired import paired, spread
from processes import Job, environment, jobs, mpirun
from results import CaseResult, Measure
from training import make_inputs
from turns import Log

RANKS = 2
LIMIT = 300.0
SEED = 7
OURS, LIBRARY, PEER = "FullShard", "loading LibTorch", "FSDP2"


def seconds_to_first_step(run: Run) -> float:
    with jobs() as started:
        started.append(run.job)
        run.job.wait(LIMIT)
    return run.ends_of("step")[0] - run.job.started


def time_library(tools: Tools, folder: Path) -> float:
    """A start of the same program on as many ranks that does nothing: MPI and the dynamic linker's work."""
    job = Job(LIBRARY, mpirun(RANKS, [tools.fullshard, "--version"]), environment(1), folder / "output.log")
    with jobs() as started:
        started.append(job)
        return job.wait(LIMIT)


def run_startup(tools: Tools, result: CaseResult, folder: Path, rounds: int, log: Log) -> None:
    """Inputs of the smoke deck's sizes, so that no time goes into computing."""
    inputs = make_inputs(tools, SMOKE, folder)
    mine, peer = ours(OURS), Contestant(PEER, "fsdp2")

    def time_ours(place: Path) -> float:
        return seconds_to_first_step(start_ours(tools, mine, deck_of(mine, SMOKE, inputs, place, 1), place))

    def time_peer(place: Path) -> float:
        return seconds_to_first_step(start_peer(tools, peer, settings_of(peer, SMOKE, inputs, place, 1), place))

    timers = {OURS: time_ours, LIBRARY: lambda place: time_library(tools, place), PEER: time_peer}
    seconds: dict[str, list[float]] = {name: [] for name in timers}
    chance = random.Random(SEED)
    for number in range(rounds + 1):
        log(f"  round {number} of {rounds}" + (", which only warms up" if number == 0 else ""))
        for name in chance.sample(list(timers), len(timers)):
            place = folder / "start"
            place.mkdir(parents=True)
            taken = timers[name](place)
            shutil.rmtree(place)
            if number > 0:
                seconds[name].append(taken)
    result.raw["seconds"] = seconds
    result.measures += [Measure.of(f"{name}: start-up", "s", spread(values)) for name, values in seconds.items()]
    result.measures += [
        Measure.of("FullShard - loading LibTorch", "s", paired(seconds[OURS], seconds[LIBRARY], lambda a, b: a - b)),
        Measure.of("FSDP2 / FullShard: start-up", "x", paired(seconds[PEER], seconds[OURS]))]
