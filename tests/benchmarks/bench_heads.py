"""A step of training and the scoring of pairs, as ratios to rivals in one run: `python tests/benchmarks/bench_heads.py`

The steps are those of `rolebregman.training.fit`, on a synthetic dataset. Rows go to results/benchmarks.csv.
"""

import os

import numpy as np
import pandas as pd
import torch
from common import interleave, rows, save
from fastcore.script import call_parse

from rolebregman.baselines import IQE, MLP, Euclidean
from rolebregman.common import compiled
from rolebregman.datasets import DirectedDataset
from rolebregman.heads import BregmanHead
from rolebregman.training import TrainConfig, make_step

DIM, PROJ, HIDDEN, BATCH, SCORED = 384, 64, (128, 128), 512, 4096


class Textbook:
    "Squareplus in plain operations, differentiated by autograd"

    at_rest = 1.11
    value = staticmethod(lambda a: (a + (a * a + 4).sqrt()) / 2)


class DoubleBackward(BregmanHead):
    "The same head with the divergence as it is defined, its gradient by autograd"

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.potential.activation = Textbook

    def compare(self, u, v):
        if not v.requires_grad: v = v.clone().requires_grad_()
        with torch.enable_grad():
            phi_v = self.potential(v)
            (gradient,) = torch.autograd.grad(phi_v.sum(), v, create_graph=u.requires_grad)
        return self.potential(u) - phi_v - (gradient * (u - v)).sum(-1)


def dataset(nodes=4000, edges=6000):
    "Random vectors and random edges: a step costs what it costs, whatever is in them"
    rng = np.random.default_rng(0)
    pairs = np.unique(rng.integers(0, nodes, (edges, 2)), axis=0)
    pairs = pairs[pairs[:, 0] != pairs[:, 1]]
    features = rng.standard_normal((nodes, DIM), dtype=np.float32)
    names = pd.DataFrame({"id": np.arange(nodes).astype(str)})
    parts = np.split(rng.permutation(pairs), [len(pairs) - 200, len(pairs) - 100])
    splits = dict(zip(("train", "valid", "test"), parts))
    return DirectedDataset("synthetic", features, names, splits, report={}, seed=0)


def stepper(head, ds, compile=False):
    "A function that takes one step on the next batch"
    head.fit_standardizer(ds.features)
    step = make_step(head, ds, TrainConfig(batch_size=BATCH), compile=compile)
    batches = torch.randperm(len(ds.edges["train"]), generator=torch.Generator().manual_seed(0)).split(BATCH)[:-1]
    turn = iter(range(1 << 30))
    return lambda: step(batches[next(turn) % len(batches)])


def scorer(compare, u, v):
    "Distances of encoded pairs, with no gradient asked for"

    def score():
        with torch.no_grad():
            compare(u, v)

    return score


def rivals_of_a_batch(u, v):
    "All pairs of a batch: ours in both forms, and what others offer"
    head, euclidean = BregmanHead(PROJ, PROJ, HIDDEN), Euclidean(PROJ)
    contenders = {
        "bregman, product form": scorer(lambda u, v: head.compare_all(u, v, exact=False), u, v),
        "bregman, recursion": scorer(head.compare_all, u, v),
        "euclidean, product form": scorer(lambda u, v: euclidean.compare_all(u, v, exact=False), u, v),
        "torch.cdist": scorer(torch.cdist, u, v),
        "iqe": scorer(IQE(PROJ).pairwise, u, v),
    }
    try:
        from pytorch_metric_learning.distances import LpDistance
    except ImportError:
        print("pytorch-metric-learning is not installed: its distance is left out")
    else:
        contenders["pytorch-metric-learning"] = scorer(LpDistance(normalize_embeddings=False), u, v)
    return contenders


@call_parse
def main(
    rounds: int = 60,  # Rounds after five to warm up
    threads: str = f"1,{os.cpu_count()}",  # Numbers of torch's threads, one run each
):
    "Measure, print, and write results/benchmarks.csv"
    for number in sorted({int(n) for n in threads.split(",")}):
        torch.set_num_threads(number)
        torch.manual_seed(0)
        ds, (u, v) = dataset(), torch.randn(2, SCORED, PROJ)
        ours = lambda cls=BregmanHead, dim=DIM: cls(dim, PROJ, HIDDEN)
        steps = {
            "bregman, double backward": stepper(ours(DoubleBackward), ds),
            "mlp": stepper(MLP(DIM, HIDDEN), ds),
            "iqe": stepper(IQE(DIM), ds),
            "bregman": stepper(ours(), ds),
            "bregman, compiled": stepper(ours(), ds, compile=True),
        }
        bars = [("bregman", "bregman, double backward", 0.9), ("bregman, compiled", "bregman, double backward", 0.5),
                ("bregman", "mlp", None), ("bregman, compiled", "mlp", 1.2)]
        table = [*rows(f"training step, batch {BATCH}", interleave(steps, rounds), bars)]
        head = ours(dim=PROJ)
        scores = {
            "bregman, autograd": scorer(ours(DoubleBackward, PROJ).compare, u, v),
            "bregman": scorer(head.compare, u, v),
            "bregman, compiled": scorer(compiled(head.compare), u, v),
        }
        bars = [("bregman, compiled", "bregman, autograd", 0.4), ("bregman", "bregman, autograd", None)]
        table += rows(f"scoring {SCORED} pairs", interleave(scores, rounds), bars)
        batch = interleave(rivals_of_a_batch(u[:BATCH], v[:BATCH]), rounds // 3)
        bars = [("bregman, product form", rival, None) for rival in batch if "cdist" in rival or "metric" in rival]
        table += rows(f"all pairs of a batch of {BATCH}", batch, bars)
        save(table, "benchmarks")
    print(f"d={DIM}, k={PROJ}, hidden={HIDDEN}; a bar is the ratio that is allowed")
