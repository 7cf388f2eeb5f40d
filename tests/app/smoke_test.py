"""The smoke deck trains on any number of ranks and leaves a folder that tells and repeats everything."""
import math
import unittest
from pathlib import Path

from end_to_end import EndToEndTest, of_kind, records

KINDS = {"run", "step", "eval", "event", "summary"}
STEP_FIELDS = {"kind", "time", "step", "loss", "grad_norm", "lr", "tokens", "tokens_per_s", "step_s", "mem_peak_bytes",
               "page_faults"}
# What inputs/smoke.ini makes of any number of ranks.
STEPS = 20
EVALUATIONS = 2
VALIDATION_BATCHES = 4
SEQUENCES, TOKENS = 2, 16  # of a micro-batch, of a sequence
HEAD = 64 * 32 + 64  # elements of the last segment: weight and bias of the output layer


def padded_bytes(elements: int, ranks: int) -> int:
    """Of a unit in fp32: shards of whole 64-byte lines at half width, parameters at 256 bytes."""
    grain = math.lcm(32 * ranks, 64)
    return 4 * grain * -(-elements // grain)


class SmokeTest(EndToEndTest):
    def test_1_rank(self):
        self.check_smoke_run(1)

    def test_2_ranks(self):
        self.check_smoke_run(2)

    def test_3_ranks(self):
        self.check_smoke_run(3)

    def test_4_ranks(self):
        self.check_smoke_run(4)

    def check_smoke_run(self, ranks: int):
        result = self.train(ranks, {"run.dir": "runs/here"})
        folder = self.folder / "runs/here"
        self.assertEqual({path.name for path in folder.iterdir()}, {"effective.ini", "run.log", "metrics.jsonl"})
        self.assertEqual(result.err, "")
        self.check_log(result.out, (folder / "run.log").read_text(), str(folder))
        self.check_run_record(of_kind(folder, "run"), ranks)
        self.check_steps(of_kind(folder, "step"), ranks)
        self.check_summary(folder, ranks)
        self.assertEqual({record["kind"] for record in records(folder)}, KINDS)
        self.assertEqual([record["step"] for record in of_kind(folder, "eval")], [0, STEPS])

    def check_log(self, console: str, log: str, folder: str):
        """run.log is the console with dates; its last line says where everything is."""
        self.assertEqual([line.split(" ", 1)[1] for line in log.splitlines()], console.splitlines())
        self.assertIn(f"everything is in {folder}", log.splitlines()[-1])
        self.assertEqual(sum("tokens/s" in line and " left " in line for line in log.splitlines()), STEPS)

    def check_run_record(self, found: list[dict], ranks: int):
        [record] = found
        self.assertEqual(record["ranks"], ranks)
        self.assertEqual(record["global_batch"], record["micro_batch"] * record["grad_accum_steps"] * ranks)

    def check_steps(self, steps: list[dict], ranks: int):
        self.assertEqual([step["step"] for step in steps], list(range(1, STEPS + 1)))
        for step in steps:
            self.assertEqual(set(step), STEP_FIELDS)
            self.assertEqual(float(step["lr"]), 0.01)
            for field in ("grad_norm", "tokens_per_s", "step_s", "mem_peak_bytes"):
                self.assertGreater(float(step[field]), 0.0, field)
        seen = [step["tokens"] for step in steps]
        self.assertEqual(seen, sorted(set(seen)))
        self.assertLessEqual(seen[-1], STEPS * ranks * SEQUENCES * TOKENS)  # some lie behind the stream's end
        losses = [float(step["loss"]) for step in steps]
        self.assertLess(sum(losses[-5:]), sum(losses[:5]) - 5 * 0.3)

    def check_summary(self, folder, ranks: int):
        [summary] = of_kind(folder, "summary")
        last = of_kind(folder, "step")[-1]
        evaluations = of_kind(folder, "eval")
        self.assertEqual(summary["steps"], STEPS)
        self.assertEqual(summary["tokens"], last["tokens"])
        self.assertGreaterEqual(summary["mem_peak_bytes"], last["mem_peak_bytes"])
        self.assertEqual(summary["validation_loss_before"], evaluations[0]["loss"])
        self.assertEqual(summary["validation_loss_after"], evaluations[-1]["loss"])
        self.assertEqual(summary["memory_predicted"], summary["memory_allocated"])
        self.assertEqual(summary["traffic_predicted"], summary["traffic_counted"])
        self.check_sizes(summary, of_kind(folder, "run")[0]["parameters"], ranks)
        for phase, seconds in summary["phases_s"].items():
            self.assertLessEqual(float(seconds["min"]), float(seconds["mean"]) * (1 + 1e-9), phase)
            self.assertLessEqual(float(seconds["mean"]), float(seconds["max"]) * (1 + 1e-9), phase)

    def check_sizes(self, summary: dict, parameters: int, ranks: int):
        """Once a node and in equal shares a rank; a share of padding is allowed for."""
        bytes_of = {item["purpose"]: (item["bytes"], item["per"]) for item in summary["memory_allocated"]}
        whole = 4 * parameters
        unsharded, per = bytes_of["unsharded parameters (master shards are slices)"]
        self.assertEqual(per, "node" if ranks > 1 else "rank")
        self.assertTrue(whole <= unsharded <= 1.1 * whole, unsharded)
        moments, per = bytes_of["AdamW moments"]
        self.assertEqual(per, "rank")
        # Padding behind a shard's last parameter has no moments.
        self.assertLessEqual(moments * ranks, 2 * unsharded)
        self.assertGreaterEqual(moments * ranks, 2 * 4 * int(parameters))
        # Forward and backward gather every unit once, but the head's stays from one to the other; an evaluation
        # gathers all once a round of batches.
        others = unsharded * (ranks - 1) // ranks
        head = padded_bytes(HEAD, ranks) * (ranks - 1) // ranks
        passes = 2 * STEPS + EVALUATIONS * -(-VALIDATION_BATCHES // ranks)
        self.assertEqual(summary["traffic_counted"]["gathered"], passes * others - STEPS * head)
        self.assertEqual(summary["traffic_counted"]["reduced"], STEPS * others)
        self.assertEqual(int(summary["traffic_counted"]["copied"]), 0)


class ReproductionTest(EndToEndTest):
    def test_effective_deck_repeats_the_run(self):
        """Keys of all kinds: batch sizes that were derived, a path with blanks, several sections."""
        self.write("some text.txt", "All work and no play makes a dull model.\n" * 200)
        keys = {"data.source": "text", "data.path": "some text.txt", "model.vocab_size": 256, "train.steps": 5,
                "train.global_batch": 12, "train.eval_every": 2, "schedule.kind": "cosine",
                "schedule.warmup_steps": 2, "model.dropout": 0.1, "run.seed": 77, "shard.strategy": "no_shard",
                "optimizer.lr": 3e-4}
        self.train(2, {**keys, "run.dir": "first"})
        self.train(2, {"run.dir": "second"}, deck=self.folder / "first/effective.ini")
        first, second = self.folder / "first", self.folder / "second"
        for kind in ("step", "eval"):
            self.assertEqual(numbers(of_kind(first, kind)), numbers(of_kind(second, kind)))
        self.assertEqual(values(first / "effective.ini"), values(second / "effective.ini"))
        self.assertEqual(setup(first), setup(second))


def numbers(found: list[dict]) -> list[dict]:
    """The fields that are results, not measurements of time and memory."""
    return [{key: record[key] for key in ("step", "loss", "grad_norm", "lr", "tokens") if key in record}
            for record in found]


def setup(folder: Path) -> dict:
    """The record of the run without its time, and without warnings, which name the deck that a key is from."""
    [record] = of_kind(folder, "run")
    return {field: value for field, value in record.items() if field not in ("time", "warnings")}


def values(deck) -> list[str]:
    """The deck without comments and without the folder it was written to."""
    return [line for line in (text.split("#")[0].rstrip() for text in deck.read_text().splitlines())
            if line and not line.startswith("dir = ")]


if __name__ == "__main__":
    unittest.main()
