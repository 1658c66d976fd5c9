"A step: what is encoded and compared once, the losses of a batch pair by pair, and weights as repeated rows"
import math
from dataclasses import asdict, replace

import numpy as np
import pytest
import torch
from graphs import dataset

from rolebregman.baselines import make_head
from rolebregman.datasets import NegativeSampler, toy_tree
from rolebregman.heads import BregmanHead
from rolebregman.training import (
    TrainConfig,
    batch_losses,
    direction_loss,
    encode_sides,
    make_step,
    on_device,
    rank_loss,
    softmax_loss,
)

FAST = TrainConfig(batch_size=64, lr=1e-2, epochs=4)


class Counting:
    "Notes the shapes that a head's methods are called with"
    def __init__(self, head):
        self.calls = {}
        for name in ("standardized", "source", "target", "compare"): self.wrap(head, name)

    def wrap(self, head, name):
        inner, seen = getattr(head, name), self.calls.setdefault(name, [])
        def outer(*args):
            seen.append([len(a) for a in args])
            return inner(*args)
        setattr(head, name, outer)


@pytest.mark.parametrize("negatives", [1, 7])
def test_a_batch_encodes_each_item_once_and_compares_once(negatives):
    ds = toy_tree(depth=3, dim=8)
    head, edges = make_head("role_bregman", dim=8), torch.as_tensor(ds.edges["train"])
    calls = Counting(head).calls
    one_way, config = torch.ones(len(edges), dtype=torch.bool), replace(FAST, negatives=negatives)
    batch_losses(head, torch.as_tensor(ds.features), edges, one_way, NegativeSampler(ds), config, torch.Generator())
    assert calls["source"] == [[len(torch.unique(edges))]]
    assert len(calls["target"]) == len(calls["standardized"]) == 1
    assert len(torch.unique(edges)) <= calls["target"][0][0] == calls["standardized"][0][0] <= ds.num_nodes
    assert [c[0] for c in calls["compare"]] == [len(edges) * (2 + negatives)]


def test_both_sides_are_laid_out_as_asked():
    "Sources and targets that overlap in part, in full and not at all"
    ds = toy_tree(depth=3, dim=8)
    head, f, g = make_head("role_bregman", dim=8), torch.as_tensor(ds.features), torch.Generator().manual_seed(0)
    for low, high in ((0, 20), (10, 33), (20, 33)):
        x, y = torch.randint(0, 20, (40,), generator=g), torch.randint(low, high, (50,), generator=g)
        u, v = encode_sides(head, f, x, y)
        torch.testing.assert_close(u, head.encode_source(f[x]))
        torch.testing.assert_close(v, head.encode_target(f[y]))


@pytest.mark.parametrize("loss", ["margin", "softmax"])
def test_batch_losses_against_pairs_one_by_one(loss):
    ds = toy_tree(depth=3, dim=8)
    torch.manual_seed(0)
    head, f = make_head("role_bregman", dim=8).double(), torch.as_tensor(ds.features).double()
    edges, one_way = torch.as_tensor(ds.edges["train"]), torch.arange(len(ds.edges["train"])) % 3 > 0
    config, sampler = replace(FAST, loss=loss, negatives=3, margin=0.7, direction_margin=0.4), NegativeSampler(ds)
    rank, direction = batch_losses(head, f, edges, one_way, sampler, config, torch.Generator().manual_seed(5))
    x, y = edges.T
    if loss == "margin":
        others = sampler.sample(x, 3, torch.Generator().manual_seed(5))
        wanted = torch.relu(0.7 + head(f[x], f[y])[:, None] - head(f[x][:, None], f[others])).mean()
    else:
        drawn = sampler.pool[torch.randint(len(sampler.pool), (3,), generator=torch.Generator().manual_seed(5))]
        columns = torch.cat([y, drawn])
        wanted = softmax_loss(head(f[x][:, None], f[columns]), sampler.known(x[:, None], columns))
    forward, reverse = head(f[x], f[y])[one_way], head(f[y], f[x])[one_way]
    assert rank.item() == pytest.approx(wanted.item(), rel=1e-9)
    assert direction.item() == pytest.approx(torch.relu(0.4 + forward - reverse).mean().item(), rel=1e-9)


@pytest.mark.parametrize("field,value", [("hard_share", 1.5), ("denied_weight", -1.0), ("loss", "hinge"),
                                         ("negatives", 0), ("epochs", -1), ("batch_size", 2.5),
                                         ("lr", -1.0), ("lr", math.nan), ("margin", math.inf), ("patience", -1),
                                         ("direction_weight", "1"), ("valid_negatives", 0), ("weight_decay", -0.1)])
def test_settings_out_of_range_are_named(field, value):
    with pytest.raises(ValueError, match=f"TrainConfig.{field} is"): TrainConfig(**{field: value})


