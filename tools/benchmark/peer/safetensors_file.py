"""Safetensors files of fp32 tensors, by the standard library and PyTorch alone."""
import json
import struct
from pathlib import Path

import torch


def write(path: Path, tensors: dict[str, torch.Tensor]) -> None:
    header, offset = {}, 0
    for name, tensor in tensors.items():
        size = 4 * tensor.numel()
        header[name] = {"dtype": "F32", "shape": list(tensor.shape), "data_offsets": [offset, offset + size]}
        offset += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for tensor in tensors.values():
            file.write(tensor.detach().float().contiguous().cpu().numpy().tobytes())


def read(path: Path) -> dict[str, torch.Tensor]:
    data = bytearray(path.read_bytes())
    (length,) = struct.unpack_from("<Q", data)
    base, tensors = 8 + length, {}
    for name, entry in json.loads(data[8:base]).items():
        if name == "__metadata__":
            continue
        if entry["dtype"] != "F32":
            raise ValueError(f"{path}: {name} is {entry['dtype']}, only F32 is read")
        begin, end = entry["data_offsets"]
        flat = torch.frombuffer(data, dtype=torch.float32, offset=base + begin, count=(end - begin) // 4)
        tensors[name] = flat.view(entry["shape"])
    return tensors
