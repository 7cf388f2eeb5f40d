"""tools/bench without PyTorch: statistics, records, losses, turns' steps, goals, table and README."""
import json
import os
import subprocess
import sys
import tempfile
import unittest
from dataclasses import replace
from pathlib import Path
from unittest import mock

TOOLS = Path(os.environ.get("FULLSHARD_TOOLS", Path(__file__).parents[2] / "tools"))
sys.path.insert(0, str(TOOLS / "benchmark"))

import readme  # noqa: E402
import results as results_module  # noqa: E402
import table  # noqa: E402
import turns  # noqa: E402
from building import micro_targets  # noqa: E402
from cases import TRAINING_CASES  # noqa: E402
from contestants import Run  # noqa: E402
from goals import GOALS, Goal, goal_of  # noqa: E402
from losses import require_agreement  # noqa: E402
from micro import measures_of, parse, programs_of  # noqa: E402
from mistakes import CaseError, UsageError  # noqa: E402
from paired import Spread, paired, quantile, spread  # noqa: E402
from processes import Job, environment, jobs, state_of  # noqa: E402
from python_environment import torch_of  # noqa: E402
from records import RecordFile, losses_by_step, whole_steps  # noqa: E402
from registry import CASES, choose, rounds_of  # noqa: E402
from results import CaseResult, Measure, Results  # noqa: E402
from usage import kib_of, loopback_bytes, minor_faults  # noqa: E402

ABOUT = {"command": "tools/bench gpt2", "commit": "0123456789ab", "date": "2026-01-02", "cpu": "A CPU", "cores": 2,
         "memory_gib": 23.5, "versions": ["FullShard 1", "PyTorch 2"]}


def example(ratio: float = 2.0) -> Results:
    return Results(ABOUT, [CaseResult("gpt2", "GPT-2", [
        Measure("FullShard: tokens/s", 1000.0, "tokens/s", 900.0, 1100.0, 9),
        Measure("FullShard / FSDP2", ratio, "x", 1.9, 2.1, 9)], {"samples": [1, 2]})])


class Statistics(unittest.TestCase):
    def test_quantiles_are_linear_between_neighbours(self):
        self.assertEqual(quantile([4, 1, 3, 2], 0.25), 1.75)
        self.assertEqual(quantile([5], 0.75), 5)
        self.assertEqual(spread([1, 2, 3, 4, 100]), Spread(3, 2, 4, 5))

    def test_a_drift_that_both_suffer_leaves_the_ratio(self):
        below = [100.0, 50.0, 80.0]
        self.assertEqual(paired([2 * value for value in below], below), Spread(2.0, 2.0, 2.0, 3))

    def test_rounds_that_lack_a_partner(self):
        with self.assertRaises(ValueError):
            paired([1.0, 2.0], [1.0])
        with self.assertRaises(ValueError):
            spread([])


