"""tests/gpu/run with the real program: it ends where there is no GPU, and its checks of trainings work on CPUs.

CMakeLists.txt sets the environment: FULLSHARD_BINARY.
"""
import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

RUN = Path(__file__).parent / "run"
BUILD = Path(os.environ["FULLSHARD_BINARY"]).resolve().parent.parent
FAILING = """#!/bin/sh
[ "$1" = --version ] && echo FullShard && exit
echo fullshard: no room >&2
exit 4
"""
NO_DRIVER = "#!/bin/sh\necho the driver does not answer\nexit 9\n"


class RunTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="fullshard-test-")
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def run_it(self, *words: str) -> subprocess.CompletedProcess:
        # The same everywhere: this nvidia-smi hides a GPU that this machine may have.
        (self.folder / "nvidia-smi").write_text(NO_DRIVER)
        (self.folder / "nvidia-smi").chmod(0o755)
        return subprocess.run([sys.executable, RUN, "--build", BUILD, "--out", self.folder / "out", *words],
                              capture_output=True, text=True,
                              env={**os.environ, "PATH": f"{self.folder}:{os.environ['PATH']}"})

    def test_no_gpu(self):
        done = self.run_it()
        self.assertEqual(done.returncode, 3)
        self.assertIn("no GPU was found, and nothing was checked", done.stderr)
        self.assertFalse((self.folder / "out").exists())

    def test_rehearsal(self):
        done = self.run_it("--rehearse", "restart", "ranks", "memory", "overlap")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("4 passed, 0 failed, 0 could not run", done.stdout)
        self.assertIn("a rehearsal on CPUs: it says nothing of GPUs", done.stdout)
        data = json.loads((self.folder / "out/results.json").read_text())
        self.assertEqual([check["state"] for check in data["checks"]], ["passed"] * 4)
        restart, ranks, *_ = data["checks"]
        self.assertEqual(len(restart["raw"]["losses"]["device to CPU and back"]["losses"]), 20)
        self.assertEqual(len(ranks["raw"]["losses"]), 4)
        for name in ("cpu", "cores", "commit", "program", "mpi", "gpu"):
            self.assertIn(name, data["about"])

    def test_a_program_that_fails_is_a_check_that_fails(self):
        (self.folder / "bin").mkdir()
        program = self.folder / "bin/fullshard"
        program.write_text(FAILING)
        program.chmod(0o755)
        done = self.run_it("--rehearse", "--build", str(self.folder), "memory")
        self.assertEqual(done.returncode, 1)
        self.assertIn("    fullshard: no room\n", done.stdout)
        self.assertIn("0 passed, 1 failed, 0 could not run", done.stdout)


if __name__ == "__main__":
    unittest.main()
