"""Metrics worked by hand, laws that hold for any scores, and the paired comparison."""
import math
from copy import deepcopy
from dataclasses import replace

import networkx as nx
import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rolebregman import evaluation
from rolebregman.baselines import HEADS, make_head
from rolebregman.datasets import from_pairs, toy_tree
from rolebregman.evaluation import (
    METRICS,
    Comparison,
    Scores,
    compare,
    evaluate,
    filtered_ranks,
    rank_metrics,
    ranks,
    score_split,
    split_metrics,
)

NAMES = ("ranking_accuracy direction_accuracy direction_accuracy_all negative_rate mrr hits@1 hits@3 hits@10 auc "
         "average_precision gap_mean forward_preferred_rate tie_rate hard_ranking_accuracy hard_pair_rate").split()


def made(forward, reverse, negative, one_way=None):
    "Scores of plain lists"
    one_way = [True] * len(forward) if one_way is None else one_way
    scores = [torch.tensor(x, dtype=torch.float64) for x in (forward, reverse, negative)]
    return Scores(*scores, torch.tensor(one_way), torch.arange(len(forward)), scores[2][:, -1:])  # the last is hard


def head_and_tree(name="role_bregman"):
    ds = toy_tree(depth=4, dim=8)
    return make_head(name, dim=8).fit_standardizer(ds.features), ds


def test_metrics_by_hand():
    found = split_metrics(made([0.1, 0.4, 0.4], [0.3, 0.4, 0.2], [[0.2, 0.5], [0.4, 0.1], [0.9, -0.8]]))
    assert [name for name in found if name in NAMES] == NAMES and set(found) <= set(METRICS), "one more may come"
    assert {name: found[name] for name in NAMES} == pytest.approx({
        "ranking_accuracy": 3.5 / 6, "direction_accuracy": 0.5, "direction_accuracy_all": 0.5, "negative_rate": 1 / 12,
        "mrr": (1 + 1 / 2.5 + 1 / 2) / 3, "hits@1": 1 / 3, "hits@3": 1.0, "hits@10": 1.0,
        "auc": (3 + 1.5 + 1.5) / 9, "average_precision": 1 / 3 + 2 / 3 * 3 / 5, "gap_mean": 0.0,
        "forward_preferred_rate": 1 / 3, "tie_rate": 1 / 3,
        "hard_ranking_accuracy": 1 / 3, "hard_pair_rate": 1})


def test_two_way_pairs_leave_direction_only():
    args = [0.1, 0.4, 0.4], [0.3, 0.4, 0.2], [[0.2, 0.5], [0.4, 0.1], [0.9, 0.8]]
    every, some = split_metrics(made(*args)), split_metrics(made(*args, [True, True, False]))
    none = split_metrics(made(*args, [False] * 3))
    direction = {"direction_accuracy", "gap_mean", "forward_preferred_rate", "tie_rate"}
    assert {k for k in NAMES if every[k] != some[k]} == direction | {"direction_accuracy_all"}
    assert {k for k in NAMES if math.isnan(none[k])} == direction
    rates = [found["direction_accuracy_all"] for found in (every, some, none)]  # right, tied, wrong or of no direction
    assert rates == pytest.approx([0.5, (1 + 0.5 + 0.5) / 3, 0.5])


def test_labelled_pairs_against_every_pair_of_them():
    rng = np.random.default_rng(0)
    forward, denied = (rng.integers(0, 6, n) / 2 for n in (30, 50))  # with ties
    scores = replace(made(forward.tolist(), [1.0] * 30, [[2.0]] * 30), denied=torch.tensor(denied))
    found = split_metrics(scores)
    by_hand = np.mean([(f < d) + 0.5 * (f == d) for f in forward for d in denied])
    steps = [((forward <= t).sum(), (denied <= t).sum(), (forward == t).sum()) for t in np.unique(forward)]
    assert found["label_auc"] == pytest.approx(by_hand, abs=1e-12)
    assert found["label_average_precision"] == pytest.approx(sum(new / 30 * held / (held + other)
                                                                 for held, other, new in steps), abs=1e-12)


def test_denied_pairs_of_the_split_are_scored():
    head, ds = head_and_tree()
    ds = replace(ds, denied=dict(train=np.array([(1, 2)]), test=np.array([(3, 4), (5, 6)])))
    with torch.no_grad(): expected = head(*torch.as_tensor(ds.features)[torch.tensor([(3, 4), (5, 6)]).T])
    assert torch.allclose(score_split(head, ds).denied, expected, rtol=1e-5)
    assert {"label_auc", "label_average_precision"} <= set(evaluate(head, ds)) - set(evaluate(head, ds, "valid"))


