"Neighbours' features by hand and against a dense matrix, and no leak from valid or test"
from copy import copy

import numpy as np
import pandas as pd
import pytest
import torch

from rolebregman.baselines import make_head
from rolebregman.datasets import DirectedDataset, split_by
from rolebregman.evaluation import score_split
from rolebregman.study import (
    averaged_features,
)


def few_items(train, valid=(), test=(), features=None, n=6):
    "A dataset of items 0, 1, ...; item i has the single feature 10^i where none are given"
    parts = dict(train=train, valid=valid, test=test)
    parts = {name: np.array(edges, int).reshape(-1, 2) for name, edges in parts.items()}
    features = 10.0 ** np.arange(n)[:, None] if features is None else features
    return DirectedDataset("small", features.astype(np.float32), pd.DataFrame(dict(id=range(len(features)))), parts)


@pytest.fixture(scope="module")
def graph():
    "Random, with pairs both ways and lonely items"
    rng = np.random.default_rng(0)
    edges = np.unique(rng.integers(40, size=(90, 2)), axis=0)
    edges = np.unique(np.r_[edges, edges[:9, ::-1]], axis=0)
    parts, _ = split_by("edge", edges[edges[:, 0] != edges[:, 1]], 0)
    return few_items(*parts.values(), features=rng.normal(size=(50, 7)))


def test_two_hops_by_hand():
    # 0 -> 1 <-> 2 -> 3; 4 and 5 are joined by a test pair only. Digits say whose feature went in.
    ds = few_items([(0, 1), (1, 2), (2, 1), (2, 3)], valid=[(3, 4)], test=[(4, 5)])
    own = [1, 10, 100, 1000, 1e4, 1e5]
    one = [10, (1 + 100) / 2, (10 + 1000) / 2, 100, 1e4, 1e5]
    two = [one[1], (one[0] + one[2]) / 2, (one[1] + one[3]) / 2, one[2], 1e4, 1e5]
    found = averaged_features(ds)
    np.testing.assert_allclose(found.features, np.stack([own, one, two], 1), rtol=1e-6)
    np.testing.assert_allclose(averaged_features(ds, how="mean").features[:, 0], np.mean([own, one, two], 0), rtol=1e-6)
    cites = averaged_features(ds, 1, links="out").features[:, 1]
    np.testing.assert_allclose(cites, [10, 100, (10 + 1000) / 2, 1000, 1e4, 1e5], rtol=1e-6)
    cited = averaged_features(ds, 1, links="in").features[:, 1]
    np.testing.assert_allclose(cited, [1, (1 + 100) / 2, 10, 100, 1e4, 1e5], rtol=1e-6)


@pytest.mark.parametrize("links", ["both", "out", "in"])
@pytest.mark.parametrize("how", ["concat", "mean"])
def test_pairs_of_valid_and_test_change_nothing(graph, how, links):
    nothing = copy(graph)
    nothing.edges = {**graph.edges, "valid": graph.edges["valid"][:0], "test": graph.edges["test"][:0]}
    turned = copy(graph)
    turned.edges = {**graph.edges, "valid": graph.edges["test"][:, ::-1], "test": graph.edges["valid"][:, ::-1]}
    found = averaged_features(graph, how=how, links=links).features
    for other in (nothing, turned):
        assert np.array_equal(averaged_features(other, how=how, links=links).features, found)


def test_features_of_items_that_training_does_not_reach_stay_out():
    ds = few_items([(0, 1)], valid=[(1, 2)], test=[(2, 3)])
    assert (averaged_features(ds, hops=5).features[:2] <= 10).all()


@pytest.mark.parametrize("links", ["both", "out", "in"])
@pytest.mark.parametrize("hops", [1, 3])
def test_it_is_the_product_with_a_dense_matrix(graph, hops, links):
    joined = np.zeros((50, 50))
    for source, target in graph.edges["train"]:
        if links != "in": joined[source, target] = 1
        if links != "out": joined[target, source] = 1
    lonely = joined.sum(1) == 0
    joined[lonely, lonely.nonzero()[0]] = 1
    around = joined / joined.sum(1, keepdims=True)
    parts = [np.linalg.matrix_power(around, hop) @ graph.features for hop in range(hops + 1)]
    concat = averaged_features(graph, hops, links=links)
    assert lonely.any() and concat.features.dtype == np.float32
    np.testing.assert_allclose(concat.features, np.concatenate(parts, 1), atol=1e-6)
    np.testing.assert_allclose(averaged_features(graph, hops, "mean", links).features, np.mean(parts, 0), atol=1e-6)


@pytest.mark.parametrize("how", ["concat", "mean"])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_memory_mapped_features_come_and_go_in_blocks(graph, how, dtype, tmp_path):
    np.save(tmp_path / "own.npy", graph.features.astype(dtype))
    mapped = copy(graph)
    mapped.features = np.load(tmp_path / "own.npy", mmap_mode="c")
    found = averaged_features(mapped, how=how, out=tmp_path / "more.npy", size=120) # two columns of fifty numbers
    assert isinstance(found.features, np.memmap) and found.features.dtype == np.float32
    tolerance = 1e-6 if dtype == np.float32 else 5e-3
    np.testing.assert_allclose(found.features, averaged_features(graph, how=how).features, atol=tolerance)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["more.npy", "own.npy"]


def test_the_rest_of_the_dataset_stays(graph):
    more = averaged_features(graph)
    assert more.name == graph.name and more.edges is graph.edges and graph.dim == 7 and more.dim == 21
    torch.manual_seed(0)
    prior = make_head("cosine", dim=7)
    own = copy(more)
    own.features = graph.features # the same candidates: the same scores where the features are the same
    assert torch.equal(score_split(prior, own).negative, score_split(prior, graph).negative)


@pytest.mark.parametrize("options, message", [
    (dict(how="sum"), "'sum'"), (dict(links="up"), "'up'"), (dict(hops=0), "hops = 0")])
def test_what_is_not_known_is_named(graph, options, message):
    with pytest.raises(ValueError, match=message):
        averaged_features(graph, **options)
