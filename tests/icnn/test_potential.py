"The closed forms of the potential against 80 digits and against automatic differentiation"

import copy
import math

import mpmath as mp
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rolebregman.common import compiled
from rolebregman.icnn import ACTIVATIONS, ICNN, NonNegativeWeight
from rolebregman.theory import bregman_divergence, gradient, hessian

F32, F64 = torch.float32, torch.float64
each_activation = pytest.mark.parametrize("name", ACTIVATIONS)
each_dtype = pytest.mark.parametrize("dtype", [F32, F64], ids=["float32", "float64"])


# ---- the network, against the oracle

HIDDEN = [(6,), (6, 5), (5, 6, 4)]
each_net = pytest.mark.parametrize("hidden", HIDDEN, ids=lambda h: "x".join(map(str, h)))
each_lambda = pytest.mark.parametrize("strong", [0.0, 1e-3, 0.1])
K = 4


def net(hidden=(6, 5), strong=0.1, name="squareplus", k=K, dtype=F64, spread=0.0, seed=0):
    "A fresh potential, or with `spread` one whose parameters have moved far from where they start"
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        phi = ICNN(k, hidden, strong, name).to(dtype)
        with torch.no_grad():
            for p in phi.parameters(): p.add_(spread * torch.randn_like(p))
    return phi


def points(*shape, scale=1.0, seed=0, dtype=F64):
    return (scale * torch.randn(*shape, dtype=F64, generator=torch.Generator().manual_seed(seed))).to(dtype)


@pytest.mark.parametrize("spread", [0.0, 2.0], ids=["fresh", "moved"])
@each_lambda
@each_net
@each_activation
def test_closed_forms_equal_the_oracle(name, hidden, strong, spread):
    phi = net(hidden, strong, name, spread=spread)
    u, v = points(50, K, scale=3), points(50, K, scale=3, seed=1)
    def close(a, b): torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-12)  # at values of order one and more
    oracle = bregman_divergence(phi, u, v)
    assert oracle.min() > 1e-4  # far enough from the rounding error of the oracle itself
    torch.testing.assert_close(phi.divergence(u, v), oracle, rtol=1e-10, atol=0)
    close(phi.gradient(v), gradient(phi, v))
    close(phi.hessian(v), hessian(phi, v))
    close(phi.hessian(v[0]), torch.func.hessian(phi)(v[0]))
    close(phi.hessian_trace(v), hessian(phi, v).diagonal(dim1=-2, dim2=-1).sum(-1))


def mp_divergence(phi, u, v):
    "The definition at 80 digits, with the parameters as they are: right at any displacement"
    with mp.workdps(80), torch.no_grad():
        weights, out = phi.layers_and_output()
        rows = lambda m: [[mp.mpf(x) for x in row] for row in m.tolist()]
        layers = [(rows(s.weight), [mp.mpf(x) for x in s.bias.tolist()]) for s in phi.skips]
        steps, out = [rows(w) for _, _, w in weights[1:]], [mp.mpf(x) for x in out.tolist()]
        squareplus = phi.activation is ACTIVATIONS["squareplus"]
        def s(a): return (a + mp.sqrt(a * a + 4)) / 2 if squareplus else max(a, 0) + mp.log1p(mp.exp(-abs(a)))
        def s1(a): return (1 + a / mp.sqrt(a * a + 4)) / 2 if squareplus else 1 / (1 + mp.exp(-a))
        def dot(x, y): return mp.fsum(a * b for a, b in zip(x, y))
        def value_and_slope(x, direction):
            z = dz = None
            for i, (m, b) in enumerate(layers):
                a, da = [dot(r, x) + c for r, c in zip(m, b)], [dot(r, direction) for r in m]
                if i:
                    a = [p + dot(r, z) for p, r in zip(a, steps[i - 1])]
                    da = [p + dot(r, dz) for p, r in zip(da, steps[i - 1])]
                z, dz = [s(p) for p in a], [s1(p) * q for p, q in zip(a, da)]
            strong = mp.mpf(phi.strong_convexity)
            return dot(out, z) + strong / 2 * dot(x, x), dot(out, dz) + strong * dot(x, direction)
        u, v = ([mp.mpf(c) for c in x.tolist()] for x in (u, v))
        d = [a - b for a, b in zip(u, v)]
        top, (base, slope) = value_and_slope(u, d)[0], value_and_slope(v, d)
        return top - base - slope