def test_a_constant_scorer_gains_nothing():
    found = split_metrics(made([0.0] * 5, [0.0] * 5, [[0.0] * 100] * 5))
    assert [found[k] for k in ("ranking_accuracy", "direction_accuracy", "auc", "average_precision")] == [0.5] * 4
    assert found["mrr"] == pytest.approx(1 / 51)
    assert [found[k] for k in ("hits@1", "hits@3", "hits@10", "forward_preferred_rate", "negative_rate")] == [0] * 5


values = st.lists(st.integers(0, 6).map(lambda i: i / 2 - 1), min_size=3 * 9, max_size=3 * 9)


@settings(max_examples=60, deadline=None)
@given(values)
def test_laws_over_any_scores_with_ties(drawn):
    table = np.array(drawn).reshape(3, 9)
    forward, reverse, negative = table[:, 0].tolist(), table[:, 1].tolist(), table[:, 2:].tolist()
    found, turned = split_metrics(made(forward, reverse, negative)), split_metrics(made(reverse, forward, negative))
    assert found["direction_accuracy"] == pytest.approx(found["forward_preferred_rate"] + found["tie_rate"] / 2)
    assert found["direction_accuracy"] + turned["direction_accuracy"] == pytest.approx(1)
    assert found["gap_mean"] == pytest.approx(-turned["gap_mean"])
    assert found["hits@1"] <= found["hits@3"] <= found["hits@10"] and 1 / 8 <= found["mrr"] <= 1
    assert found["hits@1"] <= found["mrr"]
    loop = [(1 + sum(n < f for n in row) + 1 + sum(n <= f for n in row)) / 2 for f, row in zip(forward, negative)]
    assert ranks(forward, negative).tolist() == loop
    assert found["ranking_accuracy"] == pytest.approx(np.mean([(8 - r) / 7 for r in loop]))
    shuffled = split_metrics(made(forward[::-1], reverse[::-1], negative[::-1]))
    assert shuffled == pytest.approx(found)
    shifted = split_metrics(made(*(np.add(x, 5).tolist() for x in (forward, reverse, negative))))
    assert {k: v for k, v in shifted.items() if k != "negative_rate"} == pytest.approx(
        {k: v for k, v in found.items() if k != "negative_rate"})


def test_rank_metrics_count_a_mean_rank_beyond_k_as_no_hit():
    found = rank_metrics([1.0, 1.5, 3.0, 3.5, 10.5])
    assert [found[k] for k in ("hits@1", "hits@3", "hits@10")] == [0.2, 0.6, 0.8]


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_has_no_rank(bad):
    with pytest.raises(ValueError, match="not finite"): ranks([bad], [[1.0]])
    with pytest.raises(ValueError, match="not finite"): ranks([1.0], [[bad]])


@pytest.mark.parametrize("bad", ["nan", "inf"])
@pytest.mark.parametrize("where", ["forward", "reverse", "negative"])
def test_a_score_that_is_not_finite_names_head_and_pair(where, bad):
    head, ds = head_and_tree("mlp")
    scores = score_split(head, ds)
    value = getattr(scores, where).flatten()[3].item()
    broken = deepcopy(head)
    def compare_(u, v):
        d = head.compare(u, v)
        return torch.where(d == value, float(bad), d)
    broken.compare = compare_
    with pytest.raises(ValueError, match=rf"MLP gives {bad} for node \d+ \(n\d+\) to node \d+ \(n\d+\)"):
        evaluate(broken, ds)


@pytest.mark.parametrize("name", HEADS)
def test_every_head_is_evaluated_on_the_same_pairs(name):
    head, ds = head_and_tree(name)
    found, again = evaluate(head, ds), evaluate(head, ds)
    assert set(NAMES) <= set(found) <= set(METRICS) and found == again
    assert found["direction_accuracy"] == pytest.approx(found["forward_preferred_rate"] + found["tie_rate"] / 2)
    if head.symmetric: assert found["direction_accuracy"] == 0.5 and found["tie_rate"] == 1 and found["gap_mean"] == 0
    if head.nonnegative: assert found["negative_rate"] == 0


def test_the_compiler_changes_nothing_but_the_time(monkeypatch):
    "Whether there is one or not: it is asked for, and the metrics stay"
    head, ds = head_and_tree()
    asked, score = [], evaluation.score_lists
    monkeypatch.setattr(evaluation, "score_lists", lambda *a, compile, **k: asked.append(compile) or score(*a, **k))
    assert evaluate(head, ds, compile=True) == evaluate(head, ds) and asked == [True, False]


