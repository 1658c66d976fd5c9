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
SHORT = ["bench_heads.py", "bench_scaling.py", "bench_retrieval.py", "bench_reading.py", "bench_waits.py",
         "bench_numerics.py"]
LONG = ["bench_growth.py", "bench_commands.py", "bench_ogb.py", "bench_paper.py"]


def budgets():
    "One line a budget: what was measured, against what, the bar, and whether it is met"
    table = pd.read_csv(RESULTS / "benchmarks.csv")
    more = [RESULTS / f"{name}.csv" for name in ("retrieval", "reading", "waits")]
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
    return lines.assign(met=met, threads=lines["threads"].astype("Int64"))


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
    print("\nBudgets (ratios in one run, smaller is better unless it says 'at least'):")
    print(budgets().to_string(index=False, float_format="{:.3g}".format, na_rep="-"))
