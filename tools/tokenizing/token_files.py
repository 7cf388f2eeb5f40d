"""Files that FullShard reads: HDF5, llm.c's token file, llm.c's tokenizer file."""
import os
import struct
import sys
from array import array
from pathlib import Path
from typing import Callable, Optional, Sequence

from corpus import Corpus
from mistakes import InputError, UsageError, package

HEADER_WORDS = 256  # of 32 bits, little-endian
TOKENS_16, TOKENS_32 = (20240520, 1), (20240801, 7)  # magic and version of 16 and 32 bits a token
TABLE_MAGIC, TABLE_VERSION = 20240328, 2
NO_END = 0xFFFFFFFF  # in a table: no token ends a text
MOST_TOKEN_BYTES = 255


def write_whole(path: Path, write: Callable[[Path], object]):
    """The file appears whole or not at all."""
    partial = path.with_name(path.name + ".partial")
    try:
        write(partial)
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)


def header(*words: int) -> bytes:
    return struct.pack(f"<{HEADER_WORDS}I", *words, *[0] * (HEADER_WORDS - len(words)))


def little_endian(ids: Sequence[int], width: int) -> bytes:
    values = array("H" if width == 2 else "I", ids)
    if sys.byteorder == "big":
        values.byteswap()
    return values.tobytes()


def write_llmc(path: Path, corpus: Corpus):
    """Documents follow each other; only their end token tells them apart."""
    if corpus.has_prompts:
        raise UsageError("llm.c's files hold no loss mask, and the inputs have prompts: use --format hdf5")
    if corpus.tokens >= 1 << 31:
        raise UsageError(f"{corpus.tokens} tokens are too many for one file of llm.c, which counts to 2^31: "
                         "prepare the inputs in parts, or use --format hdf5")

    def write(partial: Path):
        with open(partial, "wb") as file:
            magic, version = TOKENS_16 if corpus.width == 2 else TOKENS_32
            file.write(header(magic, version, corpus.tokens))
            for ids, _ in corpus.pieces():
                file.write(little_endian(ids, corpus.width))

    write_whole(path, write)


def write_hdf5(path: Path, corpus: Corpus):
    """Datasets are contiguous, so that the reader can map them."""
    h5py = package("h5py", "writing HDF5")

    def write(partial: Path):
        with h5py.File(partial, "w") as file:
            tokens = file.create_dataset("tokens", (corpus.tokens,), f"<u{corpus.width}")
            tokens.attrs["vocab_size"] = corpus.vocab_size
            mask = file.create_dataset("loss_mask", (corpus.tokens,), "u1") if corpus.has_prompts else None
            file.create_dataset("documents", data=corpus.documents, dtype="<i8")
            first = 0
            for ids, learned in corpus.pieces():
                tokens[first:first + len(ids)] = ids
                if mask is not None:
                    mask[first:first + len(ids)] = array("B", learned)
                first += len(ids)

    write_whole(path, write)


WRITERS = {"hdf5": write_hdf5, "llmc": write_llmc}


def token_table(tokens: Sequence[bytes], end: Optional[int]) -> bytes:
    """llm.c's tokenizer.bin: each token's length in one byte and its bytes."""
    for number, token in enumerate(tokens):
        if len(token) > MOST_TOKEN_BYTES:
            raise InputError(f"token {number} has {len(token)} bytes; a table of llm.c holds "
                             f"{MOST_TOKEN_BYTES} at most")
    body = b"".join(bytes([len(token)]) + token for token in tokens)
    return header(TABLE_MAGIC, TABLE_VERSION, len(tokens), NO_END if end is None else end) + body
