"The rivals of the literature: their laws, and their formulas against slower code in double precision"

import copy
import math

import pytest
import torch
from scipy.special import logsumexp, rel_entr

from rolebregman.baselines import (
    IQE,
    PEERS,
    DeepDivergence,
    EntailmentCones,
    MaxAffineBregman,
    TransE,
    WideNorm,
    hyperbolic_distance,
    item_map,
    polar,
    softmax_kl,
    union_length,
)
from rolebregman.heads import DistanceHead, load_head
from rolebregman.theory import bregman_divergence

D = 6  # width of the embeddings
F32, F64 = torch.float32, torch.float64
SMALL = {"iqe": dict(components=3, size=4), "wide_norm": dict(proj_dim=5, components=3, size=4),
    "transe": dict(proj_dim=5), "rotate": dict(proj_dim=3), "tversky": dict(features=7),
    "max_affine_bregman": dict(pieces=9), "deep_divergence": dict(pieces=9), "entailment_cones": dict(proj_dim=4),
    "hit": dict(proj_dim=4)}
LINEAR = {name: dict(hidden=0) for name in PEERS if name != "max_affine_bregman"}


def _cases():
    for name, (head, config, _) in PEERS.items():
        yield name, lambda head=head, config=config: head(D, **config)
        yield f"{name}-small", lambda head=head, name=name: head(D, **SMALL[name] | LINEAR.get(name, {}))
    yield "transe-euclidean", lambda: TransE(D, 5, 8, norm=2)
    yield "max_affine_bregman-hard", lambda: MaxAffineBregman(D, 9, temperature=0)
    yield "deep_divergence-hard", lambda: DeepDivergence(D, 9, temperature=0, hidden=8)


CASES = dict(_cases())
each_case = pytest.mark.parametrize("case", CASES)
each_quasimetric = pytest.mark.parametrize("case", [c for c in CASES if c.startswith(("iqe", "wide_norm"))])


def points(*shape, seed=0, scale=1.0, dtype=F64):
    noise = torch.randn(*shape, D, dtype=F64, generator=torch.Generator().manual_seed(seed))
    return (3.0 + 0.5 * scale * noise).to(dtype)


def moved(case, dtype=F64):
    "A head whose parameters have left the place where they start"
    torch.manual_seed(0)
    head = CASES[case]().to(dtype).fit_standardizer(points(200, seed=9, dtype=dtype))
    with torch.no_grad():
        for p in head.parameters(): p.add_(0.3 * torch.randn_like(p))
    return head


def close(a, b, rtol=1e-10, atol=1e-11): torch.testing.assert_close(a, b, rtol=rtol, atol=atol)


# ---- laws

def test_the_table_names_heads_with_their_promises():
    assert list(PEERS) == ["iqe", "wide_norm", "transe", "rotate", "tversky", "max_affine_bregman", "deep_divergence",
        "entailment_cones", "hit"]
    for head, config, about in PEERS.values():
        assert issubclass(head, DistanceHead) and not head.symmetric and about
        made = head(384, **config)
        assert 190_000 < sum(p.numel() for p in made.parameters()) < 270_000  # about the mlp's 263,000
        assert made.config["dim"] == 384
    assert {name for name, (head, *_) in PEERS.items() if not head.nonnegative} == {"tversky", "hit"}


@pytest.mark.parametrize("case", [c for c in CASES if "-" in c])  # the narrow ones: the formulas are the same
def test_never_negative_where_promised_on_100000_pairs(case):
    head = moved(case, F32)
    with torch.no_grad():
        for scale in (1.0, 1e-3, 1e-6):
            x = points(33_334, dtype=F32)
            y = x + (points(33_334, seed=1, scale=scale) - 3).float()
            value = head(x, y)
            assert value.isfinite().all()
            if head.nonnegative: assert (value >= 0).all()


@each_case
def test_a_fresh_head_is_a_sensible_metric_of_order_one(case):
    torch.manual_seed(0)
    name = case.split("-")[0]
    head = PEERS[name][0](64, **PEERS[name][1])
    x, noise, y = torch.randn(3, 500, 64)
    with torch.no_grad(): near, far = head(x, x + 0.1 * noise), head(x, y)
    assert (near < far).float().mean() > 0.97
    assert 0.1 < far.std() < 10 and far.abs().mean() < 30


@each_case
def test_single_precision_is_close_to_double(case):
    wide = moved(case)
    narrow = copy.deepcopy(wide).float()
    x, y = points(300, dtype=F32), points(300, seed=1, dtype=F32)
    a, b = narrow(x, y).double(), wide(x, y)
    assert ((a - b).abs() <= 2e-5 * b.abs() + 2e-5).all(), float((a - b).abs().max())


