"""The search for settings: what it tries, and what it takes."""
import json

import numpy as np
import pytest

from rolebregman.study import (
    AXES,
    GRID,
    SEARCH,
    Store,
    Task,
    chosen_settings,
    fit_and_evaluate,
    neighbours,
    search_grid,
)


def test_a_search_in_which_every_trial_of_a_head_fails_chooses_nothing(tmp_path):
    how = dict(heads=["euclidean", "mlp"], budget=2, train=dict(epochs=1), progress=False,
               grid=[(lr, 1.0, 0.01, 1.0) for lr in (1e30, 1e31)])
    with pytest.raises(ValueError, match=r"every trial of euclidean on toy failed.*FloatingPointError: .*search.csv"):
        search_grid("toy", tmp_path / "search.csv", tmp_path / "chosen.json", **how)
    assert not (tmp_path / "chosen.json").exists()


def test_search_takes_the_best_on_validation_and_keeps_the_rest(tmp_path):
    chosen, policy = tmp_path / "chosen.json", dict(batch_size=64, epochs=2)
    chosen.write_text(json.dumps({"other": {"mlp": {"train": {"lr": 5.0}}}}))
    how = dict(heads=["mlp", "euclidean"], budget=5, train=policy, progress=False,
               grid=[(lr, 1.0, 0.01, 1.0) for lr in (1e-6, 1e-2, 1e30)])
    best = search_grid("toy", tmp_path / "search.csv", chosen, **how).set_index("head")
    rows = Store(tmp_path / "search.csv", SEARCH).rows()
    assert (best["trials"] == 5).all() and rows["head"].value_counts().to_dict() == dict(mlp=5, euclidean=5)
    assert (rows["error"] != "").sum() == 2 and (rows["seed"] == 100).all()
    means = rows.assign(score=rows[["ranking_accuracy", "direction_accuracy"]].mean(axis=1).fillna(0))
    for head in best.index:
        row = means[means["head"] == head].set_index("settings")["score"]
        kept = chosen_settings(chosen, "toy", head)
        assert best.loc[head, "score"] == row.max() == row[json.dumps(kept["train"] | kept["options"])]
        assert kept["train"]["margin"] == kept["train"]["direction_margin"] and policy.items() <= kept["train"].items()
    assert chosen_settings(chosen, "other", "mlp")["train"] == {"lr": 5.0}
    assert chosen_settings(chosen, "other", "order") == dict(train={}, options={})
    chosen.write_text(json.dumps({"go/cellular_component": {"mlp": {"train": {"lr": 3.0}}}, "wordnet": {"mlp": {}}}
                                 | json.loads(chosen.read_text())))
    assert {chosen_settings(chosen, f"go/{part}", "mlp")["train"]["lr"]
            for part in ("all", "all/node", "biological_process", "cellular_component/node")} == {3.0}
    assert chosen_settings(chosen, "wordnet/node", "mlp")["train"] == {}
    size = (tmp_path / "search.csv").stat().st_size
    search_grid("toy", tmp_path / "search.csv", chosen, **how)
    assert (tmp_path / "search.csv").stat().st_size == size
    kept = chosen_settings(chosen, "toy", "mlp")
    row = fit_and_evaluate(Task("toy", "mlp", 100, **kept, split="valid"))
    assert (row["ranking_accuracy"] + row["direction_accuracy"]) / 2 == best.loc["mlp", "score"]


def test_the_search_leaves_the_grid_where_the_best_is_at_its_edge():
    scores = dict.fromkeys(GRID, 0.5) | {GRID[-1]: 0.9}
    new = neighbours(scores, 8)
    assert GRID[-1] == (3e-3, 5.0, 0.1, 1.0) and not set(new) & set(GRID)
    assert {trial[0] for trial in new} == {3e-3, 1e-2} and {trial[1] for trial in new} == {5.0, 25.0}
    assert {trial[2] for trial in new} == {0.01, 0.1, 1.0} and {trial[3] for trial in new} == {0.5, 1.0, 2.0}
    for trial in new: assert sum(a != b for a, b in zip(trial, GRID[-1])) == 1
    assert {trial[3] for trial in neighbours(scores, 8, wide=False)} == {1.0}


def test_a_peak_is_found_wherever_it_is():
    top = (3e-5, 0.2, 10.0, 2.0)
    def score(trial): return -sum(abs(AXES[n].index(a) - AXES[n].index(b)) for n, a, b in zip(AXES, trial, top))
    scores = {trial: score(trial) for trial in GRID}
    while top not in scores: scores |= {trial: score(trial) for trial in neighbours(scores, 8)}
    assert len(scores) < 60 < 800 == np.prod([len(values) for values in AXES.values()])
