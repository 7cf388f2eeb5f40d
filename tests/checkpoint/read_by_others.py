"""Consolidated files and checkpoints as h5py, safetensors and PyTorch read them.

    read_by_others.py FULLSHARD_CKPT      tests with each library that can be imported here

The source is a safetensors file made with nothing but the standard library, so every value is known.
Exit status 77, CTest's "skipped", when none of the libraries is there.
"""
import importlib.util
import json
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

LIBRARIES = ["h5py", "safetensors", "torch"]
SKIPPED = 77
SHAPES = {"layers.0.bias": [5], "layers.0.weight": [3, 4], "scale": [], "unit.cube": [2, 3, 4]}


def numel(shape: list[int]) -> int:
    count = 1
    for extent in shape:
        count *= extent
    return count


def values(name: str) -> list[float]:
    """Multiples of 1/4 below 64: exact in bf16 and fp16 too."""
    first = list(SHAPES).index(name)
    return [first + i / 4 for i in range(numel(SHAPES[name]))]


def write_source(path: Path) -> None:
    header, data = {}, b""
    for name, shape in SHAPES.items():
        raw = struct.pack(f"<{numel(shape)}f", *values(name))
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def flat(array) -> list[float]:
    return [float(x) for x in array.reshape(-1)]


def check(what: str, tensors: dict[str, tuple[list[int], list[float]]]) -> None:
    """Names, shapes and values are those of the source."""
    assert sorted(tensors) == sorted(SHAPES), f"{what}: names {sorted(tensors)}"
    for name, (shape, found) in tensors.items():
        assert list(shape) == SHAPES[name], f"{what}: {name} has shape {shape}"
        assert found == values(name), f"{what}: {name} is {found}"


def read_with_h5py(folder: Path, convert) -> None:
    import h5py
    with h5py.File(folder / "runs/step-00000000/state.h5") as file:
        check("state.h5", {k: (v.shape, flat(v[...])) for k, v in file["model"].items()})
    for dtype in ("fp32", "bf16", "fp16"):
        with h5py.File(convert("h5", dtype)) as file:
            check(f"h5 {dtype}", {k: (v.shape, flat(v[...])) for k, v in file.items()})


def read_with_safetensors(_: Path, convert) -> None:
    from safetensors import safe_open
    have_torch = importlib.util.find_spec("torch") is not None
    for dtype in ("fp32", "bf16", "fp16"):
        if dtype == "bf16" and not have_torch:
            continue  # numpy has no bfloat16
        with safe_open(convert("safetensors", dtype), "pt" if have_torch else "np") as file:
            assert file.metadata()["format"] == "pt"
            tensors = {k: file.get_tensor(k) for k in file.keys()}
        check(f"safetensors {dtype}", {k: (v.shape, flat(v)) for k, v in tensors.items()})


def read_with_torch(_: Path, convert) -> None:
    import torch
    for dtype, expected in (("fp32", torch.float32), ("bf16", torch.bfloat16), ("fp16", torch.float16)):
        for mmap in (True, False):
            tensors = torch.load(convert("pt", dtype), weights_only=True, mmap=mmap)
            assert {t.dtype for t in tensors.values()} == {expected}
            check(f"pt {dtype}", {k: (v.shape, flat(v.float())) for k, v in tensors.items()})


def main(tool: str) -> int:
    readers = {"h5py": read_with_h5py, "safetensors": read_with_safetensors, "torch": read_with_torch}
    found = [name for name in LIBRARIES if importlib.util.find_spec(name)]
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        write_source(folder / "source.safetensors")
        subprocess.run([tool, "import", folder / "source.safetensors", "--out", folder / "runs"], check=True)

        def convert(extension: str, dtype: str) -> Path:
            out = folder / f"{dtype}.{extension}"
            if not out.exists():
                subprocess.run([tool, "consolidate", folder / "runs", "--out", out, "--dtype", dtype],
                               check=True, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
            return out

        for name in found:
            readers[name](folder, convert)
            print(f"{name}: read, all values equal")
    missing = [name for name in LIBRARIES if name not in found]
    print(f"{len(found)} of {len(LIBRARIES)} libraries tested"
          + (f"; not installed: {', '.join(missing)}" if missing else ""))
    return 0 if found else SKIPPED


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
