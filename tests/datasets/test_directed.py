"""Directed datasets: what they promise about vectors, edges and splits."""
import copy
import pickle

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rolebregman.datasets import DirectedDataset, Report, draw_parts, split_by, split_edges, split_nodes, toy_tree


def dataset(**changes):
    "Five nodes on a line, edges from each to the one before"
    fields = dict(name="line", features=np.eye(5, dtype=np.float32), nodes=pd.DataFrame(dict(id=list("abcde"))),
                  edges=dict(train=np.array([(1, 0), (2, 1)]), valid=np.array([(3, 2)]), test=np.array([(4, 3)])))
    return DirectedDataset(**(fields | changes))


def edges(**changes):
    return dataset().edges | {k: np.array(v) for k, v in changes.items()}


# What a dataset refuses

NAN, INF = np.eye(5, dtype=np.float32), np.eye(5, dtype=np.float32)
NAN[3, 1], INF[4, 0] = np.nan, -np.inf


@pytest.mark.parametrize("changes, error, says", [
    (dict(features=NAN), ValueError, r"features of line: row 3, column 1 is nan"),
    (dict(features=INF), ValueError, r"features of line: row 4, column 0 is -inf"),
    (dict(features=np.full((5, 2), 1e300)), ValueError, r"row 0, column 0 is inf"), # too large for float32
    (dict(features=np.eye(5, dtype=int)), TypeError, r"dtype int64, expected floats"),
    (dict(features=np.ones(5)), ValueError, r"shape \(5,\), expected \(n, d\)"),
    (dict(features=np.ones((5, 0))), ValueError, r"shape \(5, 0\)"),
    (dict(features=np.ones((4, 2))), ValueError, r"nodes: 5 rows, but features has 4"),
    (dict(nodes=pd.DataFrame(dict(name=list("abcde")))), ValueError, r"nodes: columns \['name'\], expected a .* 'id'"),
    (dict(nodes=pd.DataFrame(dict(id=list("abcda")))), ValueError, r"id 'a' stands more than once"),
    (dict(edges=dict(train=[(1, 0)])), ValueError, r"keys \['train'\], expected train, valid and test"),
    (dict(edges=edges(valid=[(5, 0)])), ValueError, r"edges\['valid'\]\[0\] = \(5, 0\): there are only rows 0 to 4"),
    (dict(edges=edges(test=[(4, 3), (0, -1)])), ValueError, r"edges\['test'\]\[1\] = \(0, -1\)"),
    (dict(edges=edges(test=[(2, 2)])), ValueError, r"edges\['test'\]\[0\]: c is related to itself"),
    (dict(edges=edges(test=[(1.0, 0.0)])), TypeError, r"edges\['test'\]: dtype float64, expected integers"),
    (dict(edges=edges(test=[1, 0])), ValueError, r"edges\['test'\]: shape \(2,\), expected \(m, 2\)"),
    (dict(edges=edges(test=[(2, 1)])), ValueError, r"c -> b stands more than once; an edge belongs to one split"),
    (dict(edges=edges(train=np.empty((0, 2), int))), ValueError, r"edges\['train'\] is empty"),
    (dict(pool=[]), ValueError, r"pool: shape \(0,\)"),
    (dict(pool=[0, 5]), ValueError, r"pool: holds rows 0 to 5, there are only rows 0 to 4"),
    (dict(pool=[[0, 1]]), ValueError, r"pool: shape \(1, 2\)"),
    (dict(known=[(0, 9)]), ValueError, r"known\[0\] = \(0, 9\)"),
])
def test_a_fault_names_field_row_and_id(changes, error, says):
    with pytest.raises(error, match=says):
        dataset(**changes)


def test_float32_features_are_never_copied(tmp_path):
    array = np.eye(5, dtype=np.float32)
    assert dataset(features=array).features is array
    np.save(tmp_path/"v.npy", array)
    mapped = dataset(features=np.load(tmp_path/"v.npy", mmap_mode="r")).features
    assert isinstance(mapped, np.memmap)
    assert dataset(features=array.astype(np.float64)).features.dtype == np.float32


