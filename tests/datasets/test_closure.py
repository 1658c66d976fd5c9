"""What a transitive relation implies: by networkx, on cycles, in the datasets whose relation is transitive"""
import networkx as nx
import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from rolebregman.datasets import DirectedDataset, closure, find_cycles, from_pairs, toy_tree, transitive_closure
from rolebregman.datasets.negatives import NegativeSampler

_graphs = st.integers(3, 9).flatmap(lambda n: st.tuples(st.just(n), st.lists(
    st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)).filter(lambda p: p[0] != p[1]), min_size=3, max_size=12,
    unique=True)))


def dataset(n, pairs, implied=None):
    pairs = np.array(pairs)
    return DirectedDataset("made", np.eye(n, dtype=np.float32), pd.DataFrame(dict(id=range(n))),
                           dict(train=pairs[:1], valid=pairs[1:2], test=pairs[2:]), implied=implied)


def holds(pairs):
    return {p for p in nx.transitive_closure(nx.DiGraph(pairs), reflexive=False).edges if p[0] != p[1]}


@settings(max_examples=60, deadline=None)
@given(_graphs)
def test_no_negative_follows_from_the_pairs_of_all_splits(graph):
    n, pairs = graph
    ds = dataset(n, pairs, transitive_closure(np.array(pairs), n)[0])
    assert {tuple(p) for p in ds.holding.tolist()} == holds(pairs) and len(ds.positives) == len(pairs)
    sampler = NegativeSampler(ds)
    for x in set(ds.edges["test"][:, 0].tolist()):
        free = set(range(n)) - {x} - {b for a, b in holds(pairs) if a == x}
        assert (x in ds.full_sources()) == (not free)
        if free: assert set(sampler.sample([x], 30 * len(free)).flatten().tolist()) <= free
    one_way = [(b, a) not in holds(pairs) for a, b in ds.edges["test"].tolist()]
    assert ds.one_way("test").tolist() == one_way


def test_draws_of_what_is_left_are_uniform():
    ds = toy_tree(3, 3, 4)
    leaf = ds.num_nodes - 1
    counts = np.bincount(NegativeSampler(ds).sample([leaf] * 4000, 5, torch.Generator().manual_seed(0)).flatten())
    above, at = [], leaf
    while at: above.append(at := (at - 1) // 3)
    free = np.setdiff1d(np.arange(ds.num_nodes), [leaf, *above])
    assert len(above) == 3 and counts[free].sum() == 20_000 and chisquare(counts[free]).pvalue > 1e-3


def test_the_toy_says_how_many_are_left_out():
    ds = toy_tree(2, 2, 4)
    assert ds.report["implied pairs, never negatives"] == len(ds.implied) == 4  # four leaves under one root
    assert ds.limit(2).implied is ds.implied and len(ds.limit(2).holding) == len(ds.holding) == 10


def test_own_pairs_imply_nothing_unless_told():
    table = pd.DataFrame(dict(source=[f"n{i}" for i in range(1, 12)], target=[f"n{i // 2}" for i in range(1, 12)]))
    vectors, ids = np.random.default_rng(0).normal(size=(30, 4)), [f"n{i}" for i in range(30)]
    plain = from_pairs(table, vectors, ids=ids)
    assert plain.implied is None and plain.holding is plain.positives
    told = from_pairs(table, vectors, ids=ids, transitive=True)
    pairs = [tuple(p) for p in plain.positives.tolist()]
    assert {tuple(p) for p in told.implied.tolist()} == holds(pairs) - set(pairs)
    assert told.report["implied pairs, never negatives"] == len(told.implied)
    assert (told.edges["test"] == plain.edges["test"]).all()


def test_a_label_that_contradicts_a_chain_is_counted_and_is_no_negative():
    table = pd.DataFrame(dict(source=[1, 2, 3, 2, 4, 5], target=[0, 1, 0, 0, 0, 0], label=[1, 1, 1, 0, 1, 1]))
    ds = from_pairs(table, np.eye(9, dtype=np.float32), transitive=True, fractions=(1, 0, 0))
    assert ds.report["kept"]["labelled as not holding, but implied by others"] == 1
    assert NegativeSampler(ds).known([2], [0]).all()


def test_a_long_circle_ends_and_one_too_long_is_refused(monkeypatch):
    circle = np.array([(i, (i + 1) % 300) for i in range(300)])
    assert len(transitive_closure(circle, 300)[0]) == 300 * 299
    monkeypatch.setattr(closure, "_MOST_PAIRS", 10_000)
    with pytest.raises(ValueError, match="300 pairs of 300 nodes imply more than"): transitive_closure(circle, 300)


@pytest.mark.parametrize("edges, cycles", [
    ([], []), (["ab", "bc", "ac"], []), (["ab", "ba"], ["a -> b -> a"]),
    (["ab", "bc", "ca", "xy", "yx", "cx"], ["a -> b -> c -> a", "x -> y -> x"]),
])
def test_cycles_are_told_one_for_each_group(edges, cycles):
    assert find_cycles([e[0] for e in edges], [e[1] for e in edges]) == cycles
