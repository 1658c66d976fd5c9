"Many negatives: equal time, settings from validation pairs, and rows under the head that chose them"
import json
from pathlib import Path

import pandas as pd
import pytest

from rolebregman.baselines import HEADS
from rolebregman.study import (
    COLUMNS,
    CONTENDERS,
    KEY,
    MORE_NEGATIVES_FILES,
    SCALES,
    SEARCH,
    Store,
    against_itself,
    choose_more_negatives,
    chosen_settings,
    more_negatives_figure,
    more_negatives_settings,
    more_negatives_tasks,
    more_negatives_trials,
    run_more_negatives,
    search_grid,
    validation_choices,
    with_chosen_negatives,
)

archive = Path(__file__).resolve().parents[2] / "results" / "archive"  # of the search before the fair one
FAST = SCALES["quick"].__class__(("toy",), 2, train=dict(epochs=2, batch_size=64))


@pytest.fixture
def fast(monkeypatch): monkeypatch.setitem(SCALES, "paper", FAST)


def row(head, seed, value, dataset="d", error="", scale="paper"):
    return dict(dataset=dataset, head=head, seed=seed, scale=scale, error=error, ranking_accuracy=value,
                direction_accuracy=value / 2, mrr=value)


def table(**values):
    return pd.DataFrame([row(head, seed, value + seed / 1000) for head, value in values.items() for seed in range(10)])


def trials(**scores):
    return pd.DataFrame([row(head, 100, value) for head, values in scores.items() for value in values])


def write_chosen(folder, **settings):
    path = folder / "chosen.json"
    path.write_text(json.dumps({"toy": {head: dict(train=train, options={}) for head, train in settings.items()}}))
    return path


def test_shared_negatives_only_where_they_are_cheap():
    shared = {head for head in HEADS if "loss" in more_negatives_settings(head)}
    assert shared == {head for head in HEADS if HEADS[head].head.product_form}
    assert more_negatives_settings("directed_bregman") == dict(loss="softmax", negatives=512)
    assert more_negatives_settings("mlp") == dict(negatives=16)


def test_the_trials_are_one_step_from_the_settings_of_the_main_table(tmp_path):
    path = write_chosen(tmp_path, order=dict(lr=0.003, margin=5.0), mahalanobis=dict(lr=3e-5))
    found = [(task.training.lr, task.training.direction_weight) for task in more_negatives_trials("toy", "order", path)]
    assert sorted(found) == [(0.001, 1), (0.003, 0.3), (0.003, 1), (0.003, 3), (0.01, 1)]
    for task in more_negatives_trials("toy", "order", path):
        assert (task.training.negatives, task.training.margin, task.split) == (16, 5.0, "valid")
    # the lowest rate has none below it, and a symmetric head no direction to weigh
    assert [task.training.lr for task in more_negatives_trials("toy", "mahalanobis", path)] == [3e-5, 1e-4]


def test_the_best_trial_is_kept_and_a_failed_one_is_not(tmp_path, monkeypatch):
    path = write_chosen(tmp_path, order=dict(lr=0.003), mlp=dict(lr=0.003))
    values = iter([.5, .6, None, .9, .2] * 2)
    def grid(tasks, store, **how):
        some = [value for value, _ in zip(values, tasks)]
        return pd.DataFrame(dict(ranking_accuracy=some, direction_accuracy=some), dtype=float)
    monkeypatch.setattr("rolebregman.study.more_negatives.run_grid", grid)
    (tmp_path / "into.json").write_text('{"other": 1}')
    choose_more_negatives("toy", tmp_path / "rows.csv", tmp_path / "into.json", ["order", "mlp"], path)
    kept = json.loads((tmp_path / "into.json").read_text())
    assert kept["other"] == 1 and set(kept["toy"]) == {"order", "mlp"}
    assert kept["toy"]["order"]["train"] == dict(lr=0.003, negatives=16, direction_weight=0.3)  # the fourth


def test_validation_chooses_what_has_the_best_trial():
    one, more = trials(a=(0.3, 0.5), b=(0.9,), c=(0.8,), e=(0.5,)), trials(a=(0.6, 0.2), b=(0.8,), e=(0.5,))
    not_counted = pd.DataFrame([row("b", 100, 1.0, error="broke"), row("b", 100, 1.0, scale="quick")])
    found = validation_choices(one, pd.concat([more, not_counted])).loc["d"]
    assert found["choice"].to_dict() == dict(a="many", b="one", e="one")  # c has no trial with many, e is equal
    assert found.loc["a", ["one", "many"]].tolist() == pytest.approx([0.375, 0.45])  # means of v and v / 2


def test_the_table_has_the_rows_of_the_choice_and_every_head_once():
    choices = validation_choices(trials(a=(0.3,), b=(0.9,)), trials(a=(0.6,), b=(0.8,)))
    found = with_chosen_negatives(table(a=0.5, b=0.6, c=0.7), table(a=0.8, b=0.9), choices)
    assert found[found["seed"] == 0].set_index("head")["mrr"].to_dict() == dict(a=0.8, b=0.6, c=0.7)
    assert found.groupby("head").size().to_dict() == dict(a=10, b=10, c=10)


