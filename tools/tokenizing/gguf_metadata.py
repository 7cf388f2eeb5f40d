"""The key-value part of a GGUF file, versions 2 and 3, little-endian (ggml's docs/gguf.md)."""
import struct
from pathlib import Path
from typing import BinaryIO

from mistakes import InputError

SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
STRING, ARRAY = 8, 9


class Reader:
    def __init__(self, file: BinaryIO, path: Path, size: int):
        self.file, self.path, self.left = file, path, size

    def take(self, count: int) -> bytes:
        """Sizes in the file are believed only as far as the file reaches."""
        place = self.file.tell()
        if count > self.left:
            raise InputError(f"{self.path}, byte {place}: {count} more bytes are announced, {self.left} are left")
        self.left -= count
        return self.file.read(count)

    def number(self, code: str):
        return struct.unpack("<" + code, self.take(struct.calcsize("<" + code)))[0]

    def string(self) -> bytes:
        return self.take(self.number("Q"))

    def value(self, kind: int):
        if kind in SCALARS:
            return self.number(SCALARS[kind])
        if kind == STRING:
            return self.string().decode(errors="replace")
        if kind == ARRAY:
            return self.array()
        raise InputError(f"{self.path}, byte {self.file.tell()}: value of unknown type {kind}")

    def array(self) -> list:
        kind, count = self.number("I"), self.number("Q")
        if count > self.left:  # every element has a byte at least
            raise InputError(f"{self.path}, byte {self.file.tell()}: an array of {count} values, "
                             f"{self.left} bytes are left")
        if kind in SCALARS:
            size = struct.calcsize("<" + SCALARS[kind])
            return list(struct.unpack(f"<{count}{SCALARS[kind]}", self.take(size * count)))
        return [self.value(kind) for _ in range(count)]


def parse_metadata(file: BinaryIO, path: Path, size: int) -> dict:
    reader = Reader(file, path, size)
    magic, version = reader.take(4), reader.number("I")
    if magic != b"GGUF" or version not in (2, 3):
        raise InputError(f"{path}: no GGUF file of version 2 or 3 (begins with {magic!r}, {version})")
    reader.number("Q")  # tensors
    pairs = {}
    for _ in range(reader.number("Q")):
        key = reader.string().decode(errors="replace")
        pairs[key] = reader.value(reader.number("I"))
    return pairs


def read_metadata(path: Path) -> dict:
    with open(path, "rb") as file:
        return parse_metadata(file, path, path.stat().st_size)
