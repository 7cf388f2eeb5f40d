"""tools/tokenize.py where it needs no package of others: documents, files, GGUF metadata, messages.

What needs tokenizers, sentencepiece or h5py is tested in tests/exchange.
"""
import io
import json
import os
import random
import struct
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

TOOLS = Path(os.environ.get("FULLSHARD_TOOLS", Path(__file__).parents[2] / "tools"))
sys.path.insert(0, str(TOOLS / "tokenizing"))

import corpus as corpus_module  # noqa: E402
import token_bytes  # noqa: E402
from corpus import Corpus  # noqa: E402
from documents import Document, read_documents  # noqa: E402
from gguf_metadata import parse_metadata, read_metadata  # noqa: E402
from mistakes import InputError, UsageError  # noqa: E402
from token_files import token_table, write_llmc, write_whole  # noqa: E402

MUTATIONS = 10_000


def gguf_string(text: str) -> bytes:
    return struct.pack("<Q", len(text.encode())) + text.encode()


def gguf_bytes() -> bytes:
    """As ggml's docs/gguf.md describes the format."""
    pairs = [
        (gguf_string("general.architecture"), 8, gguf_string("llama")),
        (gguf_string("llama.block_count"), 4, struct.pack("<I", 3)),
        (gguf_string("llama.rope.freq_base"), 6, struct.pack("<f", 500.0)),
        (gguf_string("tokenizer.ggml.tokens"), 9, struct.pack("<IQ", 8, 2) + gguf_string("a") + gguf_string("Ġb")),
        (gguf_string("tokenizer.ggml.token_type"), 9, struct.pack("<IQ2i", 5, 2, 1, 3)),
        (gguf_string("tokenizer.ggml.add_bos_token"), 7, b"\1"),
    ]
    body = b"".join(name + struct.pack("<I", kind) + value for name, kind, value in pairs)
    return b"GGUF" + struct.pack("<IQQ", 3, 0, len(pairs)) + body


class FolderTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def write(self, name: str, data) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data.encode() if isinstance(data, str) else data)
        return path


class DocumentsTest(FolderTest):
    def test_files_of_a_folder_come_in_the_order_of_their_paths(self):
        for name in ("b/2.txt", "a/9.txt", "b/10.txt", "c.md"):
            self.write(name, name)
        self.write("a/empty.txt", "")
        documents = list(read_documents([self.folder], ["*.txt"]))
        self.assertEqual([d.text for d in documents], ["a/9.txt", "b/10.txt", "b/2.txt"])

    def test_lines_of_jsonl_are_documents(self):
        file = self.write("a.jsonl", '{"text": "wörld"}\n\n{"prompt": "p", "answer": "a", "more": 1}\n')
        self.assertEqual(list(read_documents([file], ["*"])), [Document("wörld"), Document("a", "p")])

    def test_a_wrong_line_is_named(self):
        for line, part in (("{", "character 2"), ("[1]", 'needs {"text"'), ('{"answer": "a"}', 'needs {"text"'),
                           ('{"text": 5}', 'needs {"text"'), (b'{"text": "\xff"}', "byte 10 is not UTF-8")):
            data = line if isinstance(line, bytes) else line.encode()
            file = self.write("a.jsonl", b'{"text": "fine"}\n' + data)
            with self.assertRaisesRegex(InputError, "a.jsonl, line 2") as caught:
                list(read_documents([file], ["*"]))
            self.assertIn(part, str(caught.exception))

    def test_what_is_not_there_is_a_mistake_of_use(self):
        for path in (self.folder / "none", self.folder):
            with self.assertRaises(UsageError):
                list(read_documents([path], ["*.txt"]))


class CorpusTest(FolderTest):
    def test_prompts_are_masked_and_ends_are_learned(self):
        with Corpus(100) as corpus:
            corpus.append([7, 8], [9], 3)
            corpus.append([], [10, 11], None)
            corpus.append([5], [], 3)  # nothing to learn
            pieces = list(corpus.pieces())
        self.assertEqual(pieces[0][0].tolist(), [7, 8, 9, 3, 10, 11])
        self.assertEqual(pieces[0][1], bytes([0, 0, 1, 1, 1, 1]))
        self.assertEqual((corpus.documents, corpus.tokens, corpus.learned), ([0, 4], 6, 4))

    def test_pieces_join_to_the_whole(self):
        whole = corpus_module.PIECE
        self.addCleanup(setattr, corpus_module, "PIECE", whole)
        corpus_module.PIECE = 4
        with Corpus(1000) as corpus:
            for first in range(0, 30, 3):
                corpus.append([first], [first + 1, first + 2], None)
            pieces = list(corpus.pieces())
        self.assertEqual([len(ids) for ids, _ in pieces], [4] * 7 + [2])
        self.assertEqual([i for ids, _ in pieces for i in ids], list(range(30)))
        self.assertEqual(b"".join(mask for _, mask in pieces), b"\0\1\1" * 10)

    def test_a_token_outside_the_vocabulary_is_refused(self):
        with Corpus(10) as corpus, self.assertRaisesRegex(InputError, "token 10, its vocabulary has 10"):
            corpus.append([], [10], None)


