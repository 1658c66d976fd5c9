"Value, slope, increment and remainder of the activations against 80 digits, and their derivatives against differences"
from functools import cache
from math import log

import mpmath as mp
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rolebregman.icnn import ACTIVATIONS, Activation, Layer, Partials, Softplus, Squareplus

F32, F64 = torch.float32, torch.float64
each_activation = pytest.mark.parametrize("name", ACTIVATIONS)
each_dtype = pytest.mark.parametrize("dtype", [F32, F64], ids=["float32", "float64"])


# ---- scalar terms, against mpmath

def squareplus_terms(b, t):
    "By the definitions: 80 digits leave enough after the subtraction of numbers of 1e6 that differ by 1e-40"
    def s(a): return (a + mp.sqrt(a * a + 4)) / 2
    def s1(a): return (1 + a / mp.sqrt(a * a + 4)) / 2
    def s2(a): return 2 / mp.sqrt(a * a + 4) ** 3
    c = b + t
    return dict(value=s(b), slope=s1(b), curvature=s2(b), delta=s(c) - s(b), remainder=s(c) - s(b) - s1(b) * t,
        slope_there=s1(c), slope_change=s1(c) - s1(b), slope_rest=s1(c) - s1(b) - s2(b) * t)


def softplus_terms(b, t):
    "By identities in log1p and expm1: with exp(-1e5) the definitions would need 43,000 digits"
    def s1(a): return 1 / (1 + mp.exp(-a))
    value = max(b, 0) + mp.log1p(mp.exp(-abs(b)))
    sign = 1 if b <= 0 else -1
    p, step = s1(sign * b), mp.expm1(sign * t)
    q, e = p * s1(-sign * b), mp.log1p(p * step)
    change = q * step / (1 + p * step)
    return dict(value=value, slope=s1(b), curvature=q, delta=e if sign == 1 else t + e, remainder=e - p * sign * t,
        slope_there=s1(b + t), slope_change=sign * change, slope_rest=sign * (change - q * sign * t))


TERMS = {"squareplus": squareplus_terms, "softplus": softplus_terms}


@cache
def grid(dtype):
    "|b| to 1e5 and |t| to 1e6 over many scales, both signs, and pairs where b + t is 0, near 0, or the mirror of b"
    g = torch.Generator().manual_seed(0)
    def spread(n, low, high): return 10 ** (low + (high - low) * torch.rand(n, generator=g, dtype=F64))
    def sign(n): return torch.randint(2, (n,), generator=g) * 2.0 - 1
    b, t, m = spread(1000, -4, 5) * sign(1000), spread(1000, -10, 6) * sign(1000), spread(150, -1, 5)
    near = m * (1 + 1e-3 * torch.randn(150, generator=g, dtype=F64))
    edge = torch.tensor([(x, y) for x in (0.0, 1.0, -1e5, 1e5) for y in (0.0, 1e-10, -1e6, 1e6)], dtype=F64).T
    b = torch.cat([b, m, -m, m, -m, m, -m, edge[0]])
    t = torch.cat([t, -2 * m, 2 * m, -near, near, -m, m, edge[1]])
    return b.to(dtype), t.to(dtype)


@cache
def truth(name, dtype):
    with mp.workdps(80):
        rows = [TERMS[name](mp.mpf(b), mp.mpf(t)) for b, t in zip(*(x.tolist() for x in grid(dtype)))]
    return {k: [row[k] for row in rows] for k in rows[0]}


def worst(found, expected):
    "Largest relative error where the true value is a normal number, with a margin for products on the way to it"
    assert found.isfinite().all(), f"{(~found.isfinite()).sum()} values are not finite"
    floor = 1e3 * torch.finfo(found.dtype).tiny
    with mp.workdps(80):
        errors = [abs(mp.mpf(x) / y - 1) for x, y in zip(found.tolist(), expected) if abs(y) > floor]
    assert len(errors) > len(expected) / 3
    return float(max(errors))


