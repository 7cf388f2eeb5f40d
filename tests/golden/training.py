"""Training as FullShard does it, in PyTorch: half-width copies, accumulation, scaling, clipping."""

import copy
import fnmatch
import math

import torch
from torch.nn import functional

from data import IGNORED_TARGET
from model import initialised_model

STEPS = 20
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


class LossScaler:
    """DeepSpeed's DynamicLossScaler (deepspeed/runtime/fp16/loss_scaler.py): factor 2, hysteresis
    not refilled by single good steps. README.md states the rule."""

    def __init__(self, initial, window, hysteresis, minimum):
        self.scale, self.window, self.minimum = initial, window, minimum
        self.hysteresis = self.hysteresis_left = hysteresis
        self.step, self.last_overflow = 0, -1

    def update(self, overflow):
        if overflow:
            if self.hysteresis_left > 1:
                self.hysteresis_left -= 1
            elif self.scale == self.minimum:
                raise OverflowError("overflow at the smallest loss scale")
            else:
                self.scale = max(self.scale / 2, self.minimum)
            self.last_overflow = self.step
        else:
            good_steps = self.step - self.last_overflow - 1
            if good_steps > 0 and good_steps % self.window == 0:
                self.hysteresis_left = self.hysteresis
                self.scale *= 2
        self.step += 1


def summary(tensor):
    values = tensor.detach().double()
    return {"sum": values.sum().item(), "norm": values.norm().item()}


def summaries(named_tensors):
    return {name: summary(tensor) for name, tensor in named_tensors}


def trainable(module):
    return [parameter for parameter in module.parameters() if parameter.requires_grad]


def group_of(name, groups):
    """The first group that has a pattern for this name."""
    for group in groups:
        if any(fnmatch.fnmatchcase(name, pattern) for pattern in group["parameters"]):
            return group
    return {"lr": None, "weight_decay": None, "frozen": False}


def settings_of(name, parameter, settings):
    """lr, weight decay and whether frozen: a group's own values, else matrices alone decay."""
    group = group_of(name, settings["groups"])
    lr, weight_decay = group["lr"], group["weight_decay"]
    if weight_decay is None:
        weight_decay = settings["weight_decay"] if parameter.dim() >= 2 else 0.0
    return settings["lr"] if lr is None else lr, weight_decay, group["frozen"]


def make_optimizer(masters, settings):
    """AdamW over what is trainable; frozen parameters get requires_grad False and no state."""
    groups = []
    for name, parameter in masters.named_parameters():
        lr, weight_decay, frozen = settings_of(name, parameter, settings)
        parameter.requires_grad_(not frozen)
        if not frozen:
            groups.append({"params": [parameter], "lr": lr, "weight_decay": weight_decay})
    return torch.optim.AdamW(groups, betas=(settings["beta1"], settings["beta2"]),
                             eps=settings["eps"], foreach=False)


def loss_and_gradients(model, parameters, batch, rows, scale):
    """Loss of some sequences over the whole batch's count of valid targets, in float32 at least,
    and the gradient of loss * scale, in the parameters' type."""
    logits = model(torch.tensor(batch["tokens"][rows])).flatten(0, 1)
    targets = torch.tensor(batch["targets"][rows]).flatten()
    if logits.dtype in (torch.bfloat16, torch.float16):
        logits = logits.float()
    loss = functional.cross_entropy(logits, targets, ignore_index=IGNORED_TARGET,
                                    reduction="sum") / batch["valid_targets"]
    return loss.item(), torch.autograd.grad(loss * scale, parameters)


class Trainer:
    """Master parameters and optimizer state in `master_dtype`, forward and backward in
    `compute_dtype`; gradients of micro-batches are added in `master_dtype`."""

    def __init__(self, case, compute_dtype, master_dtype):
        self.settings = case["optimizer"]
        self.masters = initialised_model(case["model"], case["seed"], master_dtype)
        self.optimizer = make_optimizer(self.masters, self.settings)
        self.model = copy.deepcopy(self.masters).to(compute_dtype)
        self.scaler = None
        if compute_dtype == torch.float16:
            self.scaler = LossScaler(**case["loss_scaler"])

    def accumulate(self, batch, micro_batch):
        """Returns loss and loss scale; leaves unscaled gradients in the masters."""
        with torch.no_grad():
            for half, master in zip(self.model.parameters(), self.masters.parameters()):
                half.copy_(master)
        self.model.train()
        scale = self.scaler.scale if self.scaler else 1.0
        masters, loss = trainable(self.masters), 0.0
        totals = [torch.zeros_like(p) for p in masters]
        for first in range(0, len(batch["tokens"]), micro_batch):
            rows = slice(first, first + micro_batch)
            part, gradients = loss_and_gradients(self.model, trainable(self.model), batch,
                                                 rows, scale)
            loss += part
            for total, gradient in zip(totals, gradients):
                total += gradient
        for master, total in zip(masters, totals):
            master.grad = total / scale
        return loss, scale

    def grad_norm(self):
        squares = [p.grad.double().square().sum() for p in trainable(self.masters)]
        return torch.stack(squares).sum().sqrt().item()

    def update(self):
        parameters = trainable(self.masters)
        if self.settings["clip_norm"] > 0:
            torch.nn.utils.clip_grad_norm_(parameters, self.settings["clip_norm"], foreach=False)
        if self.settings["clip_value"] > 0:
            torch.nn.utils.clip_grad_value_(parameters, self.settings["clip_value"], foreach=False)
        self.optimizer.step()


def train(case, batches, micro_batch, compute_dtype, master_dtype, skipped=None):
    """Runs STEPS steps and returns what is stored of them, and the tensors that it sums up.
    `skipped`: leave out the updates that another run had to leave out."""
    trainer = Trainer(case, compute_dtype, master_dtype)
    run = {"losses": [], "grad_norms": [], "skipped": [], "loss_scales": []}
    run["before"] = summaries(trainer.masters.named_parameters())
    gradients = None
    for step in range(STEPS):
        loss, scale = trainer.accumulate(batches[step % len(batches)], micro_batch)
        norm = trainer.grad_norm()
        overflow = not math.isfinite(norm)
        skip = overflow or (skipped is not None and skipped[step])
        if not skip and gradients is None:
            gradients = {name: parameter.grad.clone()
                         for name, parameter in trainer.masters.named_parameters()
                         if parameter.requires_grad}
        if not skip:
            trainer.update()
        if trainer.scaler:
            trainer.scaler.update(overflow)
        run["losses"].append(loss)
        run["grad_norms"].append(None if overflow else norm)
        run["skipped"].append(skip)
        run["loss_scales"].append(scale)
    tensors = {"first_gradients": gradients,
               "after": {n: p.detach() for n, p in trainer.masters.named_parameters()}}
    for kind, named in tensors.items():
        run[kind] = summaries(named.items())
    return run, tensors
