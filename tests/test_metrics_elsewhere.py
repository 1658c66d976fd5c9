"Metrics, ranks, intervals and draws against code that others wrote, or that is plain enough to be read"
import math
import multiprocessing
from fractions import Fraction

import numpy as np
import pytest
import scipy.stats
import sklearn.metrics
import torch
from graphs import dataset, dense
from hypothesis import given, settings
from hypothesis import strategies as st

from rolebregman.baselines import HEADS, make_head
from rolebregman.common import named_generator
from rolebregman.datasets import NegativeSampler, toy_tree
from rolebregman.evaluation import Scores, compare, evaluate, filtered_ranks, rank_metrics, ranks, split_metrics
from rolebregman.heads import encode_rows


@st.composite
def drawn_scores(draw):
    "Distances on a coarse grid, so that many tie"
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    m, c, levels = draw(st.integers(1, 30)), draw(st.integers(1, 25)), draw(st.sampled_from([1, 2, 7, 10**6]))
    forward, reverse, negative = (torch.from_numpy(rng.integers(-levels, levels, size) / 4)
                                  for size in ((m,), (m,), (m, c)))
    one_way = torch.from_numpy(rng.random(m) < 0.7)
    one_way[rng.integers(m)] = True
    denied = torch.from_numpy(rng.integers(-levels, levels, draw(st.integers(1, 9))) / 4)
    return Scores(forward, reverse, negative, one_way, torch.arange(m), negative[:, :1], denied)


@settings(max_examples=60)
@given(drawn_scores())
def test_ranks_are_those_of_scipy_with_ties_averaged(scores):
    columns = np.column_stack([scores.forward, scores.negative])
    assert ranks(scores.forward, scores.negative).tolist() == scipy.stats.rankdata(columns, axis=1)[:, 0].tolist()


@settings(max_examples=60)
@given(drawn_scores())
def test_every_metric_against_a_loop_over_pairs(scores):
    found = split_metrics(scores)
    forward, reverse, negative, one_way, denied = (part.tolist() for part in (
        scores.forward, scores.reverse, scores.negative, scores.one_way, scores.denied))
    def smaller(pairs): return np.mean([1.0 if a < b else 0.5 if a == b else 0.0 for a, b in pairs])
    rank = [1 + sum((n < f) + (n == f) / 2 for n in row) for f, row in zip(forward, negative)]
    way = [(f, r) for f, r, one in zip(forward, reverse, one_way) if one]
    wanted = {
        "mrr": np.mean([1 / r for r in rank]), **{f"hits@{k}": np.mean([r <= k for r in rank]) for k in (1, 3, 10)},
        "ranking_accuracy": smaller([(f, n) for f, row in zip(forward, negative) for n in row]),
        "direction_accuracy": smaller(way), "tie_rate": np.mean([f == r for f, r in way]),
        "direction_accuracy_all": (sum(smaller([pair]) for pair in way) + (len(forward) - len(way)) / 2) / len(forward),
        "gap_mean": np.mean([f - r for f, r in way]), "forward_preferred_rate": np.mean([f < r for f, r in way]),
        "negative_rate": np.mean([d < 0 for d in forward + reverse + sum(negative, [])]),
        "auc": smaller([(f, row[0]) for f in forward for row in negative]), "hard_pair_rate": 1.0,
        "hard_ranking_accuracy": smaller([(f, row[0]) for f, row in zip(forward, negative)]),
        "label_auc": smaller([(f, d) for f in forward for d in denied])}
    assert wanted.keys() | {"average_precision", "label_average_precision"} == found.keys()
    for name, value in wanted.items(): assert found[name] == pytest.approx(value, abs=1e-12), name


def precision_area(positive, negative):
    "Average precision as its definition has it: at each distinct distance, the precision times the recall gained there"
    total, before = Fraction(0), 0
    for level in sorted({*positive, *negative}):
        right, wrong = sum(p <= level for p in positive), sum(n <= level for n in negative)
        total, before = total + Fraction(right, right + wrong) * Fraction(right - before, len(positive)), right
    return float(total)


@settings(max_examples=40)
@given(drawn_scores())
def test_areas_against_the_definition_and_scikit_learn(scores):
    found, forward = split_metrics(scores), scores.forward.tolist()
    for others, area, precision in ((scores.negative[:, 0].tolist(), "auc", "average_precision"),
                                    (scores.denied.tolist(), "label_auc", "label_average_precision")):
        assert found[precision] == pytest.approx(precision_area(forward, others), abs=1e-12)
        labels, closeness = [1] * len(forward) + [0] * len(others), [-d for d in forward + others]
        assert found[area] == pytest.approx(sklearn.metrics.roc_auc_score(labels, closeness), abs=1e-12)
        place = scipy.stats.mannwhitneyu(others, forward).statistic / (len(forward) * len(others))
        assert found[area] == pytest.approx(place, abs=1e-12)


@settings(max_examples=20)
@given(drawn_scores())
def test_mrr_and_hits_are_those_of_ogbs_evaluator(scores):
    Evaluator = pytest.importorskip("ogb.linkproppred").Evaluator
    theirs = Evaluator("ogbl-citation2").eval({"y_pred_pos": -scores.forward, "y_pred_neg": -scores.negative})
    ours = rank_metrics(ranks(scores.forward, scores.negative))
    assert ours["mrr"] == pytest.approx(float(theirs["mrr_list"].double().mean()), abs=1e-6)
    for k in 1, 3, 10: assert ours[f"hits@{k}"] == pytest.approx(float(theirs[f"hits@{k}_list"].mean()), abs=1e-6)


