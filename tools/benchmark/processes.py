"""Jobs of several ranks that are started, held still, let go on, and never left behind."""
import ctypes
import os
import signal
import subprocess
import time
from contextlib import contextmanager
from pathlib import Path
from typing import Iterator, Mapping, Sequence

from mistakes import CaseError

PR_SET_PDEATHSIG = 1
LINES_OF_A_FAILURE = 15

# Ranks may outnumber cores: waits yield, for all contenders alike.
MPI_ENVIRONMENT = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_mpi_yield_when_idle": "1",
    "OMPI_MCA_btl_vader_single_copy_mechanism": "none",
}


def mpirun(ranks: int, words: Sequence[object]) -> list[str]:
    return ["mpirun", "--oversubscribe", "--bind-to", "none", "-n", str(ranks), *map(str, words)]


def environment(threads: int) -> dict[str, str]:
    return {**os.environ, **MPI_ENVIRONMENT, "OMP_NUM_THREADS": str(threads)}


def _die_with_parent() -> None:
    """In the child: mpirun ends its ranks when it gets SIGTERM, also those that are held."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def descendants(pid: int) -> list[int]:
    found = []
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            children = [int(word) for word in path.read_text().split()]
        except FileNotFoundError:
            continue
        for child in children:
            found += [child, *descendants(child)]
    return found


def state_of(pid: int) -> str:
    """The letter of /proc/PID/stat, "X" for a process that is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return "X"


class Job:
    """One mpirun and its ranks."""

    def __init__(self, name: str, words: Sequence[str], variables: Mapping[str, str], log: Path):
        self.name, self.log = name, log
        self.started = time.time()
        with open(log, "wb") as out:
            # A session of its own: Ctrl-C reaches this program only, which then ends the job in order.
            self.process = subprocess.Popen(words, env=variables, stdin=subprocess.DEVNULL, stdout=out,
                                            stderr=subprocess.STDOUT, start_new_session=True,
                                            preexec_fn=_die_with_parent)

    def pids(self) -> list[int]:
        """The ranks and what they have started."""
        return descendants(self.process.pid)

    def _signal(self, number: int) -> None:
        for pid in self.pids():
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                pass

    def hold(self) -> None:
        if not self.pids():  # or they would run on, and disturb the others' turns
            raise CaseError(f"{self.name}: its ranks have ended, or the system does not tell which they are")
        self._signal(signal.SIGSTOP)
        deadline = time.monotonic() + 10
        while any(state_of(pid) not in "TtXZ" for pid in self.pids()):
            if time.monotonic() > deadline:
                raise CaseError(f"{self.name}: its ranks cannot be stopped")
            time.sleep(0.001)

    def go_on(self) -> None:
        self._signal(signal.SIGCONT)

    def check(self) -> None:
        """Throws when the job has ended."""
        if self.process.poll() is not None:
            raise self.failure(f"ended early with status {self.process.returncode}")

    def wait(self, seconds: float) -> float:
        """Waits for a good end; gives the seconds since the start."""
        try:
            status = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise self.failure(f"has not ended within {seconds:.0f} s") from None
        if status != 0:
            raise self.failure(f"failed with status {status}")
        return time.time() - self.started

    def failure(self, what: str) -> CaseError:
        lines = self.log.read_text(errors="replace").splitlines()[-LINES_OF_A_FAILURE:]
        return CaseError(f"{self.name} {what}; the end of {self.log}:\n    " + "\n    ".join(lines))

    def end(self) -> None:
        """Ends what still runs, held or not."""
        if self.process.poll() is None:
            ranks = self.pids()
            self.go_on()
            self.process.terminate()
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
            for pid in ranks:
                # mpirun has ended them; a number may already belong to a process of somebody else.
                if state_of(pid) not in "XZ" and self._is_mine(pid):
                    os.kill(pid, signal.SIGKILL)
                    self._await_end(pid)

    @staticmethod
    def _await_end(pid: int) -> None:
        """A killed process still holds its memory for a moment."""
        deadline = time.monotonic() + 10
        while state_of(pid) not in "XZ" and time.monotonic() < deadline:
            time.sleep(0.001)

    def _is_mine(self, pid: int) -> bool:
        try:
            return os.getsid(pid) == self.process.pid
        except ProcessLookupError:
            return False


@contextmanager
def jobs() -> Iterator[list[Job]]:
    """A list to put jobs into: all of them have ended when the block is left, however it is."""
    running: list[Job] = []
    try:
        yield running
    finally:
        for job in running:
            job.end()


def end_on_signals() -> None:
    """Lets SIGTERM and SIGHUP unwind as Ctrl-C does, so that jobs end with this program."""
    def leave(number: int, _: object) -> None:
        raise SystemExit(128 + number)

    signal.signal(signal.SIGTERM, leave)
    signal.signal(signal.SIGHUP, leave)
