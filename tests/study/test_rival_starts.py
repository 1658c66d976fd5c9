"Starts of the rivals: each variant is what its name says, and its score the better rate's mean"
import json
from itertools import product
from pathlib import Path

import pandas as pd
import pytest
import torch
from torch.nn import functional as F

from rolebregman.study import (
    SEARCH,
    START_DATASET,
    START_RATES,
    START_SEEDS,
    STARTS,
    Start,
    Store,
    better_starts,
    better_tasks,
    better_verdicts,
    run_grid,
    run_rival_starts,
    start_scores,
    start_table,
    start_tasks,
)


def test_every_variant_at_both_rates_and_on_validation_pairs():
    found = start_tasks()
    per_seed = sum(1 + len(some) for some in STARTS.values()) * len(START_RATES)
    assert len({task.key for task in found}) == len(found) == per_seed * len(START_SEEDS)
    assert {task.split for task in found} == {"valid"} and {task.dataset for task in found} == {START_DATASET}
    assert min(task.seed for task in found) >= 100  # no seed of a table


@pytest.mark.parametrize("head", ["transe", "rotate", "entailment_cones", "hit"])
def test_the_scale_multiplies_the_distances(head):
    x, y = torch.randn(2, 7, 12)
    whole, quarter = (Start("toy", head, 3, start=start).make(12)(x, y) for start in ({}, dict(scale=0.25)))
    torch.testing.assert_close(quarter, whole / 4)


def test_the_weights_of_the_contrast():
    made = Start("toy", "tversky", 0, start=dict(weights=(0.4, 4.0, 1.0))).make(6)
    torch.testing.assert_close(F.softplus(made.weights), torch.tensor([0.4, 4.0, 1.0]))


def test_every_variant_can_be_made():
    for task in start_tasks(seeds=[100]): assert task.make(16).config["dim"] == 16


def test_the_score_is_the_mean_over_seeds_at_the_better_rate(tmp_path):
    store = Store(tmp_path / "starts.csv", SEARCH)
    def add(variant, lr, seed, value, error=""):
        store.append(dict(dataset=START_DATASET, head="hit", seed=seed, scale="paper", config=f"{variant}{lr}",
                          error=error, ranking_accuracy=value + 0.1, direction_accuracy=value - 0.1,
                          settings=json.dumps(dict(variant=variant, lr=lr))))
    for variant, values in {"as it is": (0.6, 0.8, 0.5, 0.5), "64 dimensions": (0.1, 0.1, 0.9, 0.7)}.items():
        for (lr, seed), value in zip(product(START_RATES, START_SEEDS), values): add(variant, lr, seed, value)
    add("lambda 0.3", START_RATES[0], START_SEEDS[0], 1.0, error="broke")
    found = start_scores(store.path).round(9)
    expected = pd.DataFrame(dict(score=[0.7, 0.8], spread=[0.2, 0.2], against=[0, 0.1]),
                            index=pd.MultiIndex.from_tuples([("hit", "as it is"), ("hit", "64 dimensions")],
                                                            names=["head", "variant"]))
    pd.testing.assert_frame_equal(found, expected)
    assert start_table(found).loc["hit"].tolist() == ["0.700", "0.200", "64 dimensions: 0.800"]


def test_a_fit_on_the_toy_tree_says_what_it_is(tmp_path):
    tasks = start_tasks([100], "toy", "quick", ["hit"])
    rows = run_grid(tasks, Store(tmp_path / "starts.csv", SEARCH), progress=False)
    assert (rows["error"] == "").all() and len(rows) == 2 * (1 + len(STARTS["hit"]))
    assert [json.loads(text)["variant"] for text in rows["settings"]] == [task.variant for task in tasks]


def test_a_better_start_beats_the_head_by_more_than_its_seeds_differ():
    lines = {("hit", "as it is"): (0.70, 0.0, 0.0), ("hit", "64 dimensions"): (0.72, 0.01, 0.02),
             ("hit", "lambda 0.3"): (0.71, 0.0, 0.01), ("transe", "as it is"): (0.70, 0.0, 0.0),
             ("transe", "Euclidean norm"): (0.72, 0.03, 0.02), ("mlp", "as it is"): (0.9, 0.01, 0.0)}
    index = pd.MultiIndex.from_tuples(lines, names=["head", "variant"])
    scores = pd.DataFrame(lines.values(), index=index, columns=["score", "spread", "against"])
    assert better_starts(scores) == {"hit": "64 dimensions"}


def test_a_better_start_has_the_settings_of_the_main_table(tmp_path):
    path = tmp_path / "chosen.json"
    path.write_text(json.dumps({"toy": {"hit": dict(train=dict(lr=0.01), options=dict(hidden=32))}}))
    found = better_tasks({"hit": "64 dimensions", "tversky": "weights 1, 1, 1"}, path, ["toy"], range(2))
    assert [(task.head, task.seed, task.split) for task in found] == [
        (head, seed, "test") for head in ("hit", "tversky") for seed in range(2)]
    assert (found[0].train, found[0].options, found[0].start) == (dict(lr=0.01), dict(hidden=32, proj_dim=64), {})
    assert (found[2].options, found[2].start) == ({}, dict(weights=(1, 1, 1)))
    assert found[2].hidden_settings == found[2].start and found[2].labels == dict(variant="weights 1, 1, 1")


def test_verdicts_are_the_better_start_minus_the_kept_one():
    def rows(value):
        return pd.DataFrame([dict(dataset="d", head="hit", seed=seed, error="", ranking_accuracy=value + seed / 1000,
                                  direction_accuracy=0.5 + seed / 1000) for seed in range(10)])
    found = better_verdicts(rows(0.6), rows(0.7)).loc[("hit", "d")]
    assert found["ranking", "difference"] == pytest.approx(0.1) and found["ranking", "verdict"] == "better"
    assert found["direction", "difference"] == 0 and found["direction", "verdict"] == "open"


def test_the_command_does_not_fit_what_is_there(tmp_path, monkeypatch, capsys):
    from rolebregman.study import rival_starts as starts
    few = start_tasks([100], "toy", "quick", ["mlp"])
    monkeypatch.setattr(starts, "start_tasks", lambda: few)
    monkeypatch.setattr(starts, "better_tasks", lambda *_: few[:1])
    run_rival_starts(jobs=1, out=tmp_path)
    files = tmp_path / "starts.csv", tmp_path / "starts_test.csv"
    before = [file.read_bytes() for file in files]
    run_rival_starts(jobs=1, out=tmp_path)
    assert [file.read_bytes() for file in files] == before
    said = capsys.readouterr().out
    assert "2 rows, 0 of them failed" in said and "1 rows, 0 of them failed" in said


@pytest.mark.usefixtures("first_revision")
def test_the_committed_rows_are_those_that_the_command_would_make():
    results = Path(__file__).resolve().parents[2] / "results"
    assert Store(results / "starts.csv", SEARCH).keys(failed=False) == {task.key for task in start_tasks()}
    better = better_tasks(better_starts(start_scores(results / "starts.csv")), results / "archive" / "chosen.json")
    assert Store(results / "archive" / "starts_test.csv", SEARCH).keys(failed=False) == {task.key for task in better}
