"""Float32 divergences against float64, over ten million pairs: `python tests/benchmarks/bench_numerics.py`

For each lambda and each state of the potential (fresh, or the one inside a role_bregman head trained on the Gene
Ontology) it draws pairs `v`, `u = v + d` with the coordinates of `d` of one size between 1e-8 and 1e3, and those of `v`
of size 1 (as standardised embeddings have), 100 or 10,000. It compares the recursion and the definition, both in
float32, with the recursion in float64 on the same float32 inputs (which tests/test_icnn.py checks against autograd and
against 50-digit arithmetic). Writes results/numerics.csv.
"""

from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from fastcore.script import call_parse
from tqdm.auto import tqdm

from rolebregman.baselines import make_head
from rolebregman.datasets import load_dataset
from rolebregman.icnn import ICNN
from rolebregman.training import TrainConfig, fit

DIM, BLOCK = 64, 2_000
SIZES = np.logspace(-8, 3, 12)
PLACES = (1.0, 1e2, 1e4)
RESULTS = Path(__file__).parents[2] / "results" / "numerics.csv"


def potentials(strong_convexity):
    "A fresh potential, and one that has been trained"
    torch.manual_seed(0)
    yield "fresh", ICNN(DIM, strong_convexity=strong_convexity)
    ds = load_dataset("go", namespace="cellular_component", seed=0)
    head = make_head("role_bregman", ds.dim, proj_dim=DIM, strong_convexity=strong_convexity)
    fit(head, ds, TrainConfig(seed=0), progress=False)
    yield "trained", head.potential.requires_grad_(False)


def definition(phi, u, v):
    "phi(u) - phi(v) - <grad phi(v), u - v> as it stands"
    return phi(u) - phi(v) - (phi.gradient(v) * (u - v)).sum(-1)


@torch.inference_mode()
def measure(phi, exact, place, size, pairs, generator):
    "Negative and non-finite values and relative errors of both forms over `pairs` pairs at one displacement"
    fresh = lambda: {"negative": 0, "non_finite": 0, "max_error": 0.0, "errors": []}
    counts = {"recursion": fresh(), "definition": fresh()}
    for _ in range(0, pairs, BLOCK):
        # Half of the points lie as close to the origin as to each other: only there float32 holds the smallest sizes
        v = torch.randn(BLOCK, DIM, generator=generator) * place
        if place == 1: v[BLOCK // 2 :] *= min(1.0, size)
        u = v + size * torch.randn(BLOCK, DIM, generator=generator)
        true = exact.divergence(u.double(), v.double())
        large = true > 1e-30
        for form, found in ("recursion", phi.divergence(u, v)), ("definition", definition(phi, u, v)):
            count, error = counts[form], torch.where(large, (found - true).abs() / true, 0.0)
            count["negative"] += int((found < 0).sum())
            count["non_finite"] += int((~found.isfinite()).sum())
            count["max_error"] = max(count["max_error"], error.nan_to_num(torch.inf).max().item())
            count["errors"].append(error[large][:20])
    for form, count in counts.items():
        some = torch.cat(count.pop("errors"))
        yield {"form": form, **count, "median_error": some.median().item() if len(some) else np.nan, "pairs": pairs}


@call_parse
def main(
    pairs: int = 10_000_000,  # Pairs in all near the origin; a tenth of it farther out
    out: Path = RESULTS,  # Where the table goes
):
    "Measure, print and write the table"
    rows, generator = [], torch.Generator().manual_seed(0)
    cases = [(lam, state, phi) for lam in (0.0, 1e-3, 0.1) for state, phi in potentials(lam)]
    each = -(-pairs // (len(cases) * len(SIZES) * BLOCK)) * BLOCK
    with tqdm(total=len(cases) * len(SIZES) * len(PLACES), unit="displacement") as bar:
        for (lam, state, phi), place in product(cases, PLACES):
            exact = ICNN(DIM, strong_convexity=lam).double()
            exact.load_state_dict(phi.state_dict())
            for size in SIZES:
                for row in measure(phi, exact, place, size, each if place == 1 else each // 10, generator):
                    rows.append({"lambda": lam, "potential": state, "place": place, "displacement": size, **row})
                bar.update()
    table = pd.DataFrame(rows)
    table["versions"] = f"torch {torch.__version__}; numpy {np.__version__}"
    table.to_csv(out, index=False)
    columns = {"pairs": "sum", "negative": "sum", "non_finite": "sum", "max_error": "max"}
    summary = table.groupby(["form", "place"]).agg(columns)
    print(summary.to_string(), f"\nwritten: {out.name}")
    ours = summary.loc["recursion"]
    if ours["negative"].any() or ours["non_finite"].any() or ours.loc[1.0, "max_error"] > 1e-4:
        raise SystemExit("the recursion misses its bar: no negative, no non-finite value, relative error at most 1e-4")
