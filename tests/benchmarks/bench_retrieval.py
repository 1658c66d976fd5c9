"""Search among many targets, beside the bare matrix product and other ways: `tests/benchmarks/bench_retrieval.py`

Rows go to results/retrieval.csv, drawn in `11_retrieval`. About five minutes on two quiet cores, 12 GiB of memory.
"""

import os
from functools import partial

import numpy as np
import torch
from common import interleave, made_by, rows, save
from fastcore.script import call_parse

from rolebregman.baselines import Euclidean
from rolebregman.heads import BregmanHead, Candidates
from rolebregman.retrieval import Faiss, TargetIndex

K, HIDDEN, NEAREST = 64, (128, 128), 10
PROBES = (4, 8, 16, 32, 64, 128)


def row(what, head, seconds, **more):
    "One line of the table"
    low, middle, high = np.percentile(seconds, [25, 50, 75]) * 1e3
    return {"what": what, "head": head, "ms": middle, "ms_low": low, "ms_high": high, **more, **made_by()}


def all_pairs(head, sources, targets, rounds):
    "The ten nearest of every source, against what the hardware does at best and what others do"
    X, Y, few = torch.randn(sources, K), torch.randn(targets, K), 8
    index, flat = TargetIndex(head, Y), TargetIndex(Euclidean(K), Y)
    u, v, own = head.encode_source(X), index.items, torch.randint(targets, (sources,))
    among, out = Candidates(head, v), torch.empty(sources, targets)

    def cdist():
        for some in X.split(512): torch.cdist(some, Y).topk(NEAREST, largest=False)

    seconds = interleave({
        "bare matrix product": lambda: torch.mm(u, v.T, out=out),
        "bregman, search": lambda: index.search(X, NEAREST),
        "euclidean, search": lambda: flat.search(X, NEAREST),
        "torch.cdist and topk": cdist,
        "bregman, rank of one target": lambda: [among.ranks(some, mine) for some, mine in
                                                zip(u.split(512), own.split(512))],
        "recursion, a share": lambda: head.compare_all(u[:few], v).topk(NEAREST, largest=False),
    }, rounds, warm=1)
    seconds["recursion"] = [t * sources / few for t in seconds.pop("recursion, a share")]
    what = f"all-pairs ranking, {sources:,} x {targets:,}"
    bars = [("bregman, search", "bare matrix product", 1.2), ("bregman, search", "torch.cdist and topk", None),
            ("euclidean, search", "bare matrix product", None), ("euclidean, search", "torch.cdist and topk", None),
            ("bregman, rank of one target", "bare matrix product", 1.5)]
    table = [*rows(what, seconds, bars), *rank_parts(among, u.split(512)[0], own.split(512)[0], rounds)]
    faster = np.median(seconds["recursion"]) / np.median(seconds["bregman, search"])
    return [*table, row(what, "bregman, search", seconds["bregman, search"], ratio=faster, bar=100,
                        against="the recursion, at least as many times faster")]


def rank_parts(among, u, own, rounds):
    "Where the time of a ranking goes: the products, counting as well, and the near-ties with their exact distances"
    sources, none, size = among._sources(u, own), (own[:0], own[:0]), (1 << 18) // len(u)
    starts, here = range(0, len(among.targets), size), torch.arange(len(u))
    tile = lambda start: among._tile(u, own, sources, none, start, start + size)
    ties = [tile(start)[1:] for start in starts] + [(here, own)]
    bias, vectors, s = among.bias.split(size), among.vectors.split(size), sources[0]
    seconds = interleave({
        "products": lambda: [torch.addmm(b, s, v.T, alpha=-1) for b, v in zip(bias, vectors)],
        "products and counting": lambda: [tile(start) for start in starts],
        "near-ties": lambda: among._nearer(u, own, ties),
        "all": lambda: among.ranks(u, own),
    }, rounds, warm=1)
    what = f"parts of a ranking, {len(u)} x {len(among.targets):,}"
    return [row(what, name, times, size=sum(len(i) for i, _ in ties) if name == "near-ties" else None)
            for name, times in seconds.items()]


def vectors(kind, number, generator):
    "Gaussian noise, or a mixture: a thousand centres of unit variance, and a third of that deviation around each"
    noise = torch.randn(number, K, generator=generator)
    if kind == "Gaussian": return noise
    centres = torch.randn(1000, K, generator=torch.Generator().manual_seed(1))
    return centres[torch.randint(1000, (number,), generator=generator)] + noise / 3


