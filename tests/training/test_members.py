"Members of a sum that are trained apart: each as if alone, none with another's seed, and on from where they were"
from dataclasses import replace

import pytest
import torch

from rolebregman import TrainConfig, fit
from rolebregman.baselines import make_head
from rolebregman.datasets import toy_tree
from rolebregman.training import fit_members

CONFIG = TrainConfig(epochs=2, batch_size=32, seed=4)


@pytest.fixture(scope="module")
def tree(): return toy_tree(depth=3, branching=3, dim=8, seed=0)


def same(one, other):
    return all(torch.equal(a, b) for a, b in zip(one.state_dict().values(), other.state_dict().values()))


def test_each_member_is_what_it_would_be_alone(tree):
    torch.manual_seed(0)
    head = make_head("mlp", tree.dim, members=3)
    torch.manual_seed(0)
    alone = [make_head("mlp", tree.dim) for _ in range(3)]
    histories = fit_members(head, tree, CONFIG, progress=False)
    for number, (member, own) in enumerate(zip(head.members, alone)):
        fit(own, tree, replace(CONFIG, seed=12 + number), progress=False)
        assert same(member, own) and len(histories[number]) == 2
    assert not head.training and not any(member.training for member in head.members)


def test_two_seeds_share_no_member(tree):
    seeds = []
    for seed in range(4):
        histories = fit_members(make_head("order", tree.dim, members=3), tree, replace(CONFIG, seed=seed, epochs=1),
                                progress=False)
        seeds += [history.config.seed for history in histories]
    assert sorted(seeds) == list(range(12))


def test_members_that_start_alike_end_apart():
    tree = toy_tree(depth=4, branching=3, dim=8, seed=0)
    head = make_head("order", tree.dim, members=2)
    assert same(*head.members)
    histories = fit_members(head, tree, TrainConfig(epochs=4, lr=1e-2), progress=False)
    assert all(history.best_epoch for history in histories)
    assert not same(*head.members)


def test_it_goes_on_where_a_member_was_stopped(tree, tmp_path):
    def train(stop=None, **how):
        torch.manual_seed(0)
        head, epochs = make_head("mlp", tree.dim, members=2), []

        def progress(history):
            epochs.append(len(history))
            if len(epochs) == stop: raise KeyboardInterrupt
        try:
            fit_members(head, tree, CONFIG, progress=progress, checkpoint=tmp_path / "run.safetensors", **how)
        except KeyboardInterrupt:
            return None, epochs
        return head, epochs

    whole, all_epochs = train(checkpoint_every=0)
    for path in tmp_path.iterdir(): path.unlink()
    train(stop=3, checkpoint_every=0)  # in the first epoch of the second member
    assert sorted(path.name for path in tmp_path.glob("*.safetensors")) == ["run-0.safetensors", "run-1.safetensors"]
    head, epochs = train(resume=True)
    assert same(head, whole) and len(epochs) < len(all_epochs)


def test_what_is_no_sum_is_told_what_one_is(tree):
    with pytest.raises(TypeError, match=r"SumHead.*members=5\) is one"): fit_members(make_head("mlp", tree.dim), tree)


def test_a_decision_of_before_is_dropped(tree):
    head = make_head("order", tree.dim, members=2)
    fit_members(head, tree, replace(CONFIG, epochs=0), progress=False)
    assert head.decision is None
