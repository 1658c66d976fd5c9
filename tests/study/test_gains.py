"The gain of a choice: by hand from rows whose scores are known, for heads that have them all, and said in words"
import json

import numpy as np
import pandas as pd
import pytest

from rolebregman.study import Store, gain_findings, gain_rows, gain_table, gain_tasks, gains, run_gains
from rolebregman.study.store import KEY, SEARCH
from rolebregman.study.trials import SCORE

CHOSEN = {"toy": {"mlp": dict(train=dict(lr=0.01), options={}, start=0.5, score=0.7),
                  "order": dict(train={}, options=dict(inputs="standard"), start=0.6, score=0.6)},
          "sick": {"mlp": dict(train=dict(lr=0.03), options=dict(inputs="unit"), start=0.5, score=0.52)}}
TEST = {("toy", "mlp"): (0.5, 0.6), ("toy", "order"): (0.4, 0.4), ("sick", "mlp"): (0.5, 0.47)}


@pytest.fixture
def chosen(tmp_path):
    path = tmp_path / "chosen.json"
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


@pytest.mark.parametrize("of_main", [0, 1])
def test_what_is_there_is_not_fitted_again(chosen, monkeypatch, capsys, of_main):
    "Start and choice are one fit where they are the same; what the main study has made is taken from there"
    asked, rows = [], rows_of(chosen).query("dataset == 'toy'")
    for row in rows[rows["seed"] < of_main].to_dict("records"): Store(chosen.parent / "main.csv").append(row)

    def grid(tasks, store, *_):
        asked.extend(task.key for task in tasks)
        for row in rows.to_dict("records"):
            if tuple(row[name] for name in KEY) in asked: Store(store.path, SEARCH).append(row)
    monkeypatch.setattr(gains, "run_grid", grid)
    run_gains(["toy"], ["mlp", "order"], 2, 1, chosen.parent)
    assert set(asked) == set(rows.loc[rows["seed"] >= of_main, KEY].itertuples(index=False, name=None))
    assert capsys.readouterr().out.startswith("toy: promised +0.1000, kept +0.0500")
    assert len(gain_rows(chosen.parent)) == len(rows)
