"""Runs the real program the way its users do and reads what it leaves behind.

CMakeLists.txt sets the environment: FULLSHARD_BINARY, FULLSHARD_MPIRUN (the launcher with its options)
and FULLSHARD_INPUTS (the folder of decks).
"""
import json
import os
import shlex
import subprocess
import tempfile
import time
import unittest
from dataclasses import dataclass
from pathlib import Path

BINARY = Path(os.environ["FULLSHARD_BINARY"]).resolve()
MPIRUN = shlex.split(os.environ["FULLSHARD_MPIRUN"])
INPUTS = Path(os.environ["FULLSHARD_INPUTS"])
SMOKE_DECK = INPUTS / "smoke.ini"
DEADLINE_S = 60
EXIT_RUN_ERROR, EXIT_USAGE, EXIT_DATA, EXIT_DIVERGED, EXIT_COMMUNICATION, EXIT_STOPPED = 1, 2, 3, 4, 5, 85

# Where Open MPI keeps the files behind its shared memory, /dev/shm by default.
SHARED_MEMORY_FOLDERS = ["OMPI_MCA_btl_vader_backing_directory", "OMPI_MCA_osc_sm_backing_directory",
                         "OMPI_MCA_osc_rdma_backing_directory"]

# Notes the rank's exit status, and stays until all ranks have left: mpirun kills the others when one
# leaves with an error.
RECORD_STATUS = '''
"$@"
status=$?
echo $status > "$STATUS_FOLDER/$OMPI_COMM_WORLD_RANK"
until [ "$(ls "$STATUS_FOLDER" | wc -l)" -eq "$OMPI_COMM_WORLD_SIZE" ]; do sleep 0.02; done
exit $status
'''


@dataclass(frozen=True)
class Result:
    """What a job printed and how it ended."""
    status: int
    out: str
    err: str

    def causes(self) -> list[str]:
        """The lines by which the program says why it failed; the launcher adds lines of its own."""
        return [line for line in self.err.splitlines() if line.startswith("fullshard:")]


def words_of(deck: Path, keys: dict[str, object]) -> list[str]:
    return ["train", str(deck), *(word for key, value in keys.items() for word in (f"--{key}", str(value)))]


