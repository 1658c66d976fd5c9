"Differences by hand, and the pictures of panels"

import json

import pandas as pd
import pytest

from rolebregman.evaluation import compare
from rolebregman.study import (
    ablation_rows,
    curve_figure,
    differences_figure,
    panel_differences,
    panel_figure,
    panel_findings,
    panel_rows,
    paper_panel_figure,
    paper_panels,
    starred,
)


def made_up(panel, values, head="role_bregman"):
    "Rows by variant, a value for each seed"
    return pd.DataFrame([
        dict(dataset="toy", head=head, panel=panel if name != "base" else "base", variant=name, seed=seed,
             scale="quick", settings=json.dumps(dict(panel="base", variant="base")),
             direction_accuracy=value, ranking_accuracy=1.0)
        for name, some in values.items() for seed, value in enumerate(some)])


def test_differences_by_hand():
    rows = made_up("maps", {"base": [0.5, 0.6, 0.7], "residual": [0.6, 0.7, 0.81], "affine": [0.4, 0.7], "gone": [0.0]})
    assert panel_rows(rows, "maps")["variant"].tolist() == ["linear"] * 3 + ["affine"] * 2 + ["residual"] * 3
    found = panel_differences(rows, "maps").set_index("variant")
    assert found["seeds"].to_dict() == {"affine": 2, "residual": 3}
    assert found.loc["residual", "difference"] == pytest.approx(0.31 / 3) and found.loc["residual", "clear"]
    assert found.loc["affine", "difference"] == pytest.approx(0) and not found.loc["affine", "clear"]
    of = compare([0.6, 0.7, 0.81], [0.5, 0.6, 0.7])
    assert (found.loc["residual", "low"], found.loc["residual", "high"]) == (of.ci_low, of.ci_high)
    assert panel_findings(rows, "maps").startswith("Direction: +0.103 with residual on toy; 1 of 2 differences")
    assert "Ranking: nothing clear; 0 of 2" in panel_findings(rows, "maps")


def test_a_panel_without_its_base_or_without_rows():
    assert not len(panel_differences(made_up("maps", {"residual": [0.6]}), "maps"))
    empty = ablation_rows("there is none.csv")
    assert not len(panel_rows(empty, "maps")) and panel_findings(empty, "maps") == "No rows yet."


def test_the_base_of_a_head_that_a_panel_has_no_rows_of_stays_out():
    other = made_up("noise", {"base": [0.1]}, "icnn_bregman")
    rows = pd.concat([made_up("noise", {"base": [0.5], "40": [0.4]}), other])
    assert set(panel_rows(rows, "noise")["head"]) == {"role_bregman"}


def test_figures():
    rows = made_up("noise", {"base": [0.5, 0.6], "10": [0.5, 0.4], "40": [0.4, 0.3]})
    left, right = panel_figure(rows, "noise", "A title").axes
    assert [text.get_text() for text in left.get_yticklabels()] == ["40", "10", "0"]
    left, right = curve_figure(rows, "noise", "toy", "share (%)").axes
    assert right.lines[0].get_xdata().tolist() == [0, 10, 40]
    assert right.lines[0].get_ydata().tolist() == pytest.approx([0.55, 0.45, 0.35])


def test_pictures_of_all_variants_and_beside_the_paper():
    rows = made_up("projection", {"base": [0.5, 0.6, 0.7], "none": [0.3, 0.4, 0.5], "source": [0.5, 0.8, 0.6]})
    rows = rows.assign(dataset="hyperlex/random")
    left, _ = differences_figure(rows, ["projection"]).axes
    assert [text.get_text() for text in left.get_yticklabels()] == ["projection: none", "projection: source"]
    (ax, *_) = paper_panel_figure(rows, "projection", "sides with a map").axes
    paper = paper_panels().loc[("hyperlex", "projection", "direction_accuracy")].tolist()
    assert paper in [list(line.get_ydata()) for line in ax.lines]
    assert starred(panel_differences(rows, "projection")).loc["hyperlex/random", "none"] == "-0.200*"
