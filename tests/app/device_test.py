"""device.kind = cuda where there is no GPU: what is missing is said once, and nothing is written."""
import unittest
from pathlib import Path

from end_to_end import BINARY, EXIT_RUN_ERROR, EXIT_USAGE, EndToEndTest

MODULE = BINARY.parent.parent / "lib/fullshard/libfullshard_cuda.so"
ON_GPUS = {"device.kind": "cuda", "reduce.order": "fast"}


def has_gpu() -> bool:
    return any(Path("/dev").glob("nvidia[0-9]*"))


class DeviceTest(EndToEndTest):
    @unittest.skipIf(has_gpu(), "this machine has a GPU")
    def test_no_gpu(self):
        status = EXIT_RUN_ERROR if MODULE.exists() else EXIT_USAGE
        result = self.train_to_common_end(2, {"run.dir": "run", **ON_GPUS}, status)
        if MODULE.exists():
            self.assert_one_cause(result, "driver")
        else:
            self.assert_one_cause(result, "libfullshard_cuda.so")
        self.assertFalse((self.folder / "run").exists())

    @unittest.skipIf(has_gpu(), "this machine has a GPU")
    def test_doctor_says_what_is_missing(self):
        words = [word for key, value in ON_GPUS.items() for word in (f"--{key}", value)]
        result = self.run_to_common_end(2, ["doctor", *words], EXIT_RUN_ERROR)
        [line] = [line for line in result.out.splitlines() if line.startswith("FAIL")]
        self.assertTrue(line[6:].startswith("devices "), line)
        self.assertIn("driver" if MODULE.exists() else "libfullshard_cuda.so", line)
        self.assertIn("set device.kind = cpu", result.out)

    def test_what_gpus_cannot_do(self):
        for keys, remedy in [({"reduce.order": "tree"}, "set reduce.order = fast"),
                             ({"comm.backend": "mpi"}, "set comm.backend = auto"),
                             ({"shard.reshard_after_forward": "2"}, "set shard.reshard_after_forward = on"),
                             ({"run.measure_peak": "on"}, "set run.measure_peak = off"),
                             ({"model.family": "custom"}, "set device.kind = cpu")]:
            with self.subTest(keys=keys):
                result = self.train(1, {"run.dir": "run", **ON_GPUS, **keys}, status=EXIT_USAGE)
                self.assertIn(remedy, result.err)

    def test_nccl_between_cpus(self):
        result = self.train(1, {"run.dir": "run", "comm.backend": "nccl"}, status=EXIT_USAGE)
        self.assertIn("set comm.backend = auto", result.err)


if __name__ == "__main__":
    unittest.main()
