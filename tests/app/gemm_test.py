"""The library of matrix products: chosen once, written down, kept by a run that goes on."""
import os
import shutil
import unittest
from pathlib import Path

from end_to_end import EXIT_STOPPED, EXIT_USAGE, SMOKE_DECK, EndToEndTest, numbers, of_kind, state, words_of

KEYS = {"train.steps": 6, "checkpoint.every": 3, "train.global_batch": 8}
IDLE_LIBRARY = Path(os.environ["FULLSHARD_IDLE_GEMM"])
ONEDNN_FILES = ["libdnnl.so.2", "libdnnl.so.3"]


def chosen(folder: Path) -> str:
    """As the effective deck has it."""
    lines = (folder / "effective.ini").read_text().splitlines()
    return next(line.split("=")[1].split("#")[0].strip() for line in lines if line.startswith("gemm ="))


class GemmTest(EndToEndTest):
    def idle_onednn(self) -> dict[str, str]:
        """An environment in which oneDNN computes nothing and reports success."""
        folder = self.folder / "idle"
        folder.mkdir()
        for name in ONEDNN_FILES:
            shutil.copy(IDLE_LIBRARY, folder / name)
        return {"LD_LIBRARY_PATH": f"{folder}:{os.environ.get('LD_LIBRARY_PATH', '')}"}

    def test_named_library_that_computes_nothing_is_refused(self):
        result = self.run_to_common_end(2, words_of(SMOKE_DECK, {**KEYS, "run.dir": "run", "kernels.gemm": "onednn"}),
                                        EXIT_USAGE, **self.idle_onednn())
        self.assert_one_cause(result, "kernels.gemm = onednn", "rank 0", "computes a wrong product", "libdnnl2")

    def test_preferred_library_that_computes_nothing_is_passed_over(self):
        result = self.run_to_common_end(2, words_of(SMOKE_DECK, {**KEYS, "run.dir": "run"}), 0, **self.idle_onednn())
        self.assertIn("onednn is not there on all ranks (rank 0: oneDNN computes a wrong product", result.out)
        self.assertIn(chosen(self.folder / "run"), ("openblas", "libtorch"))

    def test_run_that_goes_on_keeps_its_library(self):
        keys = {**KEYS, "kernels.gemm": "libtorch"}
        self.train(2, {**keys, "run.dir": "whole"})
        self.train(2, {**keys, "run.dir": "run", "train.stop_at_step": 3}, status=EXIT_STOPPED)
        result = self.train(2, {**KEYS, "run.dir": "run"})
        self.assertRegex(result.out, r"matrix products: LibTorch [\d.]+ \(as in the run that goes on\)")
        self.assertEqual(chosen(self.folder / "run"), "libtorch")
        self.assertEqual(numbers(self.folder / "run"), numbers(self.folder / "whole"))
        self.assertEqual(state(self.folder / "run", 6), state(self.folder / "whole", 6))
        # It is finished: the open key is no change.
        self.assertNotIn("kernels.gemm", self.train(2, {**KEYS, "run.dir": "run"}).out)

    def test_run_that_goes_on_by_another_library_says_so(self):
        self.train(1, {**KEYS, "run.dir": "run", "train.stop_at_step": 3}, status=EXIT_STOPPED)
        first = chosen(self.folder / "run")
        if first == "libtorch":
            self.skipTest("no library but LibTorch is installed")
        result = self.train(1, {**KEYS, "run.dir": "run", "kernels.gemm": "libtorch"})
        self.assertIn(f"kernels.gemm was {first} and is libtorch", result.out)

    def test_lost_library_does_not_keep_a_run_from_going_on(self):
        self.train(1, {**KEYS, "run.dir": "run", "train.stop_at_step": 3}, status=EXIT_STOPPED)
        if chosen(self.folder / "run") != "onednn":
            self.skipTest("oneDNN is not installed")
        result = self.run_to_common_end(1, words_of(SMOKE_DECK, {**KEYS, "run.dir": "run"}), 0, **self.idle_onednn())
        self.assertIn("differs from the checkpoint, so results will too: kernels.gemm was onednn and is", result.out)

    def test_auto_names_its_pick(self):
        result = self.train(2, {**KEYS, "run.dir": "run", "kernels.gemm": "auto"})
        self.assertRegex(result.out, r"matrix products: \w+ [\d.]+ \(the fastest of \d\)")
        self.assertIn(chosen(self.folder / "run"), ("onednn", "openblas", "libtorch"))
        self.assertRegex(of_kind(self.folder / "run", "run")[0]["matrix_products"], r"\w+ [\d.]+")
        losses = [float(record["loss"]) for record in of_kind(self.folder / "run", "step")]
        self.train(2, {**KEYS, "run.dir": "other", "kernels.gemm": "libtorch"})
        for loss, other in zip(losses, of_kind(self.folder / "other", "step"), strict=True):
            self.assertAlmostEqual(loss, float(other["loss"]), delta=1e-6 * loss)


if __name__ == "__main__":
    unittest.main()
