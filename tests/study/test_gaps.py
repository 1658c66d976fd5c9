"Gaps: the measures of a head, rows that are those of the study, a run that can be stopped, sentences from few rows"
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from matplotlib.colors import to_hex

from rolebregman.baselines import HEADS, make_head
from rolebregman.datasets import toy_tree
from rolebregman.heads import BregmanHead
from rolebregman.interpretability import explain
from rolebregman.study import (
    ASYMMETRIC_HEADS,
    CASE_WORDS,
    COLUMNS,
    GAP_COLUMNS,
    GAP_DATASETS,
    GAP_PERCENTILES,
    KEY,
    PAPER_CASE,
    PAPER_GAPS,
    GapTask,
    Store,
    Task,
    case_table,
    direction_table,
    fit_and_evaluate,
    gap_conclusions,
    gap_figure,
    gap_rows,
    gap_tasks,
    gaps,
    gaps_beside_paper,
    judged_figure,
    measure_gaps,
    open_dataset,
    run_gaps,
)

FAST = dict(batch_size=64, lr=1e-2, epochs=1)
results = Path(__file__).resolve().parents[2] / "results"
BREGMAN = [name for name, entry in HEADS.items() if issubclass(entry.head, BregmanHead)]


@pytest.fixture(scope="module")
def tree():
    return toy_tree(seed=0)


@pytest.mark.parametrize("name", ASYMMETRIC_HEADS)
def test_every_asymmetric_head_is_measured(name, tree):
    head = make_head(name, dim=tree.dim)
    found = measure_gaps(head, tree)
    assert set(found) <= set(GAP_COLUMNS) and all(np.isfinite(value) for value in found.values())
    gaps = [found[name] for name in GAP_PERCENTILES]
    assert gaps == sorted(gaps) and ("hessian_trace" in found) == isinstance(head, BregmanHead)
    if name in BREGMAN:
        assert 0.1 <= found["least_eigenvalue"] <= found["top_eigenvalue"] < found["hessian_trace"]
        assert 0 < found["convexity_share"] < 1
    if name == "icnn_bregman": assert found["direction_frozen"] == 0.5  # proposition 3


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    "Rows of two seeds and three heads on the toy tree, written by the command"
    folder = tmp_path_factory.mktemp("rows")
    chosen = {"toy": {head: dict(train=FAST | dict(direction_margin=2.0)) for head in ASYMMETRIC_HEADS}}
    (folder / "chosen.json").write_text(json.dumps(chosen))
    how = dict(datasets=["toy"], heads=["role_bregman", "icnn_bregman", "order"], seeds=2, scale="quick",
               chosen=str(folder / "chosen.json"), out=str(folder / "rows.csv"))
    run_gaps(**how)
    return how


def test_the_command_goes_on_where_it_was_stopped(written, capsys):
    path = written["out"]
    whole = open(path, "rb").read()
    assert len(Store(path, GAP_COLUMNS).rows()) == 5  # the two heads of the table twice
    with open(path, "r+b") as file: file.truncate(len(whole) - 40)  # killed while the last row was written
    run_gaps(**written)
    assert "5 fits, 4 of them done before" in capsys.readouterr().out
    rows, before = Store(path, GAP_COLUMNS).rows(), whole.decode().splitlines()
    assert open(path).read().splitlines()[:5] == before[:5] and len(rows) == 5 and (rows["error"] == "").all()
    run_gaps(**written)
    assert "5 of them done before" in capsys.readouterr().out


def test_its_rows_are_those_of_the_main_study(written, tree):
    rows = gap_rows(written["out"])
    one = rows[rows["head"] == "role_bregman"].iloc[0]
    task = gap_tasks(["toy"], 1, written["chosen"], "quick", heads=["role_bregman"])[0]
    same = fit_and_evaluate(task)
    for name in ("config", "gap_mean", "mrr", "forward_preferred_rate"): assert one[name] == same[name]
    assert one["margin"] == 2 and one["hessian_trace"] == measure_gaps(task.trained(tree), tree)["hessian_trace"]