@each_case
def test_single_precision_loses_nothing_between_close_items(case):
    "On encoded pairs, relative to the distance, down to differences of a thousandth"
    wide = moved(case)
    if isinstance(wide, EntailmentCones) or not wide.nonnegative: return  # an angle, and differences of two terms
    narrow = copy.deepcopy(wide).float()
    u = wide.encode_source(points(300)).float()
    v = u + 1e-3 * torch.randn(u.shape, generator=torch.Generator().manual_seed(2))
    a, b = narrow.compare(u, v).double(), wide.compare(u.double(), v.double())
    assert ((a - b).abs() <= 1e-3 * b + 1e-30).double().mean() > 0.99 and ((a - b).abs() <= 1e-2 * b).all()


@pytest.mark.parametrize("dtype", [F32, F64], ids=["float32", "float64"])
@each_case
def test_gradients_are_finite_where_items_coincide(case, dtype):
    head = moved(case, dtype)
    mean, far = head.standardizer.mean.expand(5, D), points(5, seed=1, scale=1000, dtype=dtype)
    x = points(5, dtype=dtype)
    for a, b in ((x, x), (mean, mean), (far, far), (x, far), (far, x), (far, -far)):
        a, b = (z.detach().clone().requires_grad_() for z in (a, b))
        grads = torch.autograd.grad(head(a, b).sum(), [a, b, *head.parameters()], allow_unused=True)
        for grad in grads: assert grad is None or grad.isfinite().all()
    u = head.encode_source(x).detach().requires_grad_()
    v = u.detach().clone().requires_grad_()
    for grad in torch.autograd.grad(head.compare(u, v).sum(), [u, v], allow_unused=True):
        assert grad is None or grad.isfinite().all()


@each_case
def test_vmap_over_pairs_and_over_seeds(case):
    head, x, y = moved(case), points(5), points(5, seed=1)
    close(torch.func.vmap(head)(x, y), head(x, y))
    heads = [copy.deepcopy(head), moved(case)]
    with torch.no_grad():
        for p in heads[0].parameters(): p.mul_(1.1)
    params, buffers = torch.func.stack_module_state(heads)
    def loss(p, b): return torch.func.functional_call(head, (p, b), (x, y)).sum()
    close(torch.func.vmap(loss)(params, buffers), torch.stack([h(x, y).sum() for h in heads]))
    grads = torch.func.vmap(torch.func.grad(loss))(params, buffers)
    assert all(g.isfinite().all() for g in grads.values())


@each_case
def test_broadcasting_and_all_pairs_in_both_forms(case):
    head, x, y = moved(case), points(7), points(5, seed=1)
    loop = torch.stack([torch.stack([head(a, b) for b in y]) for a in x])
    for found in (head(x[:, None], y), head.pairwise(x, y), head.pairwise(x, y, exact=False)): close(found, loop)
    assert head(x[:0], y[0]).shape == (0,) and head.pairwise(x, y[:0], exact=True).shape == (7, 0)


@each_case
def test_saved_and_loaded_bit_for_bit(case, tmp_path):
    head, x, y = moved(case, F32), points(20, dtype=F32), points(20, seed=1, dtype=F32)
    loaded = load_head(head.save_pretrained(tmp_path))
    assert loaded.config == head.config and loaded(x, y).equal(head.eval()(x, y))


@each_case
def test_directions_differ(case):
    head = moved(case)
    gap = head.gap(points(200), points(200, seed=1)).abs()
    assert (gap > 1e-6).double().mean() > (0.6 if "hard" in case else 0.9)


@each_quasimetric
def test_laws_of_a_quasimetric(case):
    head = moved(case)
    for scale in (0.01, 1.0, 100.0):
        x, y, z = (points(500, seed=s, scale=scale) for s in range(3))
        xz, xy, yz = head(x, z), head(x, y), head(y, z)
        assert (xz <= (xy + yz) * (1 + 1e-12)).all() and head(x, x).eq(0).all() and (xy > 0).all()


# ---- formulas

def _covered(u, v):
    "The length of a union of intervals as one would do it by hand: merge what overlaps"
    total, reach = 0.0, -math.inf
    for a, b in sorted((a, b) for a, b in zip(u, v) if b > a):
        total, reach = total + max(0.0, b - max(a, reach)), max(b, reach)
    return total


def test_union_of_intervals():
    for size in (1, 2, 3, 8, 16):
        u, v = (points(40, seed=s)[:, :1].expand(40, size) + torch.randn(40, size, dtype=F64) for s in (0, 1))
        close(union_length(u, v), torch.tensor([_covered(a, b) for a, b in zip(u.tolist(), v.tolist())], dtype=F64))
        close(union_length(u[3], v[:, None]), union_length(u[3].expand_as(v), v)[:, None])
        close(union_length(u[:, None], v[3]), union_length(u, v[3].expand_as(u))[:, None])
    for u, v, length in (([0, 0], [1, 1], 1), ([0, 1], [1, 2], 2), ([0, 5], [1, 6], 2), ([0, 1], [9, 2], 9),
        ([3, 0], [1, 0], 0), ([1, 0], [2, 5], 5)):
        assert union_length(torch.tensor(u), torch.tensor(v)) == length


