"""A run goes on with another number of ranks, or starts again where it left no checkpoint."""
import os
import shutil
import signal
import time
import unittest

from end_to_end import (DEADLINE_S, EXIT_STOPPED, EXIT_USAGE, SMOKE_DECK, EndToEndTest, Result, numbers, of_kind,
                        state, words_of)

# Eight sequences a step on four ranks. An epoch has 24, so step 4 is in the middle of one.
KEYS = {"train.steps": 8, "train.micro_batch": 2, "checkpoint.every": 4, "model.dropout": 0.1,
        "schedule.kind": "cosine", "schedule.warmup_steps": 2}
ELASTIC = {**KEYS, "train.micro_batch": 0, "elasticity.enabled": "on", "elasticity.max_train_batch_size": 8,
           "elasticity.micro_batch_sizes": "1, 2"}


class ElasticTest(EndToEndTest):
    def resumed(self, ranks: int, keys: dict[str, object], status: int = 0) -> Result:
        """What becomes of a copy of the stopped run, in the folder `resumed`."""
        shutil.rmtree(self.folder / "resumed", ignore_errors=True)
        shutil.copytree(self.folder / "stopped", self.folder / "resumed")
        return self.train(ranks, {**keys, "run.dir": "resumed"}, status=status)

    def assert_equal_to_whole(self):
        resumed, whole = self.folder / "resumed", self.folder / "whole"
        self.assertEqual(numbers(resumed), numbers(whole))
        self.assertEqual(state(resumed, 8), state(whole, 8))

    def print_world_sizes(self, keys: dict[str, object]) -> list[list[str]]:
        result = self.run_alone(*words_of(SMOKE_DECK, keys), "--print-world-sizes")
        self.check_end(result, 0)
        return [line.split() for line in result.out.splitlines()]

    def test_global_batch_is_kept_on_fewer_ranks(self):
        self.train(4, {**KEYS, "run.dir": "whole"})
        self.train(4, {**KEYS, "run.dir": "stopped", "train.stop_at_step": 4}, status=EXIT_STOPPED)
        for ranks in (2, 1):
            with self.subTest(ranks=ranks):
                self.resumed(ranks, KEYS)
                self.assert_equal_to_whole()
        with self.subTest("a grad_accum_steps that the deck names gives way"):
            result = self.resumed(2, {**KEYS, "train.grad_accum_steps": 1})
            self.assertIn("train.grad_accum_steps = 1 gives way to 2", result.out)
            self.assert_equal_to_whole()
        with self.subTest("ranks that cannot share it"):
            result = self.resumed(3, KEYS, status=EXIT_USAGE)
            self.assert_one_cause(result, "a global batch of 8 sequences, which 3 ranks cannot share",
                                  "run on 1, 2 or 4 ranks")
        with self.subTest("unless nothing is left to do"):
            result = self.train(3, {**KEYS, "run.dir": "whole"})
            self.assertIn("nothing to do: step 8 of 8 is done", result.out)
            self.assertEqual(len(of_kind(self.folder / "whole", "summary")), 1)
        with self.subTest("the numbers of ranks are listed"):
            lines = self.print_world_sizes({**KEYS, "run.dir": "stopped"})
            self.assertEqual(lines[0][-1], "stopped/checkpoints/step-00000004:")
            self.assertEqual(lines[2:], [["1", "2", "4", "8"], ["2", "2", "2", "8"], ["4", "2", "1", "8"]])

    def test_elastic_batch(self):
        self.train(4, {**KEYS, "run.dir": "whole"})
        self.train(4, {**ELASTIC, "run.dir": "stopped", "train.stop_at_step": 4}, status=EXIT_STOPPED)
        self.resumed(2, ELASTIC)
        self.assert_equal_to_whole()
        self.assert_one_cause(self.resumed(3, ELASTIC, status=EXIT_USAGE), "run on 1, 2, 4 or 8 ranks")
        result = self.resumed(2, {**ELASTIC, "elasticity.max_train_batch_size": 7}, status=EXIT_USAGE)
        self.assert_one_cause(result, "a global batch of 8 sequences and [elasticity] gives 6")
        self.assertEqual(self.print_world_sizes({**ELASTIC, "run.dir": "new"})[1:],
                         [["1", "2", "4", "8"], ["2", "2", "2", "8"], ["4", "2", "1", "8"], ["8", "1", "1", "8"]])
        self.assertFalse((self.folder / "new").exists())


class NoCheckpointTest(EndToEndTest):
    """The folder holds a run that left no checkpoint."""
    KEYS = {**KEYS, "run.dir": "run", "checkpoint.every": 0}

    def metrics(self) -> str:
        return (self.folder / "run/metrics.jsonl").read_text()

    def assert_started_again(self, result: Result, steps: int):
        run = self.folder / "run"
        self.assertIn("interrupted before its first checkpoint: it starts again at step 0", result.out)
        self.assertEqual([record["step"] for record in of_kind(run, "step")], list(range(1, steps + 1)))
        self.assertEqual([record["step"] for record in of_kind(run, "eval")], [0, steps])
        self.assertEqual(len(of_kind(run, "run")), 1)
        self.assertEqual((run / "run.log").read_text().count("starts again at step 0"), 1)
        self.assertEqual((run / "run.log").read_text().count("FullShard "), 2)

    def test_killed_run_starts_again(self):
        keys = {**self.KEYS, "train.steps": 80, "checkpoint.every": 80}
        job = self.start(2, keys)
        deadline = time.monotonic() + DEADLINE_S
        metrics = self.folder / "run/metrics.jsonl"
        while not (metrics.exists() and metrics.read_text().count('"kind":"step"') >= 5):
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.01)
        for pid in job.ranks().values():
            os.kill(pid, signal.SIGKILL)
        self.assertNotEqual(job.finish().status, 0)
        self.assertEqual(of_kind(self.folder / "run", "summary"), [])
        # With another number of ranks too: the global batch of the first start is kept.
        self.assert_started_again(self.train(1, keys), 80)
        self.train(2, {**keys, "run.dir": "whole"})
        self.assertEqual(numbers(self.folder / "run"), numbers(self.folder / "whole"))

    def test_run_killed_in_its_first_save_starts_again(self):
        keys = {**KEYS, "run.dir": "run"}
        job = self.start(2, {**keys, "fault.kill_in_save": "before_complete"})
        self.assertNotEqual(job.finish().status, 0)
        self.assertTrue((self.folder / "run/checkpoints/step-00000004.tmp").exists())
        self.assert_started_again(self.train(2, keys), 8)

    def test_finished_run_stays_finished(self):
        self.train(2, self.KEYS)
        before = self.metrics()
        result = self.train(3, self.KEYS)
        self.assertIn("nothing to do: step 8 of 8 is done", result.out)
        self.assertEqual(self.metrics(), before)
        result = self.train_to_common_end(2, {**self.KEYS, "train.steps": 9}, EXIT_USAGE)
        self.assert_one_cause(result, "finished after step 8", "run.overwrite = on")
        self.assertEqual(self.metrics(), before)

    def test_run_of_another_deck_is_refused(self):
        self.train(2, self.KEYS)
        before = self.metrics()
        result = self.train_to_common_end(2, {**self.KEYS, "model.d_ff": 128}, EXIT_USAGE)
        self.assert_one_cause(result, "run.dir = run already holds a run of another deck")
        self.assertIn("model.d_ff was 64 and is 128", result.err)
        self.assertEqual(self.metrics(), before)


if __name__ == "__main__":
    unittest.main()
