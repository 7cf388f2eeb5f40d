#!/usr/bin/env python3
"""Trains a stack of three small modules whose middle one is left out in some steps.

A parameter that a step does not use has a zero gradient there, not none: AdamW decays it and moves
it by its old momentum (PyTorch with zero_grad(set_to_none=False)). All values are stored in full.
"""

import argparse
import json
import pathlib

import torch
from torch import nn
from torch.nn import functional

SCHEMA = 1
VOCABULARY, WIDTH, BATCH, SEQUENCE = 11, 4, 2, 5
# Whether a step uses the adapter; it begins unused, so that its moments are still zero there.
ADAPTER_USED = [False, True, False, False, True, True, False, True]
OPTIMIZER = {"lr": 1e-2, "beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "weight_decay": 0.1}


class Adapted(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.adapter = nn.Linear(WIDTH, WIDTH)
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, tokens, adapter_used):
        x = self.embedding(tokens)
        if adapter_used:
            x = x + self.adapter(x)
        return self.head(x)


def values(model):
    return {name: p.detach().flatten().tolist() for name, p in model.named_parameters()}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=pathlib.Path, default=pathlib.Path(__file__).parent)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(21)
    model = Adapted()
    initial = values(model)
    decay = OPTIMIZER["weight_decay"]
    optimizer = torch.optim.AdamW(
        [{"params": [p], "weight_decay": decay if p.dim() >= 2 else 0.0}
         for p in model.parameters()],
        lr=OPTIMIZER["lr"], betas=(OPTIMIZER["beta1"], OPTIMIZER["beta2"]), eps=OPTIMIZER["eps"],
        foreach=False)
    steps = []
    for used in ADAPTER_USED:
        tokens = torch.randint(VOCABULARY, (BATCH, SEQUENCE))
        targets = torch.randint(VOCABULARY, (BATCH, SEQUENCE))
        loss = functional.cross_entropy(model(tokens, used).flatten(0, 1), targets.flatten())
        gradients = torch.autograd.grad(loss, list(model.parameters()), materialize_grads=True)
        for parameter, gradient in zip(model.parameters(), gradients):
            parameter.grad = gradient
        norm = torch.cat([g.double().flatten() for g in gradients]).norm().item()
        adapter = model.adapter.weight
        gradient = adapter.grad.flatten().tolist()
        optimizer.step()
        steps.append({"adapter_used": used, "tokens": tokens.tolist(),
                      "targets": targets.tolist(), "loss": loss.item(), "grad_norm": norm,
                      "adapter_gradient": gradient,
                      "adapter_after": adapter.detach().flatten().tolist()})
    golden = {"schema": SCHEMA, "vocab_size": VOCABULARY, "width": WIDTH, "optimizer": OPTIMIZER,
              "parameters": [{"name": n, "shape": list(p.shape)}
                             for n, p in model.named_parameters()],
              "initial": initial, "steps": steps, "after": values(model),
              "made_with": {"torch": torch.__version__}}
    lines = (f"{json.dumps(key)}: {json.dumps(value)}" for key, value in golden.items())
    (arguments.output / "unused_parameter.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
