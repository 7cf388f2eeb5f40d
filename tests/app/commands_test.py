"""What the program answers without a deck, and to words that are no command."""
import unittest

from end_to_end import EXIT_USAGE, INPUTS, SMOKE_DECK, EndToEndTest, Result


class CommandsTest(EndToEndTest):
    def answer(self, *words: str) -> str:
        result = self.run_alone(*words)
        self.check_end(result, 0)
        self.assertEqual(result.err, "")
        return result.out

    def test_version(self):
        """Also what is loaded: without a launcher, as one asks on a login node."""
        lines = self.answer("--version").splitlines()
        self.assertRegex(lines[0], r"\AFullShard \d+\.\d+\.\d+\Z")
        found = {line[:10].rstrip(): line[10:] for line in lines[1:]}
        expected = {"commit": r"\w+(-dirty)?", "build": r"\w+", "compiler": r".+ \d[\d.]*, C\+\+\d\d",
                    "flags": r".*-O\d.*", "MPI": r".+; compiled for .*MPI \d\.\d",
                    "HDF5": r"(\d+\.\d+\.\d+), parallel; compiled for \1",
                    "LibTorch": r"\d+\.\d+\.\d+, computes with .+", "CUDA": "none", "NCCL": "none"}
        self.assertEqual(list(found), list(expected))
        for name, pattern in expected.items():
            self.assertRegex(found[name], rf"\A{pattern}\Z", name)

    def test_help(self):
        text = self.answer("--help")
        self.assertIn("usage: fullshard train DECK", text)

    def test_list_keys(self):
        text = self.answer("--list-keys")
        for key in ("run.dir", "model.vocab_size", "shard.strategy", "fault.throw_at_step"):
            self.assertEqual(text.count(f"\n  {key} "), 1, key)

    def test_list_keys_as_markdown_is_the_readme_of_inputs(self):
        self.assertEqual(self.answer("--list-keys=markdown"), (INPUTS / "README.md").read_text())

    def test_print_units(self):
        text = self.answer("train", str(SMOKE_DECK), "--print-units", "--run.dir", "new/run", "--shard.wrap_policy", "model",
                           "--precision.param", "bf16")
        self.assertRegex(text, r"(?m)^unit +stages +elements +trainable +padding +shard +slot +unsharded bf16 +shard fp32$")
        d, vocabulary, positions, d_ff = 32, 64, 16, 64
        layer = 4 * d * d + 4 * d + 2 * d * d_ff + d_ff + d + 4 * d
        elements = (vocabulary + positions) * d + 2 * layer + (d + 1) * vocabulary
        self.assertRegex(text, rf"(?m)^\S+ +embedding \.\. head \(4\) +{elements} +{elements} +\d+ +\d+ +")
        self.assertRegex(text, rf"(?m)^total +1 units, 1 shards +{elements} ")
        self.assertFalse((self.folder / "new").exists())

    def test_words_that_are_no_command(self):
        self.refuse(self.run_alone("trian", "deck.ini"), "unknown command 'trian'; use: fullshard train|eval|generate DECK")
        self.refuse(self.run_alone("train"), "train needs a deck")

    def refuse(self, result: Result, cause: str):
        self.check_end(result, EXIT_USAGE)
        self.assert_one_cause(result, cause)


if __name__ == "__main__":
    unittest.main()
