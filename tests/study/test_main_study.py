"""The main study as a function, its committed rows, and graded entailment."""
import json
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from rolebregman.baselines import HEADS, make_head
from rolebregman.study import (
    DATASETS,
    GRADED,
    SCALES,
    Graded,
    Scale,
    Store,
    Task,
    chosen_settings,
    graded_study,
    provenance,
    run_grid,
    run_main_study,
    runner,
)
from rolebregman.study.statistics import MAIN_METRICS
from rolebregman.study.store import COLUMNS

FAST = dict(batch_size=64, lr=1e-2, epochs=3)
DIVERGES = dict(FAST, lr=1e30)
results = Path(__file__).resolve().parents[2] / "results"
CHANGING = ["seconds", "peak_memory_mb", "commit"]  # somebody may commit while the tests run


def steady(rows):
    return rows.drop(columns=CHANGING)


def test_the_command(tmp_path, capsys):
    arguments = dict(datasets=["toy"], heads=["role_bregman", "direction_prior"], seeds=2, out=tmp_path,
                     chosen=tmp_path / "chosen.json")
    arguments["chosen"].write_text(json.dumps(
        {"toy": {h: {"train": FAST} for h in ("role_bregman", "direction_prior")}}))
    run_main_study(**arguments)
    first = capsys.readouterr().out
    assert "1 dataset x 2 seeds x 2 heads = 4 fits, 0 of them done before; workers: 1" in first and "paper R" in first
    assert f"made at commit {provenance()['commit'][:7]}" in first or "made at commit unknown" in first
    assert (tmp_path / "quick.png").stat().st_size > 1000
    assert len((tmp_path / "quick.csv").read_text().splitlines()) == 5
    run_main_study(**arguments)
    second = capsys.readouterr().out
    assert (f"nothing to fit: all 4 rows are in {tmp_path / 'quick.csv'}; --retry fits failed ones again, --out writes "
            "elsewhere") in second and first.splitlines()[2:] == second.splitlines()[2:]


def test_the_command_fails_where_nothing_could_be_fitted(tmp_path, capsys):
    chosen = tmp_path / "chosen.json"
    chosen.write_text(json.dumps({"toy": {"mlp": {"train": DIVERGES}}}))
    rows = run_main_study(["toy"], ["mlp"], seeds=1, out=tmp_path, chosen=chosen)
    said = capsys.readouterr().out
    assert (rows["error"] != "").all() and "failed: toy, head and seed mlp 0: FloatingPointError" in said
    assert "1 fit failed, add --retry" in said


def test_the_command_goes_on_where_a_dataset_cannot_be_had(tmp_path, capsys, monkeypatch):
    def gone(seed, quiet): raise OSError("no source answers")
    monkeypatch.setitem(runner.DATASETS, "gone", gone)
    rows = run_main_study(["gone", "toy"], ["cosine"], seeds=4, out=tmp_path, with_search=True,
                          chosen=tmp_path / "chosen.json")
    said = capsys.readouterr().out
    assert set(rows[rows["error"] != ""]["dataset"]) == {"gone"}
    assert "gone cannot be opened, so its fits will fail: no source answers" in said
    assert "failed: gone, 4 fits: OSError: no source answers" in said and (tmp_path / "quick-toy.png").exists()
    assert set(json.loads((tmp_path / "chosen.json").read_text())) == {"toy"}