def test_iqe_is_positively_homogeneous():
    head = moved("iqe")
    u, v = head.encode_source(points(50)), head.encode_target(points(50, seed=1))
    close(head.compare(3 * u + 5, 3 * v + 5), 3 * head.compare(u, v))


def test_wide_norm_is_an_asymmetric_norm():
    head = moved("wide_norm")
    zero = torch.zeros((), dtype=F64)
    a, b = (torch.randn(300, head.config["proj_dim"], dtype=F64) for _ in range(2))
    norm = lambda d: head.compare(zero.expand(d.shape), d)
    close(norm(3 * a), 3 * norm(a))
    assert (norm(a + b) <= norm(a) + norm(b) + 1e-12).all() and ((norm(a) - norm(-a)).abs() > 1e-6).all()


def test_translation_and_rotation_at_rest_are_plain_distances():
    translate, x, y = TransE(D, D, 0, norm=2).double(), points(9), points(9, seed=1)
    close(translate(x, y), 4 * (x - y).norm(dim=1) / math.sqrt(D), rtol=1e-6)
    head = moved("rotate")
    with torch.no_grad(): head.angle.zero_()
    close(head(x, y), head(y, x))


def test_softmax_divergence_against_scipy():
    for scale in (0.1, 1.0, 30.0, 300.0):
        u, v = (scale * torch.randn(50, 7, dtype=F64) for _ in range(2))
        p, q = ((z - logsumexp(z.numpy(), axis=-1, keepdims=True)).exp().numpy() for z in (u, v))
        if p.min() > 0: close(softmax_kl(u, v), torch.tensor(rel_entr(q, p).sum(-1)), rtol=1e-8, atol=1e-10)
        value = softmax_kl(u.float(), v.float())
        assert value.isfinite().all() and (value >= 0).all()
    assert torch.autograd.gradcheck(softmax_kl, (u[:3].clone().requires_grad_(), v[:3].clone().requires_grad_()))
    close(softmax_kl(u, u + 1e-3), torch.zeros(50, dtype=F64), atol=1e-15)  # a shift of all scores is nothing


@pytest.mark.parametrize("case", [c for c in CASES if "affine" in c])
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


def test_hyperbolic_distance_is_that_of_the_hyperboloid():
    u, v = (polar(2 * torch.randn(100, 4, dtype=F64), 0.0, 40.0) for _ in range(2))
    def hyperboloid(p): return torch.cosh(p[:, -1]), torch.sinh(p[:, -1:]) * p[:, :-1]
    (s, x), (t, y) = hyperboloid(u), hyperboloid(v)
    close(hyperbolic_distance(u, v), torch.acosh(s * t - (x * y).sum(1)), rtol=1e-7, atol=1e-7)


def test_cones_nest():
    "What is in the cone of a point that is in the cone of another is in the cone of that other (Ganea et al., 2018)"
    head = EntailmentCones(2, 2, 0, opening=0.2).double()
    def anywhere(n, out): return polar(out * torch.rand(n, 1) * torch.randn(n, 2, dtype=F64), head.inner, 10.0)
    torch.manual_seed(0)
    a, b, c = anywhere(500_000, 1), anywhere(500_000, 3), anywhere(500_000, 5)
    held = (head.compare(b, a) == 0) & (head.compare(c, b) == 0)
    assert held.sum() > 20 and (head.compare(c[held], a[held]) < 1e-9).all()


def test_the_energy_of_cones_at_its_ends():
    head = EntailmentCones(2, 2, 0).double()
    point = lambda *p: torch.tensor(p, dtype=F64)
    y, scale = point(1, 0, 1), head.log_scale.exp().item()
    aperture = math.asin(0.2 / math.sinh(1))
    assert head.compare(point(1, 0, 3), y) == 0  # straight outwards
    for below in (point(1, 0, 0.5), point(-1, 0, 1)):  # towards the origin, and on the other side of it
        assert head.compare(below, y).item() == pytest.approx(scale * (math.pi - aperture), rel=1e-5)
    close(head.compare(y, y), torch.zeros((), dtype=F64))


def test_errors_name_what_was_found():
    with pytest.raises(ValueError, match="found 0"): item_map(D, 0, 4)
    with pytest.raises(ValueError, match="hidden -1"): WideNorm(D, hidden=-1)
    with pytest.raises(ValueError, match="found 0"): IQE(D, size=0)
    with pytest.raises(ValueError, match="found 3"): TransE(D, norm=3)
    with pytest.raises(ValueError, match="-1"): MaxAffineBregman(D, temperature=-1)