def test_verdicts_are_many_minus_one():
    found = against_itself(table(a=0.5, b=0.6, c=0.7), table(a=0.6, b=0.5), "ranking_accuracy").set_index("head")
    assert found["verdict"].to_dict() == dict(a="better", b="worse")
    assert found["difference"].tolist() == pytest.approx([0.1, -0.1])
    assert found["won"].tolist() == ["10 of 10", "0 of 10"]


def test_the_figure_has_a_panel_for_each_metric_and_fills_what_is_clear():
    figure = more_negatives_figure(table(order=0.5, mlp=0.6), table(order=0.6, mlp=0.6), ("ranking_accuracy", "mrr"))
    assert [ax.get_xlabel() for ax in figure.axes] == ["ranking accuracy", "MRR"]
    assert sorted(text.get_text() for text in figure.legends[0].get_texts()) == ["mlp", "order"]
    faces = [tuple(marks.get_facecolors()[0][:3]) for marks in figure.axes[0].collections
             if len(marks.get_offsets()) and marks.get_zorder() == 3]
    assert sorted(face == (1, 1, 1) for face in faces) == [False, True]


def test_only_what_the_table_needs_is_fitted(tmp_path):
    heads = "directed_bregman", "mlp", "order"
    path = write_chosen(tmp_path, **{head: more_negatives_settings(head) for head in heads})
    choices = pd.DataFrame(dict(choice=["one", "many", "one"]), index=pd.MultiIndex.from_product(
        [["toy"], ["directed_bregman", "mlp", "order"]]))
    found = more_negatives_tasks(path, choices, ["toy"], seeds=range(2))
    assert [(task.head, task.seed) for task in found] == [(h, s) for s in (0, 1) for h in ("directed_bregman", "mlp")]
    assert found[0].training.loss == "softmax"


def test_all_of_it_on_the_toy_tree_and_again(tmp_path, fast, capsys):
    heads = ["directed_bregman", "order"]
    search_grid("toy", tmp_path / "trials.csv", tmp_path / "chosen.json", heads, budget=1, scale="paper")
    how = dict(datasets=["toy"], heads=heads, seeds=2, jobs=1, out=tmp_path)
    run_more_negatives(**how, choose=True)
    tried = Store(tmp_path / MORE_NEGATIVES_FILES[1], SEARCH).rows()
    assert tried.groupby("head").size().to_dict() == dict(directed_bregman=5, order=5) and set(tried["seed"]) == {100}
    kept = chosen_settings(tmp_path / MORE_NEGATIVES_FILES[2], "toy", "order")["train"]
    scores = tried[tried["head"] == "order"].set_index("settings")[["ranking_accuracy", "direction_accuracy"]]
    best = scores.mean(axis=1)
    assert json.loads(best.idxmax()) == kept
    rows = Store(tmp_path / MORE_NEGATIVES_FILES[0]).rows()
    assert list(rows.columns) == COLUMNS and (rows["error"] == "").all()
    assert sorted(rows[rows["head"] == "directed_bregman"]["seed"]) == [0, 1]
    before = (tmp_path / MORE_NEGATIVES_FILES[0]).read_bytes()
    run_more_negatives(**how)
    assert (tmp_path / MORE_NEGATIVES_FILES[0]).read_bytes() == before and "0 of them failed" in capsys.readouterr().out


def test_what_is_missing_is_named(tmp_path, fast):
    with pytest.raises(ValueError, match=f"unknown head mpl; .*{CONTENDERS[0]}"): run_more_negatives(heads=["mpl"])
    with pytest.raises(FileNotFoundError, match="trials.csv: there is no such file"):
        run_more_negatives(["toy"], out=tmp_path)
    search_grid("toy", tmp_path / "trials.csv", tmp_path / "chosen.json", ["order"], budget=1, scale="paper")
    with pytest.raises(ValueError, match="no trials of toy order; --choose"):
        run_more_negatives(["toy"], ["order"], out=tmp_path)


@pytest.mark.usefixtures("first_revision")
def test_the_committed_rows_are_those_that_the_command_would_make():
    searches = [Store(archive / f"{name}.csv", SEARCH).rows() for name in ("search", "negatives_search")]
    choices = validation_choices(*searches)
    rows = Store(archive / MORE_NEGATIVES_FILES[0]).rows()
    tasks = more_negatives_tasks(archive / MORE_NEGATIVES_FILES[2], choices, SCALES["paper"].datasets)
    assert {task.key for task in tasks} == set(rows[KEY].itertuples(index=False, name=None))
    assert (rows["error"] == "").all()
    assert (rows.loc[rows["head"] == "directed_bregman", "negative_rate"] == 0).all()
    tried = {task.key for d in SCALES["paper"].datasets for h in CONTENDERS
             for task in more_negatives_trials(d, h, archive / "chosen.json")}
    assert tried == Store(archive / MORE_NEGATIVES_FILES[1], SEARCH).keys()
