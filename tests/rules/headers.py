"""Every torch-free header compiles on its own.

    headers.py ROOT COMPILER [OPTION ...]

The build proves it for a header that its own .cpp includes first, so that order is checked there and
only the other headers are compiled. Headers that see LibTorch take a minute each and are left out.
"""
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from rules import Tree


def compile_error(command: list[str], header: str) -> str:
    """The compiler's complaint about a file that includes nothing but the header, or nothing."""
    source = f'#include "{header}"\n'
    done = subprocess.run([*command, "-fsyntax-only", "-x", "c++", "-"], input=source, text=True,
                          capture_output=True)
    return "" if done.returncode == 0 else f"src/{header} does not compile on its own:\n{done.stderr}"


def check(root: Path, command: list[str]) -> list[str]:
    tree = Tree(root)
    torch = tree.sees_torch()
    complaints, headers = [], []
    for path in tree.src():
        if not path.endswith(".h") or f"src/{path}" in torch:
            continue
        own_source = f"src/{path.removesuffix('.h')}.cpp"
        if own_source not in tree.text:
            headers.append(path)
        elif [i.target for i in tree.includes[own_source]][:1] != [path]:
            complaints.append(f'{own_source}:1: the first include must be its own header, "{path}"')
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        complaints += filter(None, pool.map(lambda header: compile_error(command, header), headers))
    print(f"{len(headers)} headers without a source file of their own compiled")
    return complaints


if __name__ == "__main__":
    found = check(Path(sys.argv[1]), sys.argv[2:])
    print("\n".join(found))
    sys.exit(bool(found))
