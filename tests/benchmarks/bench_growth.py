"""How time and memory grow with items and pairs: `python tests/benchmarks/bench_growth.py`

`fit` (an epoch), `evaluate`, `search` and `score`, for items of 64 numbers in a memory-mapped file and pairs as whole
numbers, each in a process of its own. Rows go to results/growth.csv, with the processor's seconds, MiB at the peak
beside what the process holds before, and the exponent from one size to the next; drawn in `guides/beyond_one_machine`.
About ten minutes on one core of a Linux machine. `--steps` says where the time of one cell goes.
"""

import json
import math
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from common import made_by, save
from fastcore.script import call_parse, store_true

DIM, PROJ, HIDDEN = 64, 32, (32, 32)  # small, so that what grows is not the head's own work
ITEMS, PAIRS = [10**n for n in range(3, 7)], [10**n for n in range(3, 8)]
FIXED = {"items": 100_000, "pairs": 100_000}  # the one while the other grows
ASKED, CANDIDATES = 100, 100  # sources that search is asked for; candidates of each pair in an evaluation
MOST = {"evaluate": 10**5}  # test pairs at most: each has a hundred candidates


def vectors(items):
    "A file of vectors, mapped"
    path = Path(f"vectors-{items}.npy")
    if not path.exists():
        rng = np.random.default_rng(0)
        whole = np.lib.format.open_memmap(path, "w+", np.float32, (items, DIM))
        for start in range(0, items, 1 << 16):
            whole[start:start + (1 << 16)] = rng.standard_normal((min(1 << 16, items - start), DIM), dtype=np.float32)
        whole.flush()
    return np.load(path, mmap_mode="r")


def dataset(items, pairs, test=0):
    "So many random pairs to learn from, or to test on"
    from rolebregman.datasets import DirectedDataset
    rng = np.random.default_rng(1)
    pairs += 10 * bool(test)  # to test on any, some have to be there to learn from
    codes = np.unique(rng.integers(0, items * (items - 1), pairs + pairs // 4))
    source, target = np.divmod(rng.permutation(codes)[:pairs], items - 1)
    edges = np.stack([source, target + (target >= source)], 1)
    parts = np.split(edges, [10, 10] if test else [pairs, pairs])
    splits = dict(zip(("train", "valid", "test"), parts))
    return DirectedDataset("grown", vectors(items), pd.DataFrame({"id": np.arange(items)}), splits, report={}, seed=0)


def prepared(what, items, pairs):
    "A function that does the work, with all that it is given made before"
    from rolebregman.evaluation import evaluate
    from rolebregman.heads import BregmanHead
    from rolebregman.retrieval import TargetIndex
    from rolebregman.training import TrainConfig, fit
    features = vectors(items)
    head = BregmanHead(DIM, PROJ, HIDDEN).fit_standardizer(features[:1000])
    if what == "search": return lambda: TargetIndex(head, features).search(features[:ASKED], 10)
    ds = dataset(items, pairs, test=what != "fit")
    if what == "fit": return lambda: fit(head, ds, TrainConfig(epochs=1), progress=False)
    if what == "evaluate": return lambda: evaluate(head, ds, candidates=CANDIDATES)
    source, target = ds.edges["test"].T
    return lambda: [head.score(features[source[a:a + (1 << 17)]], features[target[a:a + (1 << 17)]])
                    for a in range(0, pairs, 1 << 17)]


def resident(mark):
    "Resident memory in MiB: now (VmRSS), or the largest since the mark was set back (VmHWM)"
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith(mark)) / 1024


def cell(what, items, pairs, steps):
    "What one size takes, measured here"
    from rolebregman.common import log
    log.disabled = True
    prepared(what, 1000, 1000)()  # what is made once
    run = prepared(what, items, pairs)
    Path("/proc/self/clear_refs").write_text("5")
    before, began, own = resident("VmRSS"), time.perf_counter(), time.process_time()
    if steps:
        import cProfile
        import pstats
        profile = cProfile.Profile()
        profile.runcall(run)
        pstats.Stats(profile, stream=sys.stderr).sort_stats("tottime").print_stats(12)
    else:
        run()
    spent = 1e3 * np.array([time.perf_counter() - began, time.process_time() - own])
    return dict(ms=spent[0], cpu_ms=spent[1], mib=resident("VmHWM") - before)


def exponent(sizes, costs):
    "log cost over log size, from each size to the next; none for the first"
    return [math.nan, *np.diff(np.log(costs)) / np.diff(np.log(sizes))]


@call_parse
def main(
    only: str = "fit,evaluate,search,score",  # Which of them
    one: str = "",  # What, items and pairs of one cell, with commas between: its numbers as JSON, in this process
    steps: store_true = False,  # With `--one`: where the time goes, on standard error
    threads: int = 1,  # Of torch
):
    "Measure, print, and write results/growth.csv"
    torch.set_num_threads(threads)
    if one:
        what, items, pairs = one.split(",")
        return print(json.dumps(cell(what, int(items), int(pairs), steps)))
    table = []
    with tempfile.TemporaryDirectory() as folder:
        for what in only.split(","):
            for axis, sizes in ("items", ITEMS), ("pairs", [] if what == "search" else PAIRS):
                lines = []
                for size in [size for size in sizes if axis == "items" or size <= MOST.get(what, size)]:
                    given = {**FIXED, axis: size}
                    given["pairs"] = min(given["pairs"], MOST.get(what, given["pairs"]))
                    words = ["--threads", str(threads), "--one", f"{what},{given['items']},{given['pairs']}"]
                    done = subprocess.run([sys.executable, Path(__file__).resolve(), *words], cwd=folder,
                                          capture_output=True, text=True)
                    if done.returncode: raise SystemExit(f"{what}, {axis} {size}: {done.stderr}")
                    lines.append({"what": what, "head": axis, "size": size, **json.loads(done.stdout), **made_by()})
                grown = exponent([line["size"] for line in lines], [line["cpu_ms"] for line in lines])
                table += [{**line, "exponent": power} for line, power in zip(lines, grown)]
    save(table, "growth")
