"Which pairs are asked, that known probabilities are found again, and that measures are those of other libraries"
import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.metrics import brier_score_loss, log_loss, precision_score, recall_score

from rolebregman.baselines import make_head
from rolebregman.datasets import DirectedDataset, toy_tree
from rolebregman.heads import Decision, DistanceHead
from rolebregman.training import (
    Answers,
    Asked,
    answers_of,
    best_threshold,
    calibrate,
    decision_metrics,
    decision_pairs,
    reliability,
    reliability_figure,
    tied_weights,
)


class Given(DistanceHead):
    "Its distances are written into the items: one number for each item as a source, and one as a target"
    default_inputs = "raw"

    def __init__(self, dim): super().__init__(dim)

    def compare(self, u, v): return (u[..., 0] - v[..., 1]).abs() + u[..., 2] * v[..., 3]


@pytest.fixture(scope="module")
def tree(): return toy_tree(depth=6, branching=3, dim=8, seed=0)


@pytest.fixture(scope="module")
def noisy(tree):
    "A head that does not tell all pairs"
    torch.manual_seed(1)
    head = make_head("role_bregman", dim=8).fit_standardizer(tree.features)
    with torch.no_grad():
        for weight in head.parameters(): weight.add_(0.3 * torch.randn_like(weight))
    return head


def rows(pairs): return {tuple(pair) for pair in pairs}


def test_pairs_are_what_they_are_said_to_be(tree):
    asked, held = decision_pairs(tree, "test"), rows(tree.holding)
    assert isinstance(asked, Asked)
    this, other, neither = (rows(asked.pairs[asked.classes == c]) for c in range(3))
    assert this == rows(tree.edges["test"]) and other == rows(tree.edges["test"][:, ::-1])
    assert not neither & held and not rows(asked.pairs[asked.classes == 2][:, ::-1]) & held
    for part in range(3): assert asked.weights[asked.classes == part].sum() == pytest.approx(1)
    turned = pd.DataFrame(asked.pairs[:, ::-1]).assign(w=asked.weights, c=np.array([1, 0, 2])[asked.classes])
    there = pd.DataFrame(asked.pairs).assign(w=asked.weights, c=asked.classes)
    columns = [0, 1, "w", "c"]
    assert turned.sort_values(columns).to_numpy().tolist() == there.sort_values(columns).to_numpy().tolist()


def test_pairs_that_hold_both_ways_are_not_asked_and_judged_ones_are(tree):
    both, leaves, child = tree.edges["valid"][:5], tree.num_nodes - np.arange(1, 3), tree.edges["train"][:1]
    some = DirectedDataset("some", tree.features, tree.nodes, tree.edges, known=both[:, ::-1], seed=0,
                           hard_kinds=("siblings",), denied=dict(valid=np.stack([leaves, child[0, ::-1]])))
    asked = decision_pairs(some)
    assert asked.counts["pairs"] == len(tree.edges["valid"]) - 5 and not rows(asked.pairs) & rows(both)
    assert asked.counts["judged"] == 1, "the other one holds the other way round"
    neither = rows(asked.pairs[asked.classes == 2])
    assert {tuple(leaves), tuple(leaves[::-1])} <= neither and not neither & rows(child)


def test_too_few_pairs_are_refused():
    with pytest.raises(ValueError, match=r"valid split of .* has 4 pairs that run one way; at least 20"):
        calibrate(make_head("mlp", dim=4), toy_tree(depth=3, dim=4))
    for split in "train", "all":
        with pytest.raises(ValueError, match=f"split = '{split}': expected 'valid' or 'test'"):
            calibrate(make_head("mlp", dim=4), toy_tree(depth=3, dim=4), split)


def world(n, decision, seed):
    "Pairs whose classes are drawn by a decision from distances, as items of their own: what it finds again is known"
    rng = np.random.default_rng(seed)
    a, b = np.abs(rng.normal(size=(2, n))) * 3
    found = decision.probabilities(a, b)
    return a, b, (rng.random(n)[:, None] > found.cumsum(1)).sum(1)


