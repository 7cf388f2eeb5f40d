"""What is trained: one entry per golden file."""

from data import DISTINCT_BATCHES

SMALL = {"vocab_size": 61, "d_model": 32, "num_heads": 4, "num_layers": 2, "d_ff": 64,
         "max_positions": 20, "activation": "relu", "norm_first": False, "causal": True}


def group(name, *parameters, lr=None, weight_decay=None, frozen=False):
    return {"name": name, "parameters": list(parameters), "lr": lr, "weight_decay": weight_decay,
            "frozen": frozen}


def case(seed, model, optimizer, sequence=16, targets="next", batch=4, micro_batch=4,
         padding="last_sequence", lengths=None, precision="fp32", loss_scaler=None):
    return {
        "seed": seed,
        "model": {"dropout": 0.0, "tie_embeddings": False, **model},
        "optimizer": {"name": "adamw", "beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "clip_norm": 0.0,
                      "clip_value": 0.0, "groups": [], **optimizer},
        "precision": precision,
        "loss_scaler": loss_scaler,
        "data": {"batch": batch, "micro_batch": micro_batch, "sequence": sequence,
                 "lengths": lengths or [sequence] * DISTINCT_BATCHES, "targets": targets,
                 "padding": padding},
    }


# The learning rate is high so that small mistakes show: a GELU by tanh or an epsilon of 1e-7
# changes losses by more than 1e-5, rounding in float32 by less than 1e-6.
CASES = {
    "postnorm_relu_causal": case(
        seed=1234, model=SMALL, optimizer={"lr": 1e-2, "weight_decay": 0.1}),
    "prenorm_gelu_bidirectional": case(
        seed=987654321, targets="rolled",
        model={**SMALL, "max_positions": 0, "activation": "gelu", "norm_first": True,
               "causal": False},
        optimizer={"lr": 1e-2, "weight_decay": 0.05}),
    # No size is a multiple of another, so shards and vector lanes end inside rows.
    "odd_sizes": case(
        seed=2**63 + 5, sequence=7,
        model={"vocab_size": 37, "d_model": 21, "num_heads": 3, "num_layers": 3, "d_ff": 35,
               "max_positions": 7, "activation": "gelu", "norm_first": False, "causal": True},
        optimizer={"lr": 1e-2, "weight_decay": 0.0}),
    # Valid targets differ widely between the micro-batches of a step; some have none at all.
    "accumulation": case(
        seed=11, batch=8, micro_batch=2, padding="ragged", model=SMALL,
        optimizer={"lr": 1e-2, "weight_decay": 0.1}),
    # Norms are 1 to 2, and AdamW sees only how the clipped fraction changes from step to step.
    "clip_norm": case(
        seed=12, batch=4, micro_batch=1, model=SMALL,
        optimizer={"lr": 1e-2, "weight_decay": 0.1, "eps": 1e-3, "clip_norm": 0.25}),
    "clip_value": case(
        seed=13, batch=4, micro_batch=1, model=SMALL,
        optimizer={"lr": 1e-2, "weight_decay": 0.1, "eps": 1e-3, "clip_value": 0.01}),
    "tied": case(
        seed=14, micro_batch=2, model={**SMALL, "tie_embeddings": True},
        optimizer={"lr": 1e-2, "weight_decay": 0.1, "eps": 1e-3}),
    # Trainable positions lie below frozen parts, so backward passes through to the first stage.
    "frozen_parts": case(
        seed=15, micro_batch=2, model=SMALL,
        optimizer={"lr": 1e-2, "weight_decay": 0.1, "clip_norm": 0.25, "eps": 1e-3,
                   "groups": [group("frozen", "embedding.*", "layers.1.linear1.*", frozen=True)]}),
    # Nothing below layer 1 is trainable: backward has nothing to do there.
    "frozen_bottom": case(
        seed=16, micro_batch=2, model=SMALL,
        optimizer={"lr": 1e-2, "weight_decay": 0.1,
                   "groups": [group("bottom", "embedding.*", "position.*", "layers.0.*",
                                    frozen=True)]}),
    # The first group that matches counts; a group's own weight decay holds for its vectors too.
    "parameter_groups": case(
        seed=17, micro_batch=2, model=SMALL,
        optimizer={"lr": 1e-2, "weight_decay": 0.1,
                   "groups": [group("tables", "embedding.*", "position.*", lr=3e-3),
                              group("feed_forward", "*.linear?.*", lr=2e-2, weight_decay=0.5),
                              group("bottom", "layers.0.*", weight_decay=0.0)]}),
    # Steps differ in length: the rows of positions that a step does not reach have zero gradients,
    # and still decay and move by their old momentum.
    "unused_positions": case(
        seed=18, micro_batch=2, lengths=[5, 16, 9, 1, 12], model=SMALL,
        optimizer={"lr": 1e-2, "weight_decay": 0.1}),
    "bf16": case(
        seed=19, micro_batch=1, precision="bf16", model=SMALL,
        optimizer={"lr": 2e-3, "weight_decay": 0.1}),
    # The first scale is too large, and the last batch has so few valid targets that its gradients
    # overflow where those of the others do not: scales sink and grow again. Gradients overflow from
    # about a power of two times the square root of two on, so rounding does not decide it.
    "fp16": case(
        seed=20, sequence=11, lengths=[11, 11, 11, 11, 3], micro_batch=1, precision="fp16",
        model=SMALL,
        optimizer={"lr": 2e-3, "weight_decay": 0.1, "eps": 1e-3, "clip_norm": 0.25},
        loss_scaler={"initial": 2.0**20, "window": 3, "hysteresis": 2, "minimum": 1.0}),
}
