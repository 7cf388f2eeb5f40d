"""Saves that are killed at any stage, find no room, or meet another run: the last checkpoint stays."""
import os
import shutil
import signal
import subprocess
import unittest
from pathlib import Path

from end_to_end import EXIT_DIVERGED, EXIT_RUN_ERROR, EXIT_STOPPED, EXIT_USAGE, EndToEndTest, of_kind

KEYS = {"train.steps": 6, "train.micro_batch": 2, "train.global_batch": 8, "checkpoint.every": 2,
        "checkpoint.keep_last": 1, "data.validation_fraction": 0, "model.dropout": 0.1}
STAGES = ["before_data", "during_data", "before_manifest", "before_complete", "before_rename", "before_retain"]


def losses(folder: Path) -> list[tuple]:
    return [(record["step"], record["loss"]) for record in of_kind(folder, "step")]


def checkpoints(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "checkpoints").iterdir())


class SavingTest(EndToEndTest):
    def test_kill_at_each_stage(self):
        self.train(2, {**KEYS, "run.dir": "whole"})
        whole = self.folder / "whole"
        final = (whole / "checkpoints/step-00000006/state.h5").read_bytes()
        self.train(2, {**KEYS, "run.dir": "stopped", "train.stop_at_step": 2}, status=EXIT_STOPPED)
        for stage in STAGES:
            # Asynchronous saves take the same stages in threads; the last one of a run is never one.
            for mode in ("off", "on"):
                with self.subTest(stage=stage, asynchronous=mode):
                    run = self.folder / "run"
                    shutil.copytree(self.folder / "stopped", run)
                    rank = 1 if stage == "during_data" else 0
                    killed = self.start(2, {**KEYS, "run.dir": "run", "checkpoint.async": mode,
                                            "fault.kill_in_save": stage, "fault.rank": rank}).finish()
                    self.assertNotEqual(killed.status, 0)
                    kept = ["step-00000002", "step-00000004"] if stage == "before_retain" else \
                        ["step-00000002", "step-00000004.tmp"]
                    self.assertEqual(checkpoints(run), kept)
                    resumed = self.train(2, {**KEYS, "run.dir": "run"})
                    self.assertIn("after step 4" if stage == "before_retain" else "after step 2", resumed.out)
                    if rank == 0:
                        self.assertIn("left locked by", resumed.out)
                    self.assertEqual(losses(run), losses(whole))
                    self.assertEqual((run / "checkpoints/step-00000006/state.h5").read_bytes(), final)
                    self.assertEqual(checkpoints(run), ["step-00000006"])
                    shutil.rmtree(run)

    def test_background_saves_and_files_of_nodes_hold_the_same(self):
        self.train(2, {**KEYS, "run.dir": "whole", "checkpoint.keep_every": 4})
        whole = self.folder / "whole"
        self.assertEqual(checkpoints(whole), ["step-00000004", "step-00000006"])
        self.train(2, {**KEYS, "run.dir": "async", "checkpoint.async": "on", "checkpoint.keep_last": 0})
        run = self.folder / "async"
        self.assertEqual(checkpoints(run), ["step-00000002", "step-00000004", "step-00000006"])
        for step in (4, 6):
            name = f"checkpoints/step-{step:08}/state.h5"
            self.assertEqual((run / name).read_bytes(), (whole / name).read_bytes())
        summary = of_kind(run, "summary")[0]
        self.assertEqual(summary["checkpoints_saved"], 3)
        self.assertIn("checkpoint copy", str(summary["memory_allocated"]))
        nodes = {**KEYS, "run.dir": "nodes", "topology.ranks_per_node": 2, "checkpoint.files": "node"}
        self.train(4, {**nodes, "train.stop_at_step": 4}, status=EXIT_STOPPED)
        self.assertEqual(sorted(path.name for path in (self.folder / "nodes/checkpoints/step-00000004").iterdir()),
                         ["COMPLETE", "effective.ini", "index.h5", "manifest.json", "state-0000.h5",
                          "state-0001.h5"])
        self.train(1, {**KEYS, "run.dir": "nodes"})
        self.assertEqual(losses(self.folder / "nodes"), losses(whole))
        self.assertEqual((self.folder / "nodes/checkpoints/step-00000006/state.h5").read_bytes(),
                         (whole / "checkpoints/step-00000006/state.h5").read_bytes())

    def test_end_of_a_run_waits_for_a_save_in_the_background(self):
        keys = {**KEYS, "checkpoint.async": "on", "checkpoint.keep_last": 0, "checkpoint.every": 1}
        self.train(2, {**keys, "run.dir": "stopped", "train.stop_at_step": 3}, status=EXIT_STOPPED)
        self.assertEqual(checkpoints(self.folder / "stopped"), [f"step-{step:08}" for step in (1, 2, 3)])
        # An error that the ranks agree on, in the step after a save has begun.
        result = self.train_to_common_end(2, {**keys, "run.dir": "diverged", "optimizer.lr": 1e30}, EXIT_DIVERGED)
        self.assert_one_cause(result, "lower optimizer.lr")
        steps = [record["step"] for record in of_kind(self.folder / "diverged", "step")]
        self.assertGreater(len(steps), 0)
        self.assertEqual(checkpoints(self.folder / "diverged"), [f"step-{step:08}" for step in steps])

    def test_second_run_in_the_same_folder_is_refused(self):
        keys = {**KEYS, "run.dir": "run", "train.steps": 1_000_000, "checkpoint.every": 0}
        first = self.start(1, keys)
        self.wait_for_steps(first, 1)
        self.assertTrue((self.folder / "run/LOCK").exists())
        second = self.train_to_common_end(2, {**keys, "run.overwrite": "on"}, EXIT_USAGE)
        self.assert_one_cause(second, "LOCK is held by process", str(first.ranks()[0]))
        os.kill(first.ranks()[0], signal.SIGUSR1)
        self.check_end(first.finish(), EXIT_STOPPED)
        self.assertFalse((self.folder / "run/LOCK").exists())

    def test_full_disk_leaves_training_running(self):
        # A checkpoint has 7 MB: the disk has room for one and not for two.
        keys = {**KEYS, "run.dir": "disk/run", "model.d_model": 128, "model.d_ff": 1024, "train.steps": 5}
        disk = self.mount_small_disk(12)
        for mode in ("off", "on"):
            with self.subTest(asynchronous=mode):
                result = self.train_to_common_end(2, {**keys, "checkpoint.async": mode, "run.overwrite": "on"},
                                                  EXIT_RUN_ERROR)
                self.assertIn("THE CHECKPOINT OF STEP 4 WAS NOT SAVED", result.out)
                self.assert_one_cause(result, "needs", "the disk has")
                events = of_kind(disk / "run", "event")
                self.assertEqual([(event["event"], event.get("step")) for event in events],
                                 [("start", None), ("failed_save", 4), ("error", None)])
                self.assertEqual([record["step"] for record in of_kind(disk / "run", "step")], [1, 2, 3, 4, 5])
                self.assertEqual(checkpoints(disk / "run"), ["step-00000002"])
        aborted = self.train_to_common_end(
            2, {**keys, "checkpoint.on_error": "abort", "run.overwrite": "on"}, EXIT_RUN_ERROR)
        self.assert_one_cause(aborted, "needs", "the disk has")
        self.assertEqual(len(of_kind(disk / "run", "step")), 4)
        refused = self.train_to_common_end(2, keys, EXIT_RUN_ERROR)  # before the first step
        self.assert_one_cause(refused, "needs", "the disk has")
        self.assertIn("after step 2", self.train(2, {**keys, "checkpoint.every": 0, "train.steps": 3}).out)

    def test_read_only_folder_is_named(self):
        disk = self.mount_small_disk(12)
        self.train(1, {**KEYS, "run.dir": "disk/run", "train.steps": 2})
        subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
        result = self.train_to_common_end(2, {**KEYS, "run.dir": "disk/run"}, EXIT_RUN_ERROR)
        self.assert_one_cause(result, "disk/run", "Read-only file system")


if __name__ == "__main__":
    unittest.main()