def all_terms(name, dtype):
    "Every scalar term as a user of the activation gets it; the slopes of the remainder through autograd"
    s, (b, t) = ACTIVATIONS[name], grid(dtype)
    b, t = b.clone().requires_grad_(), t.clone().requires_grad_()
    delta, remainder = s.layer(b, t)[2:]
    change, there = torch.autograd.grad(delta.sum(), (b, t), retain_graph=True)
    rest, change_too = torch.autograd.grad(remainder.sum(), (b, t))
    assert change.isnan().logical_or(change.eq(change_too)).all()
    (slope,) = torch.autograd.grad(s.value(b).sum(), b)
    (curvature,) = torch.autograd.grad(s.slope(b).sum(), b)
    assert slope.equal(s.slope(b)) and curvature.equal(s.curvature(b))
    return dict(value=s.value(b), slope=slope, curvature=curvature, delta=delta, remainder=remainder,
        slope_there=there, slope_change=change, slope_rest=rest)


# Relative errors allowed, in float32 and float64. Softplus lives on exp(b + t) in its tail, and the sum b + t is
# already rounded: at the smallest normal number, b + t = -87 (-708), that alone costs 87 (708) units of rounding.
# The slope's remainder passes through zero, near which a relative bound means nothing: it has a test of its own.
BOUNDS = {
    ("squareplus", F32): dict(value=3e-7, slope=5e-7, curvature=4e-7, delta=7e-7, remainder=7e-7, slope_there=5e-7,
        slope_change=7e-7),
    ("squareplus", F64): dict(value=6e-16, slope=1e-15, curvature=8e-16, delta=1.3e-15, remainder=1.3e-15,
        slope_there=1e-15, slope_change=1.3e-15),
    ("softplus", F32): dict(value=3e-7, slope=3e-7, curvature=4e-7, delta=6e-6, remainder=6e-6, slope_there=6e-6,
        slope_change=6e-6),
    ("softplus", F64): dict(value=6e-16, slope=6e-16, curvature=8e-16, delta=1e-13, remainder=1e-13,
        slope_there=1e-13, slope_change=1e-13),
}


@pytest.mark.parametrize("term", BOUNDS["squareplus", F32])
@each_dtype
@each_activation
def test_terms_against_80_digits(name, dtype, term):
    assert worst(all_terms(name, dtype)[term].detach(), truth(name, dtype)[term]) <= BOUNDS[name, dtype][term]


@each_dtype
@each_activation
def test_remainder_of_the_slope(name, dtype):
    "d remainder / d b, of either sign: measured against its size for a general t"
    found, true = all_terms(name, dtype)["slope_rest"].detach(), truth(name, dtype)
    assert found.isfinite().all()
    bound = {F32: 6e-6, F64: 3e-13 if name == "softplus" else 6e-15}[dtype]
    floor = 1e3 * torch.finfo(dtype).tiny
    for i, (x, y, t) in enumerate(zip(found.tolist(), true["slope_rest"], grid(dtype)[1].tolist())):
        change, straight = abs(true["slope_change"][i]), abs(true["curvature"][i] * t)
        size = max(abs(y), min(change, straight, straight * abs(t)))
        assert abs(x - y) <= bound * size + floor, (i, grid(dtype)[0][i], t)


@each_activation
def test_oracle_agrees_with_the_definitions(name):
    "What the tests are measured with, where both forms can be had"
    def s(a): return (a + mp.sqrt(a * a + 4)) / 2 if name == "squareplus" else mp.log(1 + mp.exp(a))
    with mp.workdps(80):
        for b in (-30, -1.5, 0, 0.3, 20):
            for t in (-25, -0.01, 1e-6, 2, 40):
                b, t, found = mp.mpf(b), mp.mpf(t), TERMS[name](mp.mpf(b), mp.mpf(t))
                s0, s1, s2 = (mp.diff(s, b, n, h=mp.mpf(10) ** -15) for n in range(3))
                there = mp.diff(s, b + t, h=mp.mpf(10) ** -15)
                expected = dict(value=s0, slope=s1, curvature=s2, delta=s(b + t) - s0, remainder=s(b + t) - s0 - s1 * t,
                    slope_there=there, slope_change=there - s1, slope_rest=there - s1 - s2 * t)
                for k in expected: assert abs(found[k] - expected[k]) < mp.mpf(10) ** -11 * abs(expected[k]), (k, b, t)


