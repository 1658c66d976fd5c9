"What the benchmarks share: contenders that take turns, one table, what machine it was"

import platform
import time
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from tqdm import tqdm

from rolebregman.study.runner import processor

RESULTS = Path(__file__).parents[2] / "results"
COLUMNS = "what head ms ms_low ms_high ratio against bar threads processor versions".split()


def made_by():
    "Columns that say where a row comes from"
    versions = f"python {platform.python_version()}; torch {torch.__version__}"
    return {"threads": torch.get_num_threads(), "processor": processor(), "versions": versions}


def interleave(contenders, rounds, warm=5, own=None):
    """Seconds of each contender, taking turns, so that whatever else the machine does falls on all of them; the seconds
    of processor time of this process go into the mapping `own`"""
    seconds, own = {name: [] for name in contenders}, {} if own is None else own
    own |= {name: [] for name in contenders}
    for i in tqdm(range(rounds + warm), unit="round", leave=False, disable=None):
        for name, run in contenders.items():
            start, before = time.perf_counter(), time.process_time()
            run()
            if i >= warm:
                seconds[name].append(time.perf_counter() - start)
                own[name].append(time.process_time() - before)
    return seconds


def rows(what, seconds, bars=(), own=None):
    """A row for each contender: quartiles; with its ratio to a rival and the budget for it where `bars` has one; and,
    with what `interleave` has put into `own`, the same of processor time"""
    bars = {(head, against): bar for head, against, bar in bars}
    over = lambda times, name, against: np.median(np.array(times[name]) / np.array(times[against]))
    for name, times in seconds.items():
        low, middle, high = np.percentile(times, [25, 50, 75]) * 1e3
        row = {"what": what, "head": name, "ms": middle, "ms_low": low, "ms_high": high, **made_by()}
        if own: row["cpu_ms"] = np.median(own[name]) * 1e3
        found = [(against, bar) for (head, against), bar in bars.items() if head == name] or [(None, None)]
        for against, bar in found:
            ratio = over(seconds, name, against) if against else np.nan
            more = {"cpu_ratio": over(own, name, against)} if own and against else {}
            yield {**row, "ratio": ratio, "against": against, "bar": bar, **more}


def save(table, name, key=("what", "threads")):
    "Write results/NAME.csv, in place of older rows about the same; print the new ones"
    table = pd.DataFrame(table)
    table = table.reindex(columns=[*COLUMNS, *table.columns.difference(COLUMNS, sort=False)])
    path = RESULTS / f"{name}.csv"
    if path.exists():
        old = pd.read_csv(path)
        again = old.set_index(list(key)).index.isin(table.set_index(list(key)).index)
        if not again.all():
            table = pd.concat([old[~again], table.dropna(axis=1, how="all")], ignore_index=True)
            table = table.reindex(columns=[*COLUMNS, *table.columns.difference(COLUMNS, sort=False)])
    table.to_csv(path, index=False, float_format="%.5g")
    shown = table.drop(columns=["processor", "versions"]).dropna(axis=1, how="all")
    print(shown.to_string(index=False, float_format="{:.3g}".format, na_rep=""))
    print(f"{table.processor.iloc[-1]}; {table.versions.iloc[-1]}; written: results/{name}.csv\n")