def test_candidates_depend_on_dataset_split_and_seed_alone():
    head, ds = head_and_tree("euclidean")
    first = score_split(head, ds).negative
    torch.manual_seed(77)
    assert torch.equal(score_split(head, ds).negative, first)
    assert torch.equal(score_split(head, ds.limit(5)).negative, first), "fewer training edges, same candidates"
    assert not torch.equal(score_split(head, replace(ds, seed=1)).negative, first)
    assert not torch.equal(score_split(head, replace(ds, name="other")).negative, first)


def test_evaluation_leaves_the_head_alone():
    head, ds = head_and_tree()
    head.train()
    before = {k: v.clone() for k, v in head.state_dict().items()}
    evaluate(head, ds)
    assert head.training and all(torch.equal(v, before[k]) for k, v in head.state_dict().items())
    assert all(p.grad is None for p in head.parameters())


def test_unknown_and_empty_splits_are_errors():
    head, ds = head_and_tree("euclidean")
    with pytest.raises(ValueError, match="no split 'dev'"): evaluate(head, ds, "dev")
    with pytest.raises(ValueError, match="test split .* has no edges"):
        evaluate(head, replace(ds, edges=dict(ds.edges, test=ds.edges["test"][:0])))


@pytest.mark.parametrize("name, share", [*((name, 1) for name in HEADS), ("euclidean", 4)])
def test_filtered_ranks_against_a_loop(name, share):
    "Also where the last items, sources among them, are no candidates"
    head, ds = head_and_tree(name)
    head, ds = head.double(), replace(ds, pool=np.arange(0, ds.num_nodes // share, 2))
    with torch.inference_mode(): matrix = head.pairwise(ds.features, ds.features)
    known = set(nx.transitive_closure(nx.DiGraph(ds.positives.tolist())).edges)  # no ancestor is a candidate
    candidates = {*ds.pool.tolist(), *ds.edges["test"][:, 1].tolist()}
    wanted = []
    for x, y in ds.edges["test"].tolist():
        others = matrix[x, [t for t in candidates if t != x and (x, t) not in known]]
        wanted.append(1 + (others < matrix[x, y]).sum().item() + (others == matrix[x, y]).sum().item() / 2)
    for sizes in (dict(block=500, sources=5), {}): assert filtered_ranks(head, ds, **sizes).tolist() == wanted
    assert len(wanted) == len(ds.edges["test"]) and max(wanted) > 3 / share


def test_with_all_candidates_only_the_rank_metrics_change():
    head, ds = head_and_tree()
    sampled, everything = evaluate(head, ds), evaluate(head, ds, candidates="all")
    assert set(NAMES) <= set(everything) <= set(METRICS)
    assert everything == sampled | rank_metrics(filtered_ranks(head, ds))
    assert {k for k in NAMES if sampled[k] != everything[k]} >= {"mrr"}
    assert all(METRICS[name].of_ranks for name in sampled if sampled[name] != everything[name])


def test_a_constant_head_is_in_the_middle_of_all():
    head, ds = head_and_tree("euclidean")
    head.compare = lambda u, v: torch.zeros(torch.broadcast_shapes(u.shape, v.shape)[:-1])
    head.product_form = False
    others = [ds.num_nodes - 1 - ds.nodes.depth[x] for x in ds.edges["test"][:, 0]]  # as many ancestors as its depth
    assert filtered_ranks(head, ds).tolist() == [1 + n / 2 for n in others]


@pytest.mark.parametrize("candidates", [0, -1, "x", 2.5, True, None])
def test_other_numbers_of_candidates_are_refused(candidates):
    head, ds = head_and_tree("euclidean")
    with pytest.raises(ValueError, match="candidates = .* expected a whole number of at least 1"):
        evaluate(head, ds, candidates=candidates)


def test_more_candidates_than_targets_are_refused():
    head, ds = head_and_tree("euclidean")
    with pytest.raises(ValueError, match=rf"= 1,000,000: only {len(ds.pool)} targets can be drawn; take 'all'"):
        evaluate(head, ds, candidates=10**6)


def test_full_ranking_names_a_split_that_is_not_there_and_a_head_that_breaks():
    head, ds = head_and_tree("mlp")
    with pytest.raises(ValueError, match="no split 'dev'"): filtered_ranks(head, ds, "dev")
    head.compare = lambda u, v: torch.full(torch.broadcast_shapes(u.shape, v.shape)[:-1], math.nan)
    with pytest.raises(ValueError, match="'toy', test: MLP gives a distance that is not finite"):
        filtered_ranks(head, ds)


@pytest.mark.parametrize("positive, negative", [([1.0, 2.0], [[1.0]]), ([1.0], [1.0]), ([[1.0]], [[1.0]]),
                                                (1.0, [[1.0]])])
def test_shapes_that_do_not_fit_have_no_rank(positive, negative):
    with pytest.raises(ValueError, match=r"ranks: shapes .* expected \(m,\) distances"): ranks(positive, negative)


def test_ten_of_ten_is_the_papers_p_value():
    found = compare(np.arange(10) + 0.5, np.arange(10))
    assert round(found.p_value, 5) == 0.00195 and (found.wins, found.losses, found.seeds) == (10, 0, 10)
    assert (found.mean_difference, found.ci_low, found.ci_high) == (0.5, 0.5, 0.5)


def test_compare_by_hand():
    found = compare([3, 2, 1, 5], [1, 1, 1, 6])
    assert found.mean_difference == 0.5 and (found.wins, found.losses) == (2, 1)
    assert found.p_value == pytest.approx(1.0) and found.ci_low < 0.5 < found.ci_high
    assert compare([2, 2, 2, 2, 2, 0], [1] * 6).p_value == pytest.approx(2 * (6 + 1) / 64)
    back = compare([1, 1, 1, 6], [3, 2, 1, 5])
    assert (back.mean_difference, back.p_value, back.wins) == (-0.5, found.p_value, 1)


@pytest.mark.parametrize("seeds", [2, 3, 5, 10])
@pytest.mark.parametrize("confidence", [0.8, 0.95])
def test_the_interval_covers_the_mean_as_often_as_it_says(seeds, confidence):
    rng, studies = np.random.default_rng(seeds), 1000
    found = [compare(rng.normal(1, 1, seeds), np.zeros(seeds), confidence) for _ in range(studies)]
    share = np.mean([one.ci_low < 1 < one.ci_high for one in found])
    assert abs(share - confidence) < 4 * math.sqrt(confidence * (1 - confidence) / studies)


def test_compare_refuses_what_does_not_pair():
    for a, b in (([1, 2], [1]), ([], []), ([[1]], [[1]])):
        with pytest.raises(ValueError, match="same length"): compare(a, b)
    with pytest.raises(ValueError, match="position 1"): compare([1, math.inf], [0, 0])
    one = compare([1.0], [0.5])
    assert math.isnan(one.ci_low) and one.p_value == 1.0
    assert compare([1, 1], [1, 1]).p_value == 1.0


@pytest.mark.parametrize("wrong, says", [(dict(confidence=2), "confidence = 2; expected a number between 0 and 1"),
                                         (dict(confidence="high"), "confidence = 'high'")])
def test_compare_names_an_argument_out_of_its_range(wrong, says):
    with pytest.raises(ValueError, match=says): compare([1, 2], [0, 0], **wrong)


def test_a_comparison_says_what_was_counted():
    found = compare([3.0, 2.0, 5.0], [1.0, 2.0, 3.0])
    assert isinstance(found, Comparison) and (found.wins, found.losses, found.seeds) == (2, 0, 3)
    assert found.mean_difference == pytest.approx(4 / 3) and found.p_value == 0.5
    assert str(found).startswith("+1.3333 [") and "ahead in 2 of 3 seeds, p = 0.5" in str(found)


@pytest.mark.parametrize("items, candidates", [(12, 100), (12, 12), (40, 100), (40, 40)])
def test_of_a_small_catalogue_a_rank_is_among_everything(items, candidates):
    "A hundred draws of twelve items hold each wrong one eight times: a rank of 2 was told as one of 9"
    rng = np.random.default_rng(items)
    pairs = pd.DataFrame(dict(source=[f"i{i}" for i in range(1, items)], target=["i0"] * (items - 1)))
    ds = from_pairs(pairs, rng.normal(size=(items, 4)).astype(np.float32), ids=[f"i{i}" for i in range(items)])
    head = make_head("euclidean", 4).fit_standardizer(ds.features)
    found = evaluate(head, ds, "train", candidates)
    x, y = ds.edges["train"].T
    with torch.no_grad():
        distance = head.pairwise(torch.from_numpy(ds.features[x]), torch.from_numpy(ds.features)).numpy()
    other = np.arange(items)[None] != x[:, None]
    rank = 1 + ((distance < distance[np.arange(len(x)), y][:, None]) & other).sum(1)
    assert found["mrr"] == pytest.approx((1 / rank).mean()) and found["hits@10"] == pytest.approx((rank <= 10).mean())
    assert found["mrr"] == evaluate(head, ds, "train", "all")["mrr"]
    assert evaluate(head, ds, "train", items - 1)["mrr"] != found["mrr"]  # drawn


@pytest.mark.parametrize("candidates", [100, "all"])
def test_what_is_no_dataset_is_named(candidates):
    head = make_head("euclidean", 4)
    for wrong in ("pairs.csv", head, None):
        with pytest.raises(TypeError, match="ds: expected a DirectedDataset"): evaluate(head, wrong, "test", candidates)
