"Losses against loops over pairs, of nothing, and weighed"
import math

import numpy as np
import pytest
import torch

from rolebregman.training import (
    direction_loss,
    rank_loss,
    softmax_loss,
)


def test_losses_of_nothing_are_a_finite_zero_with_a_graph():
    x = torch.tensor([0.2, 0.5], requires_grad=True)
    none, far = torch.zeros(2, dtype=torch.bool), torch.tensor([50.0, 60.0])
    square = torch.diag(x) + torch.tensor([[0.0, 9.0], [9.0, 0.0]])
    for loss in (direction_loss(x, far, none), direction_loss(x, far), direction_loss(x[:0], far[:0]),
                 rank_loss(x, far), rank_loss(x[:0], torch.zeros(0, 3)),
                 softmax_loss(square, torch.ones(2, 2, dtype=torch.bool)),
                 softmax_loss(square[:0], torch.ones(0, 2, dtype=torch.bool))):
        x.grad = None
        loss.backward()
        assert loss.item() == 0 and (x.grad is None or (x.grad == 0).all())


def test_two_way_pairs_do_not_enter_the_direction_loss():
    forward, reverse = torch.tensor([5.0, 1.0]), torch.tensor([0.0, 1.5])
    assert direction_loss(forward, reverse, torch.tensor([False, True])).item() == pytest.approx(0.5)
    assert direction_loss(forward, reverse).item() == pytest.approx((6 + 0.5) / 2)


def test_softmax_loss_against_a_loop():
    g = torch.Generator().manual_seed(0)
    distances, known = torch.rand(6, 11, generator=g) * 5, torch.rand(6, 11, generator=g) < 0.4
    terms = []
    for i in range(6):
        others = torch.stack([-distances[i, j] for j in range(11) if j == i or not known[i, j]])
        terms.append((distances[i, i] + torch.logsumexp(others, 0)).item())
    assert softmax_loss(distances, known).item() == pytest.approx(np.mean(terms), rel=1e-5)


@pytest.mark.parametrize("factor", [1e-3, 0.1, 50.0])
def test_weights_count_by_their_ratios_also_where_all_are_less_than_one(factor):
    weights, near, far = torch.tensor([0.3, 0.0, 0.5, 0.2]), torch.rand(4), torch.rand(4)
    for loss in rank_loss, direction_loss:
        torch.testing.assert_close(loss(near, far, weights=factor * weights), loss(near, far, weights=weights))
    distances, many = torch.rand(4, 6), factor * weights
    found, wanted = softmax_loss(distances, torch.zeros(4, 6, dtype=torch.bool), many), 0.0
    for i in range(4):  # a candidate of the batch stands there as often as its pair, the row's own and drawn ones once
        often = [1.0 if j == i or j >= 4 else float(many[j]) for j in range(6)]
        total = sum(n * math.exp(-d) for n, d in zip(often, distances[i].tolist()))
        wanted += float(many[i] / many.sum()) * (float(distances[i, i]) + math.log(total))
    assert float(found) == pytest.approx(wanted, rel=1e-5)
