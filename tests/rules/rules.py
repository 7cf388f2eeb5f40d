"""The rules of the source tree that a compiler does not check.

    rules.py ROOT      prints every violation as file:line: message; exit status 1 when there is one
"""
import re
import sys
from pathlib import Path
from typing import Iterator, NamedTuple

# Which modules a module may include besides itself. The order is bottom to top. A module is a folder of
# src/, or a folder below where one has parts with rules of their own; tools are named with their path.
LIBRARY = ["base", "device", "config", "spec", "kernels", "comm", "shard", "model", "optim", "data",
           "checkpoint/format", "checkpoint/exchange", "checkpoint/export", "checkpoint/parallel"]
MAY_INCLUDE = {
    "base": [],
    "device": ["base"],
    "config": ["base"],
    "spec": ["base"],
    "kernels": ["base", "device"],
    "comm": ["base", "device", "kernels"],
    "shard": ["base", "device", "spec", "kernels", "comm"],
    "model": ["base", "device", "spec", "kernels"],
    "optim": ["base", "device", "kernels"],
    "data": ["base"],
    "checkpoint/format": ["base", "spec", "kernels"],
    "checkpoint/exchange": ["base", "spec", "checkpoint/format"],
    "checkpoint/export": ["base", "spec", "kernels", "checkpoint/format", "checkpoint/exchange"],
    "checkpoint/parallel": ["base", "comm", "checkpoint/format"],
    "doctor": ["base", "config", "kernels", "comm", "checkpoint/format", "checkpoint/parallel"],
    "train": LIBRARY,
    "app": [*LIBRARY, "doctor", "train"],
    "tools/ckpt": ["base", "spec", "checkpoint/format", "checkpoint/exchange", "checkpoint/export"],
    "tools/micro": ["base", "spec", "kernels", "comm", "shard", "data", "checkpoint/format", "checkpoint/parallel"],
}

# Headers of other projects that only some places may include; a place is a prefix of a path in src/.
TORCH = r"(torch|ATen|c10|caffe2)/"
RESTRICTED = {
    r"(mpi|mpi-ext)\.h$": ["comm/", "tools/micro/mpi_calls."],
    r"nccl\.h$": ["comm/nccl/"],
    r"(cuda\w*|cub|cooperative_groups|nvrtc|nvtx3)(\.h|/)": ["device/cuda/", "kernels/cuda/", "comm/nccl/"],
    r"(hdf5|H5\w+)\.h$": ["checkpoint/", "data/hdf5_source.", "tools/micro/token_file."],
    TORCH: ["model/", "train/"],
}
KNOW_SLURM = ["train/", "app/"]

# A file that includes LibTorch compiles for a minute on a slow core: that is what the limit is for.
MOST_TORCH_SOURCES = 24
MOST_LINES = 450

MACHINE_PATH = re.compile(r"(?<![\w.])/(root|work|tmp|home/\w+)\b")
INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]')
HEADERS = (".h", ".cuh")
SOURCES = (".cpp", ".cu")
CODE = (*HEADERS, *SOURCES, ".cpp.in")


class Include(NamedTuple):
    line: int
    target: str


class Tree:
    """The C++ files of src/, tools/ and tests/ by their path in ROOT, with their includes."""

    def __init__(self, root: Path):
        self.root = root
        files = [p for top in ("src", "tools", "tests") for p in sorted((root / top).rglob("*"))]
        self.text = {p.relative_to(root).as_posix(): p.read_text() for p in files if p.name.endswith(CODE)}
        self.includes = {path: [Include(number, match[1]) for number, line in numbered(text)
                                if (match := INCLUDE.match(line))] for path, text in self.text.items()}

    def src(self) -> Iterator[str]:
        """Paths inside src/, without the src/."""
        return (path.removeprefix("src/") for path in self.text if path.startswith("src/"))

    def product(self) -> Iterator[str]:
        """Paths of what is built and is no test."""
        return (path for path in self.text if path.startswith(("src/", "tools/")))

    def resolve(self, target: str) -> str | None:
        """The project's file an #include names, all as CMake's include paths have it."""
        candidates = (f"{top}/{target}" for top in ("src", "tools", "tests"))
        return next((p for p in candidates if p in self.text), None)

    def sees_torch(self) -> set[str]:
        """Files that include LibTorch themselves or through headers of the project."""
        seen = {path for path, found in self.includes.items()
                if any(re.match(TORCH, i.target) for i in found)}
        while more := {path for path, found in self.includes.items()
                       if path not in seen and any(self.resolve(i.target) in seen for i in found)}:
            seen |= more
        return seen


