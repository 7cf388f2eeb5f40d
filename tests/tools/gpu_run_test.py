"""tests/gpu/run without a GPU: its checks, what nvidia-smi and CTest say, losses that differ, time limits, results."""
import contextlib
import io
import json
import math
import os
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path
from unittest import mock

TOOLS = Path(os.environ.get("FULLSHARD_TOOLS", Path(__file__).parents[2] / "tools"))
RUN = TOOLS.parent / "tests/gpu/run"
sys.path[:0] = [str(RUN.parent / "proof"), str(TOOLS / "benchmark")]

import checks  # noqa: E402
import command  # noqa: E402
import device_tests  # noqa: E402
import equality  # noqa: E402
import hardware  # noqa: E402
import report  # noqa: E402
import speeds  # noqa: E402
import trainings  # noqa: E402
from cases import OURS  # noqa: E402
from checks import CHECKS, Check  # noqa: E402
from hardware import Gpu, NoGpu  # noqa: E402
from mistakes import CaseError, UsageError  # noqa: E402
from report import FAILED, NOT_RUN, PASSED, Outcome  # noqa: E402
from results import CaseResult, Measure  # noqa: E402
from setting import CannotRun, Setting  # noqa: E402
from trainings import TOLERANCES, Comparisons, Tolerance, complaints  # noqa: E402

ONE = "0, NVIDIA H200, GPU-11aa, 580.1, 143771, 9.0\n"
TWO = ONE + "1, NVIDIA H200, GPU-22bb, 580.1, 143771, 9.0\n"
ABOUT = {"command": "tests/gpu/run", "commit": "0123456789ab", "date": "2026-01-02", "device": "A GPU"}
JUNIT = """<?xml version="1.0"?>
<testsuite name="x" tests="3"><testcase name="a" time="0.5" status="run"><system-out>fine</system-out></testcase>{}
</testsuite>"""
FAILS = '<testcase name="b" time="1" status="fail"><failure message=""/><system-out>no</system-out></testcase>'
SKIPS = ('<testcase name="c" time="0" status="notrun"><skipped message="SKIP_REGULAR_EXPRESSION_MATCHED"/>'
         '<system-out>[ RUN      ] Cuda.Copies\nx_test.cpp:7: Skipped\nno driver\n\n[  SKIPPED ] Cuda.Copies'
         '</system-out></testcase>')
FALLING = [6.0 - 0.1 * step for step in range(20)]


def setting(gpu: Gpu | None = None, build: Path = Path("nowhere")) -> Setting:
    def no_python() -> Path:
        raise CannotRun("no Python")

    return Setting(Path("nowhere"), build, no_python, gpu, lambda message: None)


def result() -> CaseResult:
    return CaseResult("check", "something")


class NvidiaSmi(unittest.TestCase):
    """A program of that name in the place of the driver's."""

    def run_with(self, script: str, *words: str) -> subprocess.CompletedProcess:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "nvidia-smi"
            path.write_text("#!/bin/sh\n" + script)
            path.chmod(0o755)
            variables = {name: value for name, value in os.environ.items() if name != "CUDA_VISIBLE_DEVICES"}
            return subprocess.run([sys.executable, RUN, *words], capture_output=True, text=True,
                                  env={**variables, "PATH": f"{folder}:{os.environ['PATH']}"})

    def test_without_a_gpu_the_status_and_the_message_say_so(self):
        done = self.run_with("echo could not talk to the driver >&2; exit 9")
        self.assertEqual(done.returncode, command.NO_GPU)
        self.assertIn("no GPU was found, and nothing was checked: nvidia-smi ended with status 9: could not talk",
                      done.stderr)
        self.assertEqual(done.stdout, "")
        self.assertEqual(self.run_with("exit 0").returncode, command.NO_GPU)

    def test_with_a_gpu_the_program_is_what_is_missing(self):
        done = self.run_with(f"printf '{ONE}'", "--build", "/nonexistent")
        self.assertEqual(done.returncode, 2)
        self.assertIn("/nonexistent/bin/fullshard does not exist", done.stderr)

    def test_an_unknown_check_is_named_before_a_gpu_is_looked_for(self):
        done = self.run_with("exit 9", "equl")
        self.assertEqual(done.returncode, 2)
        self.assertIn("there is no check equl; the checks are unit, equal", done.stderr)

    def test_not_installed(self):
        with mock.patch.dict(os.environ, {"PATH": "/nonexistent"}), self.assertRaisesRegex(NoGpu, "not installed"):
            hardware.find()

    def test_list_needs_nothing(self):
        done = subprocess.run([sys.executable, RUN, "--list"], capture_output=True, text=True, env={})
        self.assertEqual(done.returncode, 0, done.stderr)
        lines = done.stdout.splitlines()
        self.assertEqual([line.split()[0] for line in lines], [*(check.name for check in CHECKS), "all"])
        self.assertRegex(lines[1], r"equal +60 s  smoke deck, .* bf16")


