"""What results depend on besides the code: hardware, commit, versions."""
import os
import platform
import shlex
import subprocess
import time
from pathlib import Path
from typing import Any, Sequence

from contestants import Tools
from mistakes import UsageError
from processes import environment


def output(words: Sequence[object]) -> str:
    try:
        done = subprocess.run([str(word) for word in words], capture_output=True, text=True, check=True,
                              env=environment(1))
    except (OSError, subprocess.CalledProcessError) as error:
        raise UsageError(f"{words[0]} does not run: {error}") from None
    return done.stdout.strip()


def cpu_field(label: str) -> str:
    """Of the first CPU; empty where the kernel does not tell."""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith(label):
            return line.partition(":")[2].strip()
    return ""


def has_bf16_instructions() -> bool:
    flags = set((cpu_field("flags") or cpu_field("Features")).split())
    return bool(flags & {"avx512_bf16", "amx_bf16", "bf16"})  # of x86-64, and of AArch64


def memory_gib() -> float:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30


def about(command: Sequence[str], tools: Tools) -> dict[str, Any]:
    torch = output([tools.python, "-c", "import torch; print(torch.__version__)"])
    program = output([tools.fullshard, "--version"]).splitlines()
    return {"command": shlex.join(command), **hardware(), "program": program,
            "versions": [program[0], f"PyTorch {torch}", output(["mpirun", "--version"]).splitlines()[0]]}


def hardware() -> dict[str, Any]:
    """And when, and what commit."""
    return {"date": time.strftime("%Y-%m-%d"), "commit": commit(),
            "cpu": cpu_field("model name") or platform.machine(), "bf16_instructions": has_bf16_instructions(),
            "cores": len(os.sched_getaffinity(0)), "memory_gib": memory_gib(), "system": platform.release()}


def commit() -> str:
    """Of the source tree; the program's own, which may be older, is in its version."""
    tree = Path(__file__).parent
    try:
        name = output(["git", "-C", tree, "rev-parse", "--short=12", "HEAD"])
    except UsageError:
        return "unknown (no git repository)"
    return name + ("-dirty" if output(["git", "-C", tree, "status", "--porcelain", "-uno"]) else "")
