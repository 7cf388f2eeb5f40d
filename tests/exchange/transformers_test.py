"""Models that transformers saves and loads, by its own library."""
import unittest

from peers import GOLDEN, require

require("transformers", "torch", "safetensors")

import numpy as np  # noqa: E402
import torch  # noqa: E402
from exchange import ExchangeTest  # noqa: E402
from safetensors.torch import load_file  # noqa: E402
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM  # noqa: E402

LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 64, "rope_theta": 10000.0}
MODELS = {
    "gpt2_untied": (GPT2LMHeadModel, GPT2Config(vocab_size=53, n_positions=24, n_embd=32, n_layer=2, n_head=2,
                                                tie_word_embeddings=False, bos_token_id=0, eos_token_id=0)),
    "llama_rope": (LlamaForCausalLM, LlamaConfig(
        vocab_size=53, hidden_size=48, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=1, head_dim=16, max_position_embeddings=512, rope_parameters=LLAMA3)),
}
TOKENS = [(7 * n * n + 3) % 53 for n in range(20)]
LOGITS = 2e-5  # of magnitude 1; rounding in another order


def state_of(folder) -> dict:
    return {name: tensor for path in sorted(folder.glob("*.safetensors")) for name, tensor in load_file(path).items()}


class TransformersTest(ExchangeTest):
    def save(self, name: str, dtype=torch.float32):
        """A model that transformers initialises, with deviations large enough to tell mistakes apart."""
        model_class, config = MODELS[name]
        torch.manual_seed(5)
        model = model_class(config).to(dtype)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(0.1 * torch.randn_like(parameter))
        model.save_pretrained(self.folder / name)

    def compare(self, name: str):
        theirs = self.their_logits(self.their_model(name), TOKENS)
        self.assertGreater(float(np.abs(theirs).max()), 0.5)
        for ranks in (1, 2):
            self.assert_near(self.our_logits(ranks, name, TOKENS), theirs, LOGITS)

    def assert_same_tensors(self, actual, expected):
        self.assertEqual(actual.keys(), expected.keys())
        for name, tensor in expected.items():
            self.assertTrue(torch.equal(actual[name], tensor.to(actual[name].dtype)), name)

    def test_logits_of_saved_models(self):
        for name in MODELS:
            with self.subTest(name):
                self.save(name)
                self.compare(name)

    def test_what_is_imported_comes_back(self):
        for name in MODELS:
            for dtype in (torch.float32, torch.bfloat16):
                with self.subTest(name, dtype=dtype):
                    self.save(name, dtype)
                    self.ckpt("import", name, "--out", f"{name}-run/checkpoints", "--force")
                    self.ckpt("consolidate", f"{name}-run", "--out", f"{name}-back", "--format", "hf", "--force")
                    self.assert_same_tensors(state_of(self.folder / f"{name}-back"), state_of(self.folder / name))
                    there = self.their_model(name)
                    back = self.their_model(f"{name}-back")
                    self.assert_same_tensors(back.state_dict(), there.state_dict())
                    self.assertTrue(np.array_equal(self.their_logits(back, TOKENS), self.their_logits(there, TOKENS)))

    def test_what_was_trained_is_loaded_there(self):
        self.write("text.jsonl", "".join(f'{{"tokens": {TOKENS}}}\n' for _ in range(40)))
        for name in ("gpt2_folder", "llama_folder"):
            with self.subTest(name):
                keys = {"run.dir": name, "model.config": GOLDEN / "hf" / name, "model.init_from": GOLDEN / "hf" / name,
                        "data.source": "jsonl", "data.path": "text.jsonl", "data.sequence": 16,
                        "data.validation_fraction": 0, "train.steps": 10, "train.micro_batch": 2,
                        "optimizer.lr": 0.01, "checkpoint.every": 10}
                self.fullshard(2, "train", self.empty, keys)
                self.ckpt("consolidate", name, "--out", f"{name}-hf", "--format", "hf")
                trained = self.their_model(f"{name}-hf")
                self.assertNotIn("lm_head.weight", state_of(self.folder / f"{name}-hf"))  # tied: stored once
                theirs = self.their_logits(trained, TOKENS)
                self.assert_near(self.our_logits(2, name, TOKENS), theirs, LOGITS * np.abs(theirs).max())
                before = self.their_logits(self.their_model(GOLDEN / "hf" / name), TOKENS)
                self.assertGreater(float(np.abs(theirs - before).max()), 0.1)


if __name__ == "__main__":
    unittest.main()
