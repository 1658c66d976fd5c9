"""Vectors of one's own from files, against what reads the bare file: `python tests/benchmarks/bench_reading.py`

10,000 vectors of 384 numbers and 100,000 of 128, with ids, and 20,000 pairs of them. A CSV goes all the way to a
dataset, a Parquet or .npy file to the matrix and its ids; what is read is checked on the way. A million pairs from a
Parquet file, read and checked. Then ten million pairs from a CSV, with ids of text (a word and a number each), of words
and of whole numbers: read and checked (`read_rows` and `unique_pairs`), and on to a dataset with its split, against
pyarrow's own read of the file, and beside what polars and pandas take for a part of that: ids as codes, each pair once;
and the memory that is taken at the peak, against what pyarrow's table of it holds. Rows
go to results/reading.csv; a bar is the ratio that is allowed, `cpu_ratio` that of processor time, which other work on
the machine changes less.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
from common import interleave, made_by, rows, save
from fastcore.script import call_parse

from rolebregman.datasets import from_pairs, read_rows, read_vectors, unique_pairs


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


def many_pairs(folder, items, pairs):
    "Pairs of each kind of ids as CSV, with vectors of the items; how many bytes pyarrow's tables take"
    import pyarrow as pa
    from pyarrow import csv
    rng = np.random.default_rng(0)
    source = rng.integers(0, items, pairs)
    target = (source + rng.integers(1, items, pairs)) % items
    ids = pa.array([f"item{i}" for i in range(items)])
    letters = rng.permutation(26**5)[:items, None] // 26 ** np.arange(5) % 26 + ord("a")
    words = pa.array(["some" + bytes(word).decode() for word in letters.astype(np.uint8)])
    np.save(folder / "items.npy", rng.standard_normal((items, 8), dtype=np.float32))
    (folder / "text.txt").write_text("\n".join(ids.to_pylist()))
    (folder / "words.txt").write_text("\n".join(words.to_pylist()))
    sizes = {}
    for kind, name in (("text", ids.take), ("words", words.take), ("whole", lambda rows: rows)):
        table = pa.table(dict(source=name(pa.array(source)), target=name(pa.array(target))))
        with open(folder / f"{kind}.csv", "wb") as file:  # as pandas writes it, without quotes
            file.write(b"source,target\n")
            csv.write_csv(table, file, csv.WriteOptions(include_header=False, quoting_style="none"))
        sizes[kind] = table.nbytes
    return sizes


def reader(folder, kind, what):
    "A function that reads the pairs in one way"
    path, ids = folder / f"{kind}.csv", None if kind == "whole" else folder / f"{kind}.txt"
    def checked(): return unique_pairs(read_rows(path)[0], {}, path)
    def dataset(): return from_pairs(path, folder / "items.npy", ids=ids)
    def bare():
        from pyarrow.csv import read_csv
        return read_csv(path)
    def of_polars():
        import polars
        column = polars.Int64 if kind == "whole" else polars.Categorical
        return polars.read_csv(path, schema=dict(source=column, target=column)).unique(maintain_order=True)
    def of_pandas():  # by pyarrow, which is the faster way on text by far
        table = pd.read_csv(path, engine="pyarrow")
        return (table if kind == "whole" else table.astype("category")).drop_duplicates()
    return dict(checked=checked, dataset=dataset, bare=bare, polars=of_polars, pandas=of_pandas)[what]


def peak(folder, kind, what):
    "Bytes that a process of its own takes at the peak, above what it takes before"
    again = subprocess.run([sys.executable, __file__, "--peak", f"{folder}:{kind}:{what}"], stdout=subprocess.PIPE,
                           text=True, check=True)
    return int(again.stdout)


def high_water():
    "The most bytes that this process has held; `ru_maxrss` would begin with what the parent held"
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))


def tell_peak(said):
    "Read in one way in this process, and print the bytes that it took"
    import pyarrow.csv  # noqa: F401  which is no part of the columns
    folder, kind, what = said.split(":")
    run, before = reader(Path(folder), kind, what), high_water()
    kept = run()  # noqa: F841  which holds it until it is measured
    print(high_water() - before)


def of_vectors(folder, items, dim, pairs, rounds):
    "Rows on vectors from each kind of file, from a CSV up to the dataset"
    held = files(folder, items, dim, pairs)
    for kind, read in {"csv": pd.read_csv, "parquet": pd.read_parquet, "npy": np.load}.items():
        path, known = folder / f"v.{kind}", f"{read.__module__.split('.')[0]}.{read.__name__}"
        contenders = {known: lambda read=read, path=path: read(path),
                      "read_vectors": lambda path=path: read_vectors(path)}
        bars = [("read_vectors", known, 2.0 if kind == "csv" else 1.5)]
        if kind == "csv":
            contenders["from_pairs"] = lambda path=path: from_pairs(held, path)
            bars.append(("from_pairs", known, 2.0))
        seconds = interleave(contenders, rounds, warm=min(2, rounds // 3), own=(own := {}))
        yield from rows(f"{items:,} x {dim} from .{kind}", seconds, bars, own)


def of_parquet_pairs(folder, items, pairs, rounds):
    "Rows on pairs from a Parquet file, read and checked"
    import pyarrow.parquet as parquet
    rng = np.random.default_rng(0)
    source = rng.integers(0, items, pairs)
    target = (source + rng.integers(1, items, pairs)) % items
    for kind, ids in (("text", np.array([f"item{i}" for i in range(items)])), ("whole numbers", np.arange(items))):
        path = folder / f"{kind[:4]}.parquet"
        pd.DataFrame(dict(source=ids[source], target=ids[target])).to_parquet(path)
        contenders = {"pandas.read_parquet": lambda path=path: pd.read_parquet(path),
                      "pyarrow.parquet.read_table": lambda path=path: parquet.read_table(path),
                      "read and checked": lambda path=path: unique_pairs(read_rows(path)[0], {}, path)}
        bars = [("read and checked", "pandas.read_parquet", 1.5),
                ("read and checked", "pyarrow.parquet.read_table", None)]
        seconds = interleave(contenders, rounds, warm=1, own=(own := {}))
        yield from rows(f"{pairs:,} pairs from .parquet, ids of {kind}", seconds, bars, own)


def of_many_pairs(folder, items, pairs, rounds):
    "Rows on the time and on the memory of a large file of pairs"
    known = "pyarrow.csv.read_csv"
    for kind, size in many_pairs(folder, items, pairs).items():
        what = f"{pairs:,} pairs from .csv, ids of {'whole numbers' if kind == 'whole' else kind}"
        contenders = {known: reader(folder, kind, "bare"), "read and checked": reader(folder, kind, "checked"),
                      "from_pairs": reader(folder, kind, "dataset")}
        contenders |= {f"{name}, coded and each pair once": reader(folder, kind, name) for name in ("polars", "pandas")}
        bars = [(name, known, 3.0) for name in ("read and checked", "from_pairs")]
        bars += [("read and checked", name, None) for name in list(contenders)[3:]]
        seconds = interleave(contenders, rounds, warm=1, own=(own := {}))
        yield from rows(what, seconds, bars, own)
        for name, way in (("read and checked", "checked"), ("from_pairs", "dataset")):
            taken = peak(folder, kind, way)
            yield {"what": f"{what}: memory", "head": name, **made_by(), "ratio": taken / size, "bar": 4.0,
                   "against": f"columns of {size / 2**20:.0f} MiB", "mib": taken / 2**20}


@call_parse
def main(
    rounds: int = 15,  # Rounds after two to warm up
    items: int = 10_000,  # Vectors
    dim: int = 384,  # Numbers in each
    pairs: int = 20_000,  # Pairs
    parquet: int = 1_000_000,  # Pairs of a Parquet file
    many: int = 10_000_000,  # Pairs of the large file; 0 leaves it out
    only: str = "vectors,more,parquet,many",  # Which of them
    peak: str = "",  # Used by the benchmark itself, to measure memory
):
    "Measure, print, and write results/reading.csv"
    if peak: return tell_peak(peak)
    with tempfile.TemporaryDirectory() as name:
        folder, few = Path(name), max(2, rounds // 5)
        parts = {"vectors": lambda: of_vectors(folder, items, dim, pairs, rounds),
                 "more": lambda: of_vectors(folder, 10 * items, dim // 3, pairs, few),
                 "parquet": lambda: of_parquet_pairs(folder, 200_000, parquet, few),
                 "many": lambda: of_many_pairs(folder, 200_000, many, few) if many else ()}
        for part in only.split(","):
            if found := list(parts[part]()): save(found, "reading")
