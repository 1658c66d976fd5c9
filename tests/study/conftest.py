"What tests of the study share"
import hashlib
import pickle
from dataclasses import fields

import numpy as np
import pandas as pd
import pytest

from rolebregman.datasets import DirectedDataset, toy_tree
from rolebregman.study import runner


@pytest.fixture
def judged():
    "Four pairs with scores of annotators that are made of the squared distance"
    ds = toy_tree(3, 2, 6)
    pairs = np.array([[1, 0], [0, 1], [4, 2], [5, 6]])
    near = -np.square(ds.features[pairs[:, 0]] - ds.features[pairs[:, 1]]).sum(1)
    graded = pd.DataFrame(dict(source=pairs[:, 0], target=pairs[:, 1], score=near, pos=list("NNVV"), random="test",
                               lexical="test", split="test", type=["hyp-1", "r-hyp-2", "ant", "hyp-3"]))
    return DirectedDataset("judged", ds.features, ds.nodes, ds.edges, graded=graded)


@pytest.fixture(autouse=True, scope="session")
def one_control():
    """The grid trains the control of a dataset once in all tests: it is the same for every head, as test_runner holds.

    It trains for thirty epochs where most fits of the tests have three."""
    kept, train = {}, runner.trained_control

    def control(task, ds):
        content = pickle.dumps([getattr(ds, field.name) for field in fields(ds)])
        key = task.dataset, task.seed, task.scale, hashlib.sha256(content).hexdigest()
        if key not in kept: kept[key] = train(task, ds)
        return kept[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runner, "trained_control", control)
        yield


@pytest.fixture
def first_revision(monkeypatch):
    "The rows in results/ were made before any of `REVISIONS`"
    monkeypatch.setattr(runner, "REVISIONS", {})
