"""The preflight on a sound machine, and what it says of a broken one."""
import os
import signal
import subprocess
import time
import unittest

from end_to_end import (BINARY, DEADLINE_S, EXIT_COMMUNICATION, EXIT_RUN_ERROR, EXIT_USAGE, MPIRUN,
                        SHARED_MEMORY_FOLDERS, SMOKE_DECK, EndToEndTest, Job, Result)

CHECKS = ["launch", "launcher", "MPI library", "program", "binding", "clocks", "shared memory", "node arena",
          "single copy", "file system", "free space", "files seen by all", "locks", "parallel HDF5", "sums"]
COLLECTIVES = ["all_gather", "reduce_scatter", "all_reduce", "broadcast"]
# More of it than any node has: a model of 300 layers of 4 x 4096 x 16384 numbers and more.
HUGE = ["--model.d_model", "4096", "--model.d_ff", "16384", "--model.num_layers", "300"]


def lines_of(result: Result) -> dict[str, str]:
    """The line of each check, and its remedy if it has one, by the check's name."""
    found, name = {}, ""
    for line in result.out.splitlines():
        if line.startswith("      ->"):
            found[name] += "\n" + line
        elif line.split()[0] in ("ok", "warn", "FAIL"):
            name = line[6:28].strip()
            found[name] = line
    return found