def test_a_dataset_survives_copies_and_pickles():
    ds = toy_tree(depth=3)
    for other in (pickle.loads(pickle.dumps(ds)), copy.deepcopy(ds)):
        assert (other.features == ds.features).all() and other.report == ds.report
        assert (other.positives == ds.positives).all() and repr(other) == repr(ds)


# What it tells

def test_positives_are_all_edges_and_known_pairs_once():
    ds = dataset(known=np.array([(0, 4), (1, 0)]))
    assert ds.positives.tolist() == [[0, 4], [1, 0], [2, 1], [3, 2], [4, 3]]
    assert ds.positives.dtype == np.int64


def test_one_way_is_false_where_the_reverse_is_a_positive_of_any_split():
    ds = dataset(edges=edges(test=[(4, 3), (0, 1), (2, 3), (0, 4)]), known=[(4, 0)])
    assert ds.one_way("test").tolist() == [True, False, False, False]
    assert ds.one_way("train").tolist() == [False, True]


@given(st.sets(st.tuples(st.integers(0, 6), st.integers(0, 6)).filter(lambda e: e[0] != e[1]), min_size=5))
def test_one_way_agrees_with_its_definition(pairs):
    ds = dataset(features=np.eye(7, dtype=np.float32), nodes=pd.DataFrame(dict(id=range(7))),
                 edges=split_edges(np.array(sorted(pairs))))
    for split, some in ds.edges.items():
        assert ds.one_way(split).tolist() == [(t, s) not in pairs for s, t in some.tolist()]
    assert {tuple(p) for p in ds.positives.tolist()} == pairs


def test_a_limit_keeps_a_nested_choice_of_training_edges_and_forgets_no_positive():
    ds = toy_tree()
    small, large = ds.limit(20), ds.limit(100)
    assert [len(e) for e in small.edges.values()] == [20, 36, 36]
    kept = [{tuple(e) for e in d.edges["train"].tolist()} for d in (small, large, ds)]
    assert kept[0] < kept[1] < kept[2]
    assert (small.positives == ds.positives).all() and (small.limit(5).positives == ds.positives).all()
    assert small.report["training edges used"] == "20 of 291" and "training edges used" not in ds.report
    assert ds.limit(291) is ds and ds.limit(10**9) is ds
    assert (ds.limit(20, seed=1).edges["train"] != small.edges["train"]).any()
    with pytest.raises(ValueError, match="train = 0, expected at least 1"):
        ds.limit(0)


def test_a_limit_keeps_subsets_and_knows_the_rest():
    tree = toy_tree(depth=4, seed=3)
    some, fewer = tree.limit(40, valid=6), tree.limit(20, valid=3)
    for split, most, least in (("train", 40, 20), ("valid", 6, 3)):
        assert len(some.edges[split]) == most and len(fewer.edges[split]) == least
        whole, large, small = (set(map(tuple, ds.edges[split].tolist())) for ds in (tree, some, fewer))
        assert small < large < whole
    assert (some.positives == tree.positives).all() and (some.edges["test"] == tree.edges["test"]).all()
    assert (some.edges["train"] == tree.limit(40).edges["train"]).all() and len(some.known) == len(tree.positives) - (
        46 + len(tree.edges["test"]))
    with pytest.raises(ValueError, match="limit: valid = 0"): tree.limit(40, valid=0)


def test_examples_are_edges_in_words():
    ds = toy_tree(depth=3)
    words = ds.examples(4, split="test")
    texts = ds.nodes.text.to_numpy()
    there = {(texts[s], texts[t]) for s, t in ds.edges["test"]}
    assert len(words) == 4 and set(words.itertuples(index=False, name=None)) <= there


def test_a_report_prints_every_entry_in_both_forms():
    report = Report(kept=dict(terms=4183), source="<GO>", share=0.5)
    assert repr(report).splitlines() == ["kept: terms  4,183", "source       <GO>", "share        0.5"]
    assert "<td>4,183</td>" in report._repr_html_() and "&lt;GO&gt;" in report._repr_html_()


# Splits

unique_edges = st.sets(st.tuples(st.integers(0, 20), st.integers(21, 40)), min_size=5, max_size=120)


