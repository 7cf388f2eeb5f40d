"""Steps that must not change the parameters: reported and skipped, or the end of the run."""
import unittest

from end_to_end import EXIT_DIVERGED, EndToEndTest, of_kind

# Gradients of this model overflow fp16 at 2^20 and fit at 2^18.
FP16 = {"precision.param": "fp16", "precision.initial_scale": 2 ** 20, "precision.scale_hysteresis": 1,
        "run.dir": "run", "train.steps": 8}


class OverflowTest(EndToEndTest):
    def skipped(self) -> list[int]:
        return [record["step"] for record in of_kind(self.folder / "run", "event")
                if record["event"] == "skipped_step"]

    def test_dynamic_scale_skips_steps_until_it_fits(self):
        self.train(2, {**FP16, "schedule.warmup_steps": 8, "checkpoint.every": 8})
        skipped = self.skipped()
        self.assertEqual(skipped, list(range(1, len(skipped) + 1)))
        self.assertIn(len(skipped), (1, 2))
        steps = of_kind(self.folder / "run", "step")
        self.assertEqual(float(steps[0]["loss_scale"]), 2 ** 20)
        self.assertEqual(float(steps[-1]["loss_scale"]), 2 ** (20 - len(skipped)))
        self.assertEqual([step["step"] for step in steps if step.get("skipped")], skipped)
        # The warm-up counts updates: the first one has its first rate, 1/8 of the peak.
        first = steps[len(skipped)]
        self.assertAlmostEqual(float(first["lr"]), 1e-2 / 8)
        self.assertEqual(of_kind(self.folder / "run", "summary")[0]["skipped_steps"], len(skipped))

    def test_overflow_at_the_minimum_ends_the_run(self):
        result = self.train_to_common_end(2, {**FP16, "precision.min_scale": 2 ** 20}, EXIT_DIVERGED)
        self.assert_one_cause(result, "the loss scale is at its minimum of 1048576")

    def test_fixed_scale_does_not_move(self):
        result = self.train_to_common_end(2, {**FP16, "precision.loss_scale": 2 ** 24}, EXIT_DIVERGED)
        self.assert_one_cause(result, "lower precision.loss_scale from 16777216")

    def test_a_step_that_doubles_the_scale_is_unscaled_by_its_own(self):
        """https://github.com/deepspeedai/DeepSpeed/issues/2686: gradients and norm half as large."""
        norms = {}
        for name, keys in {"fixed": {"precision.loss_scale": 2 ** 6},
                           "doubling": {"precision.initial_scale": 2 ** 6, "precision.scale_window": 1}}.items():
            self.train(2, {**FP16, "run.dir": name, "train.steps": 5, **keys})
            steps = of_kind(self.folder / name, "step")
            norms[name] = [float(step["grad_norm"]) for step in steps]
            self.assertEqual(float(steps[-1]["loss_scale"]) > 2 ** 6, name == "doubling")
        for fixed, doubling in zip(norms["fixed"], norms["doubling"], strict=True):
            self.assertAlmostEqual(doubling, fixed, delta=0.02 * fixed)

    def test_steps_after_a_divergence_are_skipped_on_demand(self):
        diverging = {"run.dir": "run", "optimizer.lr": 1e30, "train.steps": 4}
        self.train_to_common_end(2, diverging, EXIT_DIVERGED)
        self.train(2, {**diverging, "train.on_nonfinite": "skip", "run.overwrite": "on"})
        self.assertEqual(self.skipped()[-1], 4)


if __name__ == "__main__":
    unittest.main()
