"""The command tests/gpu/run."""
import argparse
import contextlib
import os
import shlex
import shutil
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any, Sequence

import hardware
import machine
import python_environment
import report
from checks import CHECKS, choose, run
from mistakes import UsageError
from processes import end_on_signals
from setting import CannotRun, Setting

ROOT = Path(__file__).parents[3]
NO_GPU = 3


def parse(words: Sequence[str]) -> argparse.Namespace:
    """Options are never abbreviated."""
    parser = argparse.ArgumentParser(prog="tests/gpu/run", add_help=False, allow_abbrev=False)
    parser.add_argument("checks", nargs="*")
    parser.add_argument("--build", type=Path, default=ROOT / "build/release")
    parser.add_argument("--python", type=Path)
    parser.add_argument("--out", type=Path, default=ROOT / "runs/gpu")
    for name in ("rehearse", "list", "help"):
        parser.add_argument(f"--{name}", action="store_true")
    return parser.parse_args(words)


def say(message: str) -> None:
    print(f"gpu: {message}", file=sys.stderr, flush=True)


class PythonFinder:
    """Looks once for an interpreter with the peer's packages, and tells the same to whoever asks again."""

    def __init__(self, given: Path | None, compiles_for_gpus: bool):
        self.given, self.compiles_for_gpus = given, compiles_for_gpus
        self.found: Path | None = None
        self.reason = ""

    def __call__(self) -> Path:
        """Throws CannotRun where there is none."""
        if self.found is None and not self.reason:
            self._look()
        if self.found is None:
            raise CannotRun(self.reason)
        return self.found

    def _look(self) -> None:
        if self.given is not None:
            python = self.given.absolute()
            if python_environment.imports(python):
                self.found = python
            else:
                self.reason = f"{python} cannot import torch and numpy"
            return
        try:
            python = python_environment.make(ROOT / "tools/lib/libtorch-requirements.txt", say)
            if self.compiles_for_gpus:
                python_environment.add_compiler(python)
            self.found = python
        except UsageError as error:
            self.reason = str(error)


def make_setting(options: argparse.Namespace, gpu: hardware.Gpu | None) -> Setting:
    build = options.build.resolve()
    setting = Setting(ROOT, build, PythonFinder(options.python, gpu is not None), gpu, say)
    if not setting.program.exists():
        raise UsageError(f"{setting.program} does not exist; build it, or give --build the folder of a build")
    if shutil.which("mpirun") is None:
        raise UsageError("there is no mpirun; install Open MPI, or put it in PATH")
    return setting


def about(options: argparse.Namespace, setting: Setting) -> dict[str, Any]:
    """Without the paths of this machine."""
    words = ["tests/gpu/run", *options.checks, *(["--rehearse"] if options.rehearse else [])]
    gpu = setting.gpu
    device = f"{gpu.name}, {gpu.memory_mib / 1024:.0f} GiB, driver {gpu.driver}" if gpu else \
        "a rehearsal on CPUs: it says nothing of GPUs"
    return {"command": shlex.join(words), **machine.hardware(), "device": device, "gpu": asdict(gpu) if gpu else None,
            "program": machine.output([setting.program, "--version"]).splitlines(),
            "mpi": machine.output(["mpirun", "--version"]).splitlines()[0]}


def prove(options: argparse.Namespace) -> int:
    chosen = choose(options.checks)
    gpu = None
    if not options.rehearse:
        gpu = hardware.find()
        os.environ["CUDA_VISIBLE_DEVICES"] = gpu.uuid  # of all that is started from here
    setting = make_setting(options, gpu)
    out = options.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    found, outcomes = about(options, setting), []
    if any(check.needs_python for check in chosen):
        with contextlib.suppress(CannotRun):
            setting.python()  # what it takes to make one is no check's time
    for check in chosen:
        say(f"{check.name}: {check.proves}")
        folder = out / "checks" / check.name
        if folder.exists():
            shutil.rmtree(folder)  # of an earlier call
        outcomes.append(run(check, setting, folder))
        say(f"{check.name}: {outcomes[-1].state}")
        report.save(found, outcomes, out / "results.json")  # what is done stays, whatever comes
    print(report.table(found, outcomes))
    say(f"everything is in {out}")
    return report.status_of(outcomes)


def main(words: Sequence[str], usage: str) -> int:
    options = parse(words)
    end_on_signals()
    try:
        if options.help:
            print(usage.strip())
        elif options.list:
            print(report.listing(CHECKS))
        else:
            return prove(options)
    except hardware.NoGpu as error:
        say(f"no GPU was found, and nothing was checked: {error}")
        return NO_GPU
    except UsageError as error:
        say(f"error: {error}")
        return 2
    except KeyboardInterrupt:
        return 130
    return 0
