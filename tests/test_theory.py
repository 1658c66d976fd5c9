"The divergence of any potential, against closed forms that other libraries know"

from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.spatial.distance import mahalanobis
from scipy.special import kl_div, rel_entr

from rolebregman.theory import bregman_divergence, directional_gap, gradient, hessian, negative_entropy, quadratic

SHAPE = (7, 4)
positive = arrays(np.float64, SHAPE, elements=st.floats(0.05, 20))
real = arrays(np.float64, SHAPE, elements=st.floats(-20, 20))
matrix = arrays(np.float64, (4, 4), elements=st.floats(-3, 3))
quick = settings(max_examples=50, deadline=None)


def burg(u): return -u.log().sum(-1)
def exponential(u): return u.exp().sum(-1)
def bit_entropy(u): return (torch.xlogy(u, u) + torch.xlogy(1 - u, 1 - u)).sum(-1)


def convex_net(k=4, seed=0):
    g = torch.Generator().manual_seed(seed)
    U, w = torch.randn(6, k, generator=g, dtype=torch.float64), torch.rand(6, generator=g, dtype=torch.float64)
    return lambda u: torch.nn.functional.softplus(u @ U.T) @ w + 0.05 * u.square().sum(-1)


POTENTIALS = {"quadratic": quadratic(torch.eye(4, dtype=torch.float64) + 1), "entropy": negative_entropy, "burg": burg,
    "exponential": exponential, "net": convex_net()}
