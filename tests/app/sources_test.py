"""Several sources: their shares, their losses, and runs that go on at another number of ranks."""
import json
import math
import random
import struct
import unittest

from end_to_end import EXIT_DATA, EndToEndTest, numbers, of_kind, words_of

MODEL = {"model.vocab_size": 256, "model.d_model": 32, "model.num_heads": 2, "model.num_layers": 1,
         "model.d_ff": 32, "model.dropout": 0, "data.sequence": 16}
DECK = """
[data.source.letters]
kind = text
path = letters.txt
weight = 3

[data.source.digits]
kind = jsonl
path = digits.jsonl
weight = 1
"""


class SourcesTest(EndToEndTest):
    def setUp(self):
        super().setUp()
        chooser = random.Random(1)
        self.write("letters.txt", "".join(chooser.choice("abcd") for _ in range(4096)))
        lines = [{"prompt": f"{n}+1=", "answer": str(n + 1)} for n in range(300)]
        self.write("digits.jsonl", "".join(json.dumps(line) + "\n" for line in lines))
        self.deck = self.write("deck.ini", DECK)
        self.keys = MODEL | {"run.dir": "run", "train.global_batch": 8, "train.micro_batch": 2, "train.steps": 32,
                             "train.eval_every": 16, "checkpoint.every": 16, "data.packing": "documents",
                             "data.document_mask": "on", "optimizer.lr": 0.01}

    def test_shares_losses_and_other_numbers_of_ranks(self):
        self.train(1, self.keys, self.deck)
        first, *_, last = of_kind(self.folder / "run", "eval")
        for source in ("letters", "digits"):
            self.assertAlmostEqual(float(first["by_source"][source]["loss"]), math.log(256), delta=0.7)
            self.assertLess(float(last["by_source"][source]["loss"]), float(first["by_source"][source]["loss"]) - 0.5)
        parts = last["by_source"].values()
        together = sum(float(part["loss"]) * part["tokens"] for part in parts) / sum(part["tokens"] for part in parts)
        self.assertAlmostEqual(float(last["loss"]), together, places=9)

        # 256 samples of 1024: exact shares hold for whole blocks, these are near.
        [summary] = of_kind(self.folder / "run", "summary")
        tokens = summary["tokens_by_source"]
        self.assertEqual(sum(tokens.values()), summary["tokens"])
        # A letter's sequence has 16 targets; of packed sums only the answers count.
        self.assertAlmostEqual(tokens["letters"] / 16, 0.75 * 256, delta=25)
        self.assertLess(tokens["digits"], 0.25 * 16 * 256)

        self.train(2, self.keys | {"run.dir": "two", "train.steps": 32, "train.stop_at_step": 16}, self.deck, status=85)
        self.train(4, self.keys | {"run.dir": "two"}, self.deck)
        self.assertEqual(numbers(self.folder / "two"), numbers(self.folder / "run"))
        [again] = of_kind(self.folder / "two", "summary")
        self.assertEqual(again["tokens_by_source"], tokens)

        words = [word for key, value in (MODEL | {"model.init_from": "run", "data.packing": "documents",
                                                  "data.document_mask": "on"}).items()
                 for word in (f"--{key}", str(value))]
        result = self.run_to_common_end(2, ["eval", str(self.deck), *words], 0)
        for source, part in last["by_source"].items():
            loss = float(part["loss"])
            self.assertIn(f"  {source}: validation loss {loss:.6f} over {part['tokens']} tokens, "
                          f"perplexity {math.exp(loss):.4f}", result.out)

    def test_data_that_changed_under_their_name_are_refused(self):
        self.train(2, self.keys | {"train.stop_at_step": 4}, self.deck, status=85)
        letters = self.folder / "letters.txt"
        before = letters.read_bytes()
        letters.write_bytes(before.replace(b"a", b"e", 1))
        result = self.run_to_common_end(2, words_of(self.deck, self.keys), EXIT_DATA)
        self.assert_one_cause(result, "not those that the checkpoint was trained on", "letters.txt")
        letters.write_bytes(before)
        self.train(2, self.keys | {"train.stop_at_step": 8}, self.deck, status=85)

    def test_reading_ahead_changes_nothing(self):
        for ahead in (0, 1, 5):
            self.train(2, self.keys | {"run.dir": f"run{ahead}", "data.prefetch": ahead, "train.steps": 8}, self.deck)
        self.assertEqual(numbers(self.folder / "run0"), numbers(self.folder / "run1"))
        self.assertEqual(numbers(self.folder / "run0"), numbers(self.folder / "run5"))

    def test_a_short_file_is_named_with_its_place(self):
        header = struct.pack("<256i", 20240520, 1, 1000, *[0] * 253)
        self.write("short.bin", header + bytes(999))
        result = self.run_to_common_end(2, ["train", str(self.write("e.ini", "")), "--data.source", "llmc",
                                            "--data.path", "short.bin", "--run.dir", "x"], EXIT_DATA)
        self.assert_one_cause(result, "short.bin", "1000", "3024", "2023")
        self.assertFalse((self.folder / "x").exists())


if __name__ == "__main__":
    unittest.main()
