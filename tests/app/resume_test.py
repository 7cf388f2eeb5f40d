"""A run that was stopped, killed or finished goes on as if nothing had happened."""
import os
import shutil
import signal
import unittest
from pathlib import Path

from end_to_end import (EXIT_DATA, EXIT_RUN_ERROR, EXIT_STOPPED, EXIT_USAGE, SMOKE_DECK, EndToEndTest, numbers,
                        of_kind, state, words_of)

# Four micro-batches a step at 1, 2 and 4 ranks; the last step is the eighth. The learning rate differs in all steps.
KEYS = {"train.steps": 8, "train.micro_batch": 2, "train.global_batch": 8, "checkpoint.every": 4,
        "model.dropout": 0.1, "schedule.kind": "cosine", "schedule.warmup_steps": 2}


class ResumeTest(EndToEndTest):
    def uninterrupted(self) -> Path:
        self.train(2, {**KEYS, "run.dir": "whole"})
        return self.folder / "whole"

    def assert_equal_runs(self, folder: Path, whole: Path):
        self.assertEqual(numbers(folder), numbers(whole))
        self.assertEqual(state(folder, 8), state(whole, 8))
        self.assertEqual([record["loss"] for record in of_kind(folder, "eval")],
                         [record["loss"] for record in of_kind(whole, "eval")])

    def test_stop_and_resume_at_other_world_sizes(self):
        whole = self.uninterrupted()
        self.train_to_common_end(2, {**KEYS, "run.dir": "stopped", "train.stop_at_step": 4}, EXIT_STOPPED)
        for ranks, more in ((1, {}), (2, {}), (4, {"topology.ranks_per_node": 2}),
                            (2, {"shard.strategy": "no_shard"}), (2, {"comm.node_shared": "off"})):
            with self.subTest(ranks=ranks, **more):
                folder = self.folder / "resumed"
                shutil.copytree(self.folder / "stopped", folder)
                self.train(ranks, {**KEYS, "run.dir": "resumed", **more})
                self.assert_equal_runs(folder, whole)
                shutil.rmtree(folder)

    def test_resume_from_a_path_into_a_new_folder(self):
        whole = self.uninterrupted()
        self.train(4, {**KEYS, "run.dir": "other", "checkpoint.resume": "whole/checkpoints/step-00000004"})
        self.assertEqual(numbers(self.folder / "other"), numbers(whole)[4:])
        self.assertEqual(state(self.folder / "other", 8), state(whole, 8))

    def test_repeated_resume_from_a_path_goes_on(self):
        """A job that is put back into the queue repeats its command."""
        whole = self.uninterrupted()
        keys = {**KEYS, "run.dir": "other", "checkpoint.resume": "whole/checkpoints/step-00000004",
                "checkpoint.every": 8}
        self.train(2, {**keys, "fault.throw_at_step": 6}, status=EXIT_RUN_ERROR)
        result = self.train_to_common_end(2, {**keys, "train.stop_at_step": 7}, EXIT_STOPPED)
        self.assertIn("starts again from whole/checkpoints/step-00000004", result.out)
        result = self.train(2, keys)
        self.assertIn("after step 7", result.out)
        self.assertEqual(numbers(self.folder / "other"), numbers(whole)[4:])
        self.assertEqual(state(self.folder / "other", 8), state(whole, 8))
        self.assertIn("nothing to do", self.train(2, keys).out)
        # Going back in the run's own folder is no repetition.
        again = {**KEYS, "run.dir": "whole", "checkpoint.resume": "whole/checkpoints/step-00000004"}
        for _ in range(2):
            self.assertIn("after step 4", self.train(2, again).out)

    def test_finished_run_stays_finished(self):
        whole = self.uninterrupted()
        before = numbers(whole), state(whole, 8)
        result = self.train(1, {**KEYS, "run.dir": "whole"})
        self.assertIn("nothing to do: step 8 of 8 is done", result.out)
        self.assertEqual((numbers(whole), state(whole, 8)), before)

    def test_signal_to_one_rank_stops_all_at_the_same_step(self):
        # With a validation after every step most signals fall into one.
        for number, more in ((signal.SIGUSR1, {}), (signal.SIGTERM, {"train.eval_every": 1})):
            with self.subTest(signal=number.name, **more):
                folder = self.folder / number.name
                keys = {**KEYS, "run.dir": number.name, "train.steps": 1_000_000, "checkpoint.every": 0}
                job = self.start(3, {**keys, "train.global_batch": 0, **more})
                self.wait_until(job, lambda: of_kind(folder, "step")[20:])
                os.kill(job.ranks()[2], number)
                result = job.finish()
                self.check_end(result, EXIT_STOPPED)
                last = of_kind(folder, "step")[-1]["step"]
                self.assertEqual([path.name for path in (folder / "checkpoints").iterdir()], [f"step-{last:08}"])
                self.assertTrue(of_kind(folder, "summary")[0]["stopped_early"])

    def test_kill_during_a_save_leaves_the_previous_checkpoint(self):
        # Large enough for a save to take a while: 4.2 million parameters, 50 MB.
        keys = {**KEYS, "run.dir": "run", "model.d_model": 512, "model.d_ff": 1024, "train.steps": 6,
                "checkpoint.every": 1, "data.validation_fraction": 0, "checkpoint.keep_last": 0}
        checkpoints = self.folder / "run/checkpoints"
        unfinished = []
        for _ in range(6):
            shutil.rmtree(self.folder / "run", ignore_errors=True)
            job = self.start(2, keys)
            self.wait_until(job, lambda: (checkpoints / "step-00000002.tmp/state.h5").exists(), pause=0.001)
            for pid in job.ranks().values():
                os.kill(pid, signal.SIGKILL)
            self.assertNotEqual(job.finish().status, 0)
            unfinished = [path.name for path in checkpoints.iterdir() if path.suffix == ".tmp"]
            if unfinished:
                break
        self.assertEqual(unfinished, ["step-00000002.tmp"], "no kill fell into a save")
        result = self.train(2, keys)
        self.assertIn("after step 1", result.out)
        self.assertIn("step-00000002.tmp", result.out)
        self.assertEqual([record["step"] for record in of_kind(self.folder / "run", "step")], list(range(1, 7)))
        self.assertEqual([path for path in checkpoints.iterdir() if path.suffix == ".tmp"], [])

    def test_damaged_checkpoints_are_named(self):
        whole = self.uninterrupted()
        newest = whole / "checkpoints/step-00000008"
        content = bytearray((newest / "state.h5").read_bytes())
        content[len(content) // 2] ^= 1
        (newest / "state.h5").write_bytes(content)
        result = self.train_to_common_end(2, {**KEYS, "run.dir": "whole", "train.steps": 9}, EXIT_DATA)
        self.assert_one_cause(result, "state.h5")
        (newest / "state.h5").write_bytes(content[:-4096])
        result = self.train(2, {**KEYS, "run.dir": "whole", "train.steps": 9})
        self.assertIn("step-00000008", result.out)
        self.assertIn("after step 4", result.out)

    def test_another_model_or_data_cannot_go_on(self):
        self.uninterrupted()
        result = self.train_to_common_end(2, {**KEYS, "run.dir": "whole", "model.d_ff": 128, "run.seed": 7,
                                              "train.steps": 9}, EXIT_USAGE)
        self.assertIn("model.d_ff was 64 and is 128", result.err)
        self.assertIn("run.seed was 1 and is 7", result.err)

    def test_evaluation_of_saved_weights(self):
        whole = self.uninterrupted()
        expected = float(of_kind(whole, "eval")[-1]["loss"])
        command = [*words_of(SMOKE_DECK, {**KEYS, "model.init_from": "whole"})]
        result = self.run_alone("eval", *command[1:])
        self.assertEqual(result.status, 0, result.err)
        self.assertIn(f"validation loss {expected:.6f}", result.out)


if __name__ == "__main__":
    unittest.main()
