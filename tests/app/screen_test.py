"""The first and the last screen of a run, its logs, and the commands that it tells to go on with."""
import os
import re
import subprocess
import unittest

from end_to_end import BINARY, DEADLINE_S, MPIRUN, SMOKE_DECK, EndToEndTest, Job, Result, of_kind, words_of

EXIT_STOPPED = 85
QUICK = {"run.dir": "run", "train.steps": 2}


def cores() -> list[int]:
    return sorted(os.sched_getaffinity(0))


class Screens(EndToEndTest):
    def launch(self, options: list[str], ranks: int, keys: dict[str, object], status: int = 0) -> Result:
        """Starts ranks with options of the launcher in place of the usual ones, which bind nothing."""
        command = [MPIRUN[0], "--oversubscribe", *options, "-n", str(ranks), str(BINARY), *words_of(SMOKE_DECK, keys)]
        result = Job(command, self.environment(), self.folder).finish()
        self.check_end(result, status)
        return result

    def messages(self, path: str = "run/run.log") -> list[str]:
        """Lines without date, time and level."""
        return [line.split(" ", 3)[3] for line in (self.folder / path).read_text().splitlines()]

    def warnings(self) -> list[str]:
        return [line.split(" ", 3)[3] for line in (self.folder / "run/run.log").read_text().splitlines()
                if line.split(" ", 3)[2] == "W"]


class BannerTest(Screens):
    def test_first_lines(self):
        """open-mpi/ompi#10799: whoever is launched by another MPI sees it in the library's name."""
        self.train(2, QUICK)
        lines = self.messages()
        self.assertRegex(lines[0], r"\AFullShard \d+\.\d+\.\d+ \(\w+(-dirty)?, \w+\), start 1\Z")
        self.assertEqual(lines[1], "2 ranks on 1 node (2)")
        self.assertRegex(lines[2], r"\A  node 0 \(\S+\): ranks 0-1 on CPUs \S+\Z")
        text = "\n".join(lines)
        for part in ("launched by mpirun; device: cpu, ", "1 compute thread a rank", "MPI v", "HDF5 1.", "LibTorch ",
                     "memory planned: "):
            self.assertIn(part, text)
        self.assertRegex(text, r"(?m)^  unit +stages +elements ")
        self.assertLess(lines.index(next(line for line in lines if line.startswith("step "))), 40)  # one screen

    def test_every_rank_uses_all_cores_or_just_one(self):
        """LBL-EESA/TECA#415, idaholab/moose#31273, pytorch/pytorch#117930: the map tells the cores of each rank."""
        if len(cores()) < 2:
            self.skipTest("needs 2 CPUs")
        self.launch(["--bind-to", "core"], 2, QUICK)
        self.assertRegex(self.messages()[2], r"\A  node 0 \(\S+\): ranks 0-1 on CPUs [\d,-]+ \| [\d,-]+\Z")
        first, second = self.messages()[2].rsplit(" on CPUs ")[1].split(" | ")
        self.assertNotEqual(first, second)
        self.assertEqual(self.warnings(), [])
        [record] = of_kind(self.folder / "run", "run")
        self.assertEqual([place["cpus"] for place in record["placement"]], [first, second])

    def test_ranks_and_threads_beyond_the_cores_are_warned_of(self):
        core = cores()[0]
        command = ["taskset", "-c", str(core), *MPIRUN, "-n", "2", str(BINARY), *words_of(SMOKE_DECK, QUICK)]
        self.check_end(Job(command, self.environment(), self.folder).finish(), 0)
        self.assertRegex(self.messages()[2], rf"ranks 0-1 on CPUs {core}\Z")
        [record] = of_kind(self.folder / "run", "run")
        self.assertEqual(len([w for w in self.warnings() if "2 ranks" in w and "take turns" in w]), 1, self.warnings())
        self.assertEqual(record["warnings"], self.warnings())

    def test_emulated_nodes_fold_and_uneven_ones_are_told(self):
        self.train(4, {**QUICK, "topology.ranks_per_node": 2})
        self.assertEqual(self.messages()[1], "4 ranks on 2 nodes (2 + 2)")
        self.assertRegex(self.messages()[2], r"\A  nodes 0-1 \(\S+\): ranks 0-3, 2 a node, on CPUs ")
        self.assertNotIn("uneven", "\n".join(self.messages()))
        self.train(4, {**QUICK, "topology.ranks_per_node": 3, "run.overwrite": "on"})
        self.assertEqual(self.messages()[1], "4 ranks on 2 nodes (3 + 1)")
        self.assertIn("  nodes are uneven (3 + 1 ranks): flat plan, ranks of a node do not share memory", self.messages())