@pytest.mark.parametrize("dtype, bound", [(F32, 1e-5), (F64, 1e-13)], ids=["float32", "float64"])
@each_lambda
@each_activation
def test_divergence_against_80_digits_at_every_displacement(name, strong, dtype, bound):
    "Where no oracle by subtraction can follow: displacements from 1e-8 to 1e3"
    phi = net((6, 5), strong, name, k=3, dtype=dtype, spread=0.5)
    for i, scale in enumerate(10.0**e for e in range(-8, 4)):
        v = points(3, 3, seed=i, dtype=dtype)
        u = v * (1e-4 if scale < 1e-6 else 1)  # near the origin, where float32 can hold so small a displacement
        v, u = u.clone(), u + points(3, 3, scale=scale, seed=i + 100, dtype=dtype)
        for found, a, b in zip(phi.divergence(u, v).tolist(), u, v):
            true = mp_divergence(phi, a, b)
            assert abs(found - true) <= bound * true, (scale, found, float(true))


@pytest.mark.parametrize("spread", [0.0, 1.0], ids=["fresh", "moved"])
@each_lambda
@each_activation
@settings(max_examples=60, deadline=None)
@given(exponent=st.floats(-8, 3), centre=st.floats(-3, 1), seed=st.integers(0, 2**32 - 1))
def test_float32_against_float64(name, strong, spread, exponent, centre, seed):
    phi = net((32, 32), strong, name, k=16, dtype=F32, spread=spread)
    v = points(64, 16, scale=10**centre, seed=seed, dtype=F32)
    u = v + points(64, 16, scale=10**exponent, seed=seed // 2 + 1, dtype=F32)
    with torch.no_grad():
        found = phi.divergence(u, v)
        wide = copy.deepcopy(phi).double()
        true = wide.divergence(u.double(), v.double())
    assert found.isfinite().all() and (found >= 0).all()
    counts = true > 1e-30
    assert ((found.double() - true).abs()[counts] <= 1e-4 * true[counts]).all()
    assert found[(u == v).all(-1)].eq(0).all()


@each_lambda
@each_net
@each_activation
def test_hessian_is_positive_definite_and_symmetric(name, hidden, strong):
    phi = net(hidden, strong, name, spread=1.0)
    h = phi.hessian(points(200, K, scale=5)).detach()
    rounding = 1e-14 * float(h.abs().max())
    torch.testing.assert_close(h, h.mT, rtol=0, atol=rounding)
    assert torch.linalg.eigvalsh(h).min() >= strong - rounding


@each_lambda
@each_activation
def test_strong_convexity_bounds_the_divergence_from_below(name, strong):
    phi = net((6, 5), strong, name, spread=1.0)
    u, v = points(500, K, scale=20), points(500, K, scale=20, seed=1)
    rest = phi.divergence(u, v) - strong / 2 * (u - v).square().sum(-1)
    assert (rest >= -1e-12 * phi.divergence(u, v)).all() and rest.max() > 1e-2  # the network adds to it


@each_net
@each_activation
@settings(max_examples=50, deadline=None)
@given(share=st.floats(0, 1), scale=st.floats(1e-3, 100), seed=st.integers(0, 10**6))
def test_convex_along_segments(name, hidden, share, scale, seed):
    phi = net(hidden, 0.0, name, spread=2.0)
    a, b = points(20, K, scale=scale, seed=seed), points(20, K, scale=scale, seed=seed + 1)
    chord = share * phi(a) + (1 - share) * phi(b)
    assert (phi(share * a + (1 - share) * b) <= chord + 1e-13 * (phi(a).abs() + phi(b).abs())).all()


@pytest.mark.parametrize("raw", [-200.0, -80.0, -5.0, 0.0, 5.0, 80.0, 200.0])
def test_weights_between_layers_stay_non_negative(raw):
    "By their form and not by a clamp, which would leave a negative parameter without a gradient for ever"
    weight = NonNegativeWeight(3, 2)
    with torch.no_grad(): weight.raw.fill_(raw)
    w = weight()
    w.sum().backward()
    assert w.shape == (2, 3) and w.isfinite().all() and (w >= 0).all()
    if raw >= -80: assert (w > 0).all() and (weight.raw.grad > 0).all()


def test_a_wrong_sign_is_what_the_suite_would_see():
    "The same checks on a network with negative weights between layers fail, so they can fail"
    phi = net((6, 5), 0.0, spread=1.0)
    class Negative(torch.nn.Module):
        def forward(self): return -torch.ones(5, 6, dtype=F64)
    phi.steps[0] = Negative()
    u, v = points(500, K, scale=5), points(500, K, scale=5, seed=1)
    assert phi.divergence(u, v).min() < 0
    assert torch.linalg.eigvalsh(phi.hessian(u)).min() < 0
    torch.testing.assert_close(phi.divergence(u, v), bregman_divergence(phi, u, v), rtol=1e-9, atol=1e-12)


# ---- transforms, shapes, errors

@each_activation
def test_differentiable_twice_in_points_and_parameters(name):
    phi = net((4, 3), 0.1, name, k=2)
    u, v = points(2, 2).requires_grad_(), points(2, 2, seed=1).requires_grad_()
    names, values = zip(*phi.named_parameters())
    def divergence(u, v, *params):
        named = {f"phi.{n}": p for n, p in zip(names, params)}
        return torch.func.functional_call(_Method(phi, "divergence"), named, (u, v))
    assert torch.autograd.gradcheck(divergence, (u, v, *values), check_forward_ad=True)
    assert torch.autograd.gradgradcheck(divergence, (u, v, *values))
    for method in (phi, phi.gradient, phi.hessian, phi.hessian_trace):
        assert torch.autograd.gradcheck(method, (v,))
        assert torch.autograd.gradgradcheck(method, (v,))


class _Method(torch.nn.Module):
    "functional_call reaches `forward` only"
    def __init__(self, phi, name):
        super().__init__()
        self.phi, self.name = phi, name

    def forward(self, *args): return getattr(self.phi, self.name)(*args)


@each_activation
def test_gradients_are_accurate_in_float32_at_small_displacements(name):
    phi, wide = (net((32, 32), 0.1, name, k=16, dtype=F32).to(d) for d in (F32, F64))
    for scale in (1e-6, 1e-4, 1e-2, 1.0, 100.0):
        v = points(64, 16, dtype=F32)
        u = v + points(64, 16, scale=scale, seed=1, dtype=F32)
        def grads(phi, *at):
            at = [x.requires_grad_() for x in at]
            return torch.autograd.grad(phi.divergence(*at).sum(), [*at, *phi.parameters()])
        for a, b in zip(grads(phi, u.clone(), v.clone()), grads(wide, u.double(), v.double())):
            assert (a.double() - b).norm() <= 1e-5 * b.norm(), scale


@each_activation
def test_vmap_and_no_grad(name):
    phi = net((6, 5), 0.1, name)
    u, v = points(5, 3, K), points(5, 3, K, seed=1)
    torch.testing.assert_close(torch.func.vmap(phi.divergence)(u, v), phi.divergence(u, v), rtol=1e-13, atol=0)
    torch.testing.assert_close(torch.func.vmap(phi.hessian)(v), phi.hessian(v), rtol=1e-12, atol=1e-14)
    per_pair = torch.func.vmap(torch.func.vmap(torch.func.grad(phi.divergence)))(u, v)
    torch.testing.assert_close(per_pair, phi.gradient(u) - phi.gradient(v), rtol=1e-11, atol=1e-12)
    inner = torch.func.jacrev(torch.func.jacfwd(phi.divergence))(u[0, 0], v[0, 0])
    torch.testing.assert_close(inner, phi.hessian(u[0, 0]), rtol=1e-11, atol=1e-12)
    with torch.no_grad(): assert phi.divergence(u, v).equal(phi.divergence(u, v))


@pytest.mark.parametrize("left, right, out", [((K,), (K,), ()), ((5, K), (K,), (5,)), ((K,), (5, K), (5,)),
    ((3, 1, K), (5, K), (3, 5)), ((2, 1, 1, K), (3, 5, K), (2, 3, 5)), ((0, K), (0, K), (0,)),
    ((3, 1, K), (0, K), (3, 0))])
@each_net
def test_broadcasting_and_empty(hidden, left, right, out):
    phi = net(hidden)
    u, v = points(*left), points(*right, seed=1)
    found = phi.divergence(u, v)
    assert found.shape == out
    u, v = torch.broadcast_tensors(u, v)
    loop = [phi.divergence(a, b) for a, b in zip(u.reshape(-1, K), v.reshape(-1, K))]
    if loop: torch.testing.assert_close(found, torch.stack(loop).reshape(out), rtol=1e-13, atol=0)
    assert phi(v).shape == phi.hessian_trace(v).shape == v.shape[:-1]
    assert phi.gradient(v).shape == v.shape and phi.hessian(v).shape == (*v.shape, K)


@each_activation
def test_every_parameter_of_a_fresh_network_learns(name):
    phi = net((16, 16, 16), 0.1, name, k=8, dtype=F32)
    phi.divergence(points(64, 8, dtype=F32), points(64, 8, seed=1, dtype=F32)).mean().backward()
    for label, p in phi.named_parameters():
        assert p.grad is not None and p.grad.abs().max() > 1e-5, label


@pytest.mark.parametrize("change, message", [(dict(dim=0), "at least 1.*dim=0"), (dict(hidden=()), r"hidden=\(\)"),
    (dict(hidden=(4, 0)), r"hidden=\(4, 0\)"), (dict(strong_convexity=-1.0), "-1.0"),
    (dict(strong_convexity="a"), "finite number >= 0, found 'a'"),
    (dict(strong_convexity=math.nan), "nan"), (dict(strong_convexity=math.inf), "inf"),
    (dict(activation="relu"), "squareplus.*'relu'")])
def test_errors_name_expected_and_found(change, message):
    with pytest.raises(ValueError, match=message): ICNN(**{"dim": 3} | change)


def test_forward_mode_inside_forward_mode_raises_and_is_not_wrong():
    phi = ICNN(3, (4, 4)).double()
    with pytest.raises(NotImplementedError, match="one level in reverse"):
        torch.func.jacfwd(torch.func.jacfwd(phi))(torch.zeros(3, dtype=torch.float64))


# ---- compiled

def test_values_and_gradients_agree_with_the_eager_ones():
    "Against float64, both within a few units of rounding; the shape may change from call to call"
    torch.manual_seed(0)
    phi, exact = ICNN(8, (16, 12)), ICNN(8, (16, 12)).double()
    exact.load_state_dict(phi.state_dict())
    fast = compiled(phi.divergence)
    for n in (64, 7, 128):
        u, v = (torch.randn(2, n, 8) + torch.tensor([0.0, 1e-3]).view(2, 1, 1)).unbind()
        u.requires_grad_(), v.requires_grad_()
        true = exact.divergence(u.double(), v.double())
        wanted = torch.autograd.grad(true.sum(), [u, v, *exact.parameters()])
        for found in (fast(u, v), phi.divergence(u, v)):
            assert ((found - true) / true).abs().max() < 3e-6
            of = torch.autograd.grad(found.sum(), [u, v, *phi.parameters()])
            for a, b in zip(of, wanted): assert (a - b).abs().max() <= 1e-5 * b.abs().max()
