"""A Python with the peer's packages, outside the source tree."""
import hashlib
import os
import subprocess
import sys
import venv
from pathlib import Path
from typing import Callable, Sequence

from mistakes import UsageError

# What torch needs to be imported on a CPU, and what the peers and the plot use.
PACKAGES = ("filelock", "fsspec", "jinja2", "networkx", "sympy", "typing-extensions", "numpy", "matplotlib")

# The wheel is built for CUDA 13, and its libraries are loaded even where no GPU is. These three are not part of the
# CUDA toolkit; the others come from there.
CUDA_PACKAGES = ("nvidia-cufile==1.20.0.107", "nvidia-cusparselt-cu13==0.8.0", "nvidia-nvshmem-cu13==3.4.5")


# With which torch.compile writes code for GPUs: the version that the wheel of PyTorch asks for.
COMPILER_PACKAGE = "triton==3.6.0"


def cache_folder() -> Path:
    return Path(os.environ.get("FULLSHARD_CACHE", Path.home() / ".cache/fullshard"))


def install(python: Path, words: Sequence[str]) -> None:
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input"]
    if subprocess.run([*pip, *words], stdout=sys.stderr).returncode != 0:
        raise UsageError(f"pip could not install {' '.join(words)} (its message is above); give --python an "
                         "interpreter that has torch and numpy")


def imports(python: Path) -> bool:
    """Whether the peers can start: torch finds all libraries it is linked to."""
    done = subprocess.run([str(python), "-c", "import torch.distributed.fsdp, numpy"], capture_output=True)
    return done.returncode == 0


def torch_of(requirements: str) -> str:
    """The requirement of torch itself, without its hash."""
    return next(line.split()[0] for line in requirements.splitlines() if line.startswith("torch=="))


def make(requirements: Path, say: Callable[[str], None]) -> Path:
    """The interpreter of an environment with the wheels of `requirements`; made once for each such list."""
    text = requirements.read_text()
    key = hashlib.sha256(" ".join([text, *PACKAGES, *CUDA_PACKAGES]).encode()).hexdigest()[:12]
    folder = cache_folder() / f"peers-{key}"
    python, complete = folder / "bin/python", folder / "complete"
    if complete.exists():
        return python
    say(f"making a virtual environment in {folder}; PyTorch is a download of 545 MB, its other packages of 300 MB")
    venv.create(folder, clear=True, with_pip=True)
    install(python, PACKAGES)
    install(python, ["--no-deps", *CUDA_PACKAGES])
    install(python, ["--no-deps", "--require-hashes", "-r", str(requirements)])
    if not imports(python):
        say("there is no CUDA 13 toolkit: installing the libraries that the wheel is linked to, more than 2 GB")
        install(python, [torch_of(text)])
        if not imports(python):
            raise UsageError(f"torch cannot be imported by {python}; run it to see why, or give --python another "
                             "interpreter")
    complete.touch()
    return python


def add_compiler(python: Path) -> None:
    """Puts into an environment of make() what torch.compile needs on a GPU."""
    if not has(python, "triton"):
        install(python, ["--no-deps", COMPILER_PACKAGE])


def has(python: Path, package: str) -> bool:
    find = f"import importlib.util, sys; sys.exit(importlib.util.find_spec({package!r}) is None)"
    return subprocess.run([str(python), "-c", find]).returncode == 0