def records(folder: Path) -> list[dict]:
    """metrics.jsonl with its numbers as they are written, so that equality means equal digits."""
    return [json.loads(line, parse_float=str) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def of_kind(folder: Path, kind: str) -> list[dict]:
    return [record for record in records(folder) if record["kind"] == kind]


def numbers(folder: Path) -> list[tuple]:
    """What a run that goes on must have in common with an uninterrupted one, step by step."""
    return [tuple(record[name] for name in ("step", "loss", "grad_norm", "lr", "tokens"))
            for record in of_kind(folder, "step")]


def state(folder: Path, step: int) -> bytes:
    """Parameters and moments: the file has the same bytes whoever wrote it."""
    return (folder / f"checkpoints/step-{step:08}/state.h5").read_bytes()


def is_alive(pid: int) -> bool:
    """Zombies, which wait for whoever collects orphans, are dead."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    except (FileNotFoundError, ProcessLookupError):
        return False


class Job:
    """A running mpirun and the processes it started here."""

    def __init__(self, command: list[str], environment: dict[str, str], folder: Path):
        # A model that writes bytes need not write characters.
        self.process = subprocess.Popen(command, env=environment, cwd=folder, text=True, errors="surrogateescape",
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def finish(self) -> Result:
        try:
            out, err = self.process.communicate(timeout=DEADLINE_S)
        except subprocess.TimeoutExpired:
            self.process.terminate()  # mpirun takes its ranks with it
            out, err = self.process.communicate()
            raise AssertionError(f"the job did not end within {DEADLINE_S} s\n{out}\n{err}")
        return Result(self.process.returncode, out, err)

    def ranks(self) -> dict[int, int]:
        """Process ids by rank of those children of mpirun that run the program by now."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        found = {}
        for child in children:
            process = Path("/proc", child)
            if process.joinpath("exe").resolve() != BINARY:
                continue
            variables = dict(entry.split("=", 1) for entry in process.joinpath("environ").read_text().split("\0")
                             if "=" in entry)
            found[int(variables["OMPI_COMM_WORLD_RANK"])] = int(child)
        return found


class EndToEndTest(unittest.TestCase):
    """Every test has a folder of its own, in which relative paths start, and finds shared memory clean."""
    maxDiff = None

    def setUp(self):
        self.folder = self.new_folder()
        self.shared_memory = self.new_folder("/dev/shm")

    def new_folder(self, parent: str | None = None) -> Path:
        folder = tempfile.TemporaryDirectory(prefix="fullshard-test-", dir=parent)
        self.addCleanup(folder.cleanup)
        return Path(folder.name)

    def write(self, name: str, text: str | bytes) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return path

    def environment(self, **variables: str) -> dict[str, str]:
        return {**os.environ, **{name: str(self.shared_memory) for name in SHARED_MEMORY_FOLDERS}, **variables}

    def start(self, ranks: int, keys: dict[str, object], deck: Path = SMOKE_DECK) -> Job:
        return Job([*MPIRUN, "-n", str(ranks), str(BINARY), *words_of(deck, keys)], self.environment(),
                   self.folder)

    def train(self, ranks: int, keys: dict[str, object], deck: Path = SMOKE_DECK, status: int = 0) -> Result:
        """Runs a job to its end, which must be `status` and leave nothing in shared memory."""
        result = self.start(ranks, keys, deck).finish()
        self.check_end(result, status)
        return result

    def wait_until(self, job: Job, condition, pause: float = 0.05):
        """Until something is true of the files of a running job."""
        deadline = time.monotonic() + DEADLINE_S
        while True:
            try:
                if condition():
                    return
            except (FileNotFoundError, ValueError):  # not there yet, or a line half written
                pass
            if job.process.poll() is not None or time.monotonic() > deadline:
                self.fail(f"it never happened\n{job.finish()}")
            time.sleep(pause)

    def wait_for_steps(self, job: Job, count: int, run: str = "run"):
        self.wait_until(job, lambda: len(of_kind(self.folder / run, "step")) >= count)

    def mount_small_disk(self, megabytes: int) -> Path:
        disk = self.folder / "disk"
        disk.mkdir()
        mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", disk],
                                 capture_output=True, text=True)
        if mounted.returncode != 0:
            self.skipTest(f"no small disk could be mounted (root may): {mounted.stderr.strip()}")
        self.addCleanup(subprocess.run, ["umount", "-l", disk], check=True)
        return disk

    def train_to_common_end(self, ranks: int, keys: dict[str, object], status: int,
                            deck: Path = SMOKE_DECK) -> Result:
        """The same for an error that the ranks agree on: each of them leaves with `status`."""
        return self.run_to_common_end(ranks, words_of(deck, keys), status)

    def run_to_common_end(self, ranks: int, words: list[str], status: int, **variables: str) -> Result:
        """The same for any command."""
        statuses = self.new_folder()
        command = [*MPIRUN, "-n", str(ranks), "sh", "-c", RECORD_STATUS, "sh", str(BINARY), *words]
        environment = self.environment(STATUS_FOLDER=str(statuses), **variables,
                                       OMPI_MCA_odls_base_sigkill_timeout="0")  # nobody is left to wait for
        result = Job(command, environment, self.folder).finish()
        self.check_end(result, status)
        found = {path.name: int(path.read_text()) for path in statuses.iterdir()}
        self.assertEqual(found, {str(rank): status for rank in range(ranks)})
        return result

    def run_alone(self, *words: str, **variables: str) -> Result:
        """Starts the program itself, without a launcher."""
        return Job([str(BINARY), *words], self.environment(**variables), self.folder).finish()

    def check_end(self, result: Result, status: int):
        self.assertEqual(result.status, status, result.out + result.err)
        self.assert_shared_memory_is_clean()

    def assert_shared_memory_is_clean(self):
        self.assertEqual([path.name for path in self.shared_memory.rglob("*")], [])

    def assert_one_cause(self, result: Result, *parts: str):
        """One line of our own, whatever the number of ranks, and it holds all `parts`."""
        self.assertEqual(len(result.causes()), 1, result.err)
        for part in parts:
            self.assertIn(part, result.causes()[0])
