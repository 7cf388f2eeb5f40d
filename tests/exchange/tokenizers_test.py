"""tools/tokenize.py with the libraries whose tokenizers it reads."""
import json
import tempfile
import unittest
from pathlib import Path

from peers import require, table_of, tokenize

require("tokenizers", "sentencepiece", "gguf", "h5py", "transformers")

import gguf  # noqa: E402
import h5py  # noqa: E402
import sentencepiece  # noqa: E402
import tokenizers  # noqa: E402
from tokenizers import decoders, models, pre_tokenizers, trainers  # noqa: E402
from transformers import AutoTokenizer  # noqa: E402

# Words to learn from, and text with what they do not have: digits, other scripts, control characters.
CORPUS = ["The ranks share one table of tokens. ", "Every rank reads its own part, and no rank reads it twice.\n",
          "A licence is granted: copy, change and share the text, as long as you say where it came from.\n"] * 40
TEXT = "The ranks' own table, 2024:\n\n  licensé №7 — 日本 \t🙂 it's\r\n twice"
END = "<|endoftext|>"


def byte_level_bpe() -> tokenizers.Tokenizer:
    """As GPT-2's, with digits apart as SmolLM2's."""
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=400, special_tokens=[END], show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(CORPUS, trainer)
    return tokenizer


def numbers(text: str) -> list[int]:
    return [int(word) for word in text.split(",")]


class TokenizersTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.bpe = byte_level_bpe()
        self.bpe.save(str(self.folder / "tokenizer.json"))

    def write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode())
        return path

    def tokenize(self, *words, **options) -> str:
        return tokenize(self.folder, *words, **options)

    def write_gguf(self, pre: str):
        """The same vocabulary as llama.cpp stores one."""
        vocabulary = json.loads(self.bpe.to_str())["model"]
        tokens = sorted(vocabulary["vocab"], key=vocabulary["vocab"].get)
        writer = gguf.GGUFWriter(self.folder / "vocabulary.gguf", "llama")
        writer.add_tokenizer_model("gpt2")
        writer.add_tokenizer_pre(pre)
        writer.add_token_list(tokens)
        writer.add_token_types([3 if token == END else 1 for token in tokens])
        writer.add_token_merges([" ".join(merge) for merge in vocabulary["merges"]])
        writer.add_eos_token_id(tokens.index(END))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.close()

    def test_encode_and_decode_as_the_library_does(self):
        ids = self.bpe.encode(TEXT).ids
        self.assertEqual(numbers(self.tokenize("encode", "tokenizer.json", TEXT)), ids)
        self.assertEqual(numbers(self.tokenize("encode", ".", "-", text=TEXT.replace("\r", ""))),
                         self.bpe.encode(TEXT.replace("\r", "")).ids)
        words = ",".join(map(str, self.bpe.encode("it's twice — 日本").ids))
        self.assertEqual(self.tokenize("decode", "tokenizer.json", words), "it's twice — 日本")

    def test_names_of_special_tokens_are_text_unless_asked_for(self):
        end = self.bpe.token_to_id(END)
        self.assertNotIn(end, numbers(self.tokenize("encode", "tokenizer.json", "a" + END)))
        self.assertIn(end, numbers(self.tokenize("encode", "tokenizer.json", "a" + END, "--parse-special")))

    def test_a_gguf_file_has_the_same_tokens(self):
        self.write_gguf("smollm")
        self.assertEqual(numbers(self.tokenize("encode", "vocabulary.gguf", TEXT)), self.bpe.encode(TEXT).ids)
        self.tokenize("table", "vocabulary.gguf", "--out", "tokenizer")
        self.assertEqual(AutoTokenizer.from_pretrained(self.folder / "tokenizer").eos_token, END)
        self.write_gguf("unheard-of")
        self.assertIn("tokenizer.ggml.pre = unheard-of",
                      self.tokenize("encode", "vocabulary.gguf", TEXT, status=2))

    def test_a_table_gives_back_the_text(self):
        ids = self.bpe.encode(TEXT).ids
        self.tokenize("table", "tokenizer.json", "--out", "tokenizer")
        table = table_of(self.folder / "tokenizer")
        self.assertEqual(b"".join(table[number] for number in ids), TEXT.encode())
        self.assertEqual(table[self.bpe.token_to_id(END)], END.encode())
        theirs = AutoTokenizer.from_pretrained(self.folder / "tokenizer")
        self.assertEqual(theirs(TEXT).input_ids, ids)

    def test_sentencepiece(self):
        self.write("corpus.txt", "".join(CORPUS))
        sentencepiece.SentencePieceTrainer.train(
            input=str(self.folder / "corpus.txt"), model_prefix=str(self.folder / "pieces"), vocab_size=340,
            model_type="bpe", byte_fallback=True, hard_vocab_limit=False, minloglevel=2,
            normalization_rule_name="identity", remove_extra_whitespaces=False)
        library = sentencepiece.SentencePieceProcessor(model_file=str(self.folder / "pieces.model"))
        ids = library.encode(TEXT)
        self.assertEqual(numbers(self.tokenize("encode", "pieces.model", TEXT)), ids)
        self.tokenize("table", "pieces.model", "--out", "tokenizer")
        table = table_of(self.folder / "tokenizer")
        self.assertEqual(len(table), library.get_piece_size())
        # The library puts a space in front of a text.
        self.assertEqual(b"".join(table[number] for number in ids), b" " + TEXT.encode())
        self.assertEqual((self.folder / "tokenizer/tokenizer.model").read_bytes(),
                         (self.folder / "pieces.model").read_bytes())

    def test_prepare_writes_documents_and_masks(self):
        self.write("texts/a.txt", CORPUS[0])
        self.write("texts/b.txt", CORPUS[1])
        self.write("pairs.jsonl", json.dumps({"prompt": "copy", "answer": " and share"}) + "\n")
        self.tokenize("prepare", "tokenizer.json", "texts", "pairs.jsonl", "--out", "out.h5")
        end = self.bpe.token_to_id(END)
        parts = [self.bpe.encode(text).ids for text in (CORPUS[0], CORPUS[1], "copy", " and share")]
        first, second = [*parts[0], end], [*parts[1], end]
        with h5py.File(self.folder / "out.h5") as file:
            self.assertEqual(file["tokens"][:].tolist(), [*first, *second, *parts[2], *parts[3], end])
            self.assertEqual(file["documents"][:].tolist(), [0, len(first), len(first) + len(second)])
            mask = [1] * (len(first) + len(second)) + [0] * len(parts[2]) + [1] * (len(parts[3]) + 1)
            self.assertEqual(file["loss_mask"][:].tolist(), mask)
            self.assertEqual(file["tokens"].attrs["vocab_size"], self.bpe.get_vocab_size())
            self.assertEqual([file[name].chunks for name in file], [None] * 3)  # in one piece: it can be mapped

        self.tokenize("prepare", "tokenizer.json", "texts", "--out", "plain.h5", "--end-token", "none")
        with h5py.File(self.folder / "plain.h5") as file:
            self.assertEqual(file["tokens"][:].tolist(), [*parts[0], *parts[1]])
            self.assertNotIn("loss_mask", file)

    def test_what_is_refused(self):
        self.write("a.txt", "text")
        self.assertIn("no such token", self.tokenize("prepare", "tokenizer.json", "a.txt", "--out", "o.h5",
                                                     "--end-token", "</none>", status=2))
        self.write("tokenizer.json", "{}")
        self.assertIn("no tokenizer of the tokenizers library",
                      self.tokenize("encode", "tokenizer.json", "x", status=3))


if __name__ == "__main__":
    unittest.main()