def test_a_failure_is_a_row(tmp_path, monkeypatch):
    monkeypatch.setattr(gaps, "measure_gaps", lambda *_: 1 / 0)
    row = fit_and_evaluate(GapTask("toy", "role_bregman", 0, train=FAST))
    assert row["error"] == "ZeroDivisionError: division by zero"


@pytest.mark.parametrize("name", ["heads", "datasets"])
def test_unknown_names_are_refused(name):
    with pytest.raises(ValueError, match=f"unknown {name[:-1]} euclid; expected some of"):
        run_gaps(**{name: ["euclid"]})


def study_rows(written):
    "The toy's rows under the names of the study's datasets"
    rows = gap_rows(written["out"])
    extra = dict(rho_distance=0.3, rho_gap=0.4, rho_gap_positive=0.1, case_forward=1.0, case_reverse=2.0)
    return pd.concat([rows.assign(dataset=name, **(extra if name.startswith("hyper") else {}))
                      for name in GAP_DATASETS], ignore_index=True)


def test_tables_and_sentences_from_rows_whole_or_partial(written, tmp_path):
    rows = study_rows(written)
    assert len(gaps_beside_paper(rows)) == len(PAPER_GAPS)
    assert len(direction_table(rows)) == 6 and len(case_table(rows)) == 3
    assert set(gap_conclusions(rows)) >= {"Validity", "Hessian trace", "The annotators", "Celery and food"}
    assert len(gap_figure(rows).axes) == 3
    for some in (rows[rows["dataset"] == "wordnet"], rows[rows["head"] == "role_bregman"], rows.iloc[:1],
                 gap_rows(tmp_path / "none.csv")):
        assert all(gap_conclusions(some).values())
        gaps_beside_paper(some), direction_table(some), case_table(some), gap_figure(some)


def test_the_papers_figures_are_the_papers():
    assert PAPER_GAPS.query("head == 'role_bregman'")["hessian_trace"].tolist() == [42.1213, 94.7032, 83.0153]
    assert PAPER_CASE["case_forward"] - PAPER_CASE["case_reverse"] == pytest.approx(-1.77)


def test_celery_and_food(real):
    real("hyperlex"), real("glove-6b-50d-subset")
    ds = open_dataset("hyperlex/random", 0, "paper", quiet=True)
    found = measure_gaps(head := Task("hyperlex/random", "role_bregman", 0, "paper", dict(epochs=2)).trained(ds), ds)
    rows = [int(np.flatnonzero(ds.nodes["id"] == word)[0]) for word in CASE_WORDS]
    why = explain(head, *ds.features[rows])
    assert (found["case_forward"], found["case_reverse"]) == pytest.approx((why.forward, why.reverse), rel=1e-4)
    assert -1 <= found["rho_gap_positive"] <= 1 and found["rho_gap"] > 0


def test_a_point_of_the_figure_of_judged_pairs_is_a_pair(judged):
    head = BregmanHead(6)
    ax, = judged_figure(judged, head).axes
    points = np.concatenate([c.get_offsets() for c in ax.collections])
    x, y = (torch.tensor(judged.features[judged.graded[end]]) for end in ("source", "target"))
    with torch.no_grad(): wanted = np.stack([judged.graded["score"], head.gap(x, y)], 1)
    assert np.allclose(np.sort(points, 0), np.sort(wanted, 0), atol=1e-5)
    assert [len(c.get_offsets()) for c in ax.collections] == [2, 1, 1], "hypernyms, their reversals, neither"
    assert len({to_hex(c.get_facecolor()[0]) for c in ax.collections}) == 3


def test_the_committed_rows_are_of_todays_plan_and_those_of_the_main_study():
    store = Store(results / "interpretability.csv", GAP_COLUMNS)
    assert store.keys(failed=False) == {task.key for task in gap_tasks(chosen=results / "chosen.json")}
    both = store.rows().merge(Store(results / "main.csv", COLUMNS).rows(), on=KEY)
    assert len(both) == len(store.rows())
    near = np.where(both["versions_x"] == both["versions_y"], 1e-9, 0.01)  # another processor rounds otherwise
    for metric in ("ranking_accuracy", "direction_accuracy"):
        assert ((both[f"{metric}_x"] - both[f"{metric}_y"]).abs() <= near).all()