class Records(unittest.TestCase):
    def test_a_line_that_is_being_written_waits(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "log"
            file = RecordFile(path)
            self.assertEqual(file.refresh(), [])
            path.write_text('{"kind": "step", "step": 1}\n{"kind": "st')
            self.assertEqual(len(file.of_kind("step")), 1)
            with open(path, "a") as out:
                out.write('ep", "step": 2}\n')
            self.assertEqual([record["step"] for record in file.of_kind("step")], [1, 2])

    def test_the_interrupted_step_is_left_out(self):
        # Held from 2.5 to 10: the step that ends at 10.5 lasted 8.5 s by the clock.
        steps = whole_steps([1.0, 2.0, 10.5, 11.5, 12.5, 20.0], 10.0, 13.0)
        self.assertEqual(steps, [1.0, 1.0])

    def test_losses_are_means_over_ranks(self):
        ranks = [[{"kind": "step", "step": 1, "loss": loss}] for loss in (1.0, 2.0)]
        self.assertEqual(losses_by_step(ranks, 1), [1.5])


class Waiting(unittest.TestCase):
    def test_for_the_slowest_rank(self):
        """A rank that is a record behind when the others are held has no loss to compare."""
        class Running:
            def check(self):
                pass

        with tempfile.TemporaryDirectory() as folder:
            files = [RecordFile(Path(folder, f"rank-{rank}")) for rank in range(2)]
            for file, count in zip(files, (3, 2)):
                file.path.write_text("".join(json.dumps({"kind": "step", "time": i + 1.0}) + "\n" for i in range(count)))
            run = Run(TRAINING_CASES[0].contestants[0], Running(), files)
            with mock.patch.object(turns, "PATIENCE", 0.1):
                turns.wait_for_records(run, "step", 2)
                with self.assertRaises(CaseError):
                    turns.wait_for_records(run, "step", 3)


class Losses(unittest.TestCase):
    def test_the_step_and_contender_that_differ_are_named(self):
        with self.assertRaisesRegex(CaseError, "DDP and FSDP2 differ by 1.0e-02 in step 2"):
            require_agreement({"FSDP2": [1.0, 1.0], "DDP": [1.0, 1.01]}, "FSDP2", 1e-5)

    def test_not_a_number_is_no_agreement(self):
        with self.assertRaises(CaseError):
            require_agreement({"FSDP2": [1.0], "DDP": [float("nan")]}, "FSDP2", 1e-5)

    def test_rounding_passes(self):
        self.assertEqual(require_agreement({"a": [8.0], "b": [8.0 + 2**-20]}, "a", 1e-5).contender, "b")


class Jobs(unittest.TestCase):
    def test_held_processes_stand_still_and_none_is_left(self):
        with tempfile.TemporaryDirectory() as folder:
            with jobs() as running:
                job = Job("sleeper", ["sh", "-c", "sleep 60 & wait"], environment(1), Path(folder) / "log")
                running.append(job)
                while len(pids := job.pids()) < 1:
                    job.check()
                job.hold()
                self.assertEqual([state_of(pid) for pid in pids], ["T"] * len(pids))
            self.assertLessEqual({state_of(pid) for pid in pids}, set("XZ"))

    def test_what_cannot_be_held_is_an_error(self):
        with tempfile.TemporaryDirectory() as folder:
            with jobs() as running:
                running.append(Job("childless", ["sleep", "60"], environment(1), Path(folder) / "log"))
                with self.assertRaisesRegex(CaseError, "childless: its ranks have ended, or"):
                    running[0].hold()

    def test_a_failure_shows_the_end_of_the_log(self):
        with tempfile.TemporaryDirectory() as folder:
            job = Job("failing", ["sh", "-c", "echo no room; exit 3"], environment(1), Path(folder) / "log")
            with self.assertRaisesRegex(CaseError, "(?s)failing failed with status 3.*no room"):
                job.wait(10)

    def test_lines_of_proc(self):
        self.assertEqual(kib_of("Rss:  10 kB\nPss:   7 kB\n", "Pss"), 7)
        self.assertEqual(minor_faults("12 (a (b) c) S 1 2 3 4 5 6 77 8"), 77)
        self.assertEqual(loopback_bytes("  eth0: 5 1\n    lo: 42 1 0\n"), 42)


class Goals(unittest.TestCase):
    def test_bounds(self):
        ratio = example().cases[0].measures[1]
        self.assertTrue(Goal("gpt2", ratio.name, 2.0).is_met(ratio))
        self.assertFalse(Goal("gpt2", ratio.name, 1.9, at_least=False).is_met(ratio))
        self.assertEqual(Goal("gpt2", ratio.name, 2.0, needs="wings").verdict(ratio, {"wings": True}), ">= 2: met")
        self.assertEqual(Goal("gpt2", ratio.name, 2.0, needs="wings").verdict(ratio, {}),
                         ">= 2 with wings: this hardware has none")
        self.assertEqual(goal_of("gpt2", ratio).bound, 2.5)
        self.assertIsNone(goal_of("no case", ratio))
        self.assertEqual(goal_of("no case", replace(ratio, least=0.7)).bound, 0.7)

    def test_names_of_contestants_and_cases_exist(self):
        cases = {case.name: case for case in TRAINING_CASES}
        for goal in (goal for goal in GOALS if goal.case in cases):
            names = {one.name for one in cases[goal.case].contestants}
            for name in goal.measure.partition(":")[0].split(" / "):
                self.assertIn(name, names, goal)
        for case in cases.values():
            names = [one.name for one in case.contestants]
            self.assertEqual(len(names), len(set(names)), case.name)
            self.assertLessEqual({*case.alone, *(name for pair in case.pairs for name in pair)}, set(names), case.name)

    def test_pairs_train_the_same_batch_of_a_step(self):
        for case in TRAINING_CASES:
            self.assertEqual(len({one.sequences() for one in case.contestants}), 1, case.name)


class Cases(unittest.TestCase):
    def test_a_case_comes_with_the_one_that_checks_its_losses(self):
        self.assertEqual([case.name for case in choose(["simple-dropout"], False)], ["simple", "simple-dropout"])

    def test_a_quick_run_is_a_part_of_the_default_one(self):
        quick, default = ([case.name for case in choose([], quick)] for quick in (True, False))
        self.assertLess(set(quick), set(default))
        self.assertNotIn("consolidate", default)
        for case in CASES:
            self.assertLessEqual(rounds_of(case, True), rounds_of(case, False), case.name)
            self.assertGreaterEqual(rounds_of(case, True), 1, case.name)

    def test_lines_of_a_micro_benchmark(self):
        line = {"program": "update", "name": "adamw", "ranks": 2, "mib": 32, "rounds": 9, "value": 8.0, "lower": 7.0,
                "upper": 9.0, "unit": "GB/s"}
        limited = line | {"limit_name": "triad", "limit": 10.0, "ratio": 0.8, "ratio_lower": 0.7, "ratio_upper": 0.9,
                          "best_ratio": 0.8, "goal": 0.75}
        self.assertEqual(measures_of(parse(f"mpirun: words\n{json.dumps(line)}\n")),
                         [Measure("update: adamw", 8.0, "GB/s", 7.0, 9.0, 9)])
        self.assertEqual(measures_of([limited])[1:], [Measure("update: adamw / triad", 0.8, "x", 0.7, 0.9, 9, 0.75)])


class Building(unittest.TestCase):
    def test_the_version_of_torch_is_that_of_libtorch(self):
        pinned = (TOOLS / "lib/libtorch-requirements.txt").read_text()
        self.assertRegex(torch_of(pinned), r"^torch==\d+\.\d+\.\d+$")

    def test_targets_of_micro_benchmarks(self):
        listing = "all: phony\nfullshard-micro-update: phony\nbin/fullshard-micro-update: LINKER\nfullshard: phony\n"
        self.assertEqual(micro_targets(listing), ["fullshard-micro-update"])
        with tempfile.TemporaryDirectory() as name:
            programs = Path(name) / "bin"
            programs.mkdir()
            (programs / "fullshard-micro-gone").touch()
            with self.assertRaisesRegex(CaseError, "lacks fullshard-micro-update"):
                programs_of(Path(name), listing)
            (programs / "fullshard-micro-update").touch()
            self.assertEqual(programs_of(Path(name), listing), [programs / "fullshard-micro-update"])


class Tables(unittest.TestCase):
    def test_goals_are_marked(self):
        self.assertRegex(table.text(example()),
                         r"FullShard / FSDP2 +2\.00 x +1\.90 to 2\.10, 9 rounds +>= 2\.5: not met")
        self.assertIn(">= 2.5: met |", table.markdown(example(3.0)))

    def test_a_name_with_a_bar_stays_in_its_column(self):
        self.assertEqual(table.markdown_row(["a | b", "c"]), "| a \\| b | c |")

    def test_a_case_without_result_says_why(self):
        failed = Results(ABOUT, [CaseResult("gpt2", "GPT-2", error="losses differ")])
        self.assertIn("no result: losses differ", table.text(failed))
        self.assertNotIn("GPT-2", table.markdown(failed))

    def test_results_come_back_from_their_file(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "results.json"
            results_module.save(example(), path)
            self.assertEqual(results_module.load(path), example())
            path.write_text(json.dumps({"schema": 0}))
            with self.assertRaisesRegex(UsageError, "has schema 0"):
                results_module.load(path)
            with self.assertRaisesRegex(UsageError, "run tools/bench first"):
                results_module.load(path.parent / "none.json")


class Readme(unittest.TestCase):
    def test_only_what_is_between_the_markers_changes(self):
        text = f"before\n{readme.BEGIN}\nold\n{readme.END}\nafter\n"
        once = readme.replaced(text, "new")
        self.assertEqual(once, f"before\n{readme.BEGIN}\n\nnew\n\n{readme.END}\nafter\n")
        self.assertEqual(readme.replaced(once, "new"), once)

    def test_markers_must_be_there_once_and_in_order(self):
        for text in ("", readme.BEGIN, f"{readme.END}{readme.BEGIN}", f"{readme.BEGIN}{readme.BEGIN}{readme.END}"):
            with self.assertRaises(UsageError, msg=text):
                readme.replaced(text, "new")


class Command(unittest.TestCase):
    def bench(self, *words: str) -> subprocess.CompletedProcess:
        return subprocess.run([sys.executable, TOOLS / "bench", *words], capture_output=True, text=True)

    def test_usage(self):
        self.assertIn("tools/bench [CASE...]", self.bench("--help").stdout)
        self.assertIn("gpt2-small-batch", self.bench("--list").stdout)
        unknown = self.bench("gpt3")
        self.assertEqual(unknown.returncode, 2)
        self.assertIn("there is no case gpt3; the cases are gpt2,", unknown.stderr)

    def test_a_missing_program(self):
        with tempfile.TemporaryDirectory() as folder:
            done = self.bench("--python", sys.executable, "--build", folder)
            self.assertEqual(done.returncode, 2)
            self.assertIn("bin/fullshard does not exist; give --build", done.stderr)


if __name__ == "__main__":
    unittest.main()
