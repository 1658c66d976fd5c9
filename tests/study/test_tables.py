"""Tables and pictures from rows, beside the paper's figures."""
import re

import numpy as np
import pandas as pd
import pytest

from rolebregman.baselines import HEADS
from rolebregman.evaluation import METRICS
from rolebregman.study import (
    COLORS,
    MARKERS,
    Store,
    Task,
    narrow_table,
    overview_table,
    paired,
    paper_results,
    print_summary,
    results_figure,
    results_table,
    run_grid,
    significance,
)

FAST = dict(batch_size=64, lr=1e-2, epochs=3)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    "Three heads of the toy tree, two seeds"
    tasks = [Task("toy", head, seed, train=FAST) for seed in (0, 1)
             for head in ("euclidean", "role_bregman", "direction_prior")]
    return run_grid(tasks, Store(tmp_path_factory.mktemp("grid") / "rows.csv"), progress=False)


def test_table_and_figure(undisturbed):
    rows = undisturbed.assign(dataset="go/cellular_component")
    table = results_table(rows)
    assert table.index.tolist() == [h for h in HEADS if h in set(rows["head"])]
    assert table.loc["role_bregman", ["paper R-Acc", "paper D-Acc"]].tolist() == ["0.987 ± 0.002", "0.942 ± 0.006"]
    assert table.loc["euclidean", "paper D-Acc"] == "" and table.loc["euclidean", "direction acc."] == "0.500 ± 0.000"
    mine = rows[rows["head"] == "role_bregman"]["mrr"]
    assert table.loc["role_bregman", "MRR"] == f"{mine.mean():.3f} ± {mine.std():.3f}"
    assert paired(rows, "role_bregman", "euclidean").seeds == 2
    assert len(results_figure(rows).axes) == 2


def test_the_table_of_the_terminal_is_narrow(undisturbed):
    rows = undisturbed.assign(dataset="go/cellular_component")
    wide = pd.concat([rows, rows.assign(head="a_name_of_24_characters_")])
    for some in (rows, rows[rows["seed"] == 0], wide.assign(seconds=1234.56)):
        lines = narrow_table(some).splitlines()
        assert max(map(len, lines)) <= 100 and len(lines) == 1 + some["head"].nunique() + 3
    lines = narrow_table(rows).splitlines()
    assert lines[0].split() == "R-Acc D-Acc MRR neg paper R paper D s".split()
    mine = rows[rows["head"] == "role_bregman"]["mrr"]
    assert f"{mine.mean():.3f}±{mine.std():.3f}".replace("±0.", "±.") in lines[3] and "0.942±.006" in lines[3]


def test_in_the_overview_all_that_is_best_to_a_tenth_of_a_percent_is_bold_and_gaps_are_empty():
    rows = pd.DataFrame([dict(dataset=dataset, head=head, seed=0, error="", ranking_accuracy=value, mrr=0.25)
                         for dataset, head, value in (("a", "mlp", 0.9004), ("a", "order", 0.8996),
                                                      ("a", "cosine", 0.5), ("b", "mlp", 0.7))])
    table = overview_table(rows, ("ranking_accuracy", "mrr"))
    assert table["a"].to_dict() == {"mlp": "**90.0**/**25.0**", "order": "**90.0**/**25.0**",
                                    "cosine": "50.0/**25.0**"}
    assert table.loc["order", "b"] == "/" and table.loc["mlp", "b"] == "**70.0**/**25.0**"


def test_the_papers_table_is_as_printed():
    table = paper_results().set_index(["dataset", "head"])
    assert len(table) == 18 and table.loc[("hyperlex", "icnn_bregman"), "direction_accuracy_mean"] == 0.3883
    assert table.loc[("go", "role_bregman"), "ranking_accuracy_mean"] == 0.9873 and (table["seeds"] == 10).all()


def test_a_summary_says_what_failed_what_came_out_and_where(capsys):
    rows = pd.DataFrame([dict(dataset="d", head="mlp", error=error, mrr=value)
                         for error, value in (("", 0.25), ("", 0.75), ("broke", np.nan))])
    print_summary(rows, "there.csv", ["mrr"])
    said = capsys.readouterr().out
    assert said.startswith("failed, 1 fits such as d mlp: broke\n") and re.search(r"mlp +0\.5\n", said)
    assert said.endswith("\n3 rows, 1 of them failed: there.csv\n")
    print_summary(rows[rows["error"] != ""], "there.csv", ["mrr"])
    assert "mean over seeds" not in capsys.readouterr().out


def test_a_table_has_the_metrics_that_have_a_heading(undisturbed):
    columns = list(results_table(undisturbed))
    assert columns[:-3] == [metric.label for metric in METRICS.values() if metric.label]
    assert columns[-3:] == ["seconds", "paper R-Acc", "paper D-Acc"]


def test_there_is_a_mark_for_every_colour():
    assert len(COLORS) == len(MARKERS) == len(set(COLORS)) == len(set(MARKERS))


@pytest.fixture
def judged():
    "Rows and outcomes of four heads, six seeds that share 400 pairs: b is behind, c the same, d right on other pairs"
    draw = np.random.default_rng(0)
    base, other = (draw.random((2, 400)) < 0.7).astype(float)
    made = dict(a=base, b=base * (draw.random(400) < 0.8), c=base, d=other)
    key = dict(scale="paper", config="0")
    rows = pd.DataFrame([dict(dataset="x", head=head, seed=seed, error="", direction_accuracy=right.mean(), **key)
                         for head, right in made.items() for seed in range(6)])
    pairs = pd.DataFrame([dict(dataset="x", head=head, seed=seed, pairs="p", candidates=100, rank=np.ones(400),
                               direction=right, **key) for head, right in made.items() for seed in range(6)])
    return rows, pairs


def test_with_outcomes_pairs_count_and_a_tie_is_equivalent(judged):
    "Over seeds alone d is clearly another head, for six seeds agree; over its pairs nothing is known"
    rows, pairs = judged
    alone = significance(rows, "a").set_index("against")
    assert alone["verdict"].to_dict() == dict(b="better", c="open", d="worse")
    found = significance(rows, "a", outcomes=pairs).set_index("against")
    assert found["verdict"].to_dict() == dict(b="better", c="equivalent", d="open")
    assert list(found.columns) == list(alone.columns)
    assert found["won"].to_dict() == alone["won"].to_dict()
    assert found["difference"].to_dict() == pytest.approx(alone["difference"].to_dict(), abs=1e-12)


def test_outcomes_of_other_configurations_do_not_count_and_missing_ones_are_named(judged):
    rows, pairs = judged
    both = pd.concat([pairs, pairs.assign(config="1", direction=[np.zeros(400)] * len(pairs))])
    pd.testing.assert_frame_equal(significance(rows, "a", outcomes=both), significance(rows, "a", outcomes=pairs))
    pd.testing.assert_frame_equal(significance(rows, "a", outcomes=pairs[:0]), significance(rows, "a"))
    with pytest.raises(ValueError, match="there are no outcomes of y"):
        significance(pd.concat([rows, rows.assign(dataset="y")]), "a", outcomes=pairs)