def numbered(text: str) -> Iterator[tuple[int, str]]:
    return enumerate(text.splitlines(), start=1)


def module_of(path: str) -> str:
    """The row of the table that a file belongs to, or the folder that should have one."""
    folders = path.removeprefix("src/").split("/")[:-1]
    part = "/".join(folders[:2])
    return part if part in MAY_INCLUDE else "/".join(folders[:1])


def module_rule(tree: Tree) -> Iterator[str]:
    """Includes of other modules are those of the table, and every module is in the table."""
    for path in tree.product():
        module = module_of(path)
        if module not in MAY_INCLUDE:
            yield f"{path}:1: module '{module}' is not in the table of tests/rules/rules.py"
            continue
        for line, target in tree.includes[path]:
            found = tree.resolve(target)
            other = module_of(found) if found else module
            if other in MAY_INCLUDE and other not in (module, *MAY_INCLUDE[module]):
                yield (f"{path}:{line}: {module} may not include {other} "
                       f"(allowed: {', '.join(MAY_INCLUDE[module]) or 'nothing'})")


def restricted_headers_rule(tree: Tree) -> Iterator[str]:
    """MPI, CUDA, NCCL, HDF5 and LibTorch stay where they belong."""
    for path in tree.product():
        for line, target in tree.includes[path]:
            for pattern, places in RESTRICTED.items():
                if re.match(pattern, target) and not path.removeprefix("src/").startswith(tuple(places)):
                    yield f"{path}:{line}: <{target}> may be included in {', '.join(places)} only"


def cuda_rule(tree: Tree) -> Iterator[str]:
    """nvcc never sees LibTorch."""
    for path in sorted(tree.sees_torch()):
        if path.endswith((".cu", ".cuh")):
            yield f"{path}:1: CUDA code includes LibTorch, directly or through a project header"


def slurm_rule(tree: Tree) -> Iterator[str]:
    """Slurm's variables are read in one place; comments may name it anywhere."""
    for path in tree.src():
        if path.startswith(tuple(KNOW_SLURM)):
            continue
        for number, line in numbered(tree.text[f"src/{path}"]):
            if re.search(r"slurm", line.split("//")[0], re.IGNORECASE):
                yield f"src/{path}:{number}: only {', '.join(KNOW_SLURM)} know Slurm"


def cycle_rule(tree: Tree) -> Iterator[str]:
    """No file includes itself by way of others."""
    done: set[str] = set()

    def visit(path: str, trail: list[str]) -> Iterator[str]:
        if path in trail:
            cycle = [*trail[trail.index(path):], path]
            yield f"{path}:1: include cycle {' -> '.join(cycle)}"
        elif path not in done:
            for include in tree.includes[path]:
                if target := tree.resolve(include.target):
                    yield from visit(target, [*trail, path])
            done.add(path)

    for path in tree.text:
        yield from visit(path, [])


def torch_count_rule(tree: Tree) -> Iterator[str]:
    """Few translation units see LibTorch, those of the tests included."""
    units = sorted(path for path in tree.sees_torch() if path.endswith(SOURCES))
    if len(units) > MOST_TORCH_SOURCES:
        yield (f"src:1: {len(units)} source files see LibTorch, at most {MOST_TORCH_SOURCES} may:\n    "
               + "\n    ".join(units))


def length_rule(tree: Tree) -> Iterator[str]:
    for path, text in tree.text.items():
        if (lines := len(text.splitlines())) > MOST_LINES:
            yield f"{path}:{lines}: {lines} lines, at most {MOST_LINES}: split the file"


def machine_path_rule(tree: Tree) -> Iterator[str]:
    """What users read and copy names no folder of the machine it was written on."""
    for path in [tree.root / "README.md", *sorted((tree.root / "inputs").rglob("*"))]:
        if path.is_file():
            for number, line in numbered(path.read_text()):
                if match := MACHINE_PATH.search(line):
                    yield f"{path.relative_to(tree.root)}:{number}: path of one machine: {match[0]}"


RULES = [module_rule, restricted_headers_rule, cuda_rule, slurm_rule, cycle_rule, torch_count_rule,
         length_rule, machine_path_rule]


def violations(root: Path) -> list[str]:
    tree = Tree(root)
    return [message for rule in RULES for message in rule(tree)]


if __name__ == "__main__":
    root = Path(sys.argv[1])
    found = violations(root)
    print("\n".join(found) or f"{len(Tree(root).text)} files keep the {len(RULES)} rules")
    sys.exit(bool(found))
