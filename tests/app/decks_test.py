"""Decks of large models: what they would need is told without allocating it."""
import re
import resource
import unittest

from end_to_end import INPUTS, EndToEndTest

RANKS = 4
# Parameters as published. Padding of GPT-2's token table to 50304 rows comes on top.
PARAMETERS = {"gpt2-124m": 124_439_808 + 47 * 768, "gpt2-1558m": 1_557_611_200 + 47 * 1600,
              "llama-1b": 1_235_814_400, "llama-7b": 6_738_415_616, "llama-13b": 13_015_864_320}
MOST_MEGABYTES = 500  # of a process; the smallest model's master weights alone have as many


class DecksTest(EndToEndTest):
    def test_units_and_memory_of_large_models(self):
        for name, count in PARAMETERS.items():
            with self.subTest(name):
                deck = INPUTS / f"{name}.ini"
                result = self.run_to_common_end(RANKS, ["train", str(deck), "--print-units"], 0)
                total = re.search(rf"total +\d+ units, {RANKS} shards +(\d+)", result.out)
                self.assertIsNotNone(total, result.out)
                self.assertEqual(int(total[1]), count)
                self.assertRegex(result.out, r"AdamW moments +[\d.]+ .iB  a rank")
        largest = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
        self.assertLess(largest, MOST_MEGABYTES)


if __name__ == "__main__":
    unittest.main()
