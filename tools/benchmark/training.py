"""Training cases: speeds in turns, and memory, phases and traffic of contestants that run alone."""
import json
import random
import subprocess
from dataclasses import asdict
from pathlib import Path
from statistics import mean

import losses
import usage
from cases import OURS, Contestant, Model, TrainingCase
from contestants import Inputs, Run, Tools, start
from mistakes import CaseError
from paired import paired, spread
from processes import jobs
from records import losses_by_step, whole_steps
from results import CaseResult, Measure
from turns import Log, Turn, take_turns, wait_for_records

TOKENS = 4_000_000  # no contestant reads to the end
SEED = 7
STEPS_ALONE = 12
STEADY_FROM = 4  # the first steps allocate
LIMIT_ALONE = 600.0
NEGLIGIBLE = 1e-4  # seconds of a phase that no table needs


def make_inputs(tools: Tools, model: Model, folder: Path, device: str = "cpu") -> Inputs:
    """`device` draws the weights."""
    folder.mkdir(parents=True)
    inputs = Inputs(folder / "weights", folder / "tokens.bin")
    settings = folder / "inputs.json"
    settings.write_text(json.dumps({"model": model.sizes(), "weights": str(inputs.weights),
                                    "tokens": str(inputs.tokens), "count": TOKENS, "seed": SEED, "device": device}))
    script = Path(__file__).parent / "peer/make_inputs.py"
    if subprocess.run([tools.python, script, settings]).returncode != 0:
        raise CaseError(f"{script.name} failed; its message is above")
    return inputs


def losses_of(run: Run) -> list[float]:
    # FullShard's only file has the loss of all ranks, those of peers have each its own.
    return losses_by_step(run.records(), losses.STEPS)


def check_losses(case: TrainingCase, runs: list[Run], result: CaseResult) -> None:
    """All runs against the first peer, which is independent of this project, where there is one."""
    by_name = {run.contestant.name: losses_of(run) for run in runs}
    result.raw["losses"] = by_name
    if case.checked_by:
        return
    tolerance = losses.TOLERANCE[case.precision_of_losses()]
    # An fp32 run beside bf16 ones is only as near to them as bf16 lets it be.
    coarsest = [run.contestant for run in runs if run.contestant.precision == case.precision_of_losses()]
    reference = next((one for one in coarsest if one.kind != OURS), coarsest[0]).name
    worst = losses.require_agreement(by_name, reference, tolerance)
    result.raw["largest_loss_difference"] = {**asdict(worst), "reference": reference, "tolerance": tolerance}


def speeds_of(run: Run, turns: list[Turn], tokens: int) -> list[float]:
    """Tokens a second in each turn."""
    ends = run.ends_of("step")
    return [tokens / mean(whole_steps(ends, turn.begin, turn.end)) for turn in turns]


def measure_speeds(tools: Tools, case: TrainingCase, inputs: Inputs, folder: Path, rounds: int, log: Log,
                   result: CaseResult) -> None:
    runs: list[Run] = []
    with jobs() as started:
        for number, one in enumerate(case.contestants):
            log(f"  {one.name}: starting")
            run = start(tools, one, case.model, inputs, folder / f"run-{number}")
            started.append(run.job)
            runs.append(run)
            wait_for_records(run, "step", losses.STEPS)  # alone, which warms it up
            run.job.hold()
        check_losses(case, runs, result)
        log(f"  losses agree; {rounds} rounds of turns" if not case.checked_by else f"  {rounds} rounds of turns")
        turns = take_turns(runs, "step", case.steps_of_a_turn, rounds, random.Random(SEED))
    speeds = {run.contestant.name: speeds_of(run, turns[index], run.contestant.sequences() * case.model.sequence)
              for index, run in enumerate(runs)}
    result.raw |= {"contestants": [asdict(one) for one in case.contestants], "model": asdict(case.model),
                   "tokens_per_s": speeds,
                   "turns": {run.contestant.name: [asdict(turn) for turn in turns[i]] for i, run in enumerate(runs)}}
    for name, values in speeds.items():
        result.measures.append(Measure.of(f"{name}: tokens/s", "tokens/s", spread(values)))
    for above, below in case.pairs:
        result.measures.append(Measure.of(f"{above} / {below}", "x", paired(speeds[above], speeds[below])))


