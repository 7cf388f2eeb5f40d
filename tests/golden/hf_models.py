"""Models of transformers with weights in closed form, under FullShard's names and shapes."""

import numpy as np
import torch
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

from rng import mix, normal, stable_hash

CLASSES = {"gpt2": (GPT2Config, GPT2LMHeadModel), "llama": (LlamaConfig, LlamaForCausalLM)}
# GPT-2's linear layers are Conv1D in transformers, [in, out]; FullShard's are all [out, in].
CONV1D = ("attn.c_attn.weight", "attn.c_proj.weight", "mlp.c_fc.weight", "mlp.c_proj.weight")


def to_own_layout(name, tensor):
    return tensor.T if name.endswith(CONV1D) else tensor


def value_rule(name, dimensions):
    """(offset, scale) of a parameter: value = offset + scale * normal."""
    if dimensions >= 2:
        return 0.0, 0.08
    is_norm = any(part in name for part in ("ln_1", "ln_2", "ln_f", "norm"))
    return (1.0, 0.1) if is_norm and name.endswith(".weight") else (0.0, 0.05)


def closed_form(name, shape, seed):
    """Element i, row-major in FullShard's shape, is drawn at (seed, name, i)."""
    offset, scale = value_rule(name, len(shape))
    drawn = scale * normal(mix(seed, stable_hash(name)), int(np.prod(shape)))
    return (np.float32(offset) + drawn.astype(np.float32)).reshape(shape)


def make_model(config, seed):
    """Eager attention: plain matrix products and a softmax. A tied head is its table's values."""
    config_class, model_class = CLASSES[config["model_type"]]
    settings = config_class.from_dict(dict(config), attn_implementation="eager")
    model = model_class(settings)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            own = to_own_layout(name, parameter)
            own.copy_(torch.from_numpy(closed_form(name, tuple(own.shape), seed)))
    return model.eval()


def block_mask(documents):
    """Additive [batch, 1, sequence, sequence]: a token sees itself and those before it in its own
    document."""
    documents = torch.tensor(documents)
    length = documents.shape[1]
    same = documents[:, :, None] == documents[:, None, :]
    seen = same & torch.ones(length, length, dtype=torch.bool).tril()
    mask = torch.zeros(seen.shape).masked_fill(~seen, torch.finfo(torch.float32).min)
    return mask[:, None]


def logits_of(model, tokens, positions=None, documents=None):
    inputs = {}
    if documents is not None:
        inputs = {"position_ids": torch.tensor(positions), "attention_mask": block_mask(documents)}
    return model(input_ids=torch.tensor(tokens), use_cache=False, **inputs).logits
