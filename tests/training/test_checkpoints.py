"""A training that was stopped, anywhere and in any way, goes on as if it had not been; and only as itself."""
import os
import signal
import time
from dataclasses import replace

import numpy as np
import pytest
import torch
from graphs import dataset
from safetensors.torch import load_file, save_file

from rolebregman.baselines import make_head
from rolebregman.datasets import toy_tree
from rolebregman.training import TrainConfig, batch_losses, fit

SETTINGS = TrainConfig(epochs=4, batch_size=16, lr=1e-2, patience=0)


def judged_tree():
    "With weights, and pairs that do not hold"
    ds, rng = toy_tree(depth=4, dim=6, seed=0), np.random.default_rng(0)
    pairs = np.unique(rng.integers(0, ds.num_nodes, (90, 2)), axis=0)
    pairs = pairs[(pairs[:, 0] != pairs[:, 1]) & ~np.isin(ds.codes(pairs), ds.codes(ds.holding))]
    return replace(ds, denied=dict(train=pairs), weights=rng.random(len(ds.edges["train"])))


def train(ds, config=SETTINGS, name="directed_bregman", seed=0, **how):
    torch.manual_seed(seed)
    head = make_head(name, dim=ds.dim)
    return head, fit(head, ds, config, **dict(progress=False) | how)


def same(one, other):
    "Whether two trainings came to the same, bit for bit"
    (head, history), (again, rest) = one, other
    assert all(torch.equal(value, again.state_dict()[name]) for name, value in head.state_dict().items())
    np.testing.assert_equal(rest.rows, history.rows)
    return (rest.best_epoch, len(rest)) == (history.best_epoch, len(history))


def stop_at(step):
    "Losses that somebody interrupts in their nth call"
    calls = []

    def losses(*given, **named):
        calls.append(1)
        if len(calls) == step: raise KeyboardInterrupt
        return batch_losses(*given, **named)

    return losses


@pytest.mark.parametrize("settings", [dict(negatives=3, hard_share=0.5),
                                      dict(loss="softmax", negatives=9, grad_clip=1.0)])
