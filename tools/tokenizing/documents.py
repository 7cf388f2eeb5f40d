"""Documents of text files, folders and JSONL files."""
import fnmatch
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Iterable, Iterator

from mistakes import InputError, UsageError


@dataclass(frozen=True)
class Document:
    text: str
    prompt: str = ""  # comes before the text and is not learned


def files_of(path: Path, patterns: list[str]) -> list[Path]:
    """A file itself; of a folder all files whose names match, in the order of their paths."""
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise UsageError(f"{path}: there is no such file or folder")
    found = sorted(entry for entry in path.rglob("*")
                   if entry.is_file() and any(fnmatch.fnmatchcase(entry.name, p) for p in patterns))
    if not found:
        raise UsageError(f"{path}: no file in this folder matches {' or '.join(patterns)}")
    return found


def text_of(data: bytes, place: str) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise InputError(f"{place}: byte {error.start} is not UTF-8; convert the text, "
                         "or leave the file out with --include") from None


def document_of_line(line: str, place: str) -> Document:
    try:
        value = json.loads(line)
    except json.JSONDecodeError as error:
        raise InputError(f"{place}, character {error.pos + 1}: no JSON ({error.msg})") from None
    names = ("prompt", "answer") if isinstance(value, dict) and "answer" in value else ("text",)
    if not isinstance(value, dict) or not all(isinstance(value.get(name), str) for name in names):
        raise InputError(f'{place}: needs {{"text": "..."}} or {{"prompt": "...", "answer": "..."}}')
    return Document(value[names[-1]], value["prompt"] if len(names) == 2 else "")


def documents_of_lines(file: Path) -> Iterator[Document]:
    with open(file, "rb") as lines:
        for number, line in enumerate(lines, start=1):
            place = f"{file}, line {number}"
            if line.strip():
                yield document_of_line(text_of(line, place), place)


def read_documents(paths: Iterable[Path], patterns: list[str]) -> Iterator[Document]:
    """Empty files are no documents."""
    for path in paths:
        for file in files_of(path, patterns):
            if file.suffix == ".jsonl":
                yield from documents_of_lines(file)
            elif text := text_of(file.read_bytes(), str(file)):
                yield Document(text)