class TheGpu(unittest.TestCase):
    def test_table(self):
        self.assertEqual(hardware.parse(ONE), [Gpu(0, "NVIDIA H200", "GPU-11aa", "580.1", 143771, "9.0")])
        for nothing in ("", "No devices were found\n"):
            with self.assertRaises(NoGpu):
                hardware.parse(nothing)

    def test_the_first_that_is_visible(self):
        gpus = hardware.parse(TWO)
        for visible, index in ((None, 0), ("1", 1), ("1,0", 1), ("GPU-22", 1), ("GPU-11aa", 0)):
            self.assertEqual(hardware.choose(gpus, visible).index, index, visible)
        for visible in ("", "2", "GPU-33"):
            with self.assertRaisesRegex(NoGpu, "CUDA_VISIBLE_DEVICES"):
                hardware.choose(gpus, visible)

    def test_peak_is_beyond_what_was_used_before(self):
        readings = iter([100, 150, 400, 200])

        def read() -> int:
            return next(readings, 200)

        with hardware.PeakMemory(read, period=0.001) as used:
            deadline = time.monotonic() + 10
            while used.peak < 400 and time.monotonic() < deadline:
                time.sleep(0.001)
        self.assertEqual(used.mib(), 300)

    def test_a_driver_that_does_not_tell(self):
        with hardware.PeakMemory(lambda: int("[N/A]"), period=0.001) as used:
            pass
        self.assertIsNone(used.mib())


class UnitTests(unittest.TestCase):
    def test_a_skipped_one_fails_and_says_why(self):
        tests = device_tests.parse(JUNIT.format(FAILS + SKIPS))
        self.assertEqual([(test.name, test.status, test.seconds) for test in tests],
                         [("a", "run", 0.5), ("b", "fail", 1.0), ("c", "notrun", 0.0)])
        with self.assertRaisesRegex(CaseError, "b failed; c was skipped: no driver"):
            device_tests.require_all(tests)
        device_tests.require_all(device_tests.parse(JUNIT.format("")))

    def test_none_is_no_success(self):
        with self.assertRaisesRegex(CaseError, "no test has the label gpu"):
            device_tests.require_all([])

    def test_ctest_itself(self):
        entries = 'add_test(good "true")\nadd_test(other "false")\nset_tests_properties(good PROPERTIES LABELS gpu)\n'
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "CTestTestfile.cmake").write_text(entries)
            gpu = hardware.parse(ONE)[0]
            found = result()
            device_tests.check_device_tests(setting(gpu, Path(folder)), found, Path(folder) / "out")
            self.assertEqual(list(found.raw["tests"]), ["good"])


class Losses(unittest.TestCase):
    def test_rounding_passes(self):
        self.assertEqual(complaints([loss * (1 + 1e-6) for loss in FALLING], FALLING, TOLERANCES["fp32"]), [])

    def test_the_step_is_named(self):
        for step in (1, 5, 6, 20):
            losses = list(FALLING)
            losses[step - 1] *= 1 + 2 * TOLERANCES["fp32"].of_step(step)
            [found] = complaints(losses, FALLING, TOLERANCES["fp32"])
            self.assertIn(f"step {step} has", found)

    def test_late_steps_have_more_room(self):
        tolerance = Tolerance(1e-4, 1e-3)
        self.assertEqual([tolerance.of_step(step) for step in (1, 5, 6, 20)], [1e-4, 1e-4, 1e-3, 1e-3])
        for tolerance in TOLERANCES.values():
            self.assertLess(tolerance.early, tolerance.late)

    def test_what_is_no_number_differs(self):
        self.assertEqual(trainings.relative_difference(math.nan, 1.0), math.inf)
        for bad in (math.nan, math.inf):
            self.assertEqual(len(complaints([*FALLING[:-1], bad], FALLING, TOLERANCES["bf16"])), 1)

    def test_too_few_steps(self):
        self.assertIn("19 steps against 20", complaints(FALLING[:-1], FALLING, TOLERANCES["fp32"])[0])
        self.assertTrue(complaints([], [], TOLERANCES["fp32"]))

    def test_a_model_that_learns_nothing_shows_nothing(self):
        constant = [6.0] * 20
        self.assertIn("too little to show anything", complaints(constant, constant, TOLERANCES["fp32"])[0])

    def test_all_that_differ_are_told(self):
        found = result()
        comparisons = Comparisons(found)
        comparisons.add("good", FALLING, FALLING, TOLERANCES["fp32"])
        comparisons.require_all()
        for name in ("one", "two"):
            comparisons.add(name, [2 * loss for loss in FALLING], FALLING, TOLERANCES["fp32"])
        with comparisons.attempt("three"):
            raise CaseError("crash")
        with self.assertRaisesRegex(CaseError, "one: step 1 has 12 for 6, .*; two: step 1 .*; three: crash"):
            comparisons.require_all()
        self.assertEqual(found.measure("one: largest difference of losses, steps 1-5").value, 1.0)
        self.assertEqual(found.raw["losses"]["good"]["losses"], FALLING)