@given(unique_edges, st.integers(0, 100))
def test_a_split_is_a_partition_of_the_right_sizes(pairs, seed):
    parts = split_edges(np.array(list(pairs)), seed)
    together = [tuple(e) for part in parts.values() for e in part.tolist()]
    assert len(together) == len(pairs) and set(together) == pairs
    tenth = int(len(pairs) * 0.1 + 0.5)
    assert [len(e) for e in parts.values()] == [len(pairs) - 2 * tenth, tenth, tenth]


@settings(max_examples=30)
@given(unique_edges, st.integers(0, 100), st.randoms())
def test_a_split_depends_on_the_seed_and_not_on_the_order(pairs, seed, random):
    pairs = sorted(pairs)
    first = split_edges(np.array(pairs), seed)
    random.shuffle(pairs)
    second = split_edges(np.array(pairs), seed)
    assert all((first[k] == second[k]).all() for k in first)
    many = np.array([(s, t) for s in range(9) for t in range(9, 18)])
    assert (split_edges(many, seed)["test"] != split_edges(many, seed + 1)["test"]).any()


@pytest.mark.parametrize("count, fractions, says", [
    (4, (0.8, 0.1, 0.1), "4 edges are too few to split .*: the valid part would have 0"),
    (2, (0.2, 0.4, 0.4), "2 edges are too few"),
    (9, (0.8, 0.1), "expected three shares that sum to 1"),
    (9, (0.8, 0.1, 0.2), "expected three shares that sum to 1"),
    (9, (0, 0.5, 0.5), "that of train above 0"),
    (9, (1.2, -0.1, -0.1), "expected three shares"),
])
def test_a_split_that_cannot_be_is_refused(count, fractions, says):
    with pytest.raises(ValueError, match=says):
        split_edges(np.array([(i, i + 1) for i in range(count)]), 0, fractions)


def test_a_part_with_no_share_may_be_empty():
    parts = split_edges(np.array([(i, i + 1) for i in range(10)]), 0, (0.9, 0, 0.1))
    assert [len(e) for e in parts.values()] == [9, 0, 1]


@settings(max_examples=40)
@given(st.sets(st.tuples(st.integers(0, 60), st.integers(0, 60)).filter(lambda e: e[0] != e[1]), min_size=80),
       st.integers(0, 100), st.randoms())
def test_a_split_over_nodes_shares_none_and_depends_on_seed_and_edges_alone(pairs, seed, random):
    pairs = sorted(pairs)
    try:
        parts, rest = split_nodes(np.array(pairs), seed, (0.6, 0.2, 0.2))
    except ValueError as e:
        assert "too few to split by node" in str(e)
        return
    nodes = {k: set(v.ravel().tolist()) for k, v in parts.items()}
    assert not nodes["train"] & nodes["test"] and not nodes["train"] & nodes["valid"]
    assert not nodes["valid"] & nodes["test"]
    together = [tuple(e) for part in (*parts.values(), rest) for e in part.tolist()]
    assert len(together) == len(pairs) and set(together) == set(pairs)
    random.shuffle(pairs)
    again, left = split_nodes(np.array(pairs), seed, (0.6, 0.2, 0.2))
    assert all((parts[k] == again[k]).all() for k in parts) and (rest == left).all()


def test_a_split_over_nodes_follows_the_ranks_of_rows_and_not_the_rows():
    rng = np.random.default_rng(0)
    edges = np.unique(rng.integers(0, 100, (800, 2)), axis=0)
    edges = edges[edges[:, 0] != edges[:, 1]]
    moved = rng.permutation(100) # row i of the one is row moved[i] of the other
    for kind in ("edge", "node"):
        first, rest = split_by(kind, edges, 3)
        rank = np.empty(100, int)
        rank[moved] = np.arange(100)
        second, left = split_by(kind, moved[edges], 3, order=rank)
        assert all((moved[first[k]] == second[k]).all() for k in first) and (moved[rest] == left).all()


