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

from cases import CASES
from data import make_batches
from model import initialised_model
from training import DTYPES, STEPS, settings_of, train

SCHEMA = 2


def describe_parameters(case):
    # Softmax ignores a constant added to all keys, so the key third of in_proj_bias has a zero
    # gradient but for rounding, which Adam turns into full steps: its final value means nothing.
    model = initialised_model(case["model"], case["seed"], torch.float32)
    description = []
    for name, parameter in model.named_parameters():
        lr, weight_decay, frozen = settings_of(name, parameter, case["optimizer"])
        description.append({
            "name": name, "shape": list(parameter.shape), "decays": parameter.dim() >= 2,
            "lr": lr, "weight_decay": weight_decay, "trainable": not frozen,
            "comparable_after": not name.endswith("in_proj_bias")})
    return description


def full_width_runs(case, batches):
    data = case["data"]
    runs = {"float32": train(case, batches, data["micro_batch"], torch.float32, torch.float32)[0],
            "float64": train(case, batches, data["micro_batch"], torch.float64, torch.float64)[0]}
    if data["micro_batch"] < data["batch"]:
        whole, _ = train(case, batches, data["batch"], torch.float32, torch.float32)
        runs["whole_batch"] = {key: whole[key] for key in ("losses", "grad_norms")}
    return runs


def half_width_runs(case, batches):
    dtype, micro_batch = DTYPES[case["precision"]], case["data"]["micro_batch"]
    half, half_tensors = train(case, batches, micro_batch, dtype, torch.float32)
    single, single_tensors = train(case, batches, micro_batch, torch.float32, torch.float32,
                                   half["skipped"])
    for kind, tensors in half_tensors.items():
        for name, tensor in tensors.items():
            difference = (tensor - single_tensors[kind][name]).double()
            half[kind][name]["rounding"] = difference.norm().item()
    return {"half": half, "float32": single}


def largest_difference(run, reference):
    return max(abs(a - b) / b for a, b in zip(run["losses"], reference["losses"]))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=pathlib.Path, default=pathlib.Path(__file__).parent)
    parser.add_argument("cases", nargs="*", help="names of cases (default: all)")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    for name in arguments.cases or CASES:
        case = CASES[name]
        batches = make_batches(case)
        runs = (full_width_runs if case["precision"] == "fp32" else half_width_runs)(case, batches)
        golden = {
            "schema": SCHEMA, "case": name, **case, "steps": STEPS, "batches": batches,
            "parameters": describe_parameters(case), **runs,
            "made_with": {"torch": torch.__version__, "numpy": np.__version__,
                          "python": platform.python_version(),
                          "cpu_capability": torch.backends.cpu.get_cpu_capability()},
        }
        path = arguments.output / f"simple_transformer_{name}.json"
        lines = (f"{json.dumps(key)}: {json.dumps(value)}" for key, value in golden.items())
        path.write_text("{\n" + ",\n".join(lines) + "\n}\n")
        (main_name, main_run), *others = runs.items()
        print(f"{path.name}: {main_name} loss {main_run['losses'][0]:.6f} -> "
              f"{main_run['losses'][-1]:.6f}, relative difference " +
              ", ".join(f"{largest_difference(main_run, run):.1e} from {other}"
                        for other, run in others))


if __name__ == "__main__":
    main()