@pytest.mark.parametrize("field, least", [("negatives", 1), ("epochs", 0), ("batch_size", 1), ("patience", 0),
                                          ("seed", 0), ("valid_negatives", 1), ("hard_share", 0.0), ("lr", 0.0)])
def test_the_least_of_each_setting_is_taken_and_one_less_is_not(field, least):
    assert getattr(TrainConfig(**{field: least}), field) == least
    with pytest.raises(ValueError, match=f"TrainConfig.{field} is"): TrainConfig(**{field: least - 1})
    assert TrainConfig(hard_share=1.0).hard_share == 1


def test_a_step_of_training_lowers_the_loss_and_repeats_itself():
    ds, batch = toy_tree(3, 2, 8), torch.arange(8)
    runs = []
    for _ in range(2):
        torch.manual_seed(0)
        step = make_step(BregmanHead(8), ds, TrainConfig(lr=0.01), sampler=NegativeSampler(ds))
        runs.append(torch.stack([step(batch) for _ in range(60)]))
    assert torch.equal(*runs) and runs[0].shape == (60, 2)
    assert runs[0][-10:].sum() < 0.8 * runs[0][:10].sum()


def test_features_stay_where_they_are_for_a_head_on_the_cpu():
    features = np.ones((2, 3), np.float32)
    assert on_device(features, BregmanHead(3)) is features


class Fixed(NegativeSampler):
    "Draws the same negative of a source each time: the first that is free"

    def sample(self, sources, k=1, generator=None):
        sources = torch.as_tensor(sources)
        return torch.stack([torch.arange(self.num_nodes)[~self.known(x, torch.arange(self.num_nodes))][:k]
                            for x in sources])


def weighed(ds, loss, numbers, weights=None):
    "Both losses of these edges in float64, and the gradient"
    torch.manual_seed(0)
    head = make_head("role_bregman", dim=ds.dim).fit_standardizer(ds.features).double()
    config, one_way = TrainConfig(loss=loss, negatives=2), torch.as_tensor(ds.one_way("train"))
    found = batch_losses(head, ds.features.astype(np.float64), torch.as_tensor(ds.edges["train"])[numbers],
                         one_way[numbers], Fixed(ds), config, torch.Generator().manual_seed(3),
                         **({} if weights is None else dict(weights=torch.as_tensor(weights))))
    sum(found).backward()
    return torch.stack(found).detach(), torch.cat([p.grad.flatten() for p in head.parameters() if p.grad is not None])


@pytest.mark.parametrize("loss", ["margin", "softmax"])
@pytest.mark.parametrize("weights", [[1, 2, 3, 1], [3, 0, 1, 2], [0, 0, 5, 0]])
def test_whole_weights_are_repeated_rows_and_a_weight_of_zero_is_absence(loss, weights):
    ds = dataset([(0, 1), (2, 1), (3, 4), (1, 0)], 9)  # with a pair both ways, and a target that two share
    repeated = torch.arange(4).repeat_interleave(torch.tensor(weights))
    for got, wanted in zip(weighed(ds, loss, torch.arange(4), weights), weighed(ds, loss, repeated)):
        torch.testing.assert_close(got, wanted, rtol=1e-10, atol=1e-12)


def test_weights_of_nothing_and_of_nobody_give_a_zero_with_a_graph():
    some, none = torch.rand(3, requires_grad=True), torch.zeros(3)
    for loss in (rank_loss(some, torch.rand(3, 2), weights=none), direction_loss(some, torch.rand(3), weights=none),
                 direction_loss(some, some, torch.zeros(3, dtype=torch.bool), weights=torch.ones(3)),
                 softmax_loss(some[:, None] + torch.rand(3, 4), torch.zeros(3, 4, dtype=torch.bool), none)):
        loss.backward()
        assert loss == 0 and some.grad.isfinite().all()


def test_the_defaults_are_those_that_results_name():
    "Rows name a setting only where it is another one"
    assert asdict(TrainConfig()) == dict(
        loss="margin", negatives=1, margin=1.0, direction_margin=1.0, direction_weight=1.0, epochs=30, batch_size=None,
        lr=1e-3, weight_decay=1e-2, patience=6, valid_negatives=10, grad_clip=0.0, hard_share=0.0, denied_weight=1.0,
        seed=0)


@pytest.mark.parametrize("clip", [0.0, 1e-3, 1e3])
def test_a_gradient_is_no_longer_than_is_asked_for(clip):
    ds = toy_tree(depth=4, dim=8, seed=0)
    torch.manual_seed(0)
    step = make_step(BregmanHead(8), ds, TrainConfig(grad_clip=clip))
    step(torch.arange(32))
    norm = sum(p.grad.square().sum() for p in step.parameters if p.grad is not None).sqrt().item()
    assert norm == pytest.approx(clip, rel=1e-3) if clip == 1e-3 else 1e-2 < norm < 1e3
