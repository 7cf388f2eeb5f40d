"""Runs the micro-benchmarks of tools/micro, each beside its physical limit.

Each prints, with --json, one object a line: "program", "name", "value", "lower", "upper", "unit", "rounds", and where
it is held against a limit "limit_name", "ratio", "ratio_lower", "ratio_upper" (above 1: better than the limit), "goal".
"""
import json
import subprocess
from pathlib import Path
from typing import Any, Sequence

from building import micro_targets
from contestants import Tools
from machine import output
from mistakes import CaseError
from processes import environment, mpirun
from results import CaseResult, Measure
from turns import Log

LIMIT = 600.0
RANKS = 2
PROGRAMS = "fullshard-micro-"
# Copies between processes go through the kernel once, not through shared memory twice: what MPI can do at its best.
SINGLE_COPY = {"OMPI_MCA_btl_vader_single_copy_mechanism": "cma"}
ADAMW = Path(__file__).parents[1] / "micro/adamw.py"  # beside PyTorch, so it is a program of Python


def parse(output: str) -> list[dict[str, Any]]:
    """Lines that are objects; MPI may print others."""
    return [json.loads(line) for line in output.splitlines() if line.startswith("{")]


def measures_of(entries: Sequence[dict[str, Any]]) -> list[Measure]:
    found = []
    for entry in entries:
        name, rounds = f"{entry['program']}: {entry['name']}", entry["rounds"]
        low, high = sorted((entry["lower"], entry["upper"]))
        found.append(Measure(name, entry["value"], entry["unit"], low, high, rounds))
        if "ratio" in entry:
            found.append(Measure(f"{name} / {entry['limit_name']}", entry["ratio"], "x", entry["ratio_lower"],
                                 entry["ratio_upper"], rounds, entry.get("goal")))
    return found


def programs_of(build: Path, listing: str) -> list[Path]:
    """Those of the build's targets: a program that is no longer one of them may still lie there."""
    found = [build / "bin" / name for name in micro_targets(listing) if name.startswith(PROGRAMS)]
    missing = [path.name for path in found if not path.exists()]
    if missing or not found:
        raise CaseError(f"{build} lacks {', '.join(missing) or 'micro-benchmarks'}; without --build they are built")
    return found


def commands(tools: Tools) -> dict[str, list[str]]:
    programs = programs_of(tools.build, output(["cmake", "--build", tools.build, "--target", "help"]))
    libraries = sorted(tools.build.rglob("libfullshard_micro_c_kernels.so"))
    if not libraries:
        raise CaseError(f"{tools.build} lacks the kernels for {ADAMW.name}; without --build they are built")
    found = {program.name: mpirun(RANKS, [program, "--json"]) for program in programs}
    return found | {ADAMW.name: [str(tools.python), str(ADAMW), str(libraries[0]), "--json"]}


def run_micro(tools: Tools, result: CaseResult, folder: Path, rounds: int, log: Log) -> None:
    folder.mkdir(parents=True)
    for name, words in commands(tools).items():
        log(f"  {name}")
        with open(folder / f"{name}.err", "w+") as errors:
            done = subprocess.run(words, cwd=folder, env=environment(1) | SINGLE_COPY, stdout=subprocess.PIPE,
                                  stderr=errors, text=True, timeout=LIMIT)
            errors.seek(0)
            if done.returncode != 0:
                raise CaseError(f"{name} failed with status {done.returncode}: {errors.read().strip()[-2000:]}")
        entries = parse(done.stdout)
        result.raw[name] = entries
        result.measures += measures_of(entries)
