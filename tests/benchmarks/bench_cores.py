"""What one core does in a second of its own time, for a plan of many machines: `python tests/benchmarks/bench_cores.py`

Processor time of this process on one thread counts, the least of some rounds: what else the machine does matters less.
Rows go to results/cores.csv, which `guides/beyond_one_machine` reads.
"""

import time

import numpy as np
import torch
from common import made_by, save
from fastcore.script import call_parse

from rolebregman.baselines import make_head
from rolebregman.datasets import toy_tree
from rolebregman.retrieval import TargetIndex
from rolebregman.training import TrainConfig, make_step

DIM, ITEMS, QUERIES, PAIRS, BATCH = 384, 50_000, 512, 8192, 512


def least(work, rounds):
    "Seconds of processor time"
    seconds = []
    for _ in range(rounds):
        began = time.process_time()
        work()
        seconds.append(time.process_time() - began)
    return min(seconds)


@call_parse
def main(
    rounds: int = 2,  # Of which the fastest counts
):
    "Measure, and write the rows"
    torch.set_num_threads(1)
    torch.manual_seed(0)
    tree = toy_tree(depth=6, branching=3, dim=DIM)
    head = make_head("directed_bregman", dim=DIM).fit_standardizer(tree.features)
    items = torch.randn(ITEMS, DIM)
    index = TargetIndex(head, items[:1])
    step, edges = make_step(head, tree, TrainConfig()), len(tree.edges["train"])
    batch = torch.arange(BATCH) % edges
    work = {"pairs trained on": (BATCH, lambda: step(batch)),
            "items taken in": (ITEMS // 10, lambda: TargetIndex(head, items[:ITEMS // 10])),
            "pairs scored": (PAIRS, lambda: head.score(items[:PAIRS], items[-PAIRS:]))}
    found = {what: count / least(run, rounds) for what, (count, run) in work.items()}
    index = TargetIndex(head, items)
    found["items looked at for a query"] = QUERIES * ITEMS / least(lambda: index.search(items[:QUERIES], 10), rounds)
    size = sum(part.nbytes for part in (index.items, index.rows)) / ITEMS
    table = [{"what": what, "head": "directed_bregman", "a_second": rate, **made_by()} for what, rate in found.items()]
    table.append({"what": "bytes of an item in an index", "head": "directed_bregman", "a_second": np.nan,
                  "bytes": size, **made_by()})
    save(table, "cores")
