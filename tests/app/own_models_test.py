"""Models that users bring: a program with torch::nn modules of its own, and TorchScript files."""
import os
import subprocess
import unittest
from pathlib import Path

import end_to_end
from end_to_end import EndToEndTest, of_kind

MIXER = Path(os.environ["FULLSHARD_MIXER"]).resolve()
WRITE_TORCHSCRIPT = os.environ["FULLSHARD_WRITE_TORCHSCRIPT"]


class OwnModelsTest(EndToEndTest):
    def losses(self, ranks: int, run: str, keys: dict[str, object]) -> list[str]:
        self.train(ranks, {**keys, "run.dir": run, "train.steps": 5, "train.global_batch": 8})
        return [step["loss"] for step in of_kind(self.folder / run, "step")]

    def test_a_program_trains_its_own_modules_with_equal_bits_at_any_world_size(self):
        stock, end_to_end.BINARY = end_to_end.BINARY, MIXER
        self.addCleanup(setattr, end_to_end, "BINARY", stock)
        mixer = {"model.family": "custom", "model.dropout": 0.1}
        alone = self.losses(1, "alone", mixer)
        self.assertLess(float(alone[-1]), float(alone[0]))
        self.assertEqual(self.losses(2, "two", mixer), alone)
        self.assertEqual(self.losses(4, "four", {**mixer, "shard.strategy": "hybrid_shard",
                                                 "topology.ranks_per_node": 2, "checkpoint.every": 5}), alone)
        self.assertEqual(self.losses(2, "recomputed", {**mixer, "train.activation_checkpointing": 1}), alone)

    def test_torchscript_files_are_stages(self):
        subprocess.run([WRITE_TORCHSCRIPT, str(self.folder), "64", "32"], check=True)
        files = {"model.family": "torchscript", "model.path": "embedding.pt,head.pt"}
        alone = self.losses(1, "alone", files)
        self.assertLess(float(alone[-1]), float(alone[0]))
        for strategy in ("full_shard", "shard_grad_op", "no_shard"):
            losses = self.losses(2, strategy, {**files, "shard.strategy": strategy})
            for mine, expected in zip(losses, alone, strict=True):
                self.assertAlmostEqual(float(mine), float(expected), delta=1e-6 * float(expected))


if __name__ == "__main__":
    unittest.main()
