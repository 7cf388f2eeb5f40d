"""A Python with the peer's packages, outside the source tree."""
import hashlib
import os
import subprocess
import sys
import venv
from pathlib import Path
from typing import Callable

from mistakes import UsageError

# What torch needs to be imported on a CPU, and what the peers and the plot use. The wheels of CUDA stay out.
PACKAGES = ("filelock", "fsspec", "jinja2", "networkx", "sympy", "typing-extensions", "numpy", "matplotlib")


def cache_folder() -> Path:
    return Path(os.environ.get("FULLSHARD_CACHE", Path.home() / ".cache/fullshard"))


def make(requirements: Path, say: Callable[[str], None]) -> Path:
    """The interpreter of an environment with the wheels of `requirements`; made once for each such list."""
    key = hashlib.sha256(requirements.read_bytes() + " ".join(PACKAGES).encode()).hexdigest()[:12]
    folder = cache_folder() / f"peers-{key}"
    python, complete = folder / "bin/python", folder / "complete"
    if complete.exists():
        return python
    say(f"making a virtual environment in {folder}; PyTorch is a download of 545 MB")
    venv.create(folder, clear=True, with_pip=True)
    install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input"]
    for words in (["--no-deps", "--require-hashes", "-r", str(requirements)], list(PACKAGES)):
        if subprocess.run(install + words, stdout=sys.stderr).returncode != 0:
            raise UsageError(f"pip could not install {' '.join(words)} (its message is above); give --python an "
                             "interpreter that has torch and numpy")
    complete.touch()
    return python


def has(python: Path, package: str) -> bool:
    find = f"import importlib.util, sys; sys.exit(importlib.util.find_spec({package!r}) is None)"
    return subprocess.run([str(python), "-c", find]).returncode == 0
