"""Text that models write: the same at any number of ranks, and what is refused."""
import struct
import unittest

from end_to_end import EXIT_USAGE, EndToEndTest, Result

SENTENCE = "All work and no play makes a dull model. "
MODEL = {"model.family": "gpt2", "model.vocab_size": 256, "model.d_model": 64, "model.num_heads": 4,
         "model.num_layers": 2, "model.d_ff": 128, "model.dropout": 0, "data.sequence": 48}
TRAINING = {"run.dir": "run", "data.source": "text", "data.path": "text.txt", "data.validation_fraction": 0,
            "train.steps": 300, "train.micro_batch": 4, "train.log_every": 100, "optimizer.lr": 0.003,
            "checkpoint.every": 1000}


def tokenizer_file(texts: list[bytes]) -> bytes:
    """Byte tables as llm.c has them, version 2; the last token ends a text."""
    header = struct.pack("<256I", 20240328, 2, len(texts), len(texts) - 1, *[0] * 252)
    return header + b"".join(bytes([len(text)]) + text for text in texts)


class GenerateTest(EndToEndTest):
    def generate(self, ranks: int, status: int = 0, **keys) -> Result:
        words = [word for key, value in (MODEL | {"model.init_from": "run"}).items()
                 for word in (f"--{key}", str(value))]
        words += [word for key, value in keys.items() for word in (f"--{key.replace('__', '.')}", str(value))]
        return self.run_to_common_end(ranks, ["generate", str(self.write("empty.ini", "")), *words], status)

    def setUp(self):
        super().setUp()
        self.write("text.txt", SENTENCE * 200)
        self.train(2, MODEL | TRAINING, self.write("empty.ini", ""))

    def test_continues_what_it_learned(self):
        greedy = {"generate__prompt": "All work", "generate__temperature": 0, "generate__max_tokens": 60}
        outputs = [self.generate(ranks, **greedy).out for ranks in (1, 2, 3)]
        self.assertEqual(outputs[0], (SENTENCE * 2)[:len("All work") + 60] + "\n")
        self.assertEqual(outputs[1:], outputs[:1] * 2)

        stopped = self.generate(2, **greedy, generate__stop_token=ord("."))
        self.assertEqual(stopped.out, SENTENCE[:SENTENCE.index(".")] + "\n")

        hot = {**greedy, "generate__temperature": 3, "generate__samples": 3, "generate__max_tokens": 20}
        samples = self.generate(2, **hot).out
        self.assertEqual(samples.count("--- sample"), 3)
        texts = [text.split("\n", 1)[1] for text in samples.split("--- sample ")[1:]]
        self.assertEqual(len(set(texts)), 3)
        self.assertEqual(self.generate(1, **hot).out, samples)
        self.assertNotEqual(self.generate(1, **hot, generate__seed=2).out, samples)
        # Of one likely token there is nothing to draw.
        self.assertEqual(self.generate(1, **hot, generate__top_k=1).out.count("All work and no play"), 3)

        # Tokens by number, and text by a table: here each byte's upper case.
        table = self.write("tokenizer/tokenizer.bin",
                           tokenizer_file([bytes([byte]).upper() for byte in range(256)])).parent
        numbers = ",".join(str(byte) for byte in b"All work")
        shouted = self.generate(1, data__tokenizer=table, generate__prompt_tokens=numbers, generate__temperature=0,
                                generate__max_tokens=12)
        self.assertEqual(shouted.out, SENTENCE[:20].upper() + "\n")

        self.write("tokenizer/tokenizer.bin", tokenizer_file([bytes([byte]) for byte in range(ord(".") + 1)]))
        ended = self.generate(1, data__tokenizer=table, generate__prompt_tokens=numbers, generate__temperature=0)
        # Of this table "." ends a text, and it knows no letters.
        self.assertEqual(ended.out, " " * SENTENCE[:SENTENCE.index(".")].count(" ") + "\n")

        refused = self.generate(2, EXIT_USAGE, data__tokenizer=table, generate__prompt="All work")
        self.assert_one_cause(refused, "generate.prompt_tokens", "tools/tokenize.py encode")
        self.assert_one_cause(self.generate(2, EXIT_USAGE), "nothing to continue")
        self.assert_one_cause(self.generate(2, EXIT_USAGE, generate__prompt="a", model__init_from=""),
                              "generate needs weights")
        self.assert_one_cause(self.generate(1, EXIT_USAGE, generate__prompt_tokens="1,256"),
                              "token 256 of the prompt is outside model.vocab_size = 256")


if __name__ == "__main__":
    unittest.main()