@pytest.mark.parametrize("name", ["euclidean", "role_bregman", "mlp", "entailment_cones"])
def test_full_ranks_of_a_split_are_those_of_scipy(name):
    "Over the whole pool, with what holds left out by hand, and twins among the items"
    ds = toy_tree(depth=4, dim=8)
    ds.features[5:20] = ds.features[4]
    head = make_head(name, 8).fit_standardizer(ds.features).eval()
    holds, wanted = {tuple(pair) for pair in ds.holding.tolist()}, []
    pool = sorted({*ds.pool.tolist(), *ds.edges["test"][:, 1].tolist()})
    with torch.inference_mode():
        for x, y in ds.edges["test"].tolist():
            others = [z for z in pool if z == y or (z != x and (x, z) not in holds)]
            u = encode_rows(head.encode_source, ds.features, torch.tensor([x] * len(others)))
            v = encode_rows(head.encode_target, ds.features, torch.tensor(others))
            distances = head.compare(u, v).double().round(decimals=5)  # what rounding apart is one number
            wanted.append(scipy.stats.rankdata(distances)[others.index(y)])
    assert filtered_ranks(head, ds).tolist() == wanted
    found = evaluate(head, ds, candidates="all")
    assert found["mrr"] == pytest.approx(np.mean(1 / np.array(wanted)), abs=1e-12)


@settings(max_examples=30)
@given(st.lists(st.sampled_from([-1.0, 0.0, 0.5, 1.0]), min_size=1, max_size=14))
def test_the_sign_test_is_a_sum_of_binomials(differences):
    found = compare(differences, [0.0] * len(differences))
    wins, losses = sum(d > 0 for d in differences), sum(d < 0 for d in differences)
    n = wins + losses
    tail = sum(math.comb(n, k) for k in range(min(wins, losses) + 1)) / 2**n if n else 1
    assert (found.wins, found.losses) == (wins, losses) and found.p_value == pytest.approx(min(1, 2 * tail))


@pytest.mark.parametrize("seeds", [2, 3, 12])
@pytest.mark.parametrize("confidence", [0.8, 0.95, 0.999])
def test_an_interval_is_that_of_a_paired_t_test(seeds, confidence):
    a, b = np.random.default_rng(seeds).normal(1, 2, (2, seeds))
    found, theirs = compare(a, b, confidence), scipy.stats.ttest_rel(a, b).confidence_interval(confidence)
    assert (found.ci_low, found.ci_high) == pytest.approx((theirs.low, theirs.high), rel=1e-12)


# ---- draws

@settings(max_examples=40)
@given(n=st.integers(3, 25), share=st.floats(0.02, 0.8), seed=st.integers(0, 2**32 - 1))
def test_what_holds_is_never_drawn_and_the_rest_evenly(n, share, seed):
    edges = dense(n, share, seed)
    if not len(edges): return
    part = np.random.default_rng(seed).integers(3, size=len(edges))
    part[0] = 0
    ds = dataset(edges[part == 0], n, valid=edges[part == 1], test=edges[part == 2])
    sampler, holds = NegativeSampler(ds), {tuple(pair) for pair in ds.holding.tolist()}
    counts, expected = [], []
    for source in range(n):
        free = [t for t in ds.pool.tolist() if t != source and (source, t) not in holds]
        if not free: continue
        drawn = sampler.sample([source], 400, torch.Generator().manual_seed(seed % 2**31 + source))[0]
        often = torch.bincount(drawn, minlength=n)
        assert often.sum() == often[free].sum()
        counts.extend(often[free].tolist())
        expected.extend([400 / len(free)] * len(free))
    if not counts: return
    statistic = sum((c - e) ** 2 / e for c, e in zip(counts, expected))
    freedom = len(counts) - len({*range(n)} & {int(s) for s in range(n) if sampler.free[s] > 0})
    if freedom: assert scipy.stats.chi2.sf(statistic, freedom) > 1e-6


def _draw(seed):
    sampler = NegativeSampler(dataset(dense(40, 0.3, 1), 40))
    return sampler.sample(torch.arange(40), 7, named_generator("draws", seed)).tolist()


def test_draws_are_the_same_in_another_process_and_on_any_number_of_threads():
    alone = [_draw(seed) for seed in range(6)]
    with multiprocessing.get_context("spawn").Pool(1) as pool: assert pool.map(_draw, range(6)) == alone
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        assert [_draw(seed) for seed in range(6)] == alone and alone[0] != alone[1]
    finally: torch.set_num_threads(before)


@pytest.mark.parametrize("name", [name for name in HEADS if make_head(name, 4).symmetric])
def test_a_head_without_direction_has_the_metrics_of_a_coin(name):
    ds = toy_tree(depth=4, dim=8)
    found = evaluate(make_head(name, 8).fit_standardizer(ds.features), ds)
    assert found["direction_accuracy"] == 0.5 and found["tie_rate"] == 1 and found["gap_mean"] == 0
