"The gain of a choice: by hand from rows whose scores are known, for heads that have them all, and said in words"
import json
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from rolebregman.study import gain_findings, gain_table, gain_tasks, gains, run_gains
from rolebregman.study.trials import SCORE

CHOSEN = {"toy": {"mlp": dict(train=dict(lr=0.01), options={}, start=0.5, score=0.7),
                  "order": dict(train={}, options=dict(inputs="standard"), start=0.6, score=0.6)},
          "sick": {"mlp": dict(train=dict(lr=0.03), options=dict(inputs="unit"), start=0.5, score=0.52)}}
TEST = {("toy", "mlp"): (0.5, 0.6), ("toy", "order"): (0.4, 0.4), ("sick", "mlp"): (0.5, 0.47)}


@pytest.fixture
def chosen(tmp_path):
    path = tmp_path / "trials_chosen.json"
    path.write_text(json.dumps(CHOSEN))
    return path


def rows_of(chosen, seeds=2):
    "A row for each fit; the second seed has a tenth more, and the three metrics spread around their mean"
    found = {}
    for (dataset, head), scores in TEST.items():
        for pair in gain_tasks(chosen, dataset, [head], seeds):
            for task, score in zip(pair, scores):
                metrics = dict(zip(SCORE, np.array([-0.1, 0, 0.1]) + score + 0.1 * task.seed))
                found[task.key] = dict(zip(("dataset", "head", "seed", "scale", "config"), task.key)) | metrics
    return pd.DataFrame(found.values()).assign(error="")


def test_both_gains_by_hand(chosen):
    table = gain_table(chosen, rows_of(chosen), ["toy", "sick"], 2).set_index(["dataset", "head"])
    expected = {("toy", "mlp"): (0.55, 0.65, 0.2, 0.1), ("toy", "order"): (0.45, 0.45, 0, 0),
                ("sick", "mlp"): (0.55, 0.52, 0.02, -0.03)}
    assert list(table.index) == list(expected)
    for key, values in expected.items():
        assert table.loc[key, ["start", "chosen", "promised", "kept"]].tolist() == pytest.approx(values)
    first, second, both = gain_findings(table.reset_index())
    assert first.startswith("toy: promised +0.1000, kept +0.0500 (means over 2 heads); 0 that")
    assert second == ("sick: promised +0.0200, kept -0.0300 (means over 1 heads); 1 that were promised a gain have a "
                      "loss; lost it: mlp.")
    assert both.startswith("All in all: promised +0.0733, kept +0.0233 (means over 3 heads); 1 that")


@pytest.mark.parametrize("without", [dict(seed=1), dict(head="mlp"), dict(dataset="sick")])
def test_a_head_without_all_its_fits_has_no_line(chosen, without):
    rows = rows_of(chosen)
    (name, value), = without.items()
    rows.loc[rows[name] == value, "error"] = "ValueError: broke down"
    table = gain_table(chosen, rows, ["toy", "sick"], 2)
    there = {key for key in TEST if name != "seed" and dict(zip(("dataset", "head"), key))[name] != value}
    assert set(zip(table["dataset"], table["head"])) == there


def test_a_head_for_which_nothing_was_chosen_is_named(chosen):
    with pytest.raises(ValueError, match="has no settings of cosine on toy; rolebregman study search --datasets toy"):
        gain_tasks(chosen, "toy", ["mlp", "cosine"])


def test_start_and_choice_are_fitted_once_where_they_are_the_same(chosen, monkeypatch, capsys):
    fitted = []
    def grid(tasks, store, *_):
        fitted.extend(task.key for task in tasks)
    rows = rows_of(chosen).query("dataset == 'toy'")
    monkeypatch.setattr(gains, "run_grid", grid)
    monkeypatch.setattr(gains, "Store", lambda *_: SimpleNamespace(rows=lambda: rows))
    run_gains(["toy"], ["mlp", "order"], 2, 1, chosen.parent)
    assert set(fitted) == set(rows[["dataset", "head", "seed", "scale", "config"]].itertuples(index=False, name=None))
    assert capsys.readouterr().out.startswith("toy: promised +0.1000, kept +0.0500")