def test_graded_rows_are_the_studys_fits_with_their_correlations(tmp_path, monkeypatch):
    def graded(seed, quiet):
        ds = DATASETS["toy"](seed, quiet)
        pairs = np.array([(i, j) for i in range(6) for j in range(6) if i != j])
        near = -np.square(ds.features[pairs[:, 0]] - ds.features[pairs[:, 1]]).sum(1)
        ds.graded = pd.DataFrame(dict(source=pairs[:, 0], target=pairs[:, 1], score=near, pos=["N", "V"] * 15,
                                      random=["test"] * 10 + ["train"] * 20, lexical="test", split="test"))
        return ds
    monkeypatch.setitem(DATASETS, "hyperlex/random", graded)
    monkeypatch.setitem(SCALES, "paper", Scale((), 2, train=FAST))
    path = tmp_path / "graded.csv"
    rows = graded_study(path, ["euclidean", "direction_prior"], 2, ["random"], chosen=tmp_path / "none.json",
                        progress=False)
    assert (rows["error"] == "").all() and len(Store(path, [*COLUMNS, *GRADED]).rows()) == 4
    euclidean, prior = (rows[rows["head"] == head] for head in ("euclidean", "direction_prior"))
    assert np.allclose(euclidean[list(GRADED)], 1)  # the scores are made of its own distance
    assert (prior["all"] < 0.9).all()
    plain = run_grid([Task("hyperlex/random", "euclidean", seed, "paper") for seed in (0, 1)],
                     Store(tmp_path / "plain.csv"), progress=False)
    assert steady(euclidean.reset_index(drop=True))[plain.columns.drop(CHANGING)].equals(steady(plain))


@pytest.mark.parametrize("wrong", [dict(heads=["euclid"]), dict(datasets=["gone"]), dict(scale="huge"),
                                   dict(backend="threads")])
def test_unknown_names_are_listed(wrong):
    with pytest.raises(ValueError, match="expected some of"): run_main_study(**wrong)


@pytest.mark.parametrize("wrong, says", [(dict(seeds=-1), "seeds = -1: exp"),
                                         (dict(chosen="nope.json"), "nope.json: there is no such file"),
                                         (dict(out=__file__), "this is a file, not a folder")])
def test_arguments_are_looked_at_before_anything_is_fitted(wrong, says, tmp_path):
    with pytest.raises(ValueError, match=says): run_main_study(**dict(datasets=["toy"], out=str(tmp_path)) | wrong)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name, scale", [("quick", "quick"), ("main", "paper"), ("archive/main", "paper"),
                                         ("archive/full", "full")])
def test_committed_rows_are_those_that_the_command_would_make(name, scale, request):
    if name.startswith("archive"): request.getfixturevalue("first_revision")  # which are older
    found = Store(results / f"{name}.csv").rows()
    for row in found[found["scale"] == scale].itertuples():
        settings = chosen_settings((results / name).with_name("chosen.json"), row.dataset, row.head)
        assert Task(row.dataset, row.head, row.seed, scale, **settings).config == row.config, row
    assert len(found)


def test_committed_graded_rows_are_those_that_the_command_would_make():
    plan = {Graded(name, head, seed, "paper", **chosen_settings(results / "chosen.json", name, head)).key
            for name in ("hyperlex/random", "hyperlex/lexical") for seed in range(10) for head in HEADS}
    there = Store(results / "hyperlex_spearman.csv", [*COLUMNS, *GRADED]).keys(failed=False)
    assert there == plan


def test_graded_fits_are_measured_by_rank_correlation(judged):
    rho = Graded("hyperlex/random", "euclidean", 0).measure(make_head("euclidean", dim=6), judged)
    assert set(rho) == set(GRADED) and rho["all"] == pytest.approx(1)


def test_another_rounding_changes_no_main_metric_but_the_perceptron_s():
    "As the main page says of these rows, and of these three metrics alone"
    ways = ("AVX512", "AVX2", "SSE4_2")
    rows = pd.concat([Store(results / "processors" / f"{way}.csv").rows().assign(instructions=way) for way in ways])
    plan = set(product(ways, rows["head"].unique(), range(3)))
    assert set(rows[["instructions", "head", "seed"]].itertuples(index=False, name=None)) == plan
    assert len(rows) == len(plan) and (rows["error"] == "").all()
    by_seed = rows.groupby(["head", "seed"])[list(MAIN_METRICS)].nunique()
    assert (by_seed.drop("mlp") == 1).all(axis=None) and (by_seed.loc["mlp"].max(axis=1) == 3).all()