@each_dtype
@each_activation
@settings(max_examples=300, deadline=None)
@given(st.floats(-1e5, 1e5), st.floats(-1e6, 1e6))
def test_remainder_is_never_negative_and_never_nan(name, dtype, b, t):
    b, t = torch.tensor(b, dtype=dtype, requires_grad=True), torch.tensor(t, dtype=dtype, requires_grad=True)
    delta, remainder = ACTIVATIONS[name].layer(b, t)[2:]
    assert remainder >= 0 and remainder.isfinite() and delta.isfinite()
    assert delta * t >= 0  # increasing
    for g in torch.autograd.grad(delta + remainder, (b, t)): assert g.isfinite()


@each_activation
def test_no_displacement_no_remainder(name):
    b = torch.linspace(-50, 50, 101)
    delta, remainder = ACTIVATIONS[name].layer(b, torch.zeros(()))[2:]
    assert delta.eq(0).all() and remainder.eq(0).all() and delta.shape == (101,)


@each_activation
def test_derivatives_of_the_terms_by_differences(name):
    s = ACTIVATIONS[name]
    b = torch.tensor([-6.0, -2.0, -0.5, 0.1, 0.7, 3.0, 8.0], dtype=F64)[:, None]
    t = torch.tensor([-25.0, -9.0, -1.0, -1e-2, 1e-2, 0.5, 4.0, 23.0], dtype=F64)
    for x, y in ((b, t), torch.broadcast_tensors(b, t)):  # of their own shapes, and of one
        x, y = x.clone().requires_grad_(), y.clone().requires_grad_()
        assert torch.autograd.gradcheck(s.layer, (x, y), check_forward_ad=True)
        assert torch.autograd.gradgradcheck(s.layer, (x, y))
    b = b.clone().requires_grad_()
    for f in (s.value, s.slope):
        assert torch.autograd.gradcheck(f, (b,), check_forward_ad=True)
        assert torch.autograd.gradgradcheck(f, (b,))


@pytest.mark.parametrize("activation", ACTIVATIONS.values())
def test_formulas_of_an_activation_agree_with_their_definitions(activation):
    b, t = torch.randn(2, 50, dtype=torch.float64)
    s = activation.value_formula
    slope = lambda a: torch.func.vmap(torch.func.grad(s))(a)
    layer, partials = activation.layer_formula(b, t), activation.partials_formula(b, t)
    wanted = Layer(s(b), slope(b), s(b + t) - s(b), s(b + t) - s(b) - slope(b) * t)
    change, curvature = slope(b + t) - slope(b), activation.curvature(b)
    for found, right in zip(layer, wanted): assert torch.allclose(found, right)
    for found, right in zip(partials, Partials(slope(b), curvature, slope(b + t), change, change - curvature * t)):
        assert torch.allclose(found, right)


def test_values_of_the_activations_at_zero():
    zero = torch.zeros(())
    assert Squareplus.value(zero) == 1 and Softplus.value(zero) == pytest.approx(log(2))
    assert Squareplus.slope(zero) == Softplus.slope(zero) == 0.5
    assert issubclass(Squareplus, Activation) and issubclass(Softplus, Activation)


@each_activation
def test_a_layer_behind_is_centred_on_the_mean_of_what_it_gets(name):
    "Of a standard normal argument, by Gauss and Hermite"
    nodes, weights = (torch.from_numpy(part) for part in np.polynomial.hermite_e.hermegauss(80))
    mean = (weights * ACTIVATIONS[name].value_formula(nodes)).sum() / weights.sum()
    assert abs(ACTIVATIONS[name].at_rest - mean) < 0.005