class MemoryAndSpeed(unittest.TestCase):
    SUMMARY = {"memory_predicted": [{"purpose": "slots", "bytes": 2**30}, {"purpose": "moments", "bytes": 2**31}],
               "memory_allocated": [{"purpose": "slots", "bytes": 2**30}, {"purpose": "moments", "bytes": 2**31}]}

    def test_every_purpose_must_be_as_predicted(self):
        found = result()
        self.assertEqual(equality.compare_memory(self.SUMMARY, found), 3 * 2**30)
        self.assertEqual([measure.value for measure in found.measures], [3.0, 3.0])
        # Equal sums are not enough.
        swapped = [{"purpose": "slots", "bytes": 2**31}, {"purpose": "moments", "bytes": 2**30}]
        with self.assertRaisesRegex(CaseError, "slots has 2147483648 bytes for 1073741824; moments"):
            equality.compare_memory({**self.SUMMARY, "memory_allocated": swapped}, result())
        with self.assertRaisesRegex(CaseError, "moments has None bytes"):
            equality.compare_memory({**self.SUMMARY, "memory_allocated": swapped[:1]}, result())

    def test_sharding_may_cost_three_percent(self):
        name = f"{speeds.SHARDED} / {speeds.WHOLE}"
        for value, passes in ((0.98, True), (0.97, True), (0.96, False), (math.nan, False)):
            found = result()
            found.measures.append(Measure.once(name, "x", value))
            if passes:
                speeds.require_least(found, name, speeds.LEAST_SHARDED)
            else:
                with self.assertRaisesRegex(CaseError, "less than 0.97"):
                    speeds.require_least(found, name, speeds.LEAST_SHARDED)
            self.assertEqual(found.measure(name).least, speeds.LEAST_SHARDED)

    def test_contestants_train_the_same(self):
        for speed in (speeds.SMALL, speeds.LARGE, speeds.SHARDING):
            for case in (speed.case, speeds.rehearsed(speed.case)):
                for field in ("device", "micro_batch", "precision", "learning_rate", "threads", "ranks"):
                    self.assertEqual(len({getattr(one, field) for one in case.contestants}), 1, (case.name, field))
                names = {one.name for one in case.contestants}
                self.assertEqual({name for pair in case.pairs for name in pair}, names)
                self.assertIn(OURS, {one.kind for one in case.contestants})
            self.assertEqual(speed.case.contestants[0].device, "cuda")

    def test_shapes_have_the_parameters_of_their_names(self):
        for speed, millions in ((speeds.SMALL, 124), (speeds.LARGE, 1558), (speeds.SHARDING, 124)):
            model = speed.case.model
            width = model.d_model
            block = 4 * width * width + 2 * width * model.d_ff + 9 * width + model.d_ff
            count = (model.vocab_size + model.sequence + 2) * width + model.num_layers * block
            self.assertAlmostEqual(count / 1e6, millions, delta=1)

    def test_a_gpu_that_is_too_small(self):
        gpu = hardware.parse(ONE.replace("143771", "81559"))[0]
        with self.assertRaisesRegex(CannotRun, "needs 115 GiB of GPU memory, NVIDIA H200 has 80"):
            speeds.check_large(setting(gpu), result(), Path("nowhere"))
        with self.assertRaisesRegex(CannotRun, "no Python"):
            speeds.check_small(setting(gpu), result(), Path("nowhere"))


