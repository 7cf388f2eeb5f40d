"""Models that transformers saved: trained as PyTorch trains them, and handed back bit by bit."""
import json
import os
import struct
import subprocess
import unittest
from pathlib import Path

from end_to_end import BINARY, EXIT_DATA, EXIT_USAGE, EndToEndTest, numbers, of_kind

GOLDEN = Path(os.environ["FULLSHARD_GOLDEN"]) / "hf"
CKPT = BINARY.parent / "fullshard-ckpt"


def golden(name: str) -> dict:
    return json.loads((GOLDEN / f"{name}.json").read_text())


def llmc_tokens(tokens: list[int]) -> bytes:
    """A token file of llm.c: 256 numbers of 32 bits, of which three are used, and 16 bits a token."""
    return struct.pack("<256i", 20240520, 1, len(tokens), *[0] * 253) + struct.pack(f"<{len(tokens)}H", *tokens)


def tensors(folder: Path) -> dict[str, tuple]:
    """Type, shape and bytes of every tensor in a folder's safetensors files."""
    found = {}
    for path in folder.glob("*.safetensors"):
        data = path.read_bytes()
        [length] = struct.unpack("<Q", data[:8])
        for name, entry in json.loads(data[8:8 + length]).items():
            if name == "__metadata__":
                continue
            begin, end = (8 + length + offset for offset in entry["data_offsets"])
            found[name] = (entry["dtype"], entry["shape"], data[begin:end])
    return found


class HuggingFaceTest(EndToEndTest):
    def keys(self, name: str, run: str) -> dict:
        train = golden(name)["train"]
        self.write("stream.bin", llmc_tokens(train["stream"]))
        keys = {"run.dir": run, "model.config": GOLDEN / name, "model.init_from": GOLDEN / name,
                "data.source": "llmc", "data.path": "stream.bin", "data.sequence": train["sequence"],
                "data.shuffle": "off", "data.validation_fraction": 0, "train.steps": train["steps"],
                "train.global_batch": train["batch"], "train.micro_batch": 1, "checkpoint.every": 100}
        return keys | {f"optimizer.{key}": value for key, value in train["optimizer"].items()}

    def deck(self) -> Path:
        return self.write("empty.ini", "")

    def ckpt(self, *words) -> subprocess.CompletedProcess:
        return subprocess.run([CKPT, *map(str, words)], cwd=self.folder, capture_output=True, text=True)

    def compare_with_pytorch(self, name: str):
        for ranks in (1, 2, 4):
            run = f"{name}-{ranks}"
            self.train(ranks, self.keys(name, run), self.deck())
            losses = [float(record["loss"]) for record in of_kind(self.folder / run, "step")]
            expected = golden(name)["train"]["losses"]
            self.assertEqual(len(losses), len(expected))
            for actual, loss in zip(losses, expected):
                self.assertAlmostEqual(actual / loss, 1, delta=1e-5)
            self.assertEqual(numbers(self.folder / run), numbers(self.folder / f"{name}-1"))

    def test_gpt2_trains_as_in_pytorch(self):
        self.compare_with_pytorch("gpt2_folder")

    def test_llama_trains_as_in_pytorch(self):
        self.compare_with_pytorch("llama_folder")

    def test_what_is_imported_is_exported_bit_by_bit(self):
        for name in ("gpt2_folder", "llama_folder"):
            imported = self.ckpt("import", GOLDEN / name, "--out", f"{name}/checkpoints")
            self.assertEqual(imported.returncode, 0, imported.stderr)
            exported = self.ckpt("consolidate", name, "--out", f"{name}-hf", "--format", "hf")
            self.assertEqual(exported.returncode, 0, exported.stderr)
            self.assertEqual(tensors(self.folder / f"{name}-hf"), tensors(GOLDEN / name))
            config = json.loads((self.folder / f"{name}-hf/config.json").read_text())
            self.assertEqual(config["model_type"], golden(name)["config"]["model_type"])

    def test_a_trained_model_goes_out_and_comes_back(self):
        keys = self.keys("llama_folder", "run") | {"train.steps": 2}
        self.train(2, keys, self.deck())
        exported = self.ckpt("consolidate", "run", "--out", "hf", "--format", "hf")
        self.assertEqual(exported.returncode, 0, exported.stderr)
        back = self.ckpt("import", "hf", "--out", "back/checkpoints")
        self.assertEqual(back.returncode, 0, back.stderr)
        self.train(1, keys | {"run.dir": "again", "model.init_from": "hf", "model.config": "hf", "optimizer.lr": 0,
                              "optimizer.weight_decay": 0}, self.deck())
        for other in ("back", "again"):
            exported = self.ckpt("consolidate", other, "--out", f"{other}-hf", "--format", "hf")
            self.assertEqual(exported.returncode, 0, exported.stderr)
            self.assertEqual(tensors(self.folder / f"{other}-hf"), tensors(self.folder / "hf"))

    def test_weights_of_another_shape_are_listed(self):
        keys = self.keys("llama_folder", "run") | {"model.num_layers": 3, "model.d_ff": 40}
        result = self.train(2, keys, self.deck(), status=EXIT_DATA)
        self.assertIn("model.layers.2.mlp.up_proj.weight", result.err)
        self.assertIn("model.layers.0.mlp.up_proj.weight", result.err)

    def test_a_family_that_contradicts_its_config(self):
        result = self.run_to_common_end(
            2, ["train", str(self.deck()), "--model.family", "gpt2", "--model.config", str(GOLDEN / "llama_folder")],
            EXIT_USAGE)
        self.assert_one_cause(result, "model.family = gpt2 (command line)", "family llama")


if __name__ == "__main__":
    unittest.main()
