"""The unit tests that need a GPU, by CTest."""
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass
from pathlib import Path

from mistakes import CaseError
from processes import Job, environment, jobs
from results import CaseResult, Measure
from setting import CannotRun, Setting

LABEL = "gpu"
GOOD = "run"  # what CTest writes for a test that has passed


@dataclass(frozen=True)
class Test:
    name: str
    status: str
    seconds: float
    output: str


def parse(junit: str) -> list[Test]:
    """The file of ctest --output-junit."""
    return [Test(case.get("name", ""), case.get("status", ""), float(case.get("time", "0")),
                 (case.findtext("system-out") or "").strip())
            for case in ElementTree.fromstring(junit).iter("testcase")]


def complaint(test: Test) -> str:
    """Of a test that is not good. GoogleTest writes the reason of a skip below a line "FILE:LINE: Skipped"."""
    if test.status != "notrun":
        return f"{test.name} failed"
    lines = [line.strip() for line in test.output.splitlines()] + [""]
    reasons = [after for line, after in zip(lines, lines[1:]) if line.endswith(": Skipped")]
    return f"{test.name} was skipped: {reasons[0] if reasons else lines[0] or 'it does not say why'}"


def require_all(tests: list[Test]) -> None:
    if not tests:
        raise CaseError(f"no test has the label {LABEL}: was the build tree configured with tests?")
    bad = [complaint(test) for test in tests if test.status != GOOD]
    if bad:
        raise CaseError("; ".join(bad))


def check_device_tests(setting: Setting, result: CaseResult, folder: Path) -> None:
    if setting.gpu is None:
        raise CannotRun("the tests of the device need one")
    folder.mkdir(parents=True)
    report = folder / "tests.xml"
    with jobs() as running:
        job = Job("ctest", ["ctest", "--test-dir", str(setting.build), "-L", f"^{LABEL}$", "--output-on-failure",
                            "--output-junit", str(report)], environment(1), folder / "output.log")
        running.append(job)
        job.process.wait()  # the report says more than its status
    if not report.exists():
        raise job.failure("has written no report")
    tests = parse(report.read_text())
    result.raw["tests"] = {test.name: {"status": test.status, "seconds": test.seconds} for test in tests}
    result.measures.append(Measure.once("passed", f"of {len(tests)} tests",
                                        sum(test.status == GOOD for test in tests)))
    require_all(tests)
