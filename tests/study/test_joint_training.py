"Joint training: few edges keep what is known, both parts learn, and the experiment goes on where it stopped"
import warnings

import numpy as np
import pytest
import torch

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # what the libraries warn of while they are imported
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.base.modules import Dense
    from sentence_transformers.sentence_transformer.modules import BoW

    from rolebregman.integrations.sentence_transformers import DirectedEncoder, DirectedLoss

from rolebregman.baselines import make_head
from rolebregman.datasets import load_dataset
from rolebregman.study import JOINT_ARMS, few_edges, run_joint, train_joint


def model_of(words):
    bag = SentenceTransformer(modules=[BoW(list(words)), Dense(len(words), 16, bias=False)], device="cpu")
    return DirectedEncoder.join(bag, make_head("directed_bregman", dim=16))


@pytest.fixture(scope="module")
def toy():
    ds = few_edges(load_dataset("toy", seed=0), 150, 30, 36)
    ds.nodes["text"] = [f"w{i}" for i in range(ds.num_nodes)]
    return ds


def test_a_small_dataset_keeps_what_is_known(toy):
    whole = load_dataset("toy", seed=1)
    few = few_edges(whole, 40, 9, 11, seed=2)
    named = lambda ds, edges: set(map(tuple, ds.nodes["id"].to_numpy()[edges]))
    assert {k: len(e) for k, e in few.edges.items()} == dict(train=40, valid=9, test=11)
    for split in few.edges: assert named(few, few.edges[split]) <= named(whole, whole.edges[split])
    kept = set(few.nodes["id"])
    assert named(few, few.positives) == {p for p in named(whole, whole.positives) if set(p) <= kept}
    assert set(few.pool) == set(np.concatenate(list(few.edges.values()))[:, 1])
    rows = {i: n for n, i in enumerate(whole.nodes["id"])}
    assert np.array_equal(few.features, whole.features[[rows[i] for i in few.nodes["id"]]])


@pytest.mark.filterwarnings("ignore")
def test_encoder_and_head_both_learn_unless_their_step_is_zero(toy):
    for steps in ((1e-3, 1e-2), (0.0, 1e-2)):
        model = model_of(list(toy.nodes["text"]))
        parts = [list(part.parameters()) for part in (model[1], model.head)]
        before = [[p.detach().clone() for p in part] for part in parts]
        assert train_joint(model, toy, DirectedLoss(model), 1, *steps, batch_size=32, seed=0) is model
        moved = [any(not torch.equal(*pair) for pair in zip(part, start)) for part, start in zip(parts, before)]
        assert moved == [steps[0] > 0, True] and not model.training


@pytest.mark.filterwarnings("ignore")
def test_the_experiment_runs_once_and_is_resumed(tmp_path, monkeypatch, toy):
    bag = SentenceTransformer(modules=[BoW(list(toy.nodes["text"])), Dense(toy.num_nodes, 16)], device="cpu")
    bag.save(str(tmp_path / "encoder"))
    opened = []
    monkeypatch.setattr("rolebregman.study.joint_training.fetch", lambda name, quiet: tmp_path / "encoder")
    monkeypatch.setattr("rolebregman.study.joint_training.open_dataset", lambda *a, **k: opened.append(a) or toy)
    rows = run_joint(tmp_path / "joint.csv", (0,), "toy", (100, 20, 30), epochs=1)
    assert list(rows["head"]) == list(JOINT_ARMS)
    cosine, alone, longer, joint = rows.to_dict("records")
    assert cosine["parameters"] == 0 and alone["parameters"] == longer["parameters"]
    assert cosine["direction_accuracy"] == 0.5
    assert alone["parameters"] < joint["parameters"] and (rows["error"] == "").all()
    assert joint["gap_mean"] not in (cosine["gap_mean"], alone["gap_mean"], longer["gap_mean"])
    again = run_joint(tmp_path / "joint.csv", (0,), "toy", (100, 20, 30), epochs=1)
    assert len(again) == 4 and len(opened) == 1
