"""Wrong input ends a job before it starts: the right exit code on every rank, one message, nothing written."""
import gzip
import unittest

from end_to_end import EXIT_DATA, EXIT_RUN_ERROR, EXIT_USAGE, SMOKE_DECK, EndToEndTest, of_kind

MISTYPED_DECK = """\
[model]
d_modle = 32
d_model = 30
num_heads = 4
dropout = 1.5

[train]
steps = many
"""


class MistakesTest(EndToEndTest):
    def refuse(self, ranks: int, keys: dict[str, object], status: int, *parts: str, deck=SMOKE_DECK) -> str:
        """Runs a job that must end with one message holding `parts` and create nothing."""
        before = sorted(self.folder.rglob("*"))
        result = self.train_to_common_end(ranks, {"run.dir": "new/run", **keys}, status, deck)
        self.assert_one_cause(result)
        for part in parts:
            self.assertEqual(result.err.count(part), 1, f"{part} in:\n{result.err}")
        self.assertEqual(result.out, "")
        self.assertEqual(sorted(self.folder.rglob("*")), before)
        return result.err

    def test_mistyped_deck_shows_all_mistakes_at_once(self):
        deck = self.write("bad.ini", MISTYPED_DECK)
        err = self.refuse(2, {"optimizer.lr": "-1"}, EXIT_USAGE, "5 mistakes in the input:",
                          "bad.ini:2: model.d_modle = 32: unknown key; did you mean model.d_model?",
                          "bad.ini:5: model.dropout = 1.5: ",
                          "bad.ini:8: train.steps = many: ",
                          "command line: optimizer.lr = -1: ",
                          "the heads cannot share d_model equally", deck=deck)
        self.assertIn("allowed: ", err)

    def test_batch_that_the_ranks_cannot_share(self):
        self.refuse(3, {"train.global_batch": 8}, EXIT_USAGE, "train.global_batch = 8", "3 ranks")

    def test_resident_store_over_nodes(self):
        self.refuse(2, {"shard.store": "resident", "topology.ranks_per_node": 1}, EXIT_USAGE,
                    "shard.store = resident needs all ranks", "use auto or slotted")

    def test_group_of_no_parameter(self):
        self.refuse(2, {"optimizer.group.a.parameters": "head.*,*.biass"}, EXIT_USAGE,
                    "optimizer.group.a.parameters: no parameter is called *.biass; the nearest names are ")

    def test_model_that_the_program_does_not_have(self):
        self.refuse(2, {"model.family": "custom"}, EXIT_USAGE, "model.family = custom is for programs")

    def test_shard_group_that_does_not_divide_the_ranks(self):
        self.refuse(3, {"shard.group_size": 2}, EXIT_USAGE, "shard.group_size = 2 does not divide the 3 ranks")

    def test_fault_in_a_rank_that_does_not_exist(self):
        self.refuse(2, {"fault.throw_at_step": 1, "fault.rank": 2}, EXIT_USAGE, "fault.rank = 2", "ranks 0 to 1")

    def test_missing_deck(self):
        self.refuse(2, {}, EXIT_USAGE, "nowhere.ini: No such file or directory", deck=self.folder / "nowhere.ini")

    def test_missing_data(self):
        self.refuse(2, {"data.source": "text", "data.path": "nowhere"}, EXIT_DATA,
                    "data.path = nowhere: No such file or directory")

    def test_compressed_data(self):
        self.write("text.gz", gzip.compress(b"All work and no play." * 100))
        self.refuse(1, {"data.source": "text", "data.path": "text.gz"}, EXIT_DATA,
                    "data.path = text.gz is gzip data, not text: decompress it first")

    def test_token_outside_the_vocabulary(self):
        self.write("text", "\t\n" * 300 + "a")  # 97, in a vocabulary of 64
        self.refuse(2, {"data.source": "text", "data.path": "text"}, EXIT_DATA,
                    "token 97 at text, byte 600 is outside model.vocab_size = 64")


class RunFolderTest(EndToEndTest):
    KEYS = {"run.dir": "run", "train.steps": 1}
    OLD = {"metrics.jsonl": "old numbers\n", "run.log": "old lines\n", "effective.ini": "old deck\n",
           "notes": "somebody's\n"}

    def setUp(self):
        super().setUp()
        for name, text in self.OLD.items():
            self.write(f"run/{name}", text)

    def content(self) -> dict[str, str]:
        return {path.name: path.read_text() for path in (self.folder / "run").iterdir()}

    def test_earlier_run_is_left_alone(self):
        result = self.train_to_common_end(2, self.KEYS, EXIT_USAGE)
        self.assert_one_cause(result, "run.dir = run already holds a run", "run.overwrite = on")
        self.assertEqual(self.content(), self.OLD)

    def test_earlier_run_is_replaced_on_demand(self):
        self.train(2, {**self.KEYS, "run.overwrite": "on"})
        content = self.content()
        self.assertEqual(set(content), set(self.OLD))
        self.assertEqual(content["notes"], self.OLD["notes"])
        self.assertNotIn("old", content["metrics.jsonl"] + content["run.log"] + content["effective.ini"])
        self.assertEqual(len(of_kind(self.folder / "run", "step")), 1)

    def test_file_instead_of_a_folder(self):
        result = self.train_to_common_end(2, {**self.KEYS, "run.dir": "run/notes"}, EXIT_USAGE)
        self.assert_one_cause(result, "run.dir = run/notes is not a folder")
        self.assertEqual(self.content(), self.OLD)

    def test_folder_below_a_file(self):
        result = self.train_to_common_end(2, {**self.KEYS, "run.dir": "run/notes/deeper"}, EXIT_RUN_ERROR)
        self.assert_one_cause(result, "cannot create run.dir = run/notes/deeper: Not a directory")
        self.assertEqual(self.content(), self.OLD)


class WrongLaunchTest(EndToEndTest):
    def test_step_of_several_tasks_but_one_rank(self):
        result = self.run_alone("train", str(SMOKE_DECK), SLURM_STEP_NUM_TASKS="4", SLURM_STEP_ID="0")
        self.check_end(result, EXIT_USAGE)
        self.assert_one_cause(result, "SLURM_STEP_NUM_TASKS = 4", "srun --mpi=pmix")
        self.assertEqual(list(self.folder.iterdir()), [])

    def test_batch_script_of_a_large_allocation_may_train_alone(self):
        result = self.run_alone("train", str(SMOKE_DECK), "--train.steps", "1", SLURM_NTASKS="64")
        self.check_end(result, 0)
        self.assertIn("1 rank on 1 node", result.out)


if __name__ == "__main__":
    unittest.main()
