"Derivatives of every head: finite where two views coincide, the second one too, and right by differences in float64"
import pytest
import torch
from heads.test_laws import CASES, F32, F64, D, close, each_bregman_head, each_dtype, each_head, fresh, moved, points

from rolebregman.heads import length, root, unit_length


def derivatives(function, *inputs):
    "First derivatives, and those of a random direction of them"
    inputs = [x.detach().clone().requires_grad_() for x in inputs]
    first = torch.autograd.grad(function(*inputs).sum(), inputs, create_graph=True, allow_unused=True)
    first = [g for g in first if g is not None]
    along = sum((g * torch.randn_like(g)).sum() for g in first)
    second = torch.autograd.grad(along, inputs, allow_unused=True) if along.requires_grad else ()
    return first, [g for g in second if g is not None]


@each_head
def test_second_derivatives_are_finite_where_items_coincide(case, dtype=F32):
    "Of raw items, of equal views, and of parameters: at an item, at zero and at the mean of the data"
    head = moved(case, dtype)
    names, values = [*zip(*head.named_parameters())] or [(), ()]

    def distance(x, y, *weights): return torch.func.functional_call(head, dict(zip(names, weights)), (x, y))
    x, mean = points(4, dtype=dtype), head.standardizer.mean.expand(4, D)
    u = head.encode_source(x).detach()
    found = [derivatives(head.compare, u, u)]
    for a, b in ((x, x), (0 * x, 0 * x), (mean, mean), (x, mean), (mean, x)):
        found.append(derivatives(distance, a, b, *values))
    for order in zip(*found):
        for some in order: assert all(g.isfinite().all() for g in some)


@pytest.mark.parametrize("case", [case for case in CASES if "narrow" not in case])
def test_second_derivatives_by_differences(case):
    "Where items are apart, from the first ones, in float64"
    head, x, y = moved(case), points(2).requires_grad_(), points(2, seed=1).requires_grad_()
    if len(list(head.parameters())) == 0: return
    assert torch.autograd.gradgradcheck(head, (x, y), fast_mode=True, atol=1e-4, rtol=1e-3)


@each_bregman_head
def test_hessian_trace_and_gradient_at_what_a_head_compares(case):
    "Symmetric, no eigenvalue below lambda, the trace its trace, and the gradient that of autograd"
    for head in fresh(case), moved(case):
        v, strong = head.encode_target(points(20)).detach(), head.config["strong_convexity"]
        hessian = head.potential.hessian(v).detach()
        close(hessian, hessian.mT, rtol=0, atol=1e-12 * float(hessian.abs().max()))
        assert torch.linalg.eigvalsh(hessian).min() >= strong * (1 - 1e-9)
        close(head.potential.hessian_trace(v), hessian.diagonal(dim1=-2, dim2=-1).sum(-1))
        there = v.clone().requires_grad_()
        (gradient,) = torch.autograd.grad(head.potential(there).sum(), there)
        close(head.potential.gradient(v), gradient)


@each_bregman_head
def test_derivatives_where_both_views_are_one(case):
    "The first is zero there, and the second is the Hessian of the potential: in the source, and less so in the target"
    head = moved(case)
    v = head.encode_target(points(1)).detach()[0]
    first = torch.autograd.functional.jacobian(lambda u: head.compare(u, v), v)
    assert first.eq(0).all()
    second = torch.autograd.functional.hessian(head.compare, (v, v))
    wanted = head.potential.hessian(v)
    for i in range(2):
        for j in range(2): close(second[i][j], wanted if i == j else -wanted, rtol=1e-9, atol=1e-10)


@each_dtype
def test_lengths_and_roots(dtype):
    x = torch.randn(50, 3, dtype=dtype)
    assert length(x).equal(torch.linalg.vector_norm(x, dim=-1)), "the same bits"
    with torch.no_grad(): assert length(x).equal(torch.linalg.vector_norm(x, dim=-1))
    assert root(x.square()).equal(x.square().sqrt()) and root(torch.zeros(2, dtype=dtype)).eq(0).all()
    for function in length, unit_length, lambda x: root(x.square().sum(-1)):
        for first in derivatives(function, torch.zeros(4, 3, dtype=dtype)):
            assert all(g.isfinite().all() for g in first)
    if dtype == F64: assert torch.autograd.gradgradcheck(length, (x[:3].requires_grad_(),))
    assert length(torch.zeros(0, 3, dtype=F32)).shape == (0,)
