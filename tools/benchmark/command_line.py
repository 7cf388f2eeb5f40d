"""The command tools/bench."""
import argparse
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Sequence

import building
import machine
import python_environment
import readme
import results
import table
from contestants import Tools
from mistakes import CaseError, UsageError
from processes import end_on_signals
from registry import CASES, Case, choose, rounds_of
from results import CaseResult, Results

ROOT = Path(__file__).parents[2]


def parse(words: Sequence[str]) -> argparse.Namespace:
    """Options are never abbreviated."""
    parser = argparse.ArgumentParser(prog="tools/bench", add_help=False, allow_abbrev=False)
    parser.add_argument("cases", nargs="*")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--out", type=Path, default=ROOT / "runs/bench")
    parser.add_argument("--python", type=Path)
    parser.add_argument("--build", type=Path)
    for name in ("readme", "list", "help"):
        parser.add_argument(f"--{name}", action="store_true")
    return parser.parse_args(words)


def say(message: str) -> None:
    print(f"bench: {message}", file=sys.stderr, flush=True)


def run_case(tools: Tools, case: Case, folder: Path, rounds: int) -> CaseResult:
    say(f"{case.name}: {case.title}")
    begin = time.monotonic()
    if folder.exists():
        shutil.rmtree(folder)  # of an earlier call
    result = CaseResult(case.name, case.title)
    try:
        case.run(tools, result, folder, rounds, say)
    except CaseError as error:
        say(f"{case.name}: error: {error}")
        result = CaseResult(case.name, case.title, raw=result.raw, error=str(error))
    result.raw["seconds_taken"] = time.monotonic() - begin
    return result


def run_all(tools: Tools, cases: Sequence[Case], quick: bool, out: Path, found: Results) -> None:
    for case in cases:
        failed = [name for name in case.needs if (other := found.case(name)) is None or other.error]
        if failed:
            found.cases.append(CaseResult(case.name, case.title, error=f"{failed[0]}, which checks it, failed"))
        else:
            found.cases.append(run_case(tools, case, out / "cases" / case.name, rounds_of(case, quick)))
        results.save(found, out / "results.json")  # what is done stays, whatever comes


def measure(options: argparse.Namespace) -> int:
    chosen = choose(options.cases, options.quick)
    python = options.python or python_environment.make(ROOT / "tools/lib/libtorch-requirements.txt", say)
    build = options.build or building.make(ROOT, say)
    tools = Tools(build.resolve(), python.absolute())
    if not tools.fullshard.exists():
        raise UsageError(f"{tools.fullshard} does not exist; give --build the folder of a build, or leave it out to "
                         "have one made")
    out = options.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    # Without the paths of this machine.
    repeatable = [*options.cases, *(["--quick"] if options.quick else [])]
    found = Results(machine.about(["tools/bench", *repeatable], tools), [])
    run_all(tools, chosen, options.quick, out, found)
    print(table.text(found))
    if python_environment.has(tools.python, "matplotlib"):
        script = Path(__file__).parent / "peer/plot.py"
        subprocess.run([tools.python, script, out / "results.json", out / "plot.png"], check=True)
    else:
        say(f"no plot: {tools.python} has no matplotlib")
    say(f"everything is in {out}")
    return 1 if any(case.error for case in found.cases) else 0


def main(words: Sequence[str], usage: str) -> int:
    options = parse(words)
    end_on_signals()
    try:
        if options.help:
            print(usage.strip())
        elif options.list:
            for case in CASES:
                print(f"{case.name:20}{case.title}{'' if case.by_default else ' (by name only)'}")
        elif options.readme:
            readme.rewrite(ROOT / "README.md", table.markdown(results.load(options.out / "results.json")))
        else:
            return measure(options)
    except UsageError as error:
        say(f"error: {error}")
        return 2
    except KeyboardInterrupt:
        return 130
    return 0
