"""The SimpleTransformer in PyTorch, and the initial values that src/spec documents."""

import numpy as np
import torch
from torch import nn

from rng import mix, normal, stable_hash, uniform


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
        if config["tie_embeddings"]:
            self.head.weight = self.embedding.weight

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


def initialised_model(config, seed, dtype):
    model = SimpleTransformer(config).to(dtype)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            value = initial_value(name, tuple(parameter.shape), seed, config)
            parameter.copy_(torch.from_numpy(value))
    return model
