"""trace.steps: one file for a trace viewer, with what each rank did in those steps and in no others."""
import json
import unittest

from end_to_end import EXIT_USAGE, EndToEndTest, of_kind

LANES = ["compute", "gather", "reduce", "optimizer", "checkpoint", "other"]
BLOCKS = 2
MICRO_BATCHES = 2


class TraceTest(EndToEndTest):
    def traced(self, ranks: int, keys: dict[str, object]) -> list[dict]:
        folder = self.folder / "run"
        self.train(ranks, {"run.dir": folder, "train.steps": 6, "train.eval_every": 0, "train.micro_batch": 1,
                           "train.grad_accum_steps": MICRO_BATCHES, "trace.steps": "5,3", **keys})
        text = (folder / "trace.json").read_text()
        self.log = (folder / "run.log").read_text()
        [self.summary] = of_kind(folder, "summary")
        return json.loads(text)["traceEvents"]

    def test_lanes_of_every_rank(self):
        events = self.traced(2, {"shard.store": "slotted", "comm.node_shared": "off", "checkpoint.every": 5})
        for rank in range(2):
            mine = [event for event in events if event["pid"] == rank]
            names = {event["tid"]: event["args"]["name"] for event in mine if event["name"] == "thread_name"}
            self.assertEqual([names[tid] for tid in sorted(names)], LANES)
            forward = [event for event in mine if event["name"].startswith("forward layers")]
            # A lease or a wait inside cuts none of them: a visit computes in one piece.
            self.assertEqual(len(forward), 2 * MICRO_BATCHES * BLOCKS)
            for event in mine:
                self.assertGreaterEqual(event.get("ts", 0), 0)
                self.assertGreaterEqual(event.get("dur", 0), 0)
            flights = [event for event in mine if event["ph"] == "b"]
            self.assertEqual(len(flights), len([event for event in mine if event["ph"] == "e"]))
            # Embedding and blocks are gathered for both passes, the head once; each is reduced once.
            gathers = [event for event in flights if event["cat"] == "gather" and "gather of" in event["name"]]
            self.assertEqual(len(gathers), 2 * MICRO_BATCHES * (2 * (1 + BLOCKS) + 1))
            reductions = [event for event in flights if event["cat"] == "reduce" and "reduction" in event["name"]]
            self.assertEqual(len(reductions), 2 * MICRO_BATCHES * (2 + BLOCKS))
            optimizer = [event for event in mine if event["name"] == "optimizer"]
            self.assertEqual(len(optimizer), 2)  # steps 3 and 5 and not the one between
            self.assertTrue([event for event in mine if event["name"] == "checkpoint" and event["dur"] > 0])
        self.assertIn("gathers and reductions in flight were hidden", self.log)
        self.assertTrue(0 <= float(self.summary["overlap"]) <= 1, self.summary["overlap"])

    def test_shared_memory_has_nothing_in_flight(self):
        events = self.traced(2, {})
        self.assertFalse([event for event in events if event["ph"] == "b" and event["cat"] != "other"])
        self.assertIn("nothing was in flight between ranks", self.log)
        self.assertNotIn("overlap", self.summary)

    def test_a_step_that_never_comes(self):
        result = self.train(1, {"trace.steps": "2,7", "train.steps": 6}, status=EXIT_USAGE)
        self.assertIn("step 7 would never be recorded", result.err)


if __name__ == "__main__":
    unittest.main()
