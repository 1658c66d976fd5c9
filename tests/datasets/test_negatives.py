"Negatives: every free target and no other, uniformly, against brute force; the share of hard ones that was asked for"
from dataclasses import replace

import numpy as np
import pytest
import torch
from graphs import dataset, dense
from scipy.stats import chisquare

from rolebregman.datasets import MixedSampler, NegativeSampler, node_label, toy_tree


def test_a_node_is_named_with_its_id():
    tree = toy_tree(depth=2)
    assert node_label(tree, 3) == f"node 3 ({tree.nodes['id'][3]})"


@pytest.mark.parametrize("share", [0.05, 0.5, 0.9])
@pytest.mark.parametrize("pool", [None, np.arange(0, 20, 3)])
def test_sampler_draws_every_free_target_and_no_other(share, pool):
    edges = dense(20, share, seed=3)
    ds = dataset(edges[::3], 20, pool, valid=edges[1::3], test=edges[2::3])
    sampler, candidates = NegativeSampler(ds), set(range(20) if pool is None else pool.tolist())
    for source in range(20):
        free = candidates - {source} - set(edges[edges[:, 0] == source, 1].tolist())
        if free:
            drawn = sampler.sample([source], 60 * len(free), torch.Generator().manual_seed(source))
            assert set(drawn.flatten().tolist()) == free
        else:
            with pytest.raises(ValueError, match=rf"node {source} \(n{source}\) has no"): sampler.sample([source])


@pytest.mark.parametrize("seed", range(3))
def test_sampler_is_uniform(seed):
    edges = dense(30, 0.6, seed)
    drawn = NegativeSampler(dataset(edges, 30)).sample(np.full(4000, 5), 5, torch.Generator().manual_seed(seed))
    free = sorted(set(range(30)) - {5} - set(edges[edges[:, 0] == 5, 1].tolist()))
    counts = np.bincount(drawn.flatten().numpy(), minlength=30)
    assert counts.sum() == counts[free].sum() and chisquare(counts[free]).pvalue > 1e-3


def test_a_positive_of_another_split_is_never_drawn():
    ds = dataset([(0, 1)], 4, valid=[(0, 2)], test=[(1, 0)])
    assert set(NegativeSampler(ds).sample([0] * 50, 4).flatten().tolist()) == {3}


def test_known_against_brute_force():
    edges = dense(15, 0.4, 0)
    ds, pairs = dataset(edges, 15), {tuple(e) for e in edges.tolist()}
    known = NegativeSampler(ds).known(torch.arange(15)[:, None], torch.arange(15))
    assert all(known[x, y] == (x == y or (x, y) in pairs) for x in range(15) for y in range(15))


@pytest.mark.parametrize("share", [0.25, 1.0])
def test_the_share_of_hard_negatives_is_what_was_asked_for(share):
    ds = dataset([(1, 0), (2, 0), (3, 0), (5, 4)], 200)
    ds.hard_kinds = ("siblings",)
    sampler, g = MixedSampler(ds), torch.Generator().manual_seed(0)
    x = torch.tensor([1, 2, 5])
    drawn = sampler.mixed(sampler.sample(x, 4000, g), x, share, g)
    rates = [np.isin(row, hard).mean() for row, hard in zip(drawn.numpy(), ([2, 3], [1, 3], [1, 2, 3]))]
    uniform = (1 - share) * 2 / 198
    assert rates[:2] == pytest.approx([share + uniform] * 2, abs=0.03) and rates[2] < 0.03  # node 5 has no sibling
    assert not sampler.known(x[:, None], drawn).any()
    shared = sampler.mixed(torch.full((4000,), 9), x, share, g)  # of a batch: hard ones of the sources that have any
    assert set(shared.tolist()) <= {9, 1, 2, 3} and (shared != 9).double().mean() == pytest.approx(share, abs=0.03)


@pytest.mark.parametrize("shape", [(3, 50), (50,)])
def test_hard_negatives_come_from_the_generator_alone(shape):
    ds = dataset([(1, 0), (2, 0), (3, 0), (5, 4)], 200)
    ds.hard_kinds = ("siblings",)
    sampler, x, drawn = MixedSampler(ds), torch.tensor([1, 2, 5]), torch.full(shape, 9)
    runs = []
    for seed in 0, 0, 1:
        torch.manual_seed(len(runs))
        runs.append(sampler.mixed(drawn, x, 0.5, torch.Generator().manual_seed(seed)))
    assert torch.equal(runs[0], runs[1]) and not torch.equal(runs[0], runs[2])


def test_hard_negatives_that_are_not_there_are_said(caplog):
    ds = dataset([(1, 0), (2, 0), (5, 4)], 9)
    with pytest.raises(ValueError, match=r"no training pair of 'made' has a hard candidate of the kinds \(none\)"):
        MixedSampler(ds)
    ds = replace(ds, hard_kinds=("siblings",))
    with caplog.at_level("INFO", "rolebregman"): MixedSampler(ds)
    assert "1 of 3 training pairs have no hard candidate" in caplog.text
