"""The ways in which PyTorch trains one model on several ranks, each with the settings that suit it best."""
import contextlib
import functools
import os
from typing import ContextManager

import torch
import torch.distributed as dist
from torch import nn

BF16 = torch.bfloat16


class Contender:
    """A wrapped model. `sync(last)` surrounds the micro-batches of a step."""

    def __init__(self, model: nn.Module):
        self.model = model

    def sync(self, last: bool) -> ContextManager:
        return contextlib.nullcontext()


class Autocast(nn.Module):
    """Computes in bf16 from weights that stay fp32, as FullShard's masters do."""

    def __init__(self, model: nn.Module, device: str):
        super().__init__()
        self.module, self.device = model, device

    def forward(self, tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        with torch.autocast(self.device, BF16):
            return self.module(tokens, targets)


class Eager(Contender):
    """A single process, the only kind that runs on a GPU too."""

    def __init__(self, model: nn.Module, settings: dict):
        super().__init__(Autocast(model, settings["device"]) if settings["precision"] == "bf16" else model)


class Compiled(Eager):
    """Each block, and the head with the loss, is compiled apart, as torchtitan does: blocks share their code, and
    it takes seconds where a whole model takes minutes."""

    def __init__(self, model: nn.Module, settings: dict):
        for block in model.blocks():
            block.compile()
        model.loss = torch.compile(model.loss)
        super().__init__(model, settings)


class Ddp(Contender):
    def __init__(self, model: nn.Module, settings: dict):
        # A static graph cannot skip the reduction of some micro-batches.
        super().__init__(nn.parallel.DistributedDataParallel(
            model, gradient_as_bucket_view=True, static_graph=settings["accumulation"] == 1))

    def sync(self, last: bool) -> ContextManager:
        return contextlib.nullcontext() if last else self.model.no_sync()


class Fsdp2(Contender):
    def __init__(self, model: nn.Module, settings: dict):
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
        options = {"mesh": init_device_mesh("cpu", (dist.get_world_size(),)),
                   "reshard_after_forward": settings["kind"] == "fsdp2"}
        if settings["precision"] == "bf16":
            options["mp_policy"] = MixedPrecisionPolicy(param_dtype=BF16, reduce_dtype=torch.float32)
        for block in model.blocks():
            fully_shard(block, **options)
        fully_shard(model, **options)
        super().__init__(model)

    def sync(self, last: bool) -> ContextManager:
        # Whole gradients are kept until the last micro-batch: faster than a reduction of each, for more memory.
        self.model.set_requires_gradient_sync(last)
        return contextlib.nullcontext()


class Fsdp1(Contender):
    def __init__(self, model: nn.Module, settings: dict):
        from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecision, ShardingStrategy
        from torch.distributed.fsdp.wrap import ModuleWrapPolicy
        strategy = {"fsdp1_full_shard": ShardingStrategy.FULL_SHARD,
                    "fsdp1_shard_grad_op": ShardingStrategy.SHARD_GRAD_OP,
                    "fsdp1_no_shard": ShardingStrategy.NO_SHARD}[settings["kind"]]
        mixed = MixedPrecision(param_dtype=BF16, reduce_dtype=torch.float32)
        super().__init__(FullyShardedDataParallel(
            model, sharding_strategy=strategy, auto_wrap_policy=ModuleWrapPolicy({type(model).Block}),
            mixed_precision=mixed if settings["precision"] == "bf16" else None, device_id=torch.device("cpu"),
            use_orig_params=True))

    def sync(self, last: bool) -> ContextManager:
        return contextlib.nullcontext() if last else self.model.no_sync()


SINGLE = {"eager": Eager, "compiled": Compiled}
KINDS = {**SINGLE, "ddp": Ddp, "fsdp2": Fsdp2, "fsdp2_keep": Fsdp2, "fsdp1_full_shard": Fsdp1,
         "fsdp1_shard_grad_op": Fsdp1, "fsdp1_no_shard": Fsdp1}


def rank() -> int:
    return int(os.environ["OMPI_COMM_WORLD_RANK"])


def ranks() -> int:
    return int(os.environ["OMPI_COMM_WORLD_SIZE"])


def start(settings: dict) -> None:
    """Threads of this rank, and the process group for all kinds of several."""
    torch.set_num_threads(settings["threads"])
    if settings["kind"] not in SINGLE:
        # Contenders stand still while others have their turn.
        from datetime import timedelta
        dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{settings['port']}", rank=rank(),
                                world_size=ranks(), timeout=timedelta(hours=2))


def wrap(model: nn.Module, settings: dict) -> Contender:
    return KINDS[settings["kind"]](model, settings)


def decaying(model: nn.Module) -> set[str]:
    """Names of the matrices: they alone decay. Ask before wrapping, which may flatten them."""
    return {name for name, parameter in model.named_parameters() if parameter.dim() > 1}


def optimizer_of(model: nn.Module, matrices: set[str], settings: dict) -> torch.optim.Optimizer:
    def clean(name: str) -> str:
        return functools.reduce(lambda text, part: text.replace(part, ""), ("_fsdp_wrapped_module.", "module."), name)

    named = list(model.named_parameters())
    groups = [{"params": [p for name, p in named if clean(name) in matrices], "weight_decay": 0.01},
              {"params": [p for name, p in named if clean(name) not in matrices], "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=settings["lr"], fused=True)
