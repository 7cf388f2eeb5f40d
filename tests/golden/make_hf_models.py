#!/usr/bin/env python3
"""Stores logits and training losses of transformers' GPT-2 and Llama as JSON, and two models as
transformers saves them.

The C++ tests draw the same weights from the counter-based generator, or read the folders, and must
arrive at the same numbers. README.md tells how to run this and what the fields mean.
"""

import argparse
import json
import pathlib
import platform
import shutil

import numpy as np
import torch
import transformers
from torch.nn import functional

from hf_cases import CASES
from hf_models import logits_of, make_model, to_own_layout
from rng import mix, stable_hash, uniform
from training import summary

SCHEMA = 1
# As high as in cases.py, and for the same reason: small mistakes show.
OPTIMIZER = {"lr": 1e-2, "beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "weight_decay": 0.1}
PHRASE = 96  # tokens, which the training stream repeats: there is something to learn


def random_tokens(seed, purpose, count, vocab_size):
    draws = uniform(mix(seed, stable_hash(purpose)), count)
    return (draws * vocab_size).astype(np.int64)


def short(values):
    """Float32 values by the fewest digits that give them back."""
    return [float(str(value)) for value in values.astype(np.float32).ravel()]


def nested(values):
    return [nested(part) for part in values] if values.ndim > 1 else short(values)


def pack(lengths, sequence):
    """Positions and documents of rows of documents; padding is a document of its own."""
    positions, documents = [], []
    for row in lengths:
        parts = row + ([sequence - sum(row)] if sum(row) < sequence else [])
        positions.append([position for part in parts for position in range(part)])
        documents.append([number for number, part in enumerate(parts) for _ in range(part)])
    return positions, documents


def check_documents(model, tokens, lengths, logits):
    """Each document alone gives the logits that it has in its row."""
    for row, parts in enumerate(lengths):
        first = 0
        for part in parts:
            alone = logits_of(model, [tokens[row][first:first + part]])[0]
            assert (alone - logits[row, first:first + part]).abs().max() < 1e-5
            first += part


def check_variant(case, tokens, logits):
    plain = {key: value for key, value in case["config"].items()
             if key not in ("rope_scaling", "rope_parameters")}
    rope = case["config"].get("rope_parameters") or case["config"]
    plain["rope_theta"] = rope["rope_theta"]
    with torch.no_grad():
        difference = (logits_of(make_model(plain, case["seed"]), tokens) - logits).abs().max()
    assert difference > 1e-2, f"plain RoPE differs by {difference} only"


def forward(case):
    config, sequence = case["config"], case["sequence"]
    tokens = random_tokens(case["seed"], "golden tokens", case["batch"] * sequence,
                           config["vocab_size"]).reshape(case["batch"], sequence).tolist()
    model = make_model(config, case["seed"])
    result = {"tokens": tokens}
    with torch.no_grad():
        if case["documents"]:
            positions, documents = pack(case["documents"], sequence)
            result |= {"positions": positions, "documents": documents}
            logits = logits_of(model, tokens, positions, documents)
            check_documents(model, tokens, case["documents"], logits)
        else:
            logits = logits_of(model, tokens)
        if case["differs_from_default"]:
            check_variant(case, tokens, logits)
    return result | {"logits": nested(logits.numpy())}


def batch_of_step(stream, step, batch, sequence):
    """Row r of step s begins at token (s batch + r) sequence; the next token is the target."""
    first = step * batch * sequence
    count = batch * sequence
    inputs, targets = stream[first:first + count], stream[first + 1:first + count + 1]
    return (torch.from_numpy(part).reshape(batch, sequence) for part in (inputs, targets))


def make_optimizer(model):
    """Matrices decay, vectors do not."""
    groups = [{"params": [parameter],
               "weight_decay": OPTIMIZER["weight_decay"] if parameter.dim() >= 2 else 0.0}
              for parameter in model.parameters()]
    return torch.optim.AdamW(groups, lr=OPTIMIZER["lr"], eps=OPTIMIZER["eps"], foreach=False,
                             betas=(OPTIMIZER["beta1"], OPTIMIZER["beta2"]))


def summaries(model, tensor_of):
    """Sums and norms do not depend on the layout, names are FullShard's anyway."""
    return {name: summary(tensor_of(parameter)) for name, parameter in model.named_parameters()}


def rounded_otherwise(model, seed):
    """Weights moved by half a unit in the last place at most."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1 + (torch.rand(parameter.shape, generator=generator) - 0.5) * 2**-23)


def grad_norm_rounding(case):
    """The largest relative distance to float64 of runs that differ in rounding only: Adam's first
    steps go by the sign of gradients however small, and some trainings multiply that."""
    wide = train(case, torch.float64)["grad_norms"]
    runs = [train(case, change=lambda model, seed=seed: rounded_otherwise(model, seed))
            for seed in range(3)]
    return max(abs(a - b) / b for run in runs for a, b in zip(run["grad_norms"], wide))


def train(case, dtype=torch.float32, change=lambda model: None):
    settings = case["train"]
    steps, batch, sequence = settings["steps"], settings["batch"], settings["sequence"]
    phrase = random_tokens(case["seed"], "golden stream", PHRASE, case["config"]["vocab_size"])
    stream = np.resize(phrase, steps * batch * sequence + 1)
    model = make_model(case["config"], case["seed"]).to(dtype).train()
    change(model)
    optimizer = make_optimizer(model)
    run = {**settings, "optimizer": OPTIMIZER, "stream": stream.tolist(),
           "losses": [], "grad_norms": []}
    for step in range(steps):
        tokens, targets = batch_of_step(stream, step, batch, sequence)
        logits = model(input_ids=tokens, use_cache=False).logits
        loss = functional.cross_entropy(logits.flatten(0, 1), targets.flatten())
        optimizer.zero_grad()
        loss.backward()
        gradients = [parameter.grad.double().square().sum() for parameter in model.parameters()]
        run["losses"].append(loss.item())
        run["grad_norms"].append(torch.stack(gradients).sum().sqrt().item())
        if step == 0:
            run["first_gradients"] = summaries(model, lambda parameter: parameter.grad)
        optimizer.step()
    run["after"] = summaries(model, lambda parameter: parameter)
    return run


def describe_parameters(case):
    # Softmax ignores a constant added to all keys, so the key third of c_attn's bias has a zero
    # gradient but for rounding, which Adam turns into full steps.
    model = make_model(case["config"], case["seed"])
    return [{"name": name, "shape": list(to_own_layout(name, parameter).shape),
             "decays": parameter.dim() >= 2,
             "comparable_after": not name.endswith("c_attn.bias")}
            for name, parameter in model.named_parameters()]


def save_folder(case, folder):
    shutil.rmtree(folder, ignore_errors=True)
    make_model(case["config"], case["seed"]).save_pretrained(folder, max_shard_size=case["folder"])
    (folder / "generation_config.json").unlink(missing_ok=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=pathlib.Path,
                        default=pathlib.Path(__file__).parent / "hf")
    parser.add_argument("cases", nargs="*", help="names of cases (default: all)")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    arguments.output.mkdir(exist_ok=True)
    for name in arguments.cases or CASES:
        case = CASES[name]
        golden = {"schema": SCHEMA, "case": name, "seed": case["seed"], "config": case["config"],
                  "parameters": describe_parameters(case), **forward(case)}
        note = ""
        if case["train"]:
            golden["train"] = train(case)
            golden["train"]["grad_norm_rounding"] = grad_norm_rounding(case)
            losses, wide = golden["train"]["losses"], train(case, torch.float64)["losses"]
            rounding = max(abs(a - b) / b for a, b in zip(losses, wide))
            note = f", loss {losses[0]:.6f} -> {losses[-1]:.6f}, {rounding:.1e} from float64"
        golden["made_with"] = {"transformers": transformers.__version__,
                               "torch": torch.__version__, "numpy": np.__version__,
                               "python": platform.python_version(),
                               "cpu_capability": torch.backends.cpu.get_cpu_capability()}
        path = arguments.output / f"{name}.json"
        lines = (f"{json.dumps(key)}: {json.dumps(value)}" for key, value in golden.items())
        path.write_text("{\n" + ",\n".join(lines) + "\n}\n")
        if case["folder"]:
            save_folder(case, arguments.output / name)
        print(f"{path.name}: {path.stat().st_size} bytes{note}")


if __name__ == "__main__":
    main()
