"""Batches of random tokens whose sequences and micro-batches differ in their valid targets."""

import numpy as np

from rng import mix, stable_hash, uniform

IGNORED_TARGET = -1
DISTINCT_BATCHES = 5


def pad_last_sequence(tokens, targets, index):
    """Every second batch: a third of the last sequence is padding."""
    if index % 2 == 1:
        padding = tokens.shape[1] // 3
        tokens[-1, -padding:] = 0
        targets[-1, -padding - 1:] = IGNORED_TARGET


def pad_ragged(tokens, targets, draws, micro_batch, index):
    """Every sequence ends elsewhere; every second batch has a micro-batch of padding only."""
    batch, sequence = tokens.shape
    lengths = 1 + (draws * sequence).astype(np.int64)
    if index % 2 == 1:
        lengths[micro_batch:2 * micro_batch] = 0
    for row in range(batch):
        tokens[row, lengths[row]:] = 0
        targets[row, lengths[row]:] = IGNORED_TARGET


def make_batches(case):
    config, data = case["model"], case["data"]
    batch, sequence = data["batch"], data["sequence"]
    window = sequence + 1
    key = mix(case["seed"], stable_hash("golden tokens"))
    draws = uniform(key, DISTINCT_BATCHES * batch * window)
    stream = (draws * config["vocab_size"]).astype(np.int64)
    stream = stream.reshape(DISTINCT_BATCHES, batch, window)
    ends = uniform(mix(case["seed"], stable_hash("golden lengths")), DISTINCT_BATCHES * batch)
    ends = ends.reshape(DISTINCT_BATCHES, batch)
    batches = []
    for index in range(DISTINCT_BATCHES):
        tokens = stream[index, :, :sequence].copy()
        if data["targets"] == "next":
            targets = stream[index, :, 1:].copy()
        else:
            targets = np.roll(tokens, -1, axis=1)
        if data["padding"] == "ragged":
            pad_ragged(tokens, targets, ends[index], data["micro_batch"], index)
        else:
            pad_last_sequence(tokens, targets, index)
        length = data["lengths"][index]
        tokens, targets = tokens[:, :length], targets[:, :length]
        batches.append({"tokens": tokens.tolist(), "targets": targets.tolist(),
                        "valid_targets": int((targets != IGNORED_TARGET).sum())})
    return batches