def searcher(index, X, probes=None):
    "Search with so many lists looked at, or exactly"

    def run():
        index.backend = "faiss" if probes else "exact"
        if probes: index.engine.index.nprobe = probes
        return index.search(X, NEAREST)

    return run


def approximate(head, targets, queries, rounds):
    "Recall and speed of lists, by how many are looked at, against the exact search"
    table = []
    for kind in "mixture", "Gaussian":
        g = torch.Generator().manual_seed(0)
        index, X = TargetIndex(head, vectors(kind, targets, g)), vectors(kind, queries, g)
        last = index.search(X, NEAREST)[0][:, -1:]
        index.engine = Faiss(index.rows)
        names = {f"{index.engine.index.nlist} lists, {p} looked at": p for p in PROBES} | {"exact": None}
        runs = {name: searcher(index, X, p) for name, p in names.items()}
        recall = {name: (run()[0] <= last * (1 + 1e-5)).double().mean().item() for name, run in runs.items()}
        seconds = interleave(runs, rounds, warm=1)
        good = next(name for name in runs if recall[name] >= 0.99)
        what = f"search of {targets:,} targets, {kind}"
        for name, times in seconds.items():
            faster, bar = np.median(seconds["exact"]) / np.median(times), kind == "mixture" and name == good
            more = {"size": names[name], "recall": recall[name]}
            table.append(row(what, name, times, ratio=faster, bar=10 if bar else None, **more,
                             against="exact, at least as many times faster"))
            if bar: table.append(row(what, name, times, ratio=recall[name], bar=0.99, **more,
                                     against="recall@10, at least"))
    return table


def product(rows, s):
    "The matrix product of a search in the same tiles, and nothing else"
    tile, columns = torch.empty(1024, 512), [some.T.contiguous() for some in s.split(512)]
    return lambda: [torch.mm(part, some, out=tile[:len(part), :some.shape[1]])
                    for some in columns for part in rows.split(1024)]


def growth(most, queries, rounds):
    "Milliseconds and MiB as targets, dimension and the number wanted grow; and what the hardware asks for at least"
    copied, table = torch.randn(1 << 25), []
    bandwidth = 2 * copied.nbytes / np.median(interleave({"copy": copied.clone}, 10)["copy"])
    axes = {"targets": [n for n in (1000, 4000, 16_000, 64_000, 256_000, 1_000_000) if n <= most],
            "dimension k": [16, 32, 64, 128, 256], "nearest wanted": [1, 3, 10, 30, 100]}
    for axis, sizes in axes.items():
        for size in sizes:
            m, k, want = (size if axis == a else n for a, n in zip(axes, (min(most, 64_000), K, NEAREST)))
            head, X = BregmanHead(k, k, HIDDEN), torch.randn(queries, k)
            index = TargetIndex(head, torch.randn(m, k))
            s = index.query_rows(head.encode_source(X))[0]
            runs = {"search": partial(index.search, X, want), "matrix product alone": product(index.rows, s)}
            for name, times in interleave(runs, rounds, warm=1).items():
                mib = (index.items.nbytes + index.rows.nbytes) / 2**20 if name == "search" else None
                table.append(row(axis, name, times, size=size, mib=mib))
            traffic = index.rows.nbytes * -(-queries // 512) / bandwidth  # all rows, once for a block of queries
            table.append(row(axis, "memory traffic alone", [traffic], size=size))
            pairs = index.items[:m // queries + 1]
            chosen = torch.randint(len(pairs), (queries * want,))
            whose = torch.arange(queries).repeat_interleave(want)
            runs = {"distances returned alone": partial(index.pick, head.encode_source(X), whose, chosen, want)}
            table += [row(axis, name, times, size=size) for name, times in interleave(runs, rounds, warm=1).items()]
    return table


@call_parse
def main(
    rounds: int = 5,  # Rounds after one to warm up
    threads: int = os.cpu_count(),  # Threads of torch and of FAISS
    sources: int = 10_000,  # Of the all-pairs ranking
    targets: int = 100_000,  # Of the all-pairs ranking
    many: int = 1_000_000,  # Targets of the approximate search, and at most of the growth
):
    "Measure, print, and write results/retrieval.csv"
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    with torch.inference_mode():
        head = BregmanHead(K, K, HIDDEN)
        save([*all_pairs(head, sources, targets, rounds), *approximate(head, many, 1024, rounds),
              *growth(many, 1024, rounds)], "retrieval")
    print(f"d={K}, k={K}, hidden={HIDDEN}, the {NEAREST} nearest; a bar is the ratio that is allowed")
