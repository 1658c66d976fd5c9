"""`fit` in one process and in several: `python two_fits.py FOLDER`

What each case gives goes to FOLDER/CASE-PROCESSES-RANK.pt: weights, and rows of the history. The processes are copies
of this one, whose imports take longer than all they do."""
import os
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
import torch._dynamo  # which the optimiser imports: once here, not in each process
from torch.multiprocessing import start_processes

from rolebregman.baselines import make_head
from rolebregman.datasets import toy_tree
from rolebregman.training import TrainConfig, fit


def tree(weights=False):
    "Edges of which some hold both ways, some weigh nothing, and beside them pairs that do not hold"
    ds, rng = toy_tree(depth=4, dim=6, seed=0), np.random.default_rng(0)
    edges = np.concatenate([ds.edges["train"], ds.edges["train"][:20, ::-1]])
    ds = replace(ds, edges=ds.edges | dict(train=edges))
    pairs = np.unique(rng.integers(0, ds.num_nodes, (90, 2)), axis=0)
    pairs = pairs[(pairs[:, 0] != pairs[:, 1]) & ~np.isin(ds.codes(pairs), ds.codes(ds.holding))]
    weighted = rng.integers(0, 3, len(edges)) * rng.random(len(edges)) if weights else None
    return replace(ds, denied=dict(train=pairs), weights=weighted)


CASES = {  # processes, the head, weights, settings; the last batch is one edge, fewer than there are processes
    "margin": (2, "directed_bregman", True, dict(negatives=3, hard_share=0.5)),
    "softmax": (3, "role_bregman", True, dict(loss="softmax", negatives=8, grad_clip=0.5)),
    "plain": (2, "mlp", False, dict(loss="softmax", negatives=8, direction_weight=0, denied_weight=0)),
}


def run(rank, folder, case, processes):
    torch.set_num_threads(1)
    if processes > 1:
        where = dict(init_method=f"file://{folder}/{case}-{processes}", rank=rank, world_size=processes)
        torch.distributed.init_process_group("gloo", **where)
    _, name, weights, settings = CASES[case]
    ds = tree(weights)
    size = next(size for size in range(20, 40) if len(ds.edges["train"]) % size == 1)
    torch.manual_seed(rank)  # the first one's weights are those of all
    head = make_head(name, dim=ds.dim).double()
    history = fit(head, ds, TrainConfig(epochs=3, batch_size=size, lr=1e-2, **settings), progress=False)
    torch.save((head.state_dict(), history.rows), folder / f"{case}-{processes}-{rank}.pt")
    if processes > 1:
        torch.distributed.barrier()
    os._exit(0)  # what stands is saved; taken down in order, gloo waits for a thread of its own, at times forever


if __name__ == "__main__":
    for case in CASES:
        for processes in 1, CASES[case][0]:
            start_processes(run, (Path(sys.argv[1]), case, processes), processes, start_method="fork")
