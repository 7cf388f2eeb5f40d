#!/usr/bin/env python3
"""Trains the SimpleTransformer with PyTorch for a few steps and stores what came out as JSON.

The C++ tests start from the same initial weights (the counter-based generator of src/base/rng.h is
re-implemented here from its formula), see the same batches and must arrive at the same losses.
README.md beside this file tells how to run it and what the fields mean.
"""

import argparse
import json
import pathlib
import platform

import numpy as np
import torch
from torch import nn
from torch.nn import functional

SCHEMA = 1
IGNORED_TARGET = -1
STEPS = 20
DISTINCT_BATCHES = 5

# --- src/base/rng.h, on whole arrays of counters -------------------------------------------------

MASK64 = (1 << 64) - 1


def mix(seed, value):
    z = (seed + 0x9E3779B97F4A7C15 * (value + 1)) & MASK64
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK64
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK64
    return z ^ (z >> 31)


def stable_hash(text):
    value = 0xCBF29CE484222325
    for byte in text.encode():
        value = ((value ^ byte) * 0x100000001B3) & MASK64
    return value


def philox4x32(key, index):
    """Philox4x32-10 at counters (index, 0): four arrays of 32-bit words held as uint64."""
    low32 = np.uint64(0xFFFFFFFF)
    c = [index & low32, index >> np.uint64(32), np.zeros_like(index), np.zeros_like(index)]
    k = [np.uint64(key & 0xFFFFFFFF), np.uint64(key >> 32)]
    for _ in range(10):
        p0 = np.uint64(0xD2511F53) * c[0]
        p1 = np.uint64(0xCD9E8D57) * c[2]
        c = [(p1 >> np.uint64(32)) ^ c[1] ^ k[0], p1 & low32,
             (p0 >> np.uint64(32)) ^ c[3] ^ k[1], p0 & low32]
        k = [(k[0] + np.uint64(0x9E3779B9)) & low32, (k[1] + np.uint64(0xBB67AE85)) & low32]
    return c


def unit_interval(high, low):
    bits = (high << np.uint64(32)) | low
    return (bits >> np.uint64(11)).astype(np.float64) * 2.0**-53


def uniform(key, count):
    block = philox4x32(key, np.arange(count, dtype=np.uint64))
    return unit_interval(block[0], block[1])


def normal(key, count):
    block = philox4x32(key, np.arange(count, dtype=np.uint64))
    radius = np.sqrt(-2.0 * np.log(1.0 - unit_interval(block[0], block[1])))
    return radius * np.cos(2.0 * np.pi * unit_interval(block[2], block[3]))


# --- Model ---------------------------------------------------------------------------------------


class SimpleTransformer(nn.Module):
    def __init__(self, config):
        super().__init__()
        d_model = config["d_model"]
        self.causal = config["causal"]
        self.embedding = nn.Embedding(config["vocab_size"], d_model)
        self.position = None
        if config["max_positions"] > 0:
            self.position = nn.Embedding(config["max_positions"], d_model)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(
                d_model, config["num_heads"], config["d_ff"], config["dropout"],
                config["activation"], batch_first=True, norm_first=config["norm_first"])
            for _ in range(config["num_layers"]))
        self.head = nn.Linear(d_model, config["vocab_size"])

    def forward(self, tokens):
        x = self.embedding(tokens)
        if self.position is not None:
            x = x + self.position(torch.arange(tokens.shape[1]))
        mask = None
        if self.causal:
            mask = nn.Transformer.generate_square_subsequent_mask(tokens.shape[1], dtype=x.dtype)
        for layer in self.layers:
            x = layer(x, src_mask=mask, is_causal=self.causal)
        return self.head(x)


def initial_value(name, shape, seed, config):
    """The initial distributions that src/spec documents, drawn at (seed, name, element)."""
    key = mix(seed, stable_hash(name))
    count = int(np.prod(shape))
    if name == "embedding.weight":
        values = normal(key, count)
    elif name == "position.weight":
        values = 0.02 * normal(key, count)
    elif "norm" in name:
        values = np.full(count, 1.0 if name.endswith(".weight") else 0.0)
    elif name.endswith(("in_proj_bias", "out_proj.bias")):
        values = np.zeros(count)
    else:
        d_model = config["d_model"]
        fan_in = config["d_ff"] if "linear2" in name else d_model
        bound = fan_in**-0.5
        if "in_proj_weight" in name:
            bound = (6.0 / (d_model + 3 * d_model)) ** 0.5
        values = bound * (2.0 * uniform(key, count) - 1.0)
    return values.astype(np.float32).reshape(shape)


# --- Data ----------------------------------------------------------------------------------------


def make_batches(case):
    """DISTINCT_BATCHES batches of `batch` sequences; the last sequence of every second batch is
    padded, so that sequences of one step have different counts of valid targets."""
    config, data = case["model"], case["data"]
    batch, sequence = data["batch"], data["sequence"]
    window = sequence + 1
    key = mix(case["seed"], stable_hash("golden tokens"))
    draws = uniform(key, DISTINCT_BATCHES * batch * window)
    stream = (draws * config["vocab_size"]).astype(np.int64)
    stream = stream.reshape(DISTINCT_BATCHES, batch, window)
    batches = []
    for index in range(DISTINCT_BATCHES):
        tokens = stream[index, :, :sequence].copy()
        if data["targets"] == "next":
            targets = stream[index, :, 1:].copy()
        else:
            targets = np.roll(tokens, -1, axis=1)
        if index % 2 == 1:
            padding = sequence // 3
            tokens[-1, -padding:] = 0
            targets[-1, -padding - 1:] = IGNORED_TARGET
        batches.append({"tokens": tokens.tolist(), "targets": targets.tolist(),
                        "valid_targets": int((targets != IGNORED_TARGET).sum())})
    return batches


