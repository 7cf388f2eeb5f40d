"""What a running job takes of the machine, read from /proc.

"PSS" counts a page that n processes share as 1/n of a page in each, so that the sum over ranks is what the node needs.
"""
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Sequence

from processes import Job

PERIOD = 0.2  # seconds from one look to the next


@dataclass
class Look:
    """Totals of the job's ranks at one time."""
    time: float
    pss: int              # bytes, summed over ranks
    faults: int           # minor page faults so far, summed over ranks
    loopback: int         # bytes that the loopback device has carried


@dataclass
class Usage:
    looks: list[Look] = field(default_factory=list)
    peak_rss: dict[int, int] = field(default_factory=dict)  # bytes by process, the kernel's high-water mark

    def node_peak(self) -> int:
        return max(look.pss for look in self.looks)

    def rank_peak(self) -> int:
        return max(self.peak_rss.values())

    def growth(self, name: str, begin: float, end: float) -> int | None:
        """By how much a total grew from the first look after `begin` to the last before `end`."""
        inside = [getattr(look, name) for look in self.looks if begin <= look.time <= end]
        return inside[-1] - inside[0] if len(inside) > 1 else None


def kib_of(text: str, key: str) -> int:
    """A line such as "Pss:   123 kB" of smaps_rollup or status."""
    for line in text.splitlines():
        if line.startswith(key + ":"):
            return int(line.split()[1])
    raise ValueError(f"no line {key}")


def loopback_bytes(table: str) -> int:
    """Bytes that lo received, in the text of /proc/net/dev."""
    for line in table.splitlines():
        device, _, numbers = line.partition(":")
        if device.strip() == "lo":
            return int(numbers.split()[0])
    return 0


def minor_faults(stat: str) -> int:
    """Of /proc/PID/stat, whose second field, the name, may hold spaces."""
    return int(stat.rpartition(")")[2].split()[7])


def look_at(pids: Sequence[int], usage: Usage) -> None:
    pss = faults = 0
    for pid in pids:
        place = Path(f"/proc/{pid}")
        try:
            pss += kib_of((place / "smaps_rollup").read_text(), "Pss") * 1024
            faults += minor_faults((place / "stat").read_text())
            usage.peak_rss[pid] = kib_of((place / "status").read_text(), "VmHWM") * 1024
        except (FileNotFoundError, ProcessLookupError, ValueError):
            return  # a rank that starts or ends: the totals would lack it
    if pids:
        loopback = loopback_bytes(Path("/proc/net/dev").read_text())
        usage.looks.append(Look(time.time(), pss, faults, loopback))


def watch(job: Job, ranks: int, limit: float) -> Usage:
    """Looks at a job until it has ended well."""
    usage = Usage()
    deadline = time.monotonic() + limit
    while job.process.poll() is None and time.monotonic() < deadline:
        pids = job.pids()
        if len(pids) >= ranks:
            look_at(pids, usage)
        time.sleep(PERIOD)
    job.wait(max(0.1, deadline - time.monotonic()))
    return usage
