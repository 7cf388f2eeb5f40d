"""Training on real files: what is read, what is left out, and that context is learned."""
import gzip
import math
import unittest
from collections import Counter

from end_to_end import EndToEndTest, of_kind

SENTENCE = "All work and no play makes a dull model; "
KEYS = {"run.dir": "run", "data.source": "text", "data.path": "texts", "model.vocab_size": 256, "data.sequence": 32,
        "data.validation_fraction": 0.1, "train.steps": 60, "train.log_every": 20, "train.micro_batch": 4}


class TextTest(EndToEndTest):
    def test_regular_text_is_learned(self):
        text = SENTENCE * 400
        self.write("texts/b/second.txt", text[8000:])
        self.write("texts/a.txt", text[:8000])
        self.write("texts/old.txt.gz", gzip.compress(b"\xff" * 100))
        self.train(2, KEYS)
        log = (self.folder / "run/run.log").read_text()
        self.assertEqual(log.count("left out texts/old.txt.gz: gzip data"), 1)
        [summary] = of_kind(self.folder / "run", "summary")
        entropy = float(summary["unigram_entropy"])
        self.assertAlmostEqual(entropy, unigram_entropy(held_out(text)), places=9)
        before, after = float(summary["validation_loss_before"]), float(summary["validation_loss_after"])
        self.assertAlmostEqual(before, math.log(256), delta=0.7)
        self.assertLess(after, 0.5 * entropy)
        self.assertIn(f"validation loss {before:.4f} before, {after:.4f} after training; "
                      f"unigram entropy {entropy:.4f} nats", log)


def held_out(text: str) -> str:
    """The last tenth of the windows, and what follows the last whole one."""
    windows = len(text) // KEYS["data.sequence"]
    return text[(windows - round(0.1 * windows)) * KEYS["data.sequence"]:]


def unigram_entropy(text: str) -> float:
    return -sum(n / len(text) * math.log(n / len(text)) for n in Counter(text).values())


if __name__ == "__main__":
    unittest.main()
