"Datasets by name, and what holds for each of them"
import inspect
import os

import numpy as np
import pandas as pd
import pytest
import torch

from rolebregman.datasets import (
    LOADERS,
    SUPERSEDED,
    FetchError,
    describe,
    did_you_mean,
    from_pairs,
    load_dataset,
    toy_tree,
)
from rolebregman.datasets.negatives import NegativeSampler

REAL_CACHE = os.environ.get("ROLEBREGMAN_CACHE")


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("ROLEBREGMAN_CACHE", str(tmp_path/"cache"))


# By name

@pytest.mark.parametrize("name, options, says", [
    ("gene", {}, r"no dataset 'gene': choose from hyperlex, wordnet, sick, .* or see from_pairs"),
    ("Wordnet", {}, r"no dataset 'Wordnet' \(did you mean 'wordnet'\?\)"),
    (None, {}, r"no dataset None: choose from"),
    ("go", dict(namspace="all"), r"go has no option 'namspace' \(did you mean 'namespace'\?\): choose from names"),
    ("toy", dict(quiet=True), r"toy has no option 'quiet'"),
    ("ogbl-citation", {}, r"'ogbl-citation': it was withdrawn .* negatives .* Use 'ogbl-citation2'"),
    ("ogbl-citation", dict(root="x"), r"Use 'ogbl-citation2'"),
])
def test_a_name_or_option_that_there_is_not_is_refused_with_what_there_is(name, options, says):
    with pytest.raises(ValueError, match=says):
        load_dataset(name, **options)


def test_every_dataset_can_be_asked_for_a_seed():
    assert all("seed" in inspect.signature(loader).parameters for loader in LOADERS.values())
    assert not set(SUPERSEDED) & set(LOADERS)


def test_a_name_that_is_close_is_asked_for():
    assert did_you_mean("siick", LOADERS) == " (did you mean 'sick'?)" and did_you_mean("spam", LOADERS) == ""


# What is said of one


def test_what_was_dropped_is_told_with_its_reason():
    pairs = pd.DataFrame([("a", "b"), ("b", "c"), ("c", "d"), ("a", "b")], columns=["source", "target"])
    ds = from_pairs(pairs, np.eye(4, dtype=np.float32), ids=list("abcd"), name="mine", fractions=(1, 0, 0))
    found = describe(ds)
    assert found["dropped"] == {"repeated pair": 1} and found["dataset"] == "mine"
    assert (found["nodes"], found["train"], found["test"], found["dim"]) == (4, 3, 0, 4)
    assert describe(toy_tree())["licence"] == "Apache-2.0"


# What holds for every dataset that can be loaded here

EVERY = [("hyperlex", {}), ("hyperlex", dict(split="lexical")), ("wordnet", {}),
         ("wordnet", dict(instances=True, closure=True)), ("sick", {}), ("snli", dict(variant="dev-as-train")),
         ("go", {}), ("cora", {}), ("cora_ml", {}), ("citeseer", {}), ("wordnet", dict(split="node")),
         ("wordnet", dict(closure=True, split="cones")), ("cora", dict(split="node")), ("citeseer", dict(dim=32)),
         ("hyperlex", dict(pos="V")), ("hyperlex", dict(split="seeded")), ("go", dict(split="node")),
         ("sick", dict(split="node"))]
LOADED = {}


class Letters:
    "Stands in for Sentence-BERT, which takes minutes: that a text is encoded well is not the question here"
    def __call__(self, texts):
        return np.array([[t.count(c) for c in "abcdefghijklmnopqrstuvwxyz"] + [len(t), 1] for t in texts], np.float32)


def every(spec):
    "The dataset, loaded once for all tests; a skip that says why where its files cannot be had"
    name, options = spec
    title = " ".join([name, *(f"{option}={value}" for option, value in options.items())])
    if title not in LOADED:
        known = inspect.signature(LOADERS[name]).parameters
        options = options | dict(quiet=True) | ({"encoder": Letters()} if "encoder" in known else {})
        try:
            LOADED[title] = load_dataset(name, **options)
        except FetchError as e:
            LOADED[title] = f"{title} cannot be had here: {str(e).splitlines()[0]}"
    if isinstance(LOADED[title], str):
        pytest.skip(LOADED[title])
    return LOADED[title]


@pytest.fixture
def loaded(request, monkeypatch):
    if REAL_CACHE is None:
        monkeypatch.delenv("ROLEBREGMAN_CACHE")
    else:
        monkeypatch.setenv("ROLEBREGMAN_CACHE", REAL_CACHE)
    return every(request.param)


@pytest.mark.parametrize("loaded", EVERY, indirect=True, ids=str)
def test_no_evaluation_negative_is_a_known_positive(loaded):
    sampler, positives = NegativeSampler(loaded), loaded.codes(loaded.positives)
    for part in ("valid", "test"):
        sources = torch.as_tensor(loaded.edges[part][:2000, 0])
        drawn = sampler.sample(sources, 50, torch.Generator().manual_seed(0)).numpy()
        pairs = np.stack([np.repeat(sources.numpy(), 50), drawn.ravel()], 1)
        assert not np.isin(loaded.codes(pairs), positives).any()
        assert (pairs[:, 0] != pairs[:, 1]).all() and np.isin(pairs[:, 1], loaded.pool).all()


@pytest.mark.parametrize("loaded", EVERY, indirect=True, ids=str)
def test_every_source_has_a_negative_and_every_edge_its_part(loaded):
    loaded.check_negatives()
    codes = np.concatenate([loaded.codes(e) for e in loaded.edges.values()])
    assert len(np.unique(codes)) == len(codes) and all(len(e) for e in loaded.edges.values())
    assert np.isin(codes, loaded.codes(loaded.positives)).all()
    assert describe(loaded)["source"] and describe(loaded)["licence"]
    if loaded.graded is not None: # each pair is scored once
        scored = loaded.codes(loaded.graded[["source", "target"]].to_numpy())
        assert len(np.unique(scored)) == len(scored)


NODES = [spec for spec in EVERY if spec[1].get("split") == "node"]


@pytest.mark.parametrize("loaded", NODES, indirect=True, ids=str)
def test_no_test_node_is_in_training_where_the_split_is_over_nodes(loaded):
    nodes = {k: set(e.ravel().tolist()) for k, e in loaded.edges.items()}
    assert not nodes["train"] & nodes["test"] and not nodes["train"] & nodes["valid"]
    assert len(loaded.positives) > sum(map(len, loaded.edges.values())) # the rest are known
