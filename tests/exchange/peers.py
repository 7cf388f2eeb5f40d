"""What the comparisons share: packages, the project's programs, logits.

CMakeLists.txt sets the environment, as that of tests/app/end_to_end.py.
"""
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "app"))  # end_to_end

SKIPPED = 77  # as CTest counts it
TOOLS = Path(os.environ["FULLSHARD_TOOLS"])
GOLDEN = Path(os.environ["FULLSHARD_GOLDEN"])


def require(*packages: str):
    """Ends the program, as skipped, when a package is missing."""
    missing = [name for name in packages if importlib.util.find_spec(name) is None]
    if missing:
        print(f"skipped: {sys.executable} has no {', '.join(missing)}; tests/exchange/README.md tells how to get them")
        sys.exit(SKIPPED)


def skip(reason: str):
    print(f"skipped: {reason}")
    sys.exit(SKIPPED)


def tokenize(folder: Path, *words, text: str = "", status: int = 0) -> str:
    """Runs tools/tokenize.py and gives what it prints, without the line's end."""
    done = subprocess.run([sys.executable, TOOLS / "tokenize.py", *map(str, words)], cwd=folder, input=text,
                          capture_output=True, text=True)
    if done.returncode != status:
        raise AssertionError(f"tokenize.py {words}: status {done.returncode}\n{done.stderr}")
    return done.stdout.removesuffix("\n") if status == 0 else done.stderr


def table_of(folder: Path) -> list[bytes]:
    """The tokens' bytes in a tokenizer.bin."""
    data, tokens = (folder / "tokenizer.bin").read_bytes(), []
    at = 1024
    while at < len(data):
        tokens.append(data[at + 1:at + 1 + data[at]])
        at += 1 + data[at]
    return tokens
