"Probabilities of one label by hand, the rows that are committed, and what they say"
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.metrics import brier_score_loss, log_loss, precision_score, recall_score

from rolebregman.baselines import make_head
from rolebregman.datasets.hypernymy import HYPERNYMY_SETS
from rolebregman.heads import Decision
from rolebregman.study import (
    ASKED,
    DECIDED,
    DECIDED_HEADS,
    MEASURES,
    Decided,
    Store,
    asked_of_set,
    decided_tasks,
    decision_table,
    decisions,
    run_decisions,
    yes_no_metrics,
)
from rolebregman.study.store import COLUMNS

results = Path(__file__).resolve().parents[2] / "results"


def test_measures_are_those_of_scikit_learn():
    rng = np.random.default_rng(0)
    given = rng.random(400)
    holds = rng.random(400) < given
    found = yes_no_metrics(given, holds, 0.6)
    assert found["brier"] == pytest.approx(brier_score_loss(holds, given))
    assert found["log_score"] == pytest.approx(log_loss(holds, given))
    assert found["precision"] == pytest.approx(precision_score(holds, given >= 0.6))
    assert found["recall"] == pytest.approx(recall_score(holds, given >= 0.6))
    assert found["calibration_error"] < 0.08 and set(found) == set(MEASURES)


def test_calibration_error_by_hand():
    "Two bins: 0.95 given and 0.5 true, 0.15 given and 0 true"
    found = yes_no_metrics([0.95, 0.95, 0.15, 0.15], np.array([True, False, False, False]), 0.5)
    assert found["calibration_error"] == pytest.approx(0.5 * 0.45 + 0.5 * 0.15)
    assert np.isnan(yes_no_metrics([0.1], np.array([True]), 0.5)["precision"])


@pytest.fixture(scope="module")
def rows(): return Store(results / "decisions.csv", [*COLUMNS, *DECIDED]).rows()


def test_the_rows_are_those_that_the_plan_makes(rows):
    plan = {task.key for task in decided_tasks(int(rows["seed"].max()) + 1, results / "chosen.json")}
    assert set(rows[["dataset", "head", "seed", "scale", "config"]].itertuples(index=False, name=None)) == plan
    assert (rows["error"] == "").all()


def test_what_the_page_says(rows):
    "It holds on the same kind of pairs, fails on others, and labels of the set mend half of it, but in one case"
    table = decision_table(rows, "calibration_error")
    assert list(table) == list(ASKED) and len(table) == len(HYPERNYMY_SETS) * len(DECIDED_HEADS)
    assert (table["own"] < 0.03).all() and (table["set"] > 3 * table["own"]).all()
    less = table["again"] < table["set"] / 2
    assert list(less[~less].index) == [("leds", "feature_bregman")] and (table["again"] < table["set"]).all()
    assert isinstance(table, pd.DataFrame) and table.notna().all(axis=None)


def test_there_is_nothing_left_to_fit(rows, tmp_path):
    for name in ("decisions.csv", "chosen.json"): shutil.copy(results / name, tmp_path)
    assert all(isinstance(task, Decided) for task in decided_tasks())
    assert len(run_decisions(int(rows["seed"].max()) + 1, 1, tmp_path)) == len(rows)


def test_a_set_is_asked_in_three_ways(monkeypatch):
    "Pairs of one coordinate, near where they hold: what is learned on the fold is told apart from what was brought"
    rng = np.random.default_rng(0)
    features = rng.normal(size=(400, 3)).astype(np.float32)
    x, y = (torch.arange(start, 400, 2) for start in (0, 1))
    holds = rng.random(200) < 0.3
    features[1::2][holds] = features[::2][holds] + 0.1
    monkeypatch.setattr(decisions, "_covered", lambda name: (holds, np.arange(200) % 2 == 0, (x, y), features))
    head = make_head("icnn_bregman", dim=3).fit_standardizer(features)
    head.decision = Decision(1.0, (1.0, -1.0, 0.5, 0.0), 0.4)
    found = asked_of_set(head, "leds")
    assert list(found) == list(ASKED[1:])
    for given, truth, threshold in found.values():
        assert given.shape == truth.shape == (100,) and (truth == holds[::2]).all() and 0 < threshold < 1
    share = holds[1::2].mean()
    prior = (share, (1 - share) / 2, (1 - share) / 2)
    wanted = head.decide(features[x[::2]], features[y[::2]], prior)[:, 0].numpy()
    np.testing.assert_allclose(found["share"][0], wanted, atol=1e-5)
    again, plain = (yes_no_metrics(*found[asked])["log_score"] for asked in ("again", "set"))
    assert again < plain
