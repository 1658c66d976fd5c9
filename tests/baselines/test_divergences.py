"Divergences of the largest of many functions, against their definition and other people's code"
import pytest
import torch
from heads.cases import F64, RIVALS, D, close, moved, points
from scipy.special import logsumexp, rel_entr

from rolebregman.baselines import MaxAffineBregman, floored, log_kl, softmax_kl
from rolebregman.theory import bregman_divergence


def test_softmax_divergence_against_scipy():
    for scale in (0.1, 1.0, 30.0, 300.0):
        u, v = (scale * torch.randn(50, 7, dtype=F64) for _ in range(2))
        p, q = ((z - logsumexp(z.numpy(), axis=-1, keepdims=True)).exp().numpy() for z in (u, v))
        if p.min() > 0: close(softmax_kl(u, v), torch.tensor(rel_entr(q, p).sum(-1)), rtol=1e-8, atol=1e-10)
        value = softmax_kl(u.float(), v.float())
        assert value.isfinite().all() and (value >= 0).all()
    assert torch.autograd.gradcheck(softmax_kl, (u[:3].clone().requires_grad_(), v[:3].clone().requires_grad_()))
    close(softmax_kl(u, u + 1e-3), torch.zeros(50, dtype=F64), atol=1e-15)  # a shift of all scores is nothing


@pytest.mark.parametrize("case", [c for c in RIVALS if "affine" in c])
def test_max_affine_is_the_divergence_of_its_function(case):
    head, x, y = moved(case), points(20), points(20, seed=1)
    if head.log_temperature is None: value = lambda x: head.map(x).amax(-1)
    else:
        heat = head.log_temperature.exp()
        value = lambda x: heat * (head.map(x) * (head.gain / heat)).logsumexp(-1)
    x, y = head.standardizer(x), head.standardizer(y)
    close(head.compare(head.source(x), head.target(y)), bregman_divergence(value, x, y), rtol=1e-9, atol=1e-9)


def test_pieces_in_common_are_at_distance_zero():
    head = moved("max_affine_bregman-hard")
    u, v = head.encode_source(points(300)), head.encode_target(points(300, seed=1))
    same = u.argmax(-1) == v.argmax(-1)
    value = head.compare(u, v)
    assert value[same].eq(0).all() and (value[~same] > 0).all() and 0 < same.double().mean() < 1


def test_errors_name_what_was_found():
    with pytest.raises(ValueError, match="-1"): MaxAffineBregman(D, temperature=-1)


def test_log_kl_is_the_kullback_leibler_divergence():
    u, v = torch.randn(2, 4, 5, dtype=torch.float64).log_softmax(-1)
    wanted = torch.nn.functional.kl_div(u, v, reduction="none", log_target=True).sum(-1)
    assert torch.allclose(log_kl(u, floored(v)), wanted) and log_kl(u, u).abs().max() == 0


def test_floored_keeps_what_is_a_normal_number():
    v = torch.tensor([0.0, -5.0, -77.0, -1e4])
    assert torch.equal(floored(v)[:3], v[:3]) and floored(v).exp().min() >= torch.finfo(v.dtype).tiny