class TokenFilesTest(FolderTest):
    def test_llmc_files_byte_by_byte(self):
        for vocab_size, magic, version, code in ((65536, 20240520, 1, "H"), (65537, 20240801, 7, "I")):
            with Corpus(vocab_size) as corpus:
                corpus.append([], [1, 2, 65535], 0)
                write_llmc(self.folder / "out.bin", corpus)
            header = struct.pack("<3i", magic, version, 4).ljust(1024, b"\0")
            self.assertEqual((self.folder / "out.bin").read_bytes(),
                             header + struct.pack(f"<4{code}", 1, 2, 65535, 0))

    def test_llmc_files_have_no_loss_mask(self):
        with Corpus(10) as corpus, self.assertRaisesRegex(UsageError, "--format hdf5"):
            corpus.append([1], [2], None)
            write_llmc(self.folder / "out.bin", corpus)

    def test_a_file_appears_whole_or_not_at_all(self):
        def fail(path: Path):
            path.write_bytes(b"half")
            raise OSError("disk full")

        self.write("out.bin", "old")
        with self.assertRaisesRegex(OSError, "disk full"):
            write_whole(self.folder / "out.bin", fail)
        self.assertEqual([p.name for p in self.folder.iterdir()], ["out.bin"])
        self.assertEqual((self.folder / "out.bin").read_text(), "old")

    def test_a_table_byte_by_byte(self):
        header = struct.pack("<4i", 20240328, 2, 3, 2).ljust(1024, b"\0")
        self.assertEqual(token_table([b"a", b"", b"\xe2\x82"], 2), header + b"\x01a\x00\x02\xe2\x82")

    def test_a_table_has_no_token_of_more_than_255_bytes(self):
        with self.assertRaisesRegex(InputError, "token 1 has 256 bytes"):
            token_table([b"a", b"a" * 256], None)


class TokenBytesTest(unittest.TestCase):
    def test_the_alphabet_of_gpt2_has_every_byte_once(self):
        self.assertEqual(sorted(token_bytes.BYTE_OF_CHARACTER.values()), list(range(256)))
        # Known tokens of GPT-2: a space is Ġ, a line feed Ċ.
        self.assertEqual(token_bytes.of_byte_level("ĠlicensÃ©Ċ"), " licensé\n".encode())

    def test_characters_outside_the_alphabet_stand_for_themselves(self):
        self.assertEqual(token_bytes.of_byte_level("€ b"), "€ b".encode())

    def test_pieces_of_sentencepiece(self):
        self.assertEqual(token_bytes.of_piece("▁the▁"), b" the ")
        self.assertEqual(token_bytes.of_piece("<0xE2>"), b"\xe2")
        self.assertEqual(token_bytes.of_piece("<0xE2"), b"<0xE2")


class GgufTest(FolderTest):
    def test_values_of_all_kinds(self):
        metadata = read_metadata(self.write("m.gguf", gguf_bytes()))
        self.assertEqual(metadata, {
            "general.architecture": "llama", "llama.block_count": 3, "llama.rope.freq_base": 500.0,
            "tokenizer.ggml.tokens": ["a", "Ġb"], "tokenizer.ggml.token_type": [1, 3],
            "tokenizer.ggml.add_bos_token": True})

    def test_mutated_files_are_read_or_refused(self):
        """Hostile sizes and counts neither crash nor allocate more than the file holds."""
        whole, draws = gguf_bytes(), random.Random(1)
        outcomes = {"read": 0, "refused": 0}
        for _ in range(MUTATIONS):
            data = bytearray(whole[:draws.choice([len(whole), draws.randrange(len(whole))])])
            for _ in range(draws.randrange(1, 4)):
                if data:
                    data[draws.randrange(len(data))] = draws.choice([0, 1, 0x7F, 0x80, 0xFF, draws.randrange(256)])
            try:
                parse_metadata(io.BytesIO(data), Path("m.gguf"), len(data))
                outcomes["read"] += 1
            except InputError:
                outcomes["refused"] += 1
        self.assertGreater(min(outcomes.values()), MUTATIONS // 20, outcomes)


class CommandLineTest(FolderTest):
    def run_tool(self, *words) -> subprocess.CompletedProcess:
        """-S: without any package of others, even where they are installed."""
        return subprocess.run([sys.executable, "-S", TOOLS / "tokenize.py", *map(str, words)],
                              capture_output=True, text=True, cwd=self.folder)

    def test_a_missing_package_is_named(self):
        self.write("tokenizer.json", json.dumps({}))
        self.write("a.model", "")
        for file, name in (("tokenizer.json", "tokenizers"), ("a.model", "sentencepiece")):
            result = self.run_tool("encode", file, "text")
            self.assertEqual(result.returncode, 2, result.stderr)
            self.assertIn(f"pip install {name}", result.stderr)

    def test_its_name_hides_nothing_of_the_library(self):
        """Python's own module tokenize is used by inspect, which many packages import."""
        program = "import runpy, sys; sys.argv = ['x', '--help']\n" \
                  f"try: runpy.run_path({str(TOOLS / 'tokenize.py')!r}, run_name='__main__')\n" \
                  "except SystemExit: pass\n" \
                  f"import inspect, tokenize; assert {str(TOOLS)!r} not in tokenize.__file__, tokenize.__file__"
        result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=TOOLS)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("prepare TOKENIZER INPUT", result.stdout)

    def test_mistakes_of_use(self):
        self.write("m.gguf", gguf_bytes())
        self.write("there", "")
        for words, part in ((["encode", "none.json", "x"], "pip install tokenizers"),
                            (["encode", "m.txt", "x"], "no tokenizer.json, *.model or *.gguf"),
                            (["decode", "m.gguf", "1,x"], "'x' is no token's number"),
                            (["prepare", "m.gguf", "a.txt", "--out", "there"], "exists"),
                            (["prepare", "m.gguf", "a.txt"], "--out"),
                            (["encode", "a.model", "x", "--parse-special"], "SentencePiece has no")):
            result = self.run_tool(*words)
            self.assertEqual(result.returncode, 2, result.stderr)
            self.assertIn(part, result.stderr)
            self.assertNotIn("Traceback", result.stderr)


if __name__ == "__main__":
    unittest.main()
