"Probabilities of one label by hand, the rows that are committed, and what they say"
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import brier_score_loss, log_loss, precision_score, recall_score

from rolebregman.datasets.hypernymy import HYPERNYMY_SETS
from rolebregman.study import (
    ASKED,
    DECIDED,
    DECIDED_HEADS,
    MEASURES,
    Store,
    decided_tasks,
    decision_table,
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


def test_the_rows_are_those_that_the_plan_makes(rows, first_revision):
    plan = {task.key for task in decided_tasks(int(rows["seed"].max()) + 1)}
    assert set(rows[["dataset", "head", "seed", "scale", "config"]].itertuples(index=False, name=None)) == plan
    assert (rows["error"] == "").all()


def test_what_the_page_says(rows):
    "It holds on the same kind of pairs, fails on others, and a few hundred labels mend most of it"
    table = decision_table(rows, "calibration_error")
    assert list(table) == list(ASKED) and len(table) == len(HYPERNYMY_SETS) * len(DECIDED_HEADS)
    assert (table["own"] < 0.03).all() and (table["set"] > 3 * table["own"]).all()
    assert (table["again"] < table["set"] / 2).all()
    assert isinstance(table, pd.DataFrame) and table.notna().all(axis=None)