# --- Training ------------------------------------------------------------------------------------


def summary(tensor):
    values = tensor.detach().double()
    return {"sum": values.sum().item(), "norm": values.norm().item()}


def summaries(named_tensors):
    return {name: summary(tensor) for name, tensor in named_tensors}


def train(case, batches, dtype):
    config, settings = case["model"], case["optimizer"]
    model = SimpleTransformer(config).to(dtype)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            value = initial_value(name, tuple(parameter.shape), case["seed"], config)
            parameter.copy_(torch.from_numpy(value))
    before = summaries(model.named_parameters())
    decay = [p for p in model.parameters() if p.dim() >= 2]
    no_decay = [p for p in model.parameters() if p.dim() < 2]
    optimizer = torch.optim.AdamW(
        [{"params": decay, "weight_decay": settings["weight_decay"]},
         {"params": no_decay, "weight_decay": 0.0}],
        lr=settings["lr"], betas=(settings["beta1"], settings["beta2"]), eps=settings["eps"],
        foreach=False)
    losses, grad_norms, first_gradients = [], [], None
    model.train()
    for step in range(STEPS):
        batch = batches[step % len(batches)]
        logits = model(torch.tensor(batch["tokens"]))
        targets = torch.tensor(batch["targets"])
        loss = functional.cross_entropy(logits.flatten(0, 1), targets.flatten(),
                                        ignore_index=IGNORED_TARGET)
        optimizer.zero_grad()
        loss.backward()
        if first_gradients is None:
            first_gradients = summaries((n, p.grad) for n, p in model.named_parameters())
        squares = [p.grad.double().square().sum() for p in model.parameters()]
        grad_norms.append(torch.stack(squares).sum().sqrt().item())
        losses.append(loss.item())
        optimizer.step()
    return {"losses": losses, "grad_norms": grad_norms, "before": before,
            "first_gradients": first_gradients, "after": summaries(model.named_parameters())}


def describe_parameters(config):
    # Softmax ignores a constant added to all keys, so the key third of in_proj_bias has a zero
    # gradient but for rounding, which Adam turns into full steps: its final value means nothing.
    return [{"name": name, "shape": list(parameter.shape), "decays": parameter.dim() >= 2,
             "comparable_after": not name.endswith("in_proj_bias")}
            for name, parameter in SimpleTransformer(config).named_parameters()]


def case(seed, targets, sequence, model, optimizer):
    return {"seed": seed, "model": {"dropout": 0.0, **model},
            "optimizer": {"name": "adamw", "beta1": 0.9, "beta2": 0.999, "eps": 1e-8, **optimizer},
            "data": {"batch": 4, "sequence": sequence, "targets": targets}}


# The learning rate is high so that small mistakes show: a GELU by tanh or an epsilon of 1e-7 changes
# losses by more than 1e-5, rounding in float32 by less than 1e-6.
CASES = {
    "postnorm_relu_causal": case(
        seed=1234, targets="next", sequence=16,
        model={"vocab_size": 61, "d_model": 32, "num_heads": 4, "num_layers": 2, "d_ff": 64,
               "max_positions": 20, "activation": "relu", "norm_first": False, "causal": True},
        optimizer={"lr": 1e-2, "weight_decay": 0.1}),
    "prenorm_gelu_bidirectional": case(
        seed=987654321, targets="rolled", sequence=16,
        model={"vocab_size": 61, "d_model": 32, "num_heads": 4, "num_layers": 2, "d_ff": 64,
               "max_positions": 0, "activation": "gelu", "norm_first": True, "causal": False},
        optimizer={"lr": 1e-2, "weight_decay": 0.05}),
    # No size is a multiple of another, so shards and vector lanes end inside rows.
    "odd_sizes": case(
        seed=2**63 + 5, targets="next", sequence=7,
        model={"vocab_size": 37, "d_model": 21, "num_heads": 3, "num_layers": 3, "d_ff": 35,
               "max_positions": 7, "activation": "gelu", "norm_first": False, "causal": True},
        optimizer={"lr": 1e-2, "weight_decay": 0.0}),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=pathlib.Path, default=pathlib.Path(__file__).parent)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    for name, definition in CASES.items():
        batches = make_batches(definition)
        golden = {
            "schema": SCHEMA, "case": name, **definition,
            "steps": STEPS, "batches": batches,
            "parameters": describe_parameters(definition["model"]),
            "float32": train(definition, batches, torch.float32),
            "float64": train(definition, batches, torch.float64),
            "made_with": {"torch": torch.__version__, "numpy": np.__version__,
                          "python": platform.python_version(),
                          "cpu_capability": torch.backends.cpu.get_cpu_capability()},
        }
        path = arguments.output / f"simple_transformer_{name}.json"
        lines = (f"{json.dumps(key)}: {json.dumps(value)}" for key, value in golden.items())
        path.write_text("{\n" + ",\n".join(lines) + "\n}\n")
        single, double = golden["float32"]["losses"], golden["float64"]["losses"]
        error = max(abs(a - b) / b for a, b in zip(single, double))
        print(f"{path.name}: loss {single[0]:.6f} -> {single[-1]:.6f}, "
              f"float32 against float64 {error:.1e} relative")


if __name__ == "__main__":
    main()
