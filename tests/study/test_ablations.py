"Ablations: each variant changes what its name says and nothing else, and its row is the runner's"
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from rolebregman.study import (
    COLUMNS,
    KEY,
    OUR_PANELS,
    PANEL_METRICS,
    PANELS,
    SEARCH,
    Store,
    Task,
    Variant,
    ablation_rows,
    fit_and_evaluate,
    panel_tasks,
    run_ablations,
    run_grid,
)

results = Path(__file__).resolve().parents[2] / "results"
FAST = dict(batch_size=64, lr=1e-2, epochs=2)
CHANGING = ["seconds", "peak_memory_mb", "commit"]


def some_variants():
    wanted = {"unit length", "40", "nearest of 4", "clamped weights", "base"}
    found = [v for panel in ("inputs", "noise", "negatives", "plain head")
             for v in panel_tasks(panel, "toy", 1, "none.json", "quick", FAST) if v.variant in wanted]
    return list({v.key: v for v in found}.values())


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    store = Store(tmp_path_factory.mktemp("ablations") / "rows.csv", SEARCH)
    run_grid(some_variants(), store, progress=False)
    return store


def test_rows(undisturbed):
    rows = undisturbed.rows()
    assert len(rows) == len(some_variants()) and (rows["error"] == "").all() and (rows["negative_rate"] == 0).all()
    assert rows.drop(columns=["error", "settings", "direction_prior_wrong", "filtered_mrr"]).notna().all(axis=None)
    main_row = fit_and_evaluate(Task("toy", "role_bregman", 0, train=FAST))
    base = rows[rows["config"] == main_row["config"]].iloc[0]
    assert all(base[name] == main_row[name] for name in (*KEY, *PANEL_METRICS, "mrr", "gap_mean", "parameters"))


def test_the_same_rows_from_two_processes(undisturbed, tmp_path):
    store = Store(tmp_path / "rows.csv", SEARCH)
    run_grid(some_variants()[:3], store, progress=False)
    first = store.path.read_bytes()
    run_grid(some_variants(), store, jobs=2, progress=False)
    assert store.path.read_bytes().startswith(first)
    ours, theirs = (s.rows().sort_values(KEY, ignore_index=True).drop(columns=CHANGING) for s in (store, undisturbed))
    pd.testing.assert_frame_equal(ours, theirs, check_exact=True)
    before = store.path.read_bytes()
    run_grid(some_variants(), store, progress=False)
    assert store.path.read_bytes() == before


def test_a_failure_is_a_row_and_is_retried_on_request(tmp_path):
    failing = Variant("toy", "role_bregman", 0, train=dict(FAST, lr=1e30), panel="inputs", variant="as they are")
    store = Store(tmp_path / "rows.csv", SEARCH)
    run_grid([failing], store, progress=False)
    assert "FloatingPointError" in store.rows()["error"][0] and not len(ablation_rows(store.path))
    before = store.path.stat().st_size
    run_grid([failing], store, progress=False)
    assert store.path.stat().st_size == before
    run_grid([failing], store, retry=True, progress=False)
    assert store.path.stat().st_size > before


def test_the_command_in_a_process_of_its_own_with_two_workers(tmp_path):
    command = [sys.executable, "-m", "rolebregman", *"study ablations --panel activation --datasets toy".split(),
               *"--seeds 1 --jobs 2 --chosen none.json --out".split(), str(tmp_path)]
    quiet = os.environ | {"TQDM_DISABLE": "1"}
    for done in (0, 2):
        run = subprocess.run(command, capture_output=True, text=True, timeout=120, env=quiet)
        assert run.returncode == 0, run.stderr
        assert f"toy: 2 fits, {done} of them done before" in run.stdout and "2 rows in" in run.stdout
    assert ablation_rows(tmp_path / "ablations.csv")["variant"].tolist() in (["base", "softplus"], ["softplus", "base"])


def test_what_the_command_does_not_know(capsys):
    for wrong in (dict(panel="colour"), dict(panel="maps", datasets=["gone"])):
        with pytest.raises(ValueError, match="expected some of"):
            run_ablations(**wrong)
    assert not capsys.readouterr().out


def committed():
    files = dict(ablation_projection=["projection"], ablation_direction_weight=["direction_weight"],
                 ablations=OUR_PANELS)
    return [(name, panels) for name, panels in files.items() if (results / f"{name}.csv").exists()]


@pytest.mark.parametrize("name, panels", committed())
def test_committed_rows(name, panels):
    rows = Store(results / f"{name}.csv", SEARCH).rows()
    fine = ablation_rows(results / f"{name}.csv")
    assert (fine["negative_rate"] == 0).all() and set(rows["scale"]) == {"paper"}
    assert set(fine["panel"]) <= {"base", *panels}
    assert all(variant in PANELS[panel] for panel, variant in zip(fine["panel"], fine["variant"]) if panel != "base")


def test_committed_bases_are_the_rows_of_the_main_study():
    if not (results / "main.csv").exists(): pytest.skip("results/main.csv is not there")
    theirs = Store(results / "main.csv", COLUMNS).rows()
    for name, _ in committed():
        base = ablation_rows(results / f"{name}.csv").query("panel == 'base'")
        both = base.merge(theirs, on=KEY)
        for metric in PANEL_METRICS: assert np.allclose(both[f"{metric}_x"], both[f"{metric}_y"], atol=1e-9)