each_potential = pytest.mark.parametrize("phi", POTENTIALS.values(), ids=POTENTIALS)
def points(*shape, seed=0):
    return 0.1 + 2 * torch.rand(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def close(found, expected, scale=None, rtol=1e-12):
    "Within `rtol` of the larger of the result and of the `scale` of what was subtracted to get it"
    expected = torch.as_tensor(expected)
    bound = rtol * torch.maximum(expected.abs(), torch.as_tensor(0.0 if scale is None else scale, dtype=expected.dtype))
    assert found.shape == expected.shape
    assert ((found - expected).abs() <= bound).all(), (found - expected).abs().max()


# Known divergences. The definition subtracts, so errors scale with the potential and not with the result.

@quick
@given(positive, positive)
def test_negative_entropy_is_kl(u, v):
    u_, v_ = torch.from_numpy(u), torch.from_numpy(v)
    close(bregman_divergence(negative_entropy, u_, v_), kl_div(u, v).sum(-1), scale=100.0)


@quick
@given(positive, positive)
def test_negative_entropy_on_the_simplex_is_relative_entropy(u, v):
    u, v = u / u.sum(-1, keepdims=True), v / v.sum(-1, keepdims=True)
    found = bregman_divergence(negative_entropy, torch.from_numpy(u), torch.from_numpy(v))
    close(found, rel_entr(u, v).sum(-1), scale=1.0)


def test_negative_entropy_at_the_border():
    u, v = torch.tensor([0.0, 1.0], dtype=torch.float64), torch.tensor([0.5, 0.5], dtype=torch.float64)
    close(bregman_divergence(negative_entropy, u, v), torch.tensor(np.log(2)))
    assert negative_entropy(torch.tensor([-1.0, 1.0])).isnan()


@quick
@given(real, real, matrix)
def test_quadratic_is_half_a_squared_mahalanobis(u, v, a):
    h = a @ a.T + np.eye(4)
    found = bregman_divergence(quadratic(torch.from_numpy(h)), torch.from_numpy(u), torch.from_numpy(v))
    expected = np.array([mahalanobis(p, q, h) ** 2 / 2 for p, q in zip(u, v)])
    close(found, expected, scale=float(np.abs(h).sum() * 400))


@quick
@given(real, real, matrix)
def test_quadratic_sees_the_symmetric_part_only(u, v, a):
    u, v, a = map(torch.from_numpy, (u, v, a))
    scale = float(a.abs().sum() * 400)
    close(bregman_divergence(quadratic(a), u, v), bregman_divergence(quadratic((a + a.T) / 2), u, v), scale)


@quick
@given(positive, positive)
def test_burg_entropy_is_itakura_saito(u, v):
    expected = (u / v - np.log(u / v) - 1).sum(-1)
    close(bregman_divergence(burg, torch.from_numpy(u), torch.from_numpy(v)), expected, scale=100.0)


@quick
@given(arrays(np.float64, SHAPE, elements=st.floats(0.01, 0.99)),
    arrays(np.float64, SHAPE, elements=st.floats(0.01, 0.99)))
def test_bit_entropy_is_logistic_loss(u, v):
    expected = (rel_entr(u, v) + rel_entr(1 - u, 1 - v)).sum(-1)
    close(bregman_divergence(bit_entropy, torch.from_numpy(u), torch.from_numpy(v)), expected, scale=100.0)


# Derivatives

def test_gradient_and_hessian_known():
    u = points(3, 2, 4)
    close(gradient(negative_entropy, u), 1 + u.log(), scale=1.0)
    close(gradient(burg, u), -1 / u)
    close(hessian(burg, u), torch.diag_embed(1 / u.square()))
    h = torch.tensor([[2.0, 1.0], [0.0, 3.0]])
    assert hessian(quadratic(h), torch.zeros(5, 2)).equal(((h + h.T) / 2).expand(5, 2, 2))


@each_potential
def test_derivatives_against_autograd(phi):
    for u in points(5, 4):
        close(gradient(phi, u), torch.autograd.functional.jacobian(phi, u), scale=1.0)
        close(hessian(phi, u), torch.autograd.functional.hessian(phi, u), scale=1.0)


@each_potential
def test_differentiable_in_both_points(phi):
    u, v = points(2, 4).requires_grad_(), points(2, 4, seed=1).requires_grad_()
    f = partial(bregman_divergence, phi)
    assert torch.autograd.gradcheck(f, (u, v))
    assert torch.autograd.gradgradcheck(f, (u, v))
    assert torch.autograd.gradcheck(partial(hessian, phi), (u,))
    (grad_v,) = torch.autograd.grad(f(u, v).sum(), v)
    close(grad_v, -(hessian(phi, v) @ (u - v).unsqueeze(-1)).squeeze(-1).detach(), scale=10.0)


def test_differentiable_in_the_parameters():
    h = (torch.eye(3, dtype=torch.float64) + 0.1).requires_grad_()
    u, v = points(5, 3), points(5, 3, seed=1)
    assert torch.autograd.gradcheck(lambda h: bregman_divergence(quadratic(h), u, v), (h,))
    assert torch.autograd.gradcheck(lambda h: gradient(quadratic(h), u), (h,))


@each_potential
def test_no_grad_and_vmap(phi):
    u, v = points(3, 4), points(3, 4, seed=1)
    whole = bregman_divergence(phi, u, v)
    with torch.no_grad(): assert bregman_divergence(phi, u, v).equal(whole)
    close(torch.func.vmap(partial(bregman_divergence, phi))(u, v), whole, scale=10.0)
    close(torch.func.vmap(partial(hessian, phi))(u), hessian(phi, u), scale=10.0)


# Shapes, types, errors

@pytest.mark.parametrize("left, right, out", [((4,), (4,), ()), ((5, 4), (4,), (5,)), ((4,), (5, 4), (5,)),
    ((3, 1, 4), (5, 4), (3, 5)), ((2, 1, 1, 4), (3, 5, 4), (2, 3, 5)), ((0, 4), (0, 4), (0,)),
    ((3, 1, 4), (0, 4), (3, 0))])
@each_potential
def test_broadcasting(phi, left, right, out):
    u, v = points(*left), points(*right, seed=1)
    found = bregman_divergence(phi, u, v)
    u, v = torch.broadcast_tensors(u, v)
    loop = [bregman_divergence(phi, a, b) for a, b in zip(u.reshape(-1, 4), v.reshape(-1, 4))]
    close(found, torch.stack(loop).reshape(out) if loop else torch.zeros(out, dtype=torch.float64), scale=10.0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_dtype_is_kept(dtype):
    u, v = points(3, 4).to(dtype), points(3, 4, seed=1).to(dtype)
    assert bregman_divergence(negative_entropy, u, v).dtype == dtype
    assert gradient(negative_entropy, u).dtype == hessian(negative_entropy, u).dtype == dtype


def test_errors_name_expected_and_found():
    u = points(3, 4)
    with pytest.raises(ValueError, match="expected width 4 as in u, found 1"):
        bregman_divergence(negative_entropy, u, u[:, :1])
    with pytest.raises(ValueError, match=r"\(3,\).*found \(3, 4\)"): gradient(torch.square, u)
    with pytest.raises(ValueError, match=r"\(3,\).*found \(3, 1\)"): hessian(lambda u: u.sum(-1, keepdim=True), u)
    with pytest.raises(TypeError, match="v: .*int64"): bregman_divergence(negative_entropy, u, u.long())
    with pytest.raises(TypeError, match="u: .*ndarray"): gradient(negative_entropy, u.numpy())
    with pytest.raises(TypeError, match=r"u: .*shape \(\)"): hessian(negative_entropy, torch.tensor(1.0))
    with pytest.raises(ValueError, match=r"square.*\(3, 4\)"): quadratic(u)


# Laws

@each_potential
@quick
@given(positive, positive)
def test_never_negative_and_zero_on_the_diagonal(phi, u, v):
    u, v = torch.from_numpy(u), torch.from_numpy(v)
    size = phi(u).abs() + phi(v).abs() + (gradient(phi, v) * (u - v)).abs().sum(-1)
    assert (bregman_divergence(phi, u, v) >= -1e-14 * size).all()
    assert bregman_divergence(phi, u, u).eq(0).all()
    apart = (u - v).abs().amax(-1) > 1e-2
    assert (bregman_divergence(phi, u, v)[apart] > 0).all()


def test_an_indefinite_quadratic_is_caught_by_its_sign():
    bent = quadratic(torch.diag(torch.tensor([1.0, -1.0])))
    assert bregman_divergence(bent, torch.tensor([0.0, 1.0]), torch.zeros(2)) == -0.5


@each_potential
@quick
@given(positive, positive, positive)
def test_three_point_identity(phi, u, v, c):
    u, v, c = map(torch.from_numpy, (u, v, c))
    d = partial(bregman_divergence, phi)
    g = gradient(phi, v) - gradient(phi, c)
    left, right = d(u, v), d(u, c) + d(c, v) - (g * (u - c)).sum(-1)
    size = sum(phi(p).abs() for p in (u, v, c)) + ((gradient(phi, v).abs() + gradient(phi, c).abs()) * 20).sum(-1)
    assert ((left - right).abs() <= 1e-13 * size).all()


@each_potential
@quick
@given(positive, positive, positive, st.floats(0, 1))
def test_convex_in_the_first_argument(phi, u, w, v, share):
    u, w, v = map(torch.from_numpy, (u, w, v))
    d = partial(bregman_divergence, phi)
    chord = share * d(u, v) + (1 - share) * d(w, v)
    size = sum(phi(p).abs() for p in (u, w, v)) + (gradient(phi, v).abs() * 20).sum(-1)
    assert (d(share * u + (1 - share) * w, v) <= chord + 1e-13 * size).all()


@each_potential
def test_an_affine_part_of_the_potential_has_no_effect(phi):
    u, v, a = points(50, 4), points(50, 4, seed=1), points(4, seed=2)
    shifted = bregman_divergence(lambda u: phi(u) + u @ a + 3, u, v)
    close(shifted, bregman_divergence(phi, u, v), scale=50.0, rtol=1e-14)


@each_potential
def test_gap_is_antisymmetric(phi):
    d, u, v = partial(bregman_divergence, phi), points(50, 1, 4), points(20, 4, seed=1)
    gap = directional_gap(d, u, v)
    assert gap.shape == (50, 20) and gap.equal(-directional_gap(d, v, u))
    assert (gap.abs().max() < 1e-13) == (phi is POTENTIALS["quadratic"])


def test_gap_of_known_values():
    u, v = torch.tensor([2.0], dtype=torch.float64), torch.tensor([1.0], dtype=torch.float64)
    expected = kl_div(2, 1) - kl_div(1, 2)  # 3 log 2 - 2
    close(directional_gap(partial(bregman_divergence, negative_entropy), u, v), torch.tensor(expected))
