"""A job that goes wrong ends as a whole, within seconds, with one cause and a clean node."""
import os
import signal
import time
import unittest

from end_to_end import EXIT_DIVERGED, EXIT_RUN_ERROR, EndToEndTest, is_alive, of_kind

SECONDS = 10  # the most that the end may take; waiting for peers would take comm.timeout_s = 300


class FailureTest(EndToEndTest):
    def test_rank_that_throws(self):
        result = self.train(3, {"run.dir": "run", "fault.throw_at_step": 4, "fault.rank": 1},
                            status=EXIT_RUN_ERROR)
        last_record = (self.folder / "run/metrics.jsonl").stat().st_mtime
        self.assertLess(time.time() - last_record, SECONDS)
        self.assertRegex(result.err, r"(?m)^fullshard: rank 1 on \S+: fault\.throw_at_step = 4$")
        self.assert_one_cause(result)
        self.assertIn("FAULT INJECTION: rank 1 will throw in step 4", result.out)
        self.assertEqual([record["step"] for record in of_kind(self.folder / "run", "step")], [1, 2, 3])

    def test_rank_that_is_killed(self):
        job = self.start(3, {"run.dir": "run", "train.steps": 1_000_000, "train.log_every": 100})
        self.wait_for_steps(job, 2)
        ranks = job.ranks()
        self.assertEqual(sorted(ranks), [0, 1, 2])
        # Else the check for a clean end would look in the wrong place.
        self.assertTrue(any(self.shared_memory.rglob("*")))
        os.kill(ranks[1], signal.SIGKILL)
        begin = time.monotonic()
        result = job.finish()
        while any(is_alive(pid) for pid in ranks.values()) and time.monotonic() - begin < SECONDS:
            time.sleep(0.05)
        self.assertLess(time.monotonic() - begin, SECONDS)
        self.assertNotEqual(result.status, 0)
        self.assert_shared_memory_is_clean()

    def test_divergence(self):
        result = self.train_to_common_end(2, {"run.dir": "run", "optimizer.lr": 1e30}, EXIT_DIVERGED)
        self.assert_one_cause(result, "the loss is nan", "lower optimizer.lr")
        self.assertEqual(of_kind(self.folder / "run", "summary"), [])


if __name__ == "__main__":
    unittest.main()
