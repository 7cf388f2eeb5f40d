"""A run that is asked to stop ends behind a durable checkpoint, wherever it was, and goes on from there."""
import os
import shutil
import signal
import subprocess
import time
import unittest
from pathlib import Path

from end_to_end import (EXIT_COMMUNICATION, EXIT_RUN_ERROR, EXIT_STOPPED, EXIT_USAGE, EndToEndTest, Job, Result,
                        of_kind)

ENDLESS = {"train.steps": 1_000_000, "run.dir": "run", "train.log_every": 1}


def checkpoints(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "checkpoints").glob("step-*[0-9]"))


def catches(pid: int, number: signal.Signals) -> bool:
    [mask] = [line.split()[1] for line in Path(f"/proc/{pid}/status").read_text().splitlines()
              if line.startswith("SigCgt:")]
    return int(mask, 16) >> (number - 1) & 1 == 1


class StopTest(EndToEndTest):
    def setUp(self):
        super().setUp()
        self.run_folder = self.folder / "run"

    def steps_done(self) -> int:
        return len(of_kind(self.run_folder, "step"))

    def signal_after(self, job: Job, steps: int, number: signal.Signals, rank: int):
        self.wait_for_steps(job, steps)
        os.kill(job.ranks()[rank], number)

    def assert_goes_on(self, ranks: int, stop: int, **more):
        """The run, which ended with `stop` steps, goes on for two, each of its steps there once."""
        result = self.train(ranks, {**ENDLESS, "train.steps": stop + 2, **more})
        self.assertEqual([record["step"] for record in of_kind(self.run_folder, "step")], [*range(1, stop + 3)])
        return result

    # Lightning-AI/pytorch-lightning#20806: ranks saw TERM at different steps and waited for each other for ever.
    def test_signal_to_one_rank_while_another_is_slow(self):
        job = self.start(3, {**ENDLESS, "fault.slow_step_s": 0.5, "fault.rank": 0})
        self.signal_after(job, 2, signal.SIGUSR2, rank=1)
        result = job.finish()
        self.assertEqual(result.status, EXIT_STOPPED, result)
        stop = self.steps_done()
        self.assertIn(f"stopping after step {stop}: USR2 on rank 1", result.out)
        self.assertEqual(checkpoints(self.run_folder), [f"step-{stop:08}"])
        [event] = [record for record in of_kind(self.run_folder, "event") if record["event"] == "stop"]
        self.assertEqual((event["step"], event["reason"]), (stop, "USR2 on rank 1"))
        self.assert_goes_on(3, stop)

    def test_signal_during_start_up(self):
        job = self.start(2, {**ENDLESS, "train.steps": 3})
        # As soon as the program runs; before, while LibTorch is loaded, a signal ends it.
        self.wait_until(job, lambda: len(job.ranks()) == 2 and catches(job.ranks()[1], signal.SIGTERM))
        os.kill(job.ranks()[1], signal.SIGTERM)
        result = job.finish()
        self.assertEqual(result.status, EXIT_STOPPED, result)
        self.assertEqual(self.steps_done(), 0)
        self.assertEqual(checkpoints(self.run_folder), ["step-00000000"])
        self.train(2, {**ENDLESS, "train.steps": 3})
        self.train(2, {**ENDLESS, "train.steps": 3, "run.dir": "whole"})
        whole = self.folder / "whole"
        for kind in ("step", "eval"):
            self.assertEqual([(record["step"], record["loss"]) for record in of_kind(self.run_folder, kind)],
                             [(record["step"], record["loss"]) for record in of_kind(whole, kind)])

    # goodfire-ai/spd#677: stop requests were looked at between steps only, and evaluations are long.
    def test_signal_during_evaluation(self):
        long_evaluation = {"data.synthetic_sequences": 100_000, "data.validation_fraction": 0.999}
        job = self.start(2, {**ENDLESS, **long_evaluation})
        self.wait_until(job, lambda: (self.run_folder / "metrics.jsonl").exists())
        time.sleep(1.0)
        begin = time.monotonic()
        os.kill(job.ranks()[0], signal.SIGUSR1)
        result = job.finish()
        self.assertLess(time.monotonic() - begin, 10)
        self.assertEqual(result.status, EXIT_STOPPED, result)
        self.assertEqual(of_kind(self.run_folder, "eval"), [])
        self.assertIn("evaluation after step 0 is left to the next start", result.out)
        self.assert_goes_on(2, 0, **long_evaluation, **{"train.eval_max_sequences": 8})
        self.assertEqual([record["step"] for record in of_kind(self.run_folder, "eval")], [0, 2])

    def test_signal_during_the_last_evaluation(self):
        short = {**ENDLESS, "train.steps": 4, "data.synthetic_sequences": 100_000, "data.validation_fraction": 0.999,
                 "train.eval_max_sequences": 8}
        self.train(2, {**short, "train.stop_at_step": 2}, status=EXIT_STOPPED)
        job = self.start(2, {**short, "train.eval_max_sequences": 0})
        self.signal_after(job, 4, signal.SIGUSR1, rank=1)
        self.assertEqual(job.finish().status, EXIT_STOPPED)
        self.assertEqual([record["step"] for record in of_kind(self.run_folder, "eval")], [0])
        for line in ("done: 0 steps", "nothing to do: step 4 of 4 is done"):
            self.assertIn(line, self.train(2, short).out)
            self.assertEqual([record["step"] for record in of_kind(self.run_folder, "eval")], [0, 4])

    def test_signal_during_checkpoints(self):
        for background in ("off", "on"):
            with self.subTest(background=background):
                shutil.rmtree(self.run_folder, ignore_errors=True)
                saving = {"checkpoint.every": 1, "checkpoint.async": background}
                job = self.start(2, {**ENDLESS, **saving})
                self.signal_after(job, 5, signal.SIGUSR1, rank=1)
                result = job.finish()
                self.assertEqual(result.status, EXIT_STOPPED, result)
                stop = self.steps_done()
                self.assertEqual(checkpoints(self.run_folder)[-1], f"step-{stop:08}")
                self.assert_goes_on(2, stop, **saving)

    def stop_in_slow_step(self, *signals: float) -> tuple[Result, float]:
        """TERM to rank 0 at these seconds after the second step, in a step of 30 s; what the job then did, and for
        how long after the last of them."""
        job = self.start(2, {**ENDLESS, "checkpoint.every": 1, "train.steps": 50, "stop.grace_s": 4,
                             "fault.hang_at_step": 3})
        self.wait_until(job, lambda: self.steps_done() >= 2 and checkpoints(self.run_folder)[-1:] == ["step-00000002"])
        begin = time.monotonic()
        for at in signals:
            time.sleep(max(0.0, begin + at - time.monotonic()))
            os.kill(job.ranks()[1], signal.SIGTERM)
        return job.finish(), time.monotonic() - begin - signals[-1]

    def assert_checkpoint_is_whole(self, step: int):
        tool = Path(os.environ["FULLSHARD_BINARY"]).with_name("fullshard-ckpt")
        done = subprocess.run([tool, "verify", self.run_folder / f"checkpoints/step-{step:08}"], check=False,
                              capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_second_signal_ends_at_once(self):
        result, seconds = self.stop_in_slow_step(0.0, 2.5)
        self.assertEqual(result.status, EXIT_RUN_ERROR, result)
        self.assertLess(seconds, 4)
        self.assert_one_cause(result, "asked to stop a second time")
        self.assert_checkpoint_is_whole(2)

    def test_no_agreement_ends_after_the_grace(self):
        result, seconds = self.stop_in_slow_step(0.0, 0.5)  # the second one is close: it repeats the first
        self.assertEqual(result.status, EXIT_COMMUNICATION, result)
        self.assertLess(seconds, 8)
        self.assert_one_cause(result, "stop.grace_s = 4 s")
        self.assert_checkpoint_is_whole(2)

    def test_time_limit(self):
        begin = time.monotonic()
        result = self.train(2, {**ENDLESS, "stop.time_limit_s": 16, "stop.margin_s": 6}, status=EXIT_STOPPED)
        self.assertLess(time.monotonic() - begin, 16)
        stop = self.steps_done()
        self.assertGreater(stop, 0)
        self.assertIn(f"stopping after step {stop}: the job's end is near", result.out)
        self.assert_goes_on(2, stop)

    def test_end_of_job_as_slurm_tells_it(self):
        result = self.run_alone("train", os.environ["FULLSHARD_INPUTS"] + "/smoke.ini", "--run.dir", "run",
                                "--train.steps", "1000000", SLURM_JOB_END_TIME=str(int(time.time()) + 61))
        self.assertEqual(result.status, EXIT_STOPPED, result)
        self.assertIn("the job's end is near", result.out)
        result = self.run_alone("train", os.environ["FULLSHARD_INPUTS"] + "/smoke.ini", "--run.dir", "other",
                                SLURM_JOB_END_TIME="tomorrow")
        self.assertEqual(result.status, EXIT_USAGE, result)
        self.assert_one_cause(result, "SLURM_JOB_END_TIME = 'tomorrow'")


if __name__ == "__main__":
    unittest.main()
