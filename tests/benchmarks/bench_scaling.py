"""Where a step's time goes, and how time and memory grow with pairs, width and dimension

`python tests/benchmarks/bench_scaling.py` writes results/profile.csv and results/scaling.csv, drawn in `01_icnn`.
"""

import numpy as np
import torch
from bench_heads import DIM, HIDDEN, PROJ, DoubleBackward, dataset, stepper
from common import interleave, made_by, save
from fastcore.script import call_parse
from torch.profiler import ProfilerActivity, profile

from rolebregman.baselines import MLP
from rolebregman.common import compiled
from rolebregman.heads import BregmanHead
from rolebregman.icnn import ICNN

KINDS = {"matrix products": ("mm", "addmm", "bmm", "addmv", "mv"), "optimiser": ("Optimizer", "_fused_adamw"),
         "drawing and gathering": ("index", "sort", "searchsorted", "scatter", "rand", "cat", "unique", "gather")}
AXES = {"pairs": (256, 512, 1024, 2048, 4096, 8192, 16384), "dimension k": (16, 32, 64, 128, 256, 512),
        "layer width": (32, 64, 128, 256, 512)}


def kind(name):
    "What an event of the profiler is for"
    name = name.removeprefix("aten::")
    return next((kind for kind, starts in KINDS.items() if name.startswith(starts)), "elementwise and the rest")


def step_profile(step, steps=20):
    "Milliseconds of a step by kind of work"
    for _ in range(5): step()
    with profile(activities=[ProfilerActivity.CPU]) as found:
        for _ in range(steps): step()
    total = dict.fromkeys([*KINDS, "elementwise and the rest"], 0.0)
    for event in found.key_averages(): total[kind(event.key)] += event.self_cpu_time_total / 1e3 / steps
    return total


def kept_mib(run):
    "MiB of distinct tensors that the forward pass keeps for the backward pass"
    kept = {}

    def pack(x):
        kept[x.data_ptr()] = x.nbytes
        return x

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
        run()
    return sum(kept.values()) / 2**20


def both_passes(divergence, parameters, pairs, k):
    "Forward and backward of the divergence"
    u, v = torch.randn(2, pairs, k).unbind()
    u.requires_grad_(), v.requires_grad_()
    return lambda: torch.autograd.grad(divergence(u, v).sum(), [u, v, *parameters])


def bare_products(pairs, k, width):
    "The matrix products of the recursion with two layers and of its backward pass, and nothing else"
    shapes = [(k, width)] * 4 + [(width, width)] * 3
    sides = [(torch.randn(pairs, m), torch.randn(m, n), torch.randn(pairs, n)) for m, n in shapes]
    return lambda: [(x @ w, g @ w.T, x.T @ g) for x, w, g in sides]


@call_parse
def main(
    rounds: int = 12,  # Rounds after five to warm up
    threads: int = 1,  # Threads of torch
):
    "Measure and write both tables"
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    ds = dataset()
    ours = lambda cls=BregmanHead: cls(DIM, PROJ, HIDDEN)
    steps = {"double backward": stepper(ours(DoubleBackward), ds), "bregman": stepper(ours(), ds),
             "bregman, compiled": stepper(ours(), ds, compile=True), "mlp": stepper(MLP(DIM, HIDDEN), ds)}
    table = [{"what": "training step", "head": name, "kind": kind, "ms": ms, **made_by()}
             for name, step in steps.items() for kind, ms in step_profile(step).items()]
    save(table, "profile")

    copied = torch.randn(1 << 25)
    bandwidth = 2 * copied.nbytes / np.median(interleave({"copy": copied.clone}, 10)["copy"])
    table = []
    for axis, sizes in AXES.items():
        for size in sizes:
            pairs, k, width = (size if axis == a else n for a, n in zip(AXES, (1536, PROJ, HIDDEN[0])))
            phi = ICNN(k, (width, width))
            runs = {"eager": both_passes(phi.divergence, list(phi.parameters()), pairs, k),
                    "compiled": both_passes(compiled(phi.divergence), list(phi.parameters()), pairs, k),
                    "matrix products alone": bare_products(pairs, k, width)}
            seconds = interleave(runs, rounds, warm=3)
            for head, times in seconds.items():
                low, middle, high = np.percentile(times, [25, 50, 75]) * 1e3
                table.append({"what": axis, "head": head, "size": size, "ms": middle, "ms_low": low, "ms_high": high,
                              "mib": kept_mib(runs[head]), **made_by()})
            # Points and gradients once, and per layer its arguments once forward, once back
            traffic = 4 * pairs * (4 * k + 2 * 2 * 2 * width) / bandwidth * 1e3
            table.append({"what": axis, "head": "memory traffic alone", "size": size, "ms": traffic, **made_by()})
            torch._dynamo.reset()
    save(table, "scaling")
