"""Tokens of many documents, on disk while they are collected: memory does not grow with them."""
import tempfile
from array import array
from typing import Iterator, Optional, Sequence

from mistakes import InputError

PIECE = 1 << 20  # tokens


class Corpus:
    """`learned` tokens are targets; prompts are not."""

    def __init__(self, vocab_size: int):
        self.vocab_size = vocab_size
        self.documents: list[int] = []  # where each begins
        self.tokens = self.learned = 0
        self._ids = tempfile.TemporaryFile()
        self._mask = tempfile.TemporaryFile()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._ids.close()
        self._mask.close()

    @property
    def has_prompts(self) -> bool:
        return self.learned < self.tokens

    @property
    def width(self) -> int:
        """Bytes of a token in a file."""
        return 2 if self.vocab_size <= 1 << 16 else 4

    def append(self, prompt: Sequence[int], text: Sequence[int], end: Optional[int]):
        """A document without text is left out. The end of the text is learned."""
        if not text:
            return
        ids = [*prompt, *text, *([] if end is None else [end])]
        if max(ids) >= self.vocab_size:
            raise InputError(f"the tokenizer gave token {max(ids)}, its vocabulary has {self.vocab_size}")
        self.documents.append(self.tokens)
        self.tokens += len(ids)
        self.learned += len(ids) - len(prompt)
        array("I", ids).tofile(self._ids)
        self._mask.write(b"\0" * len(prompt) + b"\1" * (len(ids) - len(prompt)))

    def pieces(self) -> Iterator[tuple[array, bytes]]:
        """Ids and mask, one after the other in order, at most PIECE tokens each."""
        self._ids.seek(0)
        self._mask.seek(0)
        for first in range(0, self.tokens, PIECE):
            count = min(PIECE, self.tokens - first)
            ids = array("I")
            ids.frombytes(self._ids.read(count * ids.itemsize))
            yield ids, self._mask.read(count)
