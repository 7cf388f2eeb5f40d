"""A job that stands still ends by itself and says which rank is to blame."""
import json
import os
import signal
import time
import unittest

from end_to_end import EXIT_COMMUNICATION, EndToEndTest, of_kind

TIMEOUT = {"run.dir": "run", "comm.timeout_s": 3}


class HangTest(EndToEndTest):
    def assert_cause(self, result, pattern: str):
        self.assertEqual(result.status, EXIT_COMMUNICATION, result)
        [cause] = result.causes()
        self.assertRegex(cause, pattern)
        self.assertEqual((self.folder / "run/hang/cause.txt").read_text(), cause.removeprefix("fullshard: ") + "\n")
        self.assert_shared_memory_is_clean()

    def reports(self) -> dict[int, dict]:
        read = [json.loads(path.read_text()) for path in (self.folder / "run/hang").glob("rank-*.json")]
        return {report["rank"]: report for report in read}

    def test_rank_that_does_nothing_more(self):
        for more in ({}, {"topology.ranks_per_node": 1}, {"shard.strategy": "no_shard"}):
            with self.subTest(**more):
                result = self.start(3, {**TIMEOUT, "run.overwrite": "on", "fault.hang_at_step": 4, "fault.rank": 1,
                                        **more}).finish()
                self.assert_cause(result, r"rank 1 has not come to .*, where ranks 0, 2 wait; rank 1 on \S+ has called "
                                          r"nothing for \d+ s, in training step 4")
                reports = self.reports()
                self.assertEqual(sorted(reports), [0, 1, 2])
                self.assertEqual({rank: report["waits"] for rank, report in reports.items()},
                                 {0: True, 1: False, 2: True})

    def test_rank_that_is_stopped(self):
        job = self.start(3, {**TIMEOUT, "train.steps": 1_000_000})
        self.wait_for_steps(job, 5)
        stopped = job.ranks()[2]
        os.kill(stopped, signal.SIGSTOP)
        try:
            result = job.finish()
        finally:
            os.kill(stopped, signal.SIGCONT) if os.path.exists(f"/proc/{stopped}") else None
        self.assert_cause(result, "rank 2 has not come to .*, where ranks 0-1 wait; rank 2 says nothing")

    def test_single_rank(self):
        result = self.start(1, {**TIMEOUT, "fault.hang_at_step": 2}).finish()
        self.assert_cause(result, r"rank 0 on \S+ has called nothing for 3 s, in training step 2")

    def test_stray_collective(self):
        stray = {**TIMEOUT, "fault.stray_collective_at_step": 3, "fault.rank": 1, "comm.timeout_s": 5}
        result = self.start(3, {**stray, "comm.check": "on"}).finish()
        self.assertEqual(result.status, EXIT_COMMUNICATION, result)
        self.assert_one_cause(result, "ranks of one group call different collectives", "rank 1 calls barrier",
                              "calls all_gather of")

    def test_check_changes_no_number(self):
        losses = []
        for check in ("off", "on"):
            self.train(4, {"run.dir": check, "comm.check": check, "topology.ranks_per_node": 2})
            losses.append([record["loss"] for record in of_kind(self.folder / check, "step")])
        self.assertEqual(*losses)

    def test_suspended_job_goes_on(self):
        """A scheduler may stop all ranks for longer than they wait for each other."""
        job = self.start(2, {**TIMEOUT, "train.steps": 300})
        self.wait_for_steps(job, 5)
        ranks = job.ranks().values()
        for pid in ranks:
            os.kill(pid, signal.SIGSTOP)
        time.sleep(5)
        for pid in ranks:
            os.kill(pid, signal.SIGCONT)
        result = job.finish()
        self.assertEqual(result.status, 0, result)


if __name__ == "__main__":
    unittest.main()
