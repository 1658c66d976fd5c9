"""OGBL-Citation2's size from end to end: `python tests/benchmarks/bench_ogb.py`

Made-up papers in OGB's layout (2.9 million of them, 128 features, 30 million citations) are written to disk, read
through the project's own reader, a head is trained on a sample of the citations, and the official evaluation is run:
86,596 test edges with 1,001 candidates each. Every stage is a process of its own and gives a row of
results/ogb_scale.csv: its seconds, its peak of resident memory, and the machine's load average when it began. A stage
that has its row is not run again, so an interrupted run goes on where it was; `--again` starts anew. The bar is 8 GiB
and 30 minutes on 2 cores.
"""

import json
import os
import platform
import shutil
import subprocess
import sys
import time
from copy import copy
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from fastcore.script import call_parse, store_true

from rolebregman.baselines import make_head
from rolebregman.datasets import load_ogb, prepare_ogb, write_synthetic_ogb
from rolebregman.heads import load_head
from rolebregman.study import evaluate_ogb
from rolebregman.training import TrainConfig, fit

RESULTS = Path(__file__).parents[2] / "results" / "ogb_scale.csv"
OFFICIAL = {"papers": 2_927_963, "citations": 30_561_187, "held": 86_596}
CONFIG = TrainConfig(loss="softmax", negatives=512, batch_size=512, epochs=4, lr=3e-3)
TRAIN, VALID = 100_000, 5_000


def write(root, sizes):
    "A folder in OGB's layout"
    shutil.rmtree(root / "ogbl_citation2", ignore_errors=True)
    write_synthetic_ogb(root, **sizes)
    return {"n": sizes["papers"]}


def read(root, sizes):
    "The text parsed once, into memory-mapped files"
    shutil.rmtree(root / "cache", ignore_errors=True)
    prepare_ogb(root)
    return {"n": sizes["papers"]}


def train(root, sizes):
    "The dataset loaded, and role_bregman trained on a sample of its edges"
    ds = load_ogb(root=root).limit(TRAIN)
    some = copy(ds)
    some.edges = {**ds.edges, "valid": ds.edges["valid"][:VALID]}
    torch.manual_seed(0)
    head = make_head("role_bregman", ds.dim, proj_dim=64)
    print(fit(head, some, CONFIG).table.round(3).to_string())
    head.save_pretrained(root / "head")
    return {"n": len(ds.edges["train"])}


def evaluate(root, sizes):
    "The dataset loaded, and the official evaluation on all test edges"
    ds = load_ogb(root=root)
    return {"n": len(ds.edges["test"]), **evaluate_ogb(load_head(root / "head"), ds)}


def evaluate_euclidean(root, sizes):
    "The same with a distance that has no roles, for comparison, on the first 5,000 test edges"
    ds = load_ogb(root=root)
    return {"n": len(ds.edges["test"][:5000]), **evaluate_ogb(make_head("euclidean", ds.dim), ds, limit=5000)}


STAGES = {"write the files": write, "read them once": read, "load and train": train,
          "load and evaluate": evaluate, "evaluate euclidean": evaluate_euclidean}


def run(stage, root, sizes, threads):
    "One stage in this process; its row is printed as the last line"
    torch.set_num_threads(threads)
    began, load = time.perf_counter(), os.getloadavg()[0]
    found = STAGES[stage](root, sizes)
    seconds = time.perf_counter() - began
    status = Path("/proc/self/status").read_text()
    peak = int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1]) / 1024
    scores = dict.fromkeys(("mrr", "hits@1", "hits@3", "hits@10"))
    versions = f"python {platform.python_version()}; torch {torch.__version__}; numpy {np.__version__}"
    print(json.dumps({"papers": sizes["papers"], "stage": stage, "seconds": round(seconds, 1), "peak_mib": round(peak),
                      **scores, **found, "threads": threads, "load": round(load, 1),
                      "processor": platform.machine(), "versions": versions}))


@call_parse
def main(
    root: Path = Path("ogb_scale"),  # Where the files are written, 7 GB in all; delete it when done
    papers: int = OFFICIAL["papers"],  # A smaller number makes everything smaller in proportion
    threads: int = 2,  # Of torch
    out: Path = RESULTS,  # Where the rows go
    stage: str = "",  # Run this stage only, here, and print its row
    again: store_true = False,  # Run every stage again, though its row is there
):
    "Run what has not been run yet, and print the table"
    sizes = {k: round(v * papers / OFFICIAL["papers"]) for k, v in OFFICIAL.items()}
    if stage: return run(stage, root, sizes, threads)
    table = pd.read_csv(out) if out.exists() else pd.DataFrame({"papers": [], "stage": []})
    if again: table = table[table["papers"] != papers]
    for name in STAGES:
        if ((table["papers"] == papers) & (table["stage"] == name)).any(): continue
        print(name, flush=True)
        command = [sys.executable, __file__, "--root", str(root), "--papers", str(papers), "--threads", str(threads)]
        own = {"OMP_NUM_THREADS": str(threads), "ROLEBREGMAN_CACHE": str(root.resolve() / "cache")}
        done = subprocess.run([*command, "--stage", name], stdout=subprocess.PIPE, text=True, env={**os.environ, **own})
        print(done.stdout, flush=True)
        if done.returncode: raise SystemExit(f"{name!r} failed")
        table = pd.concat([table, pd.DataFrame([json.loads(done.stdout.splitlines()[-1])])])
        table.to_csv(out, index=False)
    table = table.astype({"papers": int, "n": int, "peak_mib": int, "threads": int})
    table.to_csv(out, index=False)
    ours = table[(table["papers"] == papers) & (table["stage"] != "evaluate euclidean")]
    print(f"{ours.seconds.sum() / 60:.1f} minutes, {ours.peak_mib.max() / 1024:.2f} GiB; the bar: 30 and 8")