def test_interrupted_in_the_middle_of_an_epoch_and_resumed_is_not_interrupted(settings, tmp_path):
    ds, config = judged_tree(), replace(SETTINGS, **settings)
    whole, per_epoch = train(ds, config), -(-len(ds.edges["train"]) // 16)
    for step in (2, per_epoch, 2 * per_epoch + 1):
        file = dict(checkpoint=tmp_path / f"{step}.safetensors", checkpoint_every=0)
        with pytest.raises(KeyboardInterrupt): train(ds, config, losses=stop_at(step), **file)
        assert same(whole, train(ds, config, seed=7, resume=True, **file))


def test_killed_and_resumed_is_not_killed(copies, tmp_path):
    ds, config, file = judged_tree(), replace(SETTINGS, epochs=200), tmp_path / "runs" / "one.safetensors"
    child = copies.Process(
        target=train, args=(ds, config), kwargs=dict(checkpoint=file, checkpoint_every=0))
    child.start()
    end = time.monotonic() + 60
    while not file.exists() and time.monotonic() < end: time.sleep(0.01)
    time.sleep(0.2)
    os.kill(child.pid, signal.SIGKILL)
    child.join(60)
    assert child.exitcode == -signal.SIGKILL
    shorter = replace(config, epochs=12)
    with pytest.raises(ValueError, match="config epochs is 200 there, and 12 here"):
        train(ds, shorter, checkpoint=file, resume=True)
    told = fit_until(12, ds, config)
    assert same(told, fit_until(12, ds, config, checkpoint=file, resume=True))


def fit_until(epoch, ds, config, **how):
    "A head as it is after some epochs of a longer training, and what it had been through"
    kept = []

    def stop(history):
        if len(history) == epoch:
            kept.append(replace(history, rows=list(history.rows)))
            raise KeyboardInterrupt

    torch.manual_seed(0)
    head = make_head("directed_bregman", dim=ds.dim)
    with pytest.raises(KeyboardInterrupt): fit(head, ds, config, progress=stop, **how)
    return head, kept[0]


def test_a_training_that_is_over_is_read_and_not_trained(tmp_path):
    ds, file = toy_tree(depth=4, dim=6), tmp_path / "run.safetensors"
    for config in SETTINGS, replace(SETTINGS, epochs=30, patience=1, lr=0.3):
        whole = train(ds, config, checkpoint=file)
        assert len(whole[1]) < 30 and same(whole, train(ds, config, checkpoint=file, resume=True, losses=None))


def test_without_a_file_it_begins_and_without_resume_it_begins_anew(tmp_path):
    ds, file = toy_tree(depth=4, dim=6), tmp_path / "run.safetensors"
    first = train(ds, checkpoint=file, resume=True)
    file.write_bytes(b"of something else")
    assert same(first, train(ds, checkpoint=file)) and load_file(file)


def made(**options):
    return make_head("directed_bregman", dim=6, **options)


@pytest.mark.parametrize("what, change", [
    ("data weights", lambda ds: dict(weights=ds.weights[::-1])),
    ("data denied", lambda ds: dict(denied_weights=np.ones(len(ds.denied["train"])))),
    ("data denied", lambda ds: dict(denied=dict(train=ds.denied["train"][::-1].copy())))])
def test_a_checkpoint_of_other_labels_or_weights_is_refused(what, change, tmp_path):
    "Also of weights of pairs that do not hold: it went on with those of before"
    ds, file = judged_tree(), tmp_path / "run.safetensors"
    train(ds, replace(SETTINGS, epochs=1), checkpoint=file)
    with pytest.raises(ValueError, match=f"{file} is of another training: {what}"):
        train(replace(ds, **change(ds)), replace(SETTINGS, epochs=1), checkpoint=file, resume=True)


@pytest.mark.parametrize("what, changed", [
    ("config lr is 0.01 there, and 0.02 here", dict(config=replace(SETTINGS, lr=0.02))),
    ("config seed is 0 there, and 1 here", dict(config=replace(SETTINGS, seed=1))),
    ("head rank is 48 there, and 5 here", dict(head=lambda: made(rank=5))),
    ("head class is BregmanHead there, and MLP here", dict(head=lambda: make_head("mlp", dim=6))),
    ("head inputs is standard there, and unit here", dict(head=lambda: made(inputs="unit"))),
    ("head weights standardizer.mean is torch.float32", dict(head=lambda: made().double())),
    ("data features", dict(change=lambda ds: replace(ds, features=ds.features + 1))),
    ("data pairs train", dict(change=lambda ds: replace(ds, edges=ds.edges | dict(train=ds.edges["train"][:-1])))),
    ("data weights", dict(change=lambda ds: replace(ds, weights=np.ones(len(ds.edges["train"]))))),
    ("data candidates", dict(change=lambda ds: replace(ds, pool=np.arange(9)))),
])
def test_a_checkpoint_of_another_training_is_refused_with_what_differs(what, changed, tmp_path):
    ds, file = toy_tree(depth=4, dim=6), tmp_path / "run.safetensors"
    train(ds, replace(SETTINGS, epochs=1), checkpoint=file)
    config = changed.get("config", SETTINGS)
    head = changed.get("head", made)()
    before = {name: value.clone() for name, value in head.state_dict().items() if "standardizer" not in name}
    with pytest.raises(ValueError, match=f"{file} is of another training: {what}"):
        fit(head, changed.get("change", lambda ds: ds)(ds), replace(config, epochs=1), progress=False, checkpoint=file,
            resume=True)
    assert all(torch.equal(head.state_dict()[name], value) for name, value in before.items())


@pytest.mark.parametrize("damage", [lambda file: file.write_bytes(file.read_bytes()[:-40]),
                                    lambda file: file.write_bytes(b""),
                                    lambda file: save_file({"a": torch.zeros(2)}, file)])
def test_a_damaged_file_is_named(damage, tmp_path):
    ds, file = dataset(np.array([[0, 1], [2, 3], [4, 5]]), 8), tmp_path / "run.safetensors"
    train(ds, replace(SETTINGS, epochs=1), checkpoint=file)
    damage(file)
    with pytest.raises(ValueError, match=f"{file} is no checkpoint of a training, or is damaged"):
        train(ds, replace(SETTINGS, epochs=1), checkpoint=file, resume=True)