class DoctorTest(EndToEndTest):
    def examine(self, ranks: int, *words: str, status: int = 0, **variables: str) -> Result:
        """All ranks leave with `status`, and nothing is left where the run would write."""
        return self.run_to_common_end(ranks, ["doctor", *words], status, **variables)

    def assert_line(self, result: Result, check: str, grade: str, *parts: str):
        line = lines_of(result).get(check, "")
        self.assertTrue(line.startswith(grade), f"{check}: {line}\n{result.out}{result.err}")
        for part in parts:
            self.assertIn(part, line)
        self.assertEqual("\n      -> " in line, grade != "ok", line)

    def test_sound_machine_passes_with_a_line_for_each_check(self):
        for ranks, words in ((1, []), (2, [str(SMOKE_DECK)]), (4, [])):
            with self.subTest(ranks=ranks):
                result = self.examine(ranks, *words)
                lines = lines_of(result)
                expected = CHECKS + (COLLECTIVES if ranks > 1 else ["collectives"])
                self.assertEqual(sorted(lines), sorted(expected), result.out)
                for check in ("launch", "MPI library", "program", "node arena", "free space", "locks",
                              "parallel HDF5", "sums"):
                    self.assert_line(result, check, "ok")
                self.assertIn(" 0 failed", result.out)
                self.assertIn("by the deck" if words else "", lines["shared memory"])
                self.assertEqual(result.causes(), [])
        self.assertEqual(list(self.folder.iterdir()), [])

    def test_emulated_nodes_show_the_groups_between_them(self):
        result = self.examine(4, "--topology.ranks_per_node", "2", "--checkpoint.files", "node")
        self.assert_line(result, "launch", "ok", "4 ranks on 2 nodes (2 + 2)")
        self.assert_line(result, "nodes", "warn", "emulated")
        self.assert_line(result, "parallel HDF5", "ok", "in 2 files")
        for group in ("world of 4 ranks", "node of 2 ranks", "between nodes of 2 ranks"):
            self.assertEqual(result.out.count(group), len(COLLECTIVES), result.out)

    def test_more_ranks_than_cores_is_a_warning(self):
        ranks = os.cpu_count() + 1
        if ranks > 4:
            self.skipTest(f"{os.cpu_count()} cores: would need {ranks} ranks")
        self.assert_line(self.examine(ranks), "binding", "warn", "take turns", "kernels.threads")
        result = self.examine(1, "--kernels.threads", str(ranks))
        self.assert_line(result, "binding", "warn", f"1 rank with {ranks} threads")

    def test_ranks_bound_to_one_core_are_a_warning(self):
        if os.cpu_count() < 2:
            self.skipTest("needs 2 cores")
        mask = os.sched_getaffinity(0)
        os.sched_setaffinity(0, [min(mask)])  # mpirun inherits it
        self.addCleanup(os.sched_setaffinity, 0, mask)
        result = self.examine(2)
        self.assert_line(result, "binding", "warn", "2 ranks with 1 thread each may use CPUs", "--cpu-bind=cores")

    def test_small_shared_memory_fails_before_it_is_used(self):
        disk = self.mount_small_disk(16)
        small = dict(zip(SHARED_MEMORY_FOLDERS[1:], [str(disk)] * 2))
        result = self.examine(2, status=EXIT_RUN_ERROR, **small)
        self.assert_line(result, "shared memory", "warn", "16 MiB in", str(disk), "--shm-size", "comm.node_shared")
        self.assert_line(result, "node arena", "FAIL", "too little room", "--shm-size")
        self.assert_line(result, "sums", "ok")  # later checks still run
        self.assertIn("1 failed", result.out)

    def test_deck_that_needs_more_than_there_is_fails(self):
        result = self.examine(2, str(SMOKE_DECK), *HUGE, status=EXIT_RUN_ERROR)
        self.assert_line(result, "shared memory", "FAIL", "by the deck", "comm.node_shared")
        self.assert_line(result, "free space", "FAIL", "checkpoint.keep_last")

    def test_read_only_run_folder_fails(self):
        disk = self.mount_small_disk(64)
        subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
        result = self.examine(2, "--run.dir", "disk/run", status=EXIT_RUN_ERROR)
        self.assert_line(result, "storage", "FAIL", str(disk), "Read-only file system", "run.dir")
        self.assert_line(result, "sums", "ok")

    def test_full_disk_fails(self):
        disk = self.mount_small_disk(8)
        (disk / "data").write_bytes(bytes(4 << 20))
        before = sorted(disk.iterdir())
        result = self.examine(1, "--run.dir", "disk/run", status=EXIT_RUN_ERROR)
        self.assert_line(result, "file system", "warn", "tmpfs")
        self.assert_line(result, "free space", "FAIL", "4 MiB free", "make room")
        self.assert_line(result, "parallel HDF5", "FAIL", "needs", "make room")
        self.assert_line(result, "locks", "ok")
        self.assertEqual(sorted(disk.iterdir()), before)

    def test_folder_of_one_node_fails(self):
        local = self.folder / "local"
        local.mkdir()
        doctor = [str(BINARY), "doctor", "--run.dir", str(local / "run"), "--comm.timeout_s", "4"]
        hidden = ["unshare", "--mount", "sh", "-c", f'mount -t tmpfs none "{local}" && exec "$@"', "sh", *doctor]
        if subprocess.run([*hidden[:5], "sh", "true"], capture_output=True).returncode != 0:
            self.skipTest("no rank can be given a file system of its own (root may)")
        result = Job([*MPIRUN, "-n", "1", *doctor, ":", "-n", "1", *hidden], self.environment(), self.folder).finish()
        self.check_end(result, EXIT_RUN_ERROR)
        self.assert_line(result, "files seen by all", "FAIL", "rank 1 on", "No such file", "all nodes see")
        self.assertNotIn("parallel HDF5", result.out)
        self.assert_line(result, "sums", "ok")
        self.assertEqual(list(local.iterdir()), [])

    def test_deck_with_mistakes_is_refused_as_for_training(self):
        deck = self.write("wrong.ini", "[model]\nheads = 3\n")
        result = self.examine(2, str(deck), status=EXIT_USAGE)
        self.assert_one_cause(result, "one mistake")
        self.assertEqual(result.out, "")
        self.assert_one_cause(self.examine(2, "--train.stepz", "3", status=EXIT_USAGE), "one mistake")
        self.assert_one_cause(self.examine(1, "nowhere.ini", status=EXIT_USAGE), "nowhere.ini")

    def test_rank_that_stands_still_ends_the_job_with_a_line(self):
        job = Job([*MPIRUN, "-n", "2", str(BINARY), "doctor", "--comm.timeout_s", "1"],
                  self.environment(OMPI_MCA_odls_base_sigkill_timeout="0"), self.folder)
        job.process.stdout.readline()  # MPI is up, the first check is through
        os.kill(job.ranks()[1], signal.SIGSTOP)
        begin = time.monotonic()
        result = job.finish()
        self.assertLess(time.monotonic() - begin, DEADLINE_S / 2)
        self.assertEqual(result.status, EXIT_COMMUNICATION, result.out + result.err)
        self.assert_one_cause(result)
        self.assertRegex(result.causes()[0], "no answer within 1 s while waiting for|nothing has moved for [0-9]+ s in ")


if __name__ == "__main__":
    unittest.main()
