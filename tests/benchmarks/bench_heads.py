"""Training steps and scoring, as ratios in one run: `python tests/benchmarks/bench_heads.py`

All contenders take turns step by step, so that whatever else the machine does falls on all of them; medians of the
process's own time over the rounds, with the quartiles as spread. Writes results/benchmarks.csv.
"""

import platform
import time
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from fastcore.script import call_parse

from rolebregman.baselines import MLP
from rolebregman.heads import BregmanHead
from rolebregman.training import direction_loss, rank_loss

DIM, PROJ, HIDDEN, BATCH, SCORED = 384, 64, (128, 128), 512, 4096
RESULTS = Path(__file__).parents[2] / "results" / "benchmarks.csv"


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


def make_step(head, x, y, z, compiled):
    "One training step with both margins: the positive, the negative and the reverse pair in one evaluation"

    def distances(x, y, z):
        s_x, s_y = head.encode_source(torch.cat([x, y])).chunk(2)
        t_y, t_z, t_x = head.encode_target(torch.cat([y, z, x])).chunk(3)
        return head.compare(torch.cat([s_x, s_x, s_y]), torch.cat([t_y, t_z, t_x])).chunk(3)

    optimizer = torch.optim.AdamW(head.parameters())
    run = torch.compile(distances) if compiled else distances

    def step():
        positive, negative, reverse = run(x, y, z)
        optimizer.zero_grad()
        (rank_loss(positive, negative) + direction_loss(positive, reverse)).backward()
        optimizer.step()

    return step


def make_scoring(head, u, v, compiled):
    "Distances of encoded pairs, with no gradient asked for"
    run = torch.compile(head.compare) if compiled else head.compare

    def score():
        with torch.no_grad():
            run(u, v)

    return score


def interleave(contenders, rounds):
    "Seconds of each contender over the rounds, taking turns"
    seconds = {name: [] for name in contenders}
    for i in range(rounds + 5):
        for name, run in contenders.items():
            start = time.process_time()
            run()
            if i >= 5: seconds[name].append(time.process_time() - start)
    return seconds


def rows(what, seconds, against):
    "One row a contender, with its ratio to each of `against`"
    for name, times in seconds.items():
        low, middle, high = np.percentile(times, [25, 50, 75]) * 1e3
        ratios = {f"against {rival}": middle / np.median(seconds[rival]) / 1e3 for rival in against}
        yield {"what": what, "head": name, "ms": middle, "ms_low": low, "ms_high": high, **ratios}


@call_parse
def main(
    rounds: int = 60,  # Rounds after five to warm up
    threads: int = 1,  # Threads of torch
    out: Path = RESULTS,  # Where the table goes
):
    "Measure, print and write the table"
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    x, y, z = torch.randn(3, BATCH, DIM)
    u, v = torch.randn(2, SCORED, PROJ)
    ours = lambda cls=BregmanHead: cls(DIM, PROJ, HIDDEN)
    steps = {
        "bregman, double backward": make_step(ours(DoubleBackward), x, y, z, False),
        "mlp": make_step(MLP(DIM, HIDDEN), x, y, z, False),
        "bregman": make_step(ours(), x, y, z, False),
        "bregman, compiled": make_step(ours(), x, y, z, True),
    }
    scores = {
        "bregman, autograd": make_scoring(ours(DoubleBackward), u, v, False),
        "bregman": make_scoring(ours(), u, v, False),
        "bregman, compiled": make_scoring(ours(), u, v, True),
    }
    table = pd.DataFrame(
        [
            *rows(f"training step, batch {BATCH}", interleave(steps, rounds), ["bregman, double backward", "mlp"]),
            *rows(f"scoring {SCORED} pairs", interleave(scores, rounds), ["bregman, autograd"]),
        ]
    )
    table["threads"], table["processor"] = threads, platform.machine()
    table["versions"] = f"python {platform.python_version()}; torch {torch.__version__}"
    table.to_csv(out, index=False)
    print(table.drop(columns=["processor", "versions"]).to_string(index=False, float_format="{:.2f}".format, na_rep=""))
    print(f"d={DIM}, k={PROJ}, hidden={HIDDEN}; written: {out.name}")
