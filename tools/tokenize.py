#!/usr/bin/env python3
"""tools/tokenize.py: turns text into token files, and token files' numbers back into text.

    tools/tokenize.py prepare TOKENIZER INPUT... --out FILE [options]
    tools/tokenize.py table TOKENIZER --out FOLDER [--end-token T]
    tools/tokenize.py encode TOKENIZER TEXT [--parse-special]
    tools/tokenize.py decode TOKENIZER IDS

TOKENIZER  tokenizer.json (needs the Python package tokenizers), a *.model of SentencePiece (sentencepiece),
           a *.gguf whose tokenizer is byte-level BPE (tokenizers), or a folder that holds one of them
INPUT      text files, folders (their files, in the order of their paths) and JSONL files (*.jsonl), a JSON
           object a line: {"text": ...}, or {"prompt": ..., "answer": ...} of which the answer is learned.
           Each file and each line is a document.

prepare    writes the documents' tokens to FILE: HDF5 (needs h5py) for data.source = hdf5, with the documents'
           starts and the loss mask, or with --format llmc the file of llm.c for data.source = llmc
table      writes FOLDER for data.tokenizer: tokenizer.bin, by which `fullshard generate` prints text, and the
           tokenizer itself for an export to Hugging Face
encode     prints the numbers of TEXT (-: of standard input) for --generate.prompt_tokens
decode     prints the text of IDS, separated by commas or spaces (-: of standard input)

  --end-token T      token or number that ends each document; default: the tokenizer's own end of text.
                     none: nothing does
  --include GLOB     files of a folder (default *; may be repeated)
  --format F         hdf5 (default) or llmc
  --parse-special    names of special tokens in the text, as <|im_start|>, become those tokens; without it they
                     are text like any other
  --force            replace what is there

Exit status: 0 done, 2 wrong use or a missing package, 3 unreadable input.
"""
import os
import sys

# This file has the name of a module of Python's library, which others import: its folder must not be searched.
sys.path[0] = os.path.join(os.path.dirname(os.path.realpath(__file__)), "tokenizing")

import argparse  # noqa: E402
from pathlib import Path  # noqa: E402

import token_files  # noqa: E402
from corpus import Corpus  # noqa: E402
from documents import read_documents  # noqa: E402
from mistakes import InputError, UsageError  # noqa: E402
from tokenizer_kinds import open_tokenizer  # noqa: E402


def parse(words: list[str]) -> argparse.Namespace:
    """Options are never abbreviated."""
    parser = argparse.ArgumentParser(prog="tools/tokenize.py", add_help=False, allow_abbrev=False,
                                     usage="%(prog)s prepare|table|encode|decode ... (--help)")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND", prog=parser.prog)

    def command(name: str) -> argparse.ArgumentParser:
        added = commands.add_parser(name, add_help=False, allow_abbrev=False)
        added.add_argument("tokenizer", type=Path)
        return added

    prepare, table, encode, decode = map(command, ("prepare", "table", "encode", "decode"))
    prepare.add_argument("inputs", type=Path, nargs="+")
    prepare.add_argument("--include", action="append", default=[])
    prepare.add_argument("--format", choices=["hdf5", "llmc"], default="hdf5")
    for writer in (prepare, table):
        writer.add_argument("--out", type=Path, required=True)
        writer.add_argument("--end-token")
        writer.add_argument("--force", action="store_true")
    for reader in (prepare, encode):
        reader.add_argument("--parse-special", action="store_true")
    encode.add_argument("text")
    decode.add_argument("ids")
    return parser.parse_args(words)


def refuse_existing(path: Path, force: bool):
    if path.exists() and not force:
        raise UsageError(f"{path} exists: choose another --out, or --force to replace it")


def prepare(arguments: argparse.Namespace) -> None:
    refuse_existing(arguments.out, arguments.force)
    tokenizer = open_tokenizer(arguments.tokenizer, arguments.parse_special)
    end = tokenizer.resolve_end(arguments.end_token)
    write = token_files.WRITERS[arguments.format]
    with Corpus(tokenizer.vocab_size) as corpus:
        for document in read_documents(arguments.inputs, arguments.include or ["*"]):
            prompt = tokenizer.encode(document.prompt) if document.prompt else []
            corpus.append(prompt, tokenizer.encode(document.text), end)
        if corpus.tokens == 0:
            raise InputError("the inputs hold no text")
        write(arguments.out, corpus)
        learned = f", {corpus.learned} of which are learned" if corpus.has_prompts else ""
        print(f"{arguments.out}: {corpus.tokens} tokens{learned}, documents: {len(corpus.documents)}, "
              f"vocabulary of {corpus.vocab_size}")


def table(arguments: argparse.Namespace) -> None:
    tokenizer = open_tokenizer(arguments.tokenizer)
    end = tokenizer.resolve_end(arguments.end_token)
    refuse_existing(arguments.out / "tokenizer.bin", arguments.force)
    data = token_files.token_table(tokenizer.token_bytes(), end)
    arguments.out.mkdir(parents=True, exist_ok=True)
    tokenizer.save(arguments.out)
    token_files.write_whole(arguments.out / "tokenizer.bin", lambda path: path.write_bytes(data))
    print(f"{arguments.out}: {tokenizer.vocab_size} tokens" + ("" if end is None else f", {end} ends a text"))


def text_or_input(word: str) -> str:
    return sys.stdin.read() if word == "-" else word


def encode(arguments: argparse.Namespace) -> None:
    tokenizer = open_tokenizer(arguments.tokenizer, arguments.parse_special)
    print(",".join(map(str, tokenizer.encode(text_or_input(arguments.text)))))


def decode(arguments: argparse.Namespace) -> None:
    words = text_or_input(arguments.ids).replace(",", " ").split()
    if wrong := [word for word in words if not word.isdigit()]:
        raise UsageError(f"'{wrong[0]}' is no token's number: numbers are separated by commas or spaces")
    tokenizer = open_tokenizer(arguments.tokenizer)
    print(tokenizer.decode([int(word) for word in words]))


def main(words: list[str]) -> int:
    if {"-h", "--help"} & set(words):
        print(__doc__.strip())
        return 0
    arguments = parse(words)
    commands = {"prepare": prepare, "table": table, "encode": encode, "decode": decode}
    try:
        commands[arguments.command](arguments)
    except (UsageError, InputError, OSError) as error:
        print(f"tools/tokenize.py: {error}", file=sys.stderr)
        return 2 if isinstance(error, UsageError) else 3
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