class LastScreenTest(Screens):
    def test_peak_on_request(self):
        self.train(2, {**QUICK, "run.measure_peak": "on"})
        [summary] = of_kind(self.folder / "run", "summary")
        self.assertGreater(float(summary["mfu"]), 0)
        self.assertLess(float(summary["mfu"]), 1)
        self.assertAlmostEqual(float(summary["mfu"]), float(summary["flops_per_s_of_rank"]) / float(summary["peak_flops_per_s"]))
        text = "\n".join(self.messages())
        self.assertRegex(text, r"(?m)^peak: .* GFLOP/s a rank \(measured at the start, fp32, mean of 2 ranks\), .* the slowest$")
        self.assertRegex(text, r"(?m)^MFU \d+\.\d %: ")

    def test_a_wrong_peak_is_a_warning_and_no_number(self):
        """karpathy/nanoGPT#464: a utilisation of 104 %."""
        self.train(2, {**QUICK, "run.peak_gflops": 1e-6})
        [summary] = of_kind(self.folder / "run", "summary")
        self.assertNotIn("mfu", summary)
        self.assertEqual(len([w for w in self.warnings() if "no MFU: " in w and "too low" in w]), 1)

    def test_no_peak_no_utilisation(self):
        self.train(1, QUICK)
        self.assertIn("no MFU: the peak is unknown; set run.peak_gflops, or run.measure_peak = on", self.messages())

    def test_the_next_commands_do_what_they_say(self):
        """As they are printed, by a shell, in the folder where the run was started."""
        keys = {"run.dir": "my run", "train.steps": 4, "checkpoint.every": 4, "train.stop_at_step": 2}
        self.train(2, keys, status=EXIT_STOPPED)
        self.assertEqual(of_kind(self.folder / "my run", "summary")[0]["exit_reason"].split(" ")[0], "stopped")
        again = self.next_lines("my run/run.log")
        self.assertEqual(len(again), 1)
        self.run_shell(self.command_in(again[0], "next: the same command goes on from step 2: "))
        lines = self.messages("my run/run.log")
        self.assertEqual([line.split(", ")[-1] for line in lines if line.startswith("FullShard ")], ["start 1", "start 2"])
        self.assertIn("goes on after step 2; if this log tells of later steps, those were lost", lines)
        [summary] = of_kind(self.folder / "my run", "summary")
        self.assertEqual((summary["step"], summary["exit_reason"]), (4, "done"))
        consolidate, evaluate = self.next_lines("my run/run.log")[1:]
        self.run_shell(self.command_in(consolidate, "next: "))
        said = self.run_shell(self.command_in(evaluate, "then: "))
        loss = round(float(summary["validation_loss_after"]), 6)
        self.assertIn(f"validation loss {loss:.6f}", said)
        events = [event for event in of_kind(self.folder / "my run", "event") if event["event"] == "start"]
        self.assertEqual([(event["start"], event["after_step"]) for event in events], [(1, 0), (2, 2)])
        self.assertEqual(events[0]["command"][0], str(BINARY))

    def next_lines(self, log: str) -> list[str]:
        return [line for line in self.messages(log) if line.startswith(("next: ", "then: "))]

    def command_in(self, line: str, start: str) -> str:
        self.assertTrue(line.startswith(start), line)
        return line.removeprefix(start)

    def run_shell(self, command: str) -> str:
        options = {"OMPI_MCA_rmaps_base_oversubscribe": "1", "OMPI_MCA_hwloc_base_binding_policy": "none"}
        result = subprocess.run(["sh", "-c", command], cwd=self.folder, env=self.environment(**options), text=True,
                                capture_output=True, timeout=DEADLINE_S)
        self.assertEqual(result.returncode, 0, f"{command}\n{result.stdout}{result.stderr}")
        return result.stdout


class LogsTest(Screens):
    def test_logs_of_ranks_on_request(self):
        self.train(3, {**QUICK, "run.rank_logs": "on"})
        logs = sorted(path.name for path in (self.folder / "run/logs").iterdir())
        self.assertEqual(logs, ["rank-00000.log", "rank-00001.log", "rank-00002.log"])
        for name in logs:
            lines = self.messages(f"run/logs/{name}")
            self.assertEqual(lines[1], "3 ranks on 1 node (3)", name)
            self.assertEqual(sum(bool(re.match(r"step +\d+/2 ", line)) for line in lines), 2, name)
        self.assertEqual(self.messages("run/logs/rank-00000.log"), self.messages())

    def test_logs_go_on_with_the_run(self):
        keys = {**QUICK, "run.rank_logs": "on", "train.steps": 3, "train.stop_at_step": 2}
        self.train(2, keys, status=EXIT_STOPPED)
        self.train(2, keys)
        for name in ("run.log", "logs/rank-00000.log", "logs/rank-00001.log"):
            lines = self.messages(f"run/{name}")
            starts = [line.split(", ")[-1] for line in lines if line.startswith("FullShard ")]
            self.assertEqual(starts, ["start 1", "start 2"], name)
            self.assertEqual(re.findall(r"(?m)^step +(\d+)/3 ", "\n".join(lines)), ["1", "2", "3"], name)
            self.assertIn("goes on after step 2; if this log tells of later steps, those were lost", lines)

    def test_a_new_run_leaves_none_of_the_old_logs(self):
        self.train(2, {**QUICK, "run.rank_logs": "on"})
        self.train(1, {**QUICK, "run.overwrite": "on"})
        self.assertFalse((self.folder / "run/logs").exists())
        self.assertTrue(self.messages()[0].endswith(", start 1"))


if __name__ == "__main__":
    unittest.main()
