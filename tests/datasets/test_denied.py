"Pairs that do not hold: a part where their source is, no item in two parts, uniform draws beside edges of the source"
from collections import Counter
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare

from rolebregman.datasets import DeniedPairs, DirectedDataset, parts_of_denied
from rolebregman.datasets.directed import PARTS

PAIRS = st.lists(st.tuples(st.integers(0, 14), st.integers(0, 14)), min_size=1, max_size=40, unique=True)


def split_of(pairs, parts):
    return {part: np.array([p for p, k in zip(pairs, parts) if k == part], np.int64).reshape(-1, 2) for part in PARTS}


@given(PAIRS, PAIRS, st.integers(0, 5))
def test_a_denied_pair_is_where_an_edge_of_its_source_is(edges, denied, seed):
    split = split_of(edges, np.random.default_rng(seed).choice(PARTS, len(edges)))
    for (source, _), part in zip(denied, parts_of_denied(np.array(denied), split, seed)):
        where = {k for k in PARTS if source in split[k][:, 0]}
        assert part in (where or set(PARTS))


@given(PAIRS, PAIRS, st.integers(0, 5))
def test_apart_no_item_is_in_two_parts(edges, denied, seed):
    nodes = np.random.default_rng(seed).choice(PARTS, 15)
    split = split_of(edges, [nodes[s] if nodes[s] == nodes[t] else "" for s, t in edges])
    parts = parts_of_denied(np.array(denied), split, seed, apart=True)
    items = [set(split[k].ravel()) | set(np.array(denied)[parts == k].ravel()) for k in PARTS]
    assert not (items[0] & items[1] or items[0] & items[2] or items[1] & items[2])


def test_sources_without_an_edge_are_drawn_for_by_the_fractions():
    none = np.empty((0, 2), np.int64)
    denied = np.stack([np.arange(10_000), np.arange(10_000) + 1], 1)
    counts = Counter(parts_of_denied(denied, dict.fromkeys(PARTS, none), 3, (0.5, 0.2, 0.3)).tolist())
    assert chisquare([counts[k] for k in PARTS], [5000, 2000, 3000]).pvalue > 1e-3
    again = parts_of_denied(denied, dict.fromkeys(PARTS, none), 3, (0.5, 0.2, 0.3))
    assert Counter(again.tolist()) == counts


def test_a_source_with_edges_in_several_parts_is_shared_among_them_by_how_many_there_are():
    split = dict(train=np.array([(0, 1), (0, 2), (0, 3)]), valid=np.empty((0, 2), int), test=np.array([(0, 4)]))
    counts = Counter(parts_of_denied(np.array([(0, t) for t in range(5, 4005)]), split).tolist())
    assert chisquare([counts["train"], counts["test"]], [3000, 1000]).pvalue > 1e-3 and not counts["valid"]


def made(denied):
    edges = dict(train=np.array([(3, 1), (0, 1), (3, 2), (0, 4)]), valid=np.empty((0, 2), int),
                 test=np.array([(5, 6)]))
    return DirectedDataset("made", np.eye(9, dtype=np.float32), pd.DataFrame(dict(id=range(9))), edges,
                           denied=dict(train=np.array(denied)))


def test_draws_are_uniform_over_denied_pairs_and_over_the_edges_of_their_source():
    ds = made([(3, 8), (0, 5), (7, 2)])
    pairs, beside = DeniedPairs(ds).sample(12_000, torch.Generator().manual_seed(0))
    assert chisquare(list(Counter(map(tuple, pairs.tolist())).values())).pvalue > 1e-3
    for source, numbers in ((3, [0, 2]), (0, [1, 3]), (7, [0, 1, 2, 3])):  # of 7 nothing holds: any edge
        drawn = Counter(beside[pairs[:, 0] == source].tolist())
        assert sorted(drawn) == numbers and chisquare(list(drawn.values())).pvalue > 1e-3


@pytest.mark.parametrize("weights, denied_weights", [
    ([2, 1, 0, 3], [1, 2, 0]), ([1, 1, 1, 1], [0, 1, 3]), ([0, 2, 0, 1], [4, 1, 1]), (None, [1, 3, 2])])
def test_a_pair_of_weight_two_is_drawn_as_two_rows_of_it_and_one_of_weight_zero_never(weights, denied_weights):
    rows, ds = [(3, 8), (0, 5), (7, 2)], made([(3, 8), (0, 5), (7, 2)])
    weighted = replace(ds, denied_weights=denied_weights, weights=weights)
    drawn = Counter()
    pairs, beside = DeniedPairs(weighted).sample(12_000, torch.Generator().manual_seed(0))
    for pair, edge in zip(map(tuple, pairs.tolist()), beside.tolist(), strict=True):
        drawn[pair, edge] += 1
    expected = Counter()
    for pair, often in zip(rows, denied_weights, strict=True):  # every pair beside every edge, as rows would be
        of = dict(enumerate(weights or [1] * 4))
        own = {k: w for k, w in of.items() if ds.edges["train"][k, 0] == pair[0]}
        own = own if sum(own.values()) else of
        for k, w in own.items():
            expected[pair, k] += often / sum(denied_weights) * w / sum(own.values())
    expected = {key: share for key, share in expected.items() if share}
    assert set(drawn) == set(expected)
    assert len(drawn) == 1 or chisquare([drawn[k] for k in expected],
                                        [12_000 * share for share in expected.values()]).pvalue > 1e-3


@pytest.mark.parametrize("weights, said", [([1, 2], "shape (2,), expected (3,)"), ([1, -1, 0], "[1] = -1")])
def test_weights_of_denied_pairs_that_cannot_be(weights, said):
    with pytest.raises(ValueError, match="denied_weights") as found:
        replace(made([(3, 8), (0, 5), (7, 2)]), denied_weights=weights)
    assert said in str(found.value)


@pytest.mark.parametrize("denied", [[(3, 8)], [(7, 2), (8, 2)]])
def test_one_source_or_none_with_edges(denied):
    pairs, beside = DeniedPairs(made(denied)).sample(50)
    assert {tuple(p) for p in pairs.tolist()} == set(denied)
    assert set(made(denied).edges["train"][beside][:, 0]) == ({3} if denied == [(3, 8)] else {0, 3})
