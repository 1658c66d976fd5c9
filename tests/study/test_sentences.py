"""Sentences whose numbers and names come from the rows."""
import numpy as np
import pandas as pd
import pytest
from scipy.stats import binom

from rolebregman.study import (
    as_list,
    conclusions,
    findings,
    first_beside_control,
    first_heads,
    main_ranks,
    on_all_edges,
)

BOTH = ("ranking_accuracy", "direction_accuracy")


@pytest.fixture
def rows():
    "Five seeds on two datasets: ours is ahead of the mlp on the first, behind on the second; the control is worst"
    values = dict(a=dict(feature_bregman=0.9, mlp=0.8, icnn_bregman=0.7, role_bregman=0.75, direction_prior=0.6),
                  b=dict(feature_bregman=0.7, mlp=0.8, icnn_bregman=0.5, role_bregman=0.6, direction_prior=0.55))
    return pd.DataFrame([dict(
        dataset=dataset, head=head, seed=seed, error="", negative_rate=0.0, ranking_accuracy=value,
        direction_accuracy=value + (seed - 3.5) / 1000, mrr=value, direction_prior_wrong=0.5, direction_matched=0.5)
        for dataset, heads in values.items() for head, value in heads.items() for seed in range(8)])


def test_findings_of_one_dataset(rows):
    best, roles, control = findings(rows[rows["dataset"] == "a"])
    assert best.startswith("Best in ranking is feature_bregman (0.900), best in direction is feature_bregman (0.900)")
    assert "over the plain ICNN head by +0.0500" in roles and "8 seeds cannot give less than 0.00781" in roles
    assert "reaches 0.600 in direction; 4 of 4 other heads are above it" in control


def test_findings_take_the_pairs_where_there_are_any(rows):
    "Eight seeds agree on 30 pairs, six of them right more with roles: the sum over drawn pairs is binomial (30, 0.2)"
    own = rows[rows["dataset"] == "a"].assign(scale="paper", config="0")
    right = dict(icnn_bregman=np.arange(30) < 12, role_bregman=np.arange(30) < 18)
    pairs = pd.DataFrame([dict(dataset="a", head=head, seed=seed, scale="paper", config="0", pairs="p", candidates=100,
                               rank=np.ones(30), direction=one.astype(float))
                          for head, one in right.items() for seed in range(8)])
    best, roles, control = findings(own, pairs)
    assert (best, control) == tuple(findings(own)[::2]) and findings(own, pairs[:0]) == findings(own)
    low, high = binom.ppf([0.025, 0.975], 30, 0.2) / 30
    assert f"by +0.2000 [{low:+.4f}, {high:+.4f}], p = 0.00" in roles and "8 seeds and their test pairs" in roles


def some_maps():
    "What linear maps add, made up: much on unit vectors, nothing on centred ones; affine ones do not count"
    lines = [("a", "unit length", "linear", 0.2, "better"), ("b", "unit length", "linear", 0.1, "better"),
             ("a", "centred and scaled", "linear", -0.1, "worse"), ("b", "centred and scaled", "linear", 0.06, "open"),
             ("a", "centred and scaled", "affine", 0.9, "better")]
    return pd.DataFrame(lines, columns=["dataset", "choice", "maps", "difference", "verdict"])


def test_conclusions_are_five_sentences_of_figures_from_the_rows(rows):
    more = pd.concat([rows, rows[rows["head"] == "mlp"].assign(head="cosine", ranking_accuracy=0.65, mrr=0.5,
                                                               direction_accuracy=0.5, negative_rate=0.25)])
    said = conclusions(more, some_maps())
    assert list(said) == ["Inputs", "Which head", "Direction", "Ranking", "Never negative"]
    assert ("by +0.150 on vectors of unit length (better on 2, worse on 0 of 2); -0.020 on vectors that were centred "
            "and scaled (better on 0, worse on 1 of 2).") in said["Inputs"]
    assert "reaches 0.550 to 0.600, and the best of all other heads is from +0.250 (b) to +0.300 (a)" in (
        said["Direction"])
    assert "in MRR feature_bregman adds +0.200 (b) to +0.400 (a)" in said["Ranking"]
    assert "in 48 fits of 3 Bregman heads the largest share of negative values is 0; " in said["Never negative"]
    assert said["Never negative"].endswith("mean shares of others: cosine (0.25).")


def some_answers():
    "What `run_standing` finds, made up: our head beside two others in two columns, and role maps beside none"
    lines = [("feature_bregman", "ranking_accuracy", "a", "mlp", 0.1, "better"),
             ("feature_bregman", "ranking_accuracy", "a", "order", -0.1, "worse"),
             ("feature_bregman", "direction_matched", "a", "mlp", 0.01, "open"),
             ("role_bregman", "ranking_accuracy", "a", "icnn_bregman", 0.2, "better"),
             ("role_bregman", "direction_accuracy", "a", "icnn_bregman", 0.03, "better"),
             ("role_bregman", "direction_accuracy", "b", "icnn_bregman", -0.004, "equivalent")]
    return pd.DataFrame(lines, columns=["head", "metric", "dataset", "against", "difference", "verdict"])


def test_conclusions_say_how_our_head_stands_and_what_maps_add_at_their_best(rows):
    plain, said = conclusions(rows, some_maps()), conclusions(rows, some_maps(), answers=some_answers())
    assert said["Inputs"] == plain["Inputs"] + (
        " With and without maps each at its best, inputs chosen as well: +0.030 (a, better), -0.004 (b, equivalent).")
    assert said["Which head"] == plain["Which head"] + (
        " feature_bregman beside each rival on each dataset, all asked at once: ranking clearly better in 1, clearly "
        "worse in 1 of 2; direction, matched clearly better in 0, clearly worse in 0 of 1.")
    assert {name: said[name] for name in list(said)[2:]} == {name: plain[name] for name in list(plain)[2:]}
    assert conclusions(rows, some_maps(), answers=some_answers()[:0]) == plain


def test_ranks_are_those_of_the_means_by_hand(rows):
    "On a: ours, mlp, role, icnn; on b: mlp, ours, role, icnn; the control does not count"
    table = main_ranks(rows)
    assert table["mean"].to_dict() == dict(feature_bregman=1.5, mlp=1.5, role_bregman=3, icnn_bregman=4)
    assert "has the best mean rank of 4 heads over 2 datasets (ranking 1.5, direction 1.5, MRR 1.5; together 1.5)" in (
        conclusions(rows)["Which head"])


def test_failed_fits_say_nothing(rows):
    failed = rows.assign(error="ValueError: broke", ranking_accuracy=np.nan, direction_accuracy=np.nan)
    assert conclusions(pd.concat([rows, failed])) == conclusions(rows)


def test_first_heads_and_the_control(rows):
    assert first_heads(rows).to_numpy().tolist() == [["feature_bregman"] * 2, ["mlp"] * 2]
    assert "at once on a; not on b" in on_all_edges(rows)
    assert first_beside_control(rows)[1].startswith(
        "b, best but for the control: ranking 0.800 (mlp) and direction 0.800 (mlp). feature_bregman: 0.700 and 0.700")


def test_sentences_are_a_list_in_markdown():
    assert as_list(f"{k} of 2." for k in (1, 2)) == "- 1 of 2.\n- 2 of 2." and as_list([]) == ""
