"""End-to-end tests that also run fullshard-ckpt and read logits."""
import os
import subprocess
from pathlib import Path

import peers  # noqa: F401, first: it makes end_to_end known
import end_to_end
import numpy as np
import torch
from end_to_end import EndToEndTest, MPIRUN, words_of
from transformers import AutoModelForCausalLM

CKPT = Path(os.environ["FULLSHARD_CKPT"])
WRITE_LOGITS = Path(os.environ["FULLSHARD_WRITE_LOGITS"])


class ExchangeTest(EndToEndTest):
    def setUp(self):
        super().setUp()
        self.empty = self.write("empty.ini", "")

    def command(self, *words) -> str:
        """Runs a program to its end and gives what it printed."""
        done = subprocess.run(list(map(str, words)), cwd=self.folder, env=self.environment(), capture_output=True,
                              text=True)
        self.assertEqual(done.returncode, 0, f"{words}\n{done.stdout}{done.stderr}")
        return done.stdout + done.stderr

    def ckpt(self, *words) -> str:
        return self.command(CKPT, *words)

    def fullshard(self, ranks: int, command: str, deck: Path, keys: dict) -> str:
        return self.command(*MPIRUN, "-n", ranks, end_to_end.BINARY, command, *words_of(deck, keys)[1:])

    def our_logits(self, ranks: int, model: str, tokens: list[int], **keys) -> np.ndarray:
        """Of every position of one sequence, by the weights in the folder `model`."""
        keys = {"model.config": model, "model.init_from": model, "data.sequence": len(tokens), **keys,
                "logits.tokens": ",".join(map(str, tokens)), "logits.out": "logits.bin"}
        self.command(*MPIRUN, "-n", ranks, WRITE_LOGITS, *words_of(self.empty, keys)[1:])
        return np.fromfile(self.folder / "logits.bin", "<f4").reshape(len(tokens), -1)

    def their_model(self, folder, **options):
        options = {"dtype": torch.float32, "attn_implementation": "eager", **options}
        return AutoModelForCausalLM.from_pretrained(self.folder / folder, **options).eval()

    def their_logits(self, model, tokens: list[int]) -> np.ndarray:
        with torch.no_grad():
            return model(torch.tensor([tokens]), use_cache=False).logits[0].numpy()

    def assert_near(self, actual: np.ndarray, expected: np.ndarray, tolerance: float):
        self.assertEqual(actual.shape, expected.shape)
        self.assertLess(float(np.abs(actual - expected).max()), tolerance)
