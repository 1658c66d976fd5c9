"""Vectors of one's own from files, against what reads the bare file: `python tests/benchmarks/bench_reading.py`

10,000 vectors of 384 numbers with ids, and 20,000 pairs of them. A CSV goes all the way to a dataset, a Parquet or .npy
file to the matrix and its ids; what is read is checked on the way. Rows go to results/reading.csv; a bar is the ratio
that is allowed.
"""

import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
from common import interleave, rows, save
from fastcore.script import call_parse

from rolebregman.datasets import from_pairs, read_vectors


def files(folder, items, dim, pairs):
    "The vectors in each kind of file, and the pairs"
    rng = np.random.default_rng(0)
    vectors = rng.standard_normal((items, dim), dtype=np.float32)
    ids = np.array([f"item{i}" for i in range(items)])
    table = pd.DataFrame(vectors, columns=[f"x{i}" for i in range(dim)])
    table.insert(0, "id", ids)
    table.to_csv(folder / "v.csv", index=False)
    table.to_parquet(folder / "v.parquet")
    np.save(folder / "v.npy", vectors)
    held = np.unique(rng.integers(0, items, (pairs, 2)), axis=0)
    held = held[held[:, 0] != held[:, 1]]
    return pd.DataFrame(ids[held], columns=["source", "target"])


@call_parse
def main(
    rounds: int = 15,  # Rounds after two to warm up
    items: int = 10_000,  # Vectors
    dim: int = 384,  # Numbers in each
    pairs: int = 20_000,  # Pairs
):
    "Measure, print, and write results/reading.csv"
    table = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        held = files(folder, items, dim, pairs)
        bare = {"csv": pd.read_csv, "parquet": pd.read_parquet, "npy": np.load}
        for kind, read in bare.items():
            path, known = folder / f"v.{kind}", f"{read.__module__.split('.')[0]}.{read.__name__}"
            contenders = {known: lambda read=read, path=path: read(path),
                          "read_vectors": lambda path=path: read_vectors(path)}
            bars = [("read_vectors", known, 2.0 if kind == "csv" else 1.5)]
            if kind == "csv":
                contenders["from_pairs"] = lambda path=path: from_pairs(held, path)
                bars.append(("from_pairs", known, 2.0))
            table += rows(f"{items:,} x {dim} from .{kind}", interleave(contenders, rounds, warm=2), bars)
    save(table, "reading")