class Checks(unittest.TestCase):
    def test_the_whole_takes_less_than_8_minutes(self):
        self.assertLess(sum(check.budget_s for check in CHECKS), 480)
        names = [check.name for check in CHECKS]
        self.assertEqual(len(names), len(set(names)))

    def test_chosen_by_name(self):
        self.assertEqual(checks.choose([]), list(CHECKS))
        self.assertEqual([check.name for check in checks.choose(["ranks", "equal"])], ["equal", "ranks"])
        with self.assertRaises(UsageError):
            checks.choose(["equal", "rank"])

    def outcome(self, run, budget: float = 10.0) -> Outcome:
        return checks.run(Check("check", "something", budget, run), setting(), Path("nowhere"))

    def test_states(self):
        def measures(_, found, folder):
            found.measures.append(Measure.once("speed", "x", 1.0))
            found.raw["samples"] = [1]

        def fails(given, found, folder):
            measures(given, found, folder)
            raise CaseError("no")

        passed, failed = self.outcome(measures), self.outcome(fails)
        self.assertEqual((passed.state, passed.reason), (PASSED, ""))
        self.assertEqual((failed.state, failed.reason), (FAILED, "no"))
        self.assertEqual(failed.measures, passed.measures)  # they are kept

        def cannot(*_):
            raise CannotRun("it is not there")

        self.assertEqual(self.outcome(cannot).state, NOT_RUN)
        self.assertIn("it is not there", self.outcome(cannot).reason)

    def test_twice_the_time_is_the_end(self):
        begin = time.monotonic()
        outcome = self.outcome(lambda *_: time.sleep(60), budget=0.05)
        self.assertLess(time.monotonic() - begin, 30)
        self.assertEqual(outcome.state, FAILED)
        self.assertIn("it was ended after", outcome.reason)

    def test_the_end_is_not_mistaken_for_one_run_that_failed(self):
        def goes_on(given, found, folder):
            comparisons = Comparisons(found)
            with comparisons.attempt("one"):
                raise CaseError("crash")
            with comparisons.attempt("two"):
                time.sleep(60)

        self.assertIn("it was ended after", self.outcome(goes_on, budget=0.05).reason)

    def test_the_limit_ends_with_the_check(self):
        self.outcome(lambda *_: None, budget=0.05)
        time.sleep(0.15)


class Report(unittest.TestCase):
    def outcomes(self, *states: str) -> list[Outcome]:
        return [Outcome(f"check{number}", "something", state, "" if state == PASSED else "because", 3.0, 10.0,
                        [Measure("ratio", 0.9876, "x", 0.97, 0.99, 9, 0.97), Measure.once("difference", "", 1.5e-7)])
                for number, state in enumerate(states)]

    def test_status(self):
        for states, status in (((PASSED, PASSED), 0), ((PASSED, NOT_RUN), 0), ((PASSED, FAILED, NOT_RUN), 1),
                               ((NOT_RUN,), 1), ((), 1)):
            self.assertEqual(report.status_of(self.outcomes(*states)), status, states)

    def test_table(self):
        text = report.table(ABOUT, self.outcomes(PASSED, FAILED, NOT_RUN))
        for line in ("check0  passed       3 s of 10", "check1  failed       3 s of 10", "    because",
                     "    ratio       0.9876 x (quartiles 0.97 to 0.99, 9 rounds), at least 0.97",
                     "1 passed, 1 failed, 1 could not run, in 9 s"):
            self.assertIn(line, text.splitlines())
        self.assertIn("difference  1.5e-07", text)

    def test_a_long_reason_is_cut_to_its_cause(self):
        reason = "a run failed; the end of its log:\n    noise\n    fullshard: no room\n    fullshard: no room\n"
        self.assertEqual(report.short(reason), ["a run failed; the end of its log:", "fullshard: no room"])

    def test_file(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "results.json"
            report.save(ABOUT, self.outcomes(PASSED, FAILED), path)
            data = json.loads(path.read_text())
            self.assertEqual([entry.name for entry in Path(folder).iterdir()], ["results.json"])
        self.assertEqual((data["schema"], data["about"]), (report.SCHEMA, ABOUT))
        self.assertEqual([check["state"] for check in data["checks"]], [PASSED, FAILED])
        self.assertEqual(data["checks"][1]["measures"][0]["low"], 0.97)

    def test_python_is_looked_for_once(self):
        find = command.PythonFinder(Path("/nonexistent/python"), compiles_for_gpus=True)
        with mock.patch("python_environment.imports", return_value=False) as asked:
            for _ in range(2):
                with self.assertRaisesRegex(CannotRun, "/nonexistent/python cannot import torch"):
                    find()
        self.assertEqual(asked.call_count, 1)
        find = command.PythonFinder(None, compiles_for_gpus=False)
        with mock.patch("python_environment.make", side_effect=UsageError("no network")) as asked:
            for _ in range(2):
                with self.assertRaisesRegex(CannotRun, "no network"):
                    find()
        self.assertEqual(asked.call_count, 1)

    def test_words(self):
        options = command.parse(["equal", "--out", "x", "--rehearse"])
        self.assertEqual((options.checks, options.out), (["equal"], Path("x")))
        self.assertEqual((options.rehearse, options.list), (True, False))
        with self.assertRaises(SystemExit), contextlib.redirect_stderr(io.StringIO()):
            command.parse(["--rehe"])  # never abbreviated


if __name__ == "__main__":
    unittest.main()