def phases_of(run: Run) -> dict[str, float]:
    """Seconds a step, of rank 0 for peers, whose communication is inside forward and backward."""
    records = run.files[0].refresh()
    if run.contestant.kind != OURS:
        steps = [record for record in records if record["kind"] == "step" and record["step"] >= STEADY_FROM]
        return {phase: mean(record[phase] for record in steps) for phase in ("forward", "backward", "optimizer")}
    summary = next(record for record in records if record["kind"] == "summary")
    return {phase: seconds["mean"] / STEPS_ALONE for phase, seconds in summary["phases_s"].items()}


def busy_share(summary: dict) -> float:
    """Share of reduction and optimizer in a step of the rank that waits least: waiting is not work."""
    phases = summary["phases_s"]
    total = sum(phases[name]["mean"] for name in ("data", "unshard", "forward", "backward", "reduce", "optimizer"))
    return (phases["reduce"]["min"] + phases["optimizer"]["min"]) / total


def run_alone(tools: Tools, case: TrainingCase, one: Contestant, inputs: Inputs, folder: Path,
              result: CaseResult) -> int:
    """Measures one contestant and gives its peak memory of the node in bytes."""
    with jobs() as started:
        run = start(tools, one, case.model, inputs, folder, STEPS_ALONE)
        started.append(run.job)
        used = usage.watch(run.job, one.ranks, LIMIT_ALONE)
    ends = run.ends_of("step")
    steady, last = ends[STEADY_FROM - 1], ends[-1]
    steps = sum(steady < end <= last for end in ends)
    raw = {"node_peak_bytes": used.node_peak(), "rank_peak_bytes": used.rank_peak(), "phases_s": phases_of(run),
           "step_s": (last - steady) / steps, "loopback_bytes": used.growth("loopback", steady, last),
           "page_faults": used.growth("faults", steady, last), "steady_steps": steps}
    name = one.name
    if one.kind == OURS:
        summary = next(record for record in run.files[0].refresh() if record["kind"] == "summary")
        raw["summary"] = summary
        result.measures.append(Measure.once(f"{name}: reduction and optimizer", "%", 100 * busy_share(summary)))
    result.measures += [Measure.once(f"{name}: {phase}", "s a step", seconds)
                        for phase, seconds in raw["phases_s"].items() if seconds > NEGLIGIBLE]
    if raw["page_faults"] is not None:
        per_step = raw["page_faults"] / steps / one.ranks
        result.measures.append(Measure.once(f"{name}: page faults a step and rank", "faults", per_step))
    if raw["loopback_bytes"] is not None:
        result.measures.append(Measure.once(f"{name}: sent over loopback a step", "MB",
                                            raw["loopback_bytes"] / steps / 1e6))
    result.measures += [Measure.once(f"{name}: peak memory of the node", "MiB", used.node_peak() / 2**20),
                        Measure.once(f"{name}: peak memory of a rank", "MiB", used.rank_peak() / 2**20)]
    result.raw.setdefault("alone", {})[name] = raw
    return used.node_peak()


def measure_alone(tools: Tools, case: TrainingCase, inputs: Inputs, folder: Path, log: Log,
                  result: CaseResult) -> None:
    peaks = {}
    for number, one in enumerate(one for one in case.contestants if one.name in case.alone):
        log(f"  {one.name}: alone")
        peaks[one.name] = run_alone(tools, case, one, inputs, folder / f"alone-{number}", result)
    for above, below in case.pairs:
        if above in peaks and below in peaks:
            result.measures.append(Measure.once(f"{above} / {below}: memory", "x", peaks[above] / peaks[below]))


def run_training(tools: Tools, case: TrainingCase, result: CaseResult, folder: Path, rounds: int,
                 log: Log) -> None:
    inputs = make_inputs(tools, case.model, folder)
    measure_speeds(tools, case, inputs, folder, rounds, log, result)
    measure_alone(tools, case, inputs, folder, log, result)