def test_the_shares_of_a_split_over_nodes_are_those_of_the_edges_kept():
    rng = np.random.default_rng(0)
    edges = np.unique(rng.integers(0, 2000, (40000, 2)), axis=0)
    parts, rest = split_nodes(edges[edges[:, 0] != edges[:, 1]])
    sizes = np.array([len(p) for p in parts.values()])
    assert np.allclose(sizes / sizes.sum(), (0.8, 0.1, 0.1), atol=0.01)
    assert 0.41 < sizes.sum() / (sizes.sum() + len(rest)) < 0.45


@pytest.mark.parametrize("call, says", [
    (lambda e: split_by("random", e), "split = 'random', expected 'edge' or 'node'"),
    (lambda e: split_nodes(e), "3 edges are too few to split by node .* or split='edge'"),
    (lambda e: split_nodes(e, 0, (0.5, 0.4)), "expected three shares that sum to 1"),
    (lambda e: split_nodes(np.empty((0, 2), int)), "0 edges are too few"),
])
def test_a_split_over_nodes_that_cannot_be_is_refused(call, says):
    with pytest.raises(ValueError, match=says):
        call(np.array([(0, 1), (1, 2), (2, 3)]))


# Scored pairs, and sources without a negative

SCORED = pd.DataFrame(dict(source=[0, 4], target=[1, 2], score=[0.5, 6], split=["test", ""], pos=["N", "V"]))


def test_scored_pairs_come_along_with_what_else_is_known_of_them():
    ds = dataset(graded=SCORED.set_index(pd.Index([7, 3])))
    assert ds.graded.equals(SCORED) and ds.limit(1).graded.equals(SCORED)
    assert dataset().graded is None
    assert [0, 1] not in ds.positives.tolist() # a score says nothing about what holds


@pytest.mark.parametrize("change, says", [
    (dict(score=[np.nan, 1]), r"graded: the score of row 0 is not finite"),
    (dict(target=[1, 5]), r"graded.*\[1\] = \(4, 5\): there are only rows 0 to 4"),
    (dict(target=[0, 1]), r"a is related to itself"),
    (dict(split=["dev", ""]), r"graded: split \['dev'\], expected train, valid, test or ''"),
])
def test_scored_pairs_that_cannot_be_are_named(change, says):
    with pytest.raises(ValueError, match=says):
        dataset(graded=SCORED.assign(**change))
    with pytest.raises(ValueError, match=r"graded: columns .*, expected \['score'\] too"):
        dataset(graded=SCORED.drop(columns="score"))


def test_a_source_with_every_candidate_for_a_positive_is_named():
    assert dataset().check_negatives().full_sources().tolist() == []
    ds = dataset(pool=[0, 1]) # b's only candidate is a, and b -> a holds
    assert ds.full_sources().tolist() == [1]
    with pytest.raises(ValueError, match="line: 'b' is related to every other candidate of the pool of 2, so it can"):
        ds.check_negatives()
    full = dataset(edges=edges(train=[(0, 1), (0, 2)], valid=[(0, 3)]), known=[(0, 4)])
    assert full.full_sources().tolist() == [0]
    assert dataset(known=[(0, i) for i in range(1, 5)]).full_sources().tolist() == [] # a is no source of an edge


def test_edges_in_order_go_to_the_parts_that_are_drawn():
    line = np.stack([np.arange(1, 41), np.arange(40)], 1)
    part, parts = draw_parts(40, 3), split_edges(line[::-1], 3)
    assert np.bincount(part).tolist() == [32, 4, 4]
    for k, edges in enumerate(parts.values()): assert (edges == line[part == k]).all()
    with pytest.raises(ValueError, match="4 edges are too few to split"):
        draw_parts(4)
    with pytest.raises(ValueError, match="expected three shares"):
        draw_parts(40, fractions=(0.8, 0.2))


def test_numbers_of_what_holds_are_in_order():
    ds = dataset(known=[(0, 4)], implied=[(2, 0)])
    assert ds.positive_codes.tolist() == [4, 5, 11, 17, 23] and ds.holding_codes.tolist() == [4, 5, 10, 11, 17, 23]
    assert (ds.codes(ds.holding) == ds.holding_codes).all()
