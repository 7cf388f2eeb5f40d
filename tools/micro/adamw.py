#!/usr/bin/env python3
"""FullShard's AdamW beside PyTorch's fused one, in the same process, taking turns in random order.

    tools/micro/adamw.py LIBRARY [--numel 7340032] [--processes 2] [--rounds 31] [--json]

LIBRARY is libfullshard_micro_c_kernels.so of a build. Every process updates a tensor of its own with one
thread, as ranks do, all of them at the same time; a turn takes as long as the slowest of them. Both start
from equal values and must end with nearly equal ones. --json prints what the C++ programs of this folder
print. Needs PyTorch.
"""
import argparse
import ctypes
import json
import multiprocessing
import random
import statistics
import sys
import time

LR, WEIGHT_DECAY = 1e-3, 0.1
OURS, THEIRS, TRIADS = "adamw_update", "torch.optim.AdamW(fused=True)", ("triad", "triad, streaming stores")


def load(path: str) -> ctypes.CDLL:
    library = ctypes.CDLL(path)
    pointer, count = ctypes.c_void_p, ctypes.c_int64
    library.fullshard_adamw.argtypes = [pointer] * 4 + [count, ctypes.c_double, ctypes.c_double, count]
    library.fullshard_triad.argtypes = [pointer] * 3 + [count, ctypes.c_int]
    return library


def rank(index: int, options: argparse.Namespace, barrier, times) -> None:
    """One process: `times` receives its seconds by contender and round."""
    import torch
    torch.set_num_threads(1)
    library = load(options.library)
    numel = options.numel
    generator = torch.Generator().manual_seed(index)
    start = torch.randn(numel, generator=generator) * 0.1
    gradient = torch.randn(numel, generator=generator) * 1e-2
    ours, first, second = start.clone(), torch.zeros(numel), torch.zeros(numel)
    theirs = torch.nn.Parameter(start.clone())
    theirs.grad = gradient.clone()
    optimizer = torch.optim.AdamW([theirs], lr=LR, weight_decay=WEIGHT_DECAY, fused=True)
    scratch = [torch.randn(numel) for _ in range(3)]
    updates = 0

    def update() -> None:
        nonlocal updates
        updates += 1
        library.fullshard_adamw(ours.data_ptr(), gradient.data_ptr(), first.data_ptr(), second.data_ptr(), numel,
                                LR, WEIGHT_DECAY, updates)

    def triad(streaming: int) -> None:
        library.fullshard_triad(*(values.data_ptr() for values in scratch), numel, streaming)

    run = {OURS: update, THEIRS: optimizer.step, TRIADS[0]: lambda: triad(0), TRIADS[1]: lambda: triad(1)}
    order, shuffled = list(run), random.Random(1)
    seconds = {name: [] for name in run}
    for round_ in range(options.rounds + 2):  # two to warm up
        shuffled.shuffle(order)
        for name in order:
            barrier.wait()
            begin = time.perf_counter()
            run[name]()
            elapsed = time.perf_counter() - begin
            if round_ >= 2:
                seconds[name].append(elapsed)
    apart = (ours - theirs.detach()).abs().max().item()
    moved = (ours - start).abs().max().item()
    barrier.wait()
    times.put((seconds, apart, moved))


def quartiles(values: list) -> tuple:
    lower, median, upper = statistics.quantiles(values, n=4, method="inclusive")
    return median, lower, upper


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("library")
    parser.add_argument("--numel", type=int, default=28 << 18, help="elements of a shard, a multiple of 16")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=31)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    context = multiprocessing.get_context("spawn")
    barrier, times = context.Barrier(options.processes), context.Queue()
    ranks = [context.Process(target=rank, args=(i, options, barrier, times)) for i in range(options.processes)]
    for process in ranks:
        process.start()
    results = [times.get(timeout=600) for _ in ranks]
    for process in ranks:
        process.join()
    for _, apart, moved in results:
        if not apart < 1e-5 or not moved > LR:
            sys.exit(f"the two updates differ by {apart}, and ours moved a parameter by {moved}")
    slowest = {name: [max(turn) for turn in zip(*(seconds[name] for seconds, _, _ in results))]
               for name in results[0][0]}
    report(options, slowest)


def report(options: argparse.Namespace, seconds: dict) -> None:
    element_bytes = {OURS: 28, THEIRS: 28, **dict.fromkeys(TRIADS, 12)}
    rates = {name: [element_bytes[name] * options.numel * options.processes / s * 1e-9 for s in turns]
             for name, turns in seconds.items()}
    triad = [max(pair) for pair in zip(*(rates[name] for name in TRIADS))]
    limits = [(OURS, THEIRS, rates[THEIRS], 1.0), (OURS, " | ".join(TRIADS), triad, 0.8),
              (THEIRS, " | ".join(TRIADS), triad, None)]
    for name, limit_name, limit, goal in limits:
        value, lower, upper = quartiles(rates[name])
        ratio, ratio_lower, ratio_upper = quartiles([a / b for a, b in zip(rates[name], limit)])
        line = {"program": "adamw", "name": name, "ranks": options.processes, "mib": options.numel * 4 / 2**20,
                "rounds": options.rounds, "value": value, "lower": lower, "upper": upper, "unit": "GB/s",
                "limit_name": limit_name, "limit": statistics.median(limit), "ratio": ratio,
                "ratio_lower": ratio_lower, "ratio_upper": ratio_upper,
                "best_ratio": max(rates[name]) / max(limit)}
        if goal is not None:
            line["goal"] = goal
        if options.json:
            print(json.dumps(line))
            continue
        verdict = "" if goal is None else f", goal {goal}: {'met' if ratio >= goal else 'MISSED'}"
        print(f"{name:<32}{value:7.2f} GB/s ({lower:.2f}-{upper:.2f})\n    {ratio:.2f} ({ratio_lower:.2f}-"
              f"{ratio_upper:.2f}, best {line['best_ratio']:.2f}) x {limit_name} [{line['limit']:.2f} GB/s]{verdict}")


if __name__ == "__main__":
    main()
