"""All benchmarks, then the budgets with what was measured: `python tests/benchmarks/run.py`, or `make bench`

The short ones take about fifteen minutes on two cores; `--all` adds the fresh clone, OGBL-Citation2's size and one
seed of the paper's scale, about an hour. What is not run now is reported from its last committed run. Keep the machine
quiet meanwhile.
"""

import subprocess
import sys
from pathlib import Path

import pandas as pd
from common import RESULTS
from fastcore.script import call_parse, store_true

HERE = Path(__file__).parent
QUERIES = 1000  # of the growth in bench_retrieval.py
SHORT = ["bench_heads.py", "bench_scaling.py", "bench_retrieval.py", "bench_reading.py", "bench_waits.py",
         "bench_seeds.py", "bench_numerics.py"]
LONG = ["bench_growth.py", "bench_commands.py", "bench_ogb.py", "bench_paper.py"]


def kept(name):
    "The rows of a benchmark, none where it was not run"
    path = RESULTS / f"{name}.csv"
    return pd.read_csv(path) if path.exists() else pd.DataFrame(columns=["what", "head", "ms", "threads"])


def bounds():
    """The ratio that would be left if nothing but the matrix products remained, by (what, head, against, threads)

    Of a step: those of the head's own profile. Of scoring: a third of those of a forward and a backward pass. Of a
    search and of a rank: those of its tiles, without minima, counts or exact distances."""
    found, profile, measured, retrieval = {}, kept("profile"), kept("benchmarks"), kept("retrieval")
    names = {"double backward": "bregman, double backward"}
    for threads, some in profile.groupby("threads"):
        whole = some.groupby("head")["ms"].sum()
        for head, ms in some[some["kind"] == "matrix products"].set_index("head")["ms"].items():
            for against in whole.index.intersection(["double backward", "mlp"]):
                found["training step, batch 512", head, names.get(against, against), threads] = ms / whole[against]
    alone = kept("scaling").query("what == 'pairs' and head == 'matrix products alone' and size == 4096")
    autograd = measured.query("what == 'scoring 4096 pairs' and head == 'bregman, autograd'").set_index("threads")["ms"]
    for row in alone[alone["threads"].isin(autograd.index)].itertuples():
        key = "scoring 4096 pairs", "bregman, compiled", "bregman, autograd", row.threads
        found[key] = row.ms / 3 / autograd[row.threads]
    what, bare = "all-pairs ranking, 10,000 x 100,000", "bare matrix product"
    for threads, some in retrieval.groupby("threads"):
        whole = some.query("what == @what and head == @bare")["ms"]
        tiles = some.query("what == 'targets' and head == 'matrix product alone' and size == 1e6")["ms"]
        ranks = some.query("what == 'parts of a ranking, 512 x 100,000' and head == 'products'")["ms"]
        for head, ms, times in (("search", tiles, 1e9 / (QUERIES * 1e6)), ("rank of one target", ranks, 1e4 / 512)):
            if len(whole) and len(ms):
                found[what, f"bregman, {head}", bare, threads] = ms.iloc[0] * times / whole.iloc[0]
    return found


def budgets():
    "One line a budget: what was measured, against what, the bar, whether it is met, and what the products alone take"
    table = pd.read_csv(RESULTS / "benchmarks.csv")
    more = [RESULTS / f"{name}.csv" for name in ("retrieval", "reading", "waits", "seeds")]
    table = pd.concat([table, *(pd.read_csv(path) for path in more if path.exists())], ignore_index=True)
    lines = table.dropna(subset=["bar"])[["what", "head", "against", "ratio", "bar", "threads"]]
    if (RESULTS / "ogb_scale.csv").exists():
        stages = pd.read_csv(RESULTS / "ogb_scale.csv")
        stages = stages[(stages["papers"] == stages["papers"].max()) & stages["stage"].ne("evaluate euclidean")]
        own = {"what": "OGBL-Citation2's size, synthetic", "head": "all stages", "threads": stages["threads"].max()}
        lines = pd.concat([lines, pd.DataFrame([
            {**own, "against": "minutes", "ratio": stages["seconds"].sum() / 60, "bar": 30},
            {**own, "against": "GiB at the peak", "ratio": stages["peak_mib"].max() / 1024, "bar": 8}])])
    missing = {"make study": (8, "make bench ARGS=--all"), "make test": (12, "make bench ARGS=--all"),
               "the paper scale": (90, "make bench ARGS=--all")}
    later = [{"what": what, "head": "not measured yet: " + how, "against": "minutes", "bar": bar}
             for what, (bar, how) in missing.items() if what not in set(lines["what"])]
    if later: lines = pd.concat([lines, pd.DataFrame(later)])
    least = lines["against"].str.contains("at least", na=False)
    met = (lines["ratio"] <= lines["bar"]).where(~least, lines["ratio"] >= lines["bar"])
    met = met.map({True: "yes", False: "NO"}).where(lines["ratio"].notna(), "-")
    least_there_is = pd.Series(bounds(), dtype=float)
    keys = pd.MultiIndex.from_frame(lines[["what", "head", "against", "threads"]])
    return lines.assign(met=met, products=least_there_is.reindex(keys).to_numpy() if len(least_there_is) else None,
                        threads=lines["threads"].astype("Int64"))


@call_parse
def main(
    all: store_true = False,  # Also what takes long: a fresh clone, OGBL-Citation2's size
    report: store_true = False,  # Run nothing, only print the budgets
    json: store_true = False,  # Print the budgets as JSON, and the rest on standard error
):
    "Run the benchmarks one after another and print the budgets"
    for name in [] if report else SHORT + (LONG if all else []):
        out = sys.stderr if json else sys.stdout
        print(f"\n{name}", file=out, flush=True)
        ran = subprocess.run([sys.executable, str(HERE / name)], stdout=out)
        if ran.returncode: raise SystemExit(f"{name} failed")
    if json: return print(budgets().to_json(orient="records", indent=2))
    print("\nBudgets (ratios in one run, smaller is better unless it says 'at least'; products: what the matrix "
          "products alone would leave):")
    print(budgets().to_string(index=False, float_format="{:.3g}".format, na_rep="-"))
    print("\nWhere the time goes: training step, scoring: 01_icnn; all-pairs ranking: 11_retrieval; pairs from .csv: "
          "datasets/coded;\ncommands: results/waits.csv, parts of ...; seeds together: study/runner; growth with items "
          "and pairs: guides/beyond_one_machine")
