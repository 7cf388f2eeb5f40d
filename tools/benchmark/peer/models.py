"""The models of the peers, in plain PyTorch, and the files that both sides load their weights from."""
import json
from pathlib import Path

import safetensors_file
import torch
import torch.nn.functional as F
from torch import Tensor, nn


def loss_of(logits: Tensor, targets: Tensor) -> Tensor:
    """In fp32, whatever the model computes in, as FullShard and torchtitan do."""
    return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())


class Gpt2Block(nn.Module):
    def __init__(self, width: int, heads: int, inner: int):
        super().__init__()
        self.heads = heads
        self.ln_1 = nn.LayerNorm(width)
        self.c_attn = nn.Linear(width, 3 * width)
        self.c_proj = nn.Linear(width, width)
        self.ln_2 = nn.LayerNorm(width)
        self.c_fc = nn.Linear(width, inner)
        self.mlp_proj = nn.Linear(inner, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        heads = self.c_attn(self.ln_1(x)).view(batch, length, 3, self.heads, width // self.heads)
        query, key, value = heads.permute(2, 0, 3, 1, 4)
        seen = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.c_proj(seen.transpose(1, 2).reshape(batch, length, width))
        return x + self.mlp_proj(F.gelu(self.c_fc(self.ln_2(x)), approximate="tanh"))


class Gpt2(nn.Module):
    """GPT-2 with tied embeddings. Returns the mean loss."""
    Block = Gpt2Block

    # Names in a file of transformers; {} is the block. Those of CONV1D are stored as (in, out).
    NAMES = {"wte.weight": "transformer.wte.weight", "wpe.weight": "transformer.wpe.weight",
             "ln_f": "transformer.ln_f", "ln_1": "ln_1", "ln_2": "ln_2", "c_attn": "attn.c_attn",
             "c_proj": "attn.c_proj", "c_fc": "mlp.c_fc", "mlp_proj": "mlp.c_proj"}
    CONV1D = ("c_attn.weight", "c_proj.weight", "c_fc.weight")

    def __init__(self, sizes: dict):
        super().__init__()
        width = sizes["d_model"]
        self.wte = nn.Embedding(sizes["vocab_size"], width)
        self.wpe = nn.Embedding(sizes["max_positions"], width)
        self.h = nn.ModuleList(
            Gpt2Block(width, sizes["num_heads"], sizes["d_ff"]) for _ in range(sizes["num_layers"]))
        self.ln_f = nn.LayerNorm(width)
        self.lm_head = nn.Linear(width, sizes["vocab_size"], bias=False)
        self.lm_head.weight = self.wte.weight
        self.register_buffer("positions", torch.arange(sizes["max_positions"]), persistent=False)

    def blocks(self) -> nn.ModuleList:
        return self.h

    def forward(self, tokens: Tensor, targets: Tensor) -> Tensor:
        x = self.wte(tokens) + self.wpe(self.positions[:tokens.shape[1]])
        for block in self.h:
            x = block(x)
        return self.loss(x, targets)

    def loss(self, x: Tensor, targets: Tensor) -> Tensor:
        return loss_of(self.lm_head(self.ln_f(x)), targets)

    def initialise(self) -> None:
        for name, parameter in self.named_parameters():
            if parameter.dim() > 1:
                small = name.endswith(("c_proj.weight", "mlp_proj.weight"))
                nn.init.normal_(parameter, std=0.02 / (2 * len(self.h)) ** 0.5 if small else 0.02)
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)

    @classmethod
    def file_name(cls, name: str) -> str:
        if name in cls.NAMES:
            return cls.NAMES[name]
        *block, module, kind = name.split(".")
        place = "transformer.h." + block[1] + "." if block else ""
        return place + cls.NAMES[module] + "." + kind

    @classmethod
    def is_transposed(cls, name: str) -> bool:
        return name.endswith((*cls.CONV1D, "mlp_proj.weight"))

    def config(self, sizes: dict) -> dict:
        """config.json of transformers."""
        return {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "vocab_size": sizes["vocab_size"],
                "n_positions": sizes["max_positions"], "n_embd": sizes["d_model"], "n_head": sizes["num_heads"],
                "n_layer": sizes["num_layers"], "n_inner": sizes["d_ff"], "activation_function": "gelu_new",
                "layer_norm_epsilon": 1e-5, "tie_word_embeddings": True, "attn_pdrop": 0.0, "embd_pdrop": 0.0,
                "resid_pdrop": 0.0}


class SimpleTransformer(nn.Module):
    """Encoder layers of torch.nn under a causal mask, with an untied head. Returns the mean loss."""
    Block = nn.TransformerEncoderLayer

    def __init__(self, sizes: dict):
        super().__init__()
        width = sizes["d_model"]
        self.embedding = nn.Embedding(sizes["vocab_size"], width)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(width, sizes["num_heads"], sizes["d_ff"], sizes["dropout"], batch_first=True)
            for _ in range(sizes["num_layers"]))
        self.head = nn.Linear(width, sizes["vocab_size"])
        mask = nn.Transformer.generate_square_subsequent_mask(sizes["sequence"])
        self.register_buffer("mask", mask, persistent=False)

    def blocks(self) -> nn.ModuleList:
        return self.layers

    def forward(self, tokens: Tensor, targets: Tensor) -> Tensor:
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x, src_mask=self.mask, is_causal=True)
        return self.loss(x, targets)

    def loss(self, x: Tensor, targets: Tensor) -> Tensor:
        return loss_of(self.head(x), targets)

    def initialise(self) -> None:
        """As torch.nn does."""

    @staticmethod
    def file_name(name: str) -> str:
        return name

    @staticmethod
    def is_transposed(name: str) -> bool:
        return False

    def config(self, sizes: dict) -> None:
        """FullShard reads the sizes of this one from its deck."""
        return None


FAMILIES = {"gpt2": Gpt2, "simple_transformer": SimpleTransformer}


def make(sizes: dict) -> nn.Module:
    return FAMILIES[sizes["family"]](sizes)


def save(model: nn.Module, sizes: dict, folder: Path) -> None:
    """folder/model.safetensors and, for GPT-2, config.json: what transformers' save_pretrained writes."""
    folder.mkdir(parents=True)
    safetensors_file.write(folder / "model.safetensors", {
        model.file_name(name): parameter.t() if model.is_transposed(name) else parameter
        for name, parameter in model.named_parameters()})
    config = model.config(sizes)
    if config is not None:
        (folder / "config.json").write_text(json.dumps(config, indent=2))


def load(model: nn.Module, folder: Path) -> None:
    tensors = safetensors_file.read(folder / "model.safetensors")
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            value = tensors.pop(model.file_name(name)).to(parameter.device)
            parameter.copy_(value.t() if model.is_transposed(name) else value)
    if tensors:
        raise ValueError(f"{folder} has tensors that the model lacks: {', '.join(tensors)}")
