"""Hard candidates: by hand on small graphs, against loops, uniform draws, nothing of a test edge in training"""
import networkx as nx
import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from rolebregman.datasets import (
    HARD_KINDS,
    DirectedDataset,
    HardCandidates,
    from_pairs,
    hard,
    hard_negatives,
    own_kinds,
    toy_tree,
    transitive_closure,
)

# 0 is an animal, 1 a dog and 2 a cat; 3 and 4 are dogs, 5 a cat; 6 is a 3
PAIRS = [(1, 0), (2, 0), (3, 1), (4, 1), (5, 2), (6, 3)]
BY_HAND = dict(siblings={1: {2}, 2: {1}, 3: {4}, 4: {3}}, aunts={3: {2}, 4: {2}, 5: {1}, 6: {4}},
               reverse={1: {3, 4}, 2: {5}, 3: {6}}, premise={3: {4, 5}}, two_hops={})


def dataset(n, train, test=(), transitive=True, kinds=HARD_KINDS, **more):
    edges = {k: np.array(v, np.int64).reshape(-1, 2) for k, v in dict(train=train, valid=(), test=test).items()}
    implied = transitive_closure(np.concatenate(list(edges.values())), n)[0] if transitive else None
    return DirectedDataset("made", np.eye(n, dtype=np.float32), pd.DataFrame(dict(id=range(n))), edges,
                           implied=implied, hard_kinds=kinds, **more)


def found(ds, split="train"):
    "kind -> source -> candidates"
    made = HardCandidates(ds, split)
    rows = {kind: {int(x): set(made.rows[s:s + c].tolist())
                   for x, s, c in zip(made.sources, made.start[i], made.counts[i]) if c}
            for i, kind in enumerate(made.kinds)}
    return rows, made


def test_five_kinds_by_hand():
    ds = dataset(7, PAIRS, denied=dict(train=[(3, 4), (3, 5), (3, 0)]))  # 3 is a 0: a chain outweighs the judge
    assert found(ds)[0] == BY_HAND


def test_what_was_judged_in_training_is_no_test_of_what_was_learned_from_it():
    ds = dataset(7, PAIRS[:4], PAIRS[4:] + [(3, 2)], kinds=("premise",), transitive=False,
                 denied=dict(train=[(3, 4), (5, 3)], test=[(3, 5), (6, 1)]))
    assert found(ds)[0] == dict(premise={3: {4}})
    assert found(ds, "test")[0] == dict(premise={3: {5}, 6: {1}})


def test_two_hops_where_nothing_is_implied():
    ds = dataset(5, [(0, 1), (1, 2), (2, 0), (1, 3), (0, 3), (4, 0)], transitive=False, kinds=("two_hops",))
    assert found(ds)[0] == dict(two_hops={0: {2}, 1: {0}, 2: {1, 3}, 4: {1, 3}})


def test_training_learns_nothing_of_a_test_edge_and_the_test_knows_all():
    ds = dataset(7, PAIRS[:4], PAIRS[4:], kinds=("siblings", "reverse"))
    assert found(ds)[0] == dict(siblings={1: {2}, 2: {1}, 3: {4}, 4: {3}}, reverse={1: {3, 4}})
    ds = dataset(7, [*PAIRS[:4], PAIRS[5]], [(5, 2), (5, 1)], kinds=("siblings",))
    assert found(ds, "test")[0]["siblings"] == {5: {3, 4}}


def test_only_what_is_in_the_pool():
    ds = dataset(7, PAIRS, pool=np.array([0, 1, 2, 4]), kinds=("siblings", "reverse"))
    assert found(ds)[0] == dict(siblings={1: {2}, 2: {1}, 3: {4}}, reverse={1: {4}})


_graphs = st.integers(4, 9).flatmap(lambda n: st.tuples(st.just(n), st.booleans(), st.lists(
    st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)).filter(lambda p: p[0] != p[1]), min_size=4, max_size=16,
    unique=True)))


@settings(max_examples=60, deadline=None)
@given(_graphs)
def test_a_candidate_is_never_true_and_never_the_source(graph):
    n, transitive, pairs = graph
    ds = dataset(n, pairs[:-2], pairs[-2:], transitive, kinds=HARD_KINDS[:3])
    true = set(nx.transitive_closure(nx.DiGraph(pairs), reflexive=False).edges) if transitive else set(pairs)
    for split in ("train", "test"):
        there, drawn = hard_negatives(ds, split, k=20)
        x = ds.edges[split][there.numpy(), 0]
        assert not {(a, b) for a, row in zip(x.tolist(), drawn.tolist()) for b in row} & true
        assert (drawn.numpy() != x[:, None]).all()
        rows, made = found(ds, split)
        assert made.has(torch.as_tensor(ds.edges[split][:, 0])).tolist() == [
            any(a in rows[kind] for kind in rows) for a in ds.edges[split][:, 0].tolist()]
        known = pairs if split == "test" else pairs[:-2]
        siblings = {a: {c for c, t in known if (a, t) in known and c != a and (a, c) not in true}
                    for a in set(ds.edges[split][:, 0].tolist())}
        assert rows["siblings"] == {a: some for a, some in siblings.items() if some}


def test_draws_are_uniform_over_kinds_and_within_a_kind():
    ds = dataset(9, [(1, 0), (2, 0), (3, 0), (4, 0), (5, 1), (6, 1)], kinds=("siblings", "reverse", "premise"))
    drawn = HardCandidates(ds, "train").sample(torch.full((3000,), 1), 4, torch.Generator().manual_seed(0))
    counts = np.bincount(drawn.flatten(), minlength=9)
    assert counts.sum() == counts[2:7].sum() == 12_000  # siblings 2, 3, 4 share a half, children 5 and 6 the other
    assert chisquare(counts[2:7], [2000, 2000, 2000, 3000, 3000]).pvalue > 1e-3


def test_the_same_for_the_same_seed_and_for_each_head():
    one, two, other = (hard_negatives(toy_tree(seed=s)) for s in (0, 0, 1))
    assert torch.equal(one[1], two[1]) and one[1].shape[1] == 10 and not torch.equal(one[1][:20], other[1][:20])


def test_a_hub_is_thinned(monkeypatch):
    monkeypatch.setattr(hard, "_MOST", 5)
    rows, _ = found(dataset(60, [(i, 0) for i in range(1, 60)], kinds=("siblings",)))
    assert {len(some) for some in rows["siblings"].values()} == {5}
    assert len(set().union(*rows["siblings"].values())) > 50


def test_own_pairs_have_what_is_known_of_them():
    table = pd.DataFrame(dict(source=[1, 2, 3, 3, 4], target=[0, 1, 0, 4, 0], label=[1, 1, 1, 0, 1]))
    vectors, whole = np.eye(9, dtype=np.float32), (1, 0, 0)
    assert from_pairs(table[table.label == 1], vectors, fractions=whole).hard_kinds == own_kinds(False) == ("reverse",)
    told = from_pairs(table, vectors, transitive=True, fractions=whole)
    assert told.hard_kinds == ("siblings", "aunts", "reverse", "premise")


def test_what_there_is_not_is_named():
    with pytest.raises(ValueError, match=r"hard_kinds of 'made': \['cousins'\], expected some of siblings, aunts"):
        HardCandidates(dataset(7, PAIRS, kinds=("cousins",)), "train")
    made = HardCandidates(dataset(7, PAIRS, kinds=("siblings",)), "train")
    with pytest.raises(ValueError, match="node 5 has no hard candidate"): made.sample(torch.tensor([5]))
