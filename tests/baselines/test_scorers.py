"Scorers, against their formulas in plain code"
import torch
from heads.cases import D, close, moved, standardized
from torch.nn.functional import pad, softplus


def test_bilinear_sees_both_items_with_a_one_behind_them():
    x, y, found = standardized(head := moved("bilinear"))
    x, y = (pad(z, (0, 1), value=1.0) for z in (x, y))
    close(found, -x @ head.weight.detach() @ y.T / D, rtol=1e-9, atol=1e-9)


def test_mlp_is_a_perceptron_on_the_concatenated_pair():
    x, y, found = standardized(head := moved("mlp"))
    pair = torch.cat([x[:, None].expand(-1, len(y), -1), y.expand(len(x), -1, -1)], -1)
    hidden = pair @ torch.cat([head.source_weight, head.target_weight], 1).T + head.offset
    close(found, softplus(head.rest(hidden)).squeeze(-1).detach(), rtol=1e-9, atol=1e-9)


def test_the_control_is_a_sum_and_ranks_targets_alike_whatever_the_source():
    x, y, found = standardized(head := moved("direction_prior"))
    close(found, softplus(head.f(x) + head.g(y).T).detach(), rtol=1e-9, atol=1e-9)
    order = found.argsort(1)
    assert order.equal(order[:1].expand_as(order))