def test_known_weights_are_found_again():
    "From pairs that a known decision has drawn, with equal shares and the scale of the calibration"
    from rolebregman.heads import distance_features
    truth = Decision(scale=1.5, weights=(1.0, -2.0, 1.0, 0.5), threshold=0.5)
    a, b, classes = world(60_000, truth, 0)
    both = np.concatenate([a, b]), np.concatenate([b, a])
    turned = np.concatenate([classes, np.array([1, 0, 2])[classes]])
    found = tied_weights(distance_features(*both, 1.5), turned, np.ones(len(turned)))
    np.testing.assert_allclose(found, truth.weights, atol=0.12)


def test_a_calibrated_head_is_calibrated_on_other_pairs(tree, noisy):
    decision = calibrate(noisy, tree)
    found = decision_metrics(answers_of(noisy, tree, "test"), decision)
    assert found["calibration_error"] < 0.06 and found["log_score"] < np.log(3) and noisy.decision is decision
    assert decision.about["pairs"] == 109 and abs(decision.about["precision"] - found["precision"]) < 0.15
    assert decision == calibrate(noisy, tree), "the same pairs, the same numbers"
    for shares in (0.05, 0.05, 0.9), (0.6, 0.1, 0.3):
        assert decision_metrics(answers_of(noisy, tree, "test", shares), decision)["calibration_error"] < 0.06


def test_metrics_are_those_of_scikit_learn():
    rng = np.random.default_rng(0)
    found, classes, weights = rng.dirichlet(np.ones(3), 500), rng.integers(3, size=500), rng.random(500)
    decision = Decision(1.0, (0.0, 0.0, 0.0, 0.0), 0.45)
    ours, said = decision_metrics(Answers(found, classes, weights), decision), decision.classes(found) == 0
    assert ours["log_score"] == pytest.approx(log_loss(classes, found, sample_weight=weights))
    each = [brier_score_loss(classes == c, found[:, c], sample_weight=weights) for c in range(3)]
    assert ours["brier"] == pytest.approx(sum(each))
    assert ours["precision"] == pytest.approx(precision_score(classes == 0, said, sample_weight=weights))
    assert ours["recall"] == pytest.approx(recall_score(classes == 0, said, sample_weight=weights))


def test_calibration_error_by_hand():
    "Class 1 is given 0.25 four times and is true once in four: no error; the others are 0.15 off"
    found = np.tile([0.4, 0.25, 0.35], (4, 1))
    answers = Answers(found, np.array([0, 1, 2, 2]), np.ones(4))
    error = decision_metrics(answers, Decision(1.0, (0.0,) * 4, 0.3))["calibration_error"]
    assert error == pytest.approx((abs(0.4 - 0.25) + 0 + abs(0.35 - 0.5)) / 3)
    table = reliability(answers)
    assert table["pairs"].tolist() == [4, 4, 4] and table["bin"].tolist() == [4, 2, 3]
    assert len(reliability_figure({"by hand": table}).axes) == 1


def test_the_threshold_has_the_best_f1_of_all():
    rng = np.random.default_rng(3)
    found, weights = rng.dirichlet(np.ones(3), 300), rng.random(300)
    holds = rng.random(300) < found[:, 0]

    def f1(least):
        said = (found[:, 0] >= least) & (found[:, 0] > found[:, 1])
        right = weights[said & holds].sum()
        return 2 * right / (weights[said].sum() + weights[holds].sum())

    chosen = best_threshold(found, holds, weights)
    assert 0 < chosen < 1 and f1(chosen) == pytest.approx(max(map(f1, found[:, 0])), abs=2e-3)


def test_distances_that_are_not_finite_are_named(tree):
    with pytest.raises(ValueError, match="gives .*nan.* for node"):
        calibrate(Broken(8), tree)


class Broken(Given):
    def compare(self, u, v): return super().compare(u, v) * torch.nan


def test_a_head_without_a_decision_is_refused(tree):
    with pytest.raises(ValueError, match="has no decision; calibrate makes one"): answers_of(Given(8), tree)
