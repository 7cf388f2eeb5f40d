"""What the design promises about results: equal digits whatever ranks, nodes and stores do."""
import unittest
from pathlib import Path

from end_to_end import EndToEndTest, of_kind

# Four micro-batches a step, so that 1, 2 and 4 ranks accumulate 4, 2 and 1 of them.
STEPS = 8
TRAINING = {"train.steps": STEPS, "train.eval_every": 4, "train.micro_batch": 2, "train.global_batch": 8,
            "model.dropout": 0.1}
TWO_NODES = {"topology.ranks_per_node": 2}
FLAT = {"comm.node_shared": "off"}
SLOTTED = {"shard.store": "slotted"}
NO_SHARD = {"shard.strategy": "no_shard"}
# Log lines and evaluations are collective: without them ranks drift apart as far as the stores let them.
DISTURBED = {"fault.poison": "on", "fault.delay_us": 1000, "train.log_every": STEPS, "train.eval_every": 0}


class Training:
    """What a finished run of TRAINING wrote: numbers in the digits of metrics.jsonl."""

    def __init__(self, folder: Path):
        [self.record] = of_kind(folder, "run")
        self.log = (folder / "run.log").read_text()
        self.steps = {record["step"]: {field: record[field] for field in ("loss", "grad_norm", "tokens")}
                      for record in of_kind(folder, "step")}
        self.evaluations = {record["step"]: {field: record[field] for field in ("loss", "tokens")}
                            for record in of_kind(folder, "eval")}


class EqualResultsTest(EndToEndTest):
    def trained(self, ranks: int, *changes: dict[str, object]) -> Training:
        keys = dict(TRAINING)
        for change in changes:
            keys.update(change)
        folder = self.new_folder() / "run"
        self.train(ranks, {"run.dir": folder, **keys})
        return Training(folder)

    def assert_equal_results(self, training: Training, reference: Training):
        """What both have logged is equal; the first and the last step and evaluation are among it."""
        self.assertEqual(training.steps, {step: reference.steps[step] for step in training.steps})
        self.assertLessEqual({1, STEPS}, set(training.steps))
        self.assertEqual(training.evaluations, {step: reference.evaluations[step] for step in training.evaluations})
        self.assertLessEqual({0, STEPS}, set(training.evaluations))

    def test_power_of_two_ranks(self):
        reference = self.trained(1)
        self.assertEqual(reference.record["grad_accum_steps"], 4)
        self.assertEqual(list(reference.steps), list(range(1, STEPS + 1)))
        self.assertEqual(list(reference.evaluations), [0, 4, STEPS])
        variants = [(2, [], "store: resident"),
                    (2, [NO_SHARD], "store: private"),
                    (4, [DISTURBED], "store: resident"),
                    (4, [TWO_NODES, DISTURBED], "store: slotted"),
                    (4, [FLAT], "store: slotted"),
                    (4, [SLOTTED, DISTURBED], "store: slotted"),
                    (4, [NO_SHARD], "store: private")]
        for ranks, changes, store in variants:
            with self.subTest(ranks=ranks, changes=changes):
                training = self.trained(ranks, *changes)
                self.assertIn(store, training.log)
                self.assertEqual(training.record["grad_accum_steps"], 4 // ranks)
                self.assert_equal_results(training, reference)

    def test_without_dropout(self):
        off = {"model.dropout": 0}
        reference = self.trained(1, off)
        self.assert_equal_results(self.trained(4, off, TWO_NODES), reference)

    def test_three_ranks_come_close(self):
        """The promise's second row: losses to 1e-6 relative, first-step gradients to 1e-5."""
        batch = {"train.global_batch": 6}
        reference = self.trained(1, batch)
        training = self.trained(3, batch, FLAT)
        self.assertEqual(list(training.steps), list(range(1, STEPS + 1)))
        for step, values in training.steps.items():
            self.assert_close(values["loss"], reference.steps[step]["loss"], 1e-6)
        self.assert_close(training.steps[1]["grad_norm"], reference.steps[1]["grad_norm"], 1e-5)
        for step, values in training.evaluations.items():
            self.assert_close(values["loss"], reference.evaluations[step]["loss"], 1e-6)

    def assert_close(self, value: str, reference: str, tolerance: float):
        self.assertLessEqual(abs(float(value) - float(reference)), tolerance * abs(float(reference)))


if __name__ == "__main__":
    unittest.main()
