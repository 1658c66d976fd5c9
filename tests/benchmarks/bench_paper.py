"""How long the paper's scale takes, by one of its ten seeds: `python tests/benchmarks/bench_paper.py`

Needs the six datasets (ROLEBREGMAN_MIRROR, where SICK, SNLI and HyperLex cannot be fetched). The row in
results/benchmarks.csv is ten times the measured minutes; results/paper_scale.csv says where they go.
"""

import tempfile
import time
from pathlib import Path

import joblib
from common import RESULTS, made_by, save
from fastcore.script import call_parse

from rolebregman.study import SCALES, Store, Task, chosen_settings, open_dataset, run_grid

BAR = 35  # minutes: twice as many fits an hour as with the first search and protocol


@call_parse
def main(
    seed: int = 0,  # Which seed
    jobs: int = joblib.cpu_count(),  # Processes
):
    "Fit and evaluate every head once on every dataset of the scale, in an empty folder"
    scale, chosen = SCALES["paper"], RESULTS / "chosen.json"
    for dataset in scale.datasets: open_dataset(dataset, seed, "paper", quiet=True)  # files and vectors are there now
    tasks = [Task(dataset, head, seed, "paper", **chosen_settings(chosen, dataset, head))
             for dataset in scale.datasets for head in scale.heads]
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        rows = run_grid(tasks, Store(Path(folder) / "rows.csv"), jobs)
        minutes = (time.perf_counter() - began) / 60
    if failed := rows.loc[rows["error"] != "", ["dataset", "head", "error"]].to_dict("records"):
        raise SystemExit(f"{len(failed)} fits failed, the first: {failed[0]}")
    rows[["dataset", "head", "seconds"]].round(2).to_csv(RESULTS / "paper_scale.csv", index=False)
    save([{"what": "the paper scale", "head": f"{scale.seeds} x one seed of {len(tasks)} fits",
           "ms": minutes * scale.seeds * 6e4, "ratio": minutes * scale.seeds, "against": "minutes", "bar": BAR,
           **made_by(), "threads": jobs}], "benchmarks")
    by = rows.groupby("dataset", sort=False)["seconds"].sum()
    print(f"{minutes:.1f} minutes for one seed; training seconds by dataset: {by.round(0).astype(int).to_dict()}")
