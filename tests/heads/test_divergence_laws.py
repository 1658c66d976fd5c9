"What a divergence is by definition, asked of every Bregman head; and of every head, that company changes nothing"
import pytest
import torch
from heads.test_laws import CASES, F32, F64, D, close, each_bregman_head, heads, moved, points
from hypothesis import given, settings
from hypothesis import strategies as st

from rolebregman.baselines import HEADS
from rolebregman.evaluation import score_lists
from rolebregman.heads import BregmanHead
from rolebregman.theory import bregman_divergence

few = settings(max_examples=8)
tens = st.floats(-6, 6)


def scaled(case, factor):
    "A head whose matrices have left their start and are multiplied: a learned logarithm of a scale stays as it is"
    head = moved(case, F32)
    with torch.no_grad():
        for p in head.parameters():
            if p.dim() > 1: p.mul_(factor)
    return head


def some_pairs(far, seed, n=16):
    "Pairs so far apart in each coordinate; among them equal ones, and zeros on either side"
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(n, D, generator=g)
    y = x + far * torch.randn(n, D, generator=g)
    x[0], y[1], x[2], y[2], y[3] = 0, 0, 0, 0, x[3]
    return x, y


@heads(lambda head: head.nonnegative)
@few
@given(scale=tens, far=st.just(None) | tens, seed=st.integers(0, 2**31))
def test_never_negative_at_any_scale(case, scale, far, seed):
    """Inputs in float32 and bfloat16. Matrices up to 1000 give numbers; what overflows beyond is refused, not ranked.

    Features are two more matrices on the way: with them, up to 100."""
    head = scaled(case, 10**scale)
    longer = isinstance(head, BregmanHead) and head.config["features"] > 0
    x, y = some_pairs(0 if far is None else 10**far, seed)
    for dtype in F32, torch.bfloat16:
        a, b = x.to(dtype), y.to(dtype)
        with torch.no_grad(): value = head(a, b)
        assert not (value < 0).any()
        if value.isfinite().all(): continue
        assert scale > 3 - longer
        with pytest.raises(ValueError, match="not finite"): head.score(a, b)


ZERO_AT_EQUAL_VIEWS = {name for name in HEADS if name not in
                       ("bilinear", "mlp", "direction_prior", "tversky")}  # these have no place where both are one


@pytest.mark.parametrize("case", [case for case in CASES if case in ZERO_AT_EQUAL_VIEWS or case.startswith("bregman-")])
def test_zero_exactly_at_equal_views(case):
    "Of items at home, of far ones, of zero"
    for dtype in F32, F64:
        head = moved(case, dtype)
        for x in points(30, dtype=dtype), points(30, scale=1e4, dtype=dtype), torch.zeros(1, D, dtype=dtype):
            v = head.encode_target(x)
            assert head.compare(v, v).eq(0).all()


@each_bregman_head
@few
@given(share=st.floats(0, 1), far=st.floats(-3, 2), seed=st.integers(0, 2**31))
def test_convex_in_the_source(case, share, far, seed):
    head, g = moved(case), torch.Generator().manual_seed(seed)
    a, b, v = 10**far * torch.randn(3, 20, head.potential.dim, generator=g, dtype=F64)
    ends = share * head.compare(a, v) + (1 - share) * head.compare(b, v)
    assert (head.compare(share * a + (1 - share) * b, v) <= ends * (1 + 1e-12) + 1e-300).all()


@each_bregman_head
@few
@given(far=st.floats(-2, 2), seed=st.integers(0, 2**31))
def test_the_identity_of_three_points(case, far, seed):
    "D(a, c) = D(a, b) + D(b, c) + <a - b, grad phi(b) - grad phi(c)>"
    head, g = moved(case), torch.Generator().manual_seed(seed)
    a, b, c = 10**far * torch.randn(3, 20, head.potential.dim, generator=g, dtype=F64)
    turn = ((a - b) * (head.potential.gradient(b) - head.potential.gradient(c))).sum(-1)
    terms = head.compare(a, c), head.compare(a, b), head.compare(b, c), turn
    size = sum(term.abs() for term in terms)
    assert ((terms[0] - terms[1] - terms[2] - terms[3]).abs() <= 1e-12 * size).all()


@each_bregman_head
def test_an_affine_function_added_to_the_potential_changes_nothing(case):
    "By the definition: with phi, and with phi plus any affine function"
    head, g = moved(case), torch.Generator().manual_seed(0)
    u, v = head.encode_source(points(9)), head.encode_target(points(9, seed=1))
    slope = torch.randn(head.potential.dim, generator=g, dtype=F64)
    moved_phi = lambda z: head.potential(z) + z @ slope + 3
    close(bregman_divergence(moved_phi, u, v), head.compare(u, v), rtol=1e-9, atol=1e-9)


@each_bregman_head
def test_the_limit_of_close_views_is_half_a_square_by_the_hessian(case):
    head = moved(case)
    v = head.encode_target(points(20))
    d = torch.randn_like(v)
    square = torch.einsum("ni,nij,nj->n", d, head.potential.hessian(v), d) / 2
    for step in 1e-4, 1e-8:
        close(head.compare(v + step * d, v) / step**2, square, rtol=100 * step, atol=0)
        close(head.compare(v, v + step * d) / step**2, square, rtol=100 * step, atol=0)


@pytest.mark.parametrize("roles", ["none", "shared", "both"])
def test_without_a_network_it_is_half_lambda_of_a_square_and_has_a_direction_by_its_roles_alone(roles):
    torch.manual_seed(0)
    head = BregmanHead(D, hidden=(4,), strong_convexity=0.3, roles=roles).double()
    with torch.no_grad():
        for weight in head.maps.parameters(): weight.add_(0.3 * torch.randn_like(weight))
        head.potential.output.raw.fill_(-1e4)  # the softplus of which is zero
    x, y = points(20), points(20, seed=1)
    close(head(x, y), 0.15 * (head.encode_source(x) - head.encode_target(y)).square().sum(-1), rtol=1e-13)
    if roles == "both": assert (head.gap(x, y).abs() > 1e-3).all()
    else: assert head.gap(x, y).abs().max() <= 1e-15 * head(x, y).max()


@pytest.fixture
def threads():
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


@pytest.mark.parametrize("case", [*(name for name in HEADS if HEADS[name].group != "ours"), "bregman-softplus",
                                  "bregman-both-residual-extra"])
def test_a_pair_has_its_distance_alone_and_among_ten_thousand(case, threads):
    "In any order and on any number of threads, to rounding; and an equal pair among them has an equal number"
    head, n = moved(case, F32), 10_000
    x, y = points(n, dtype=F32), points(n, seed=1, dtype=F32)
    order, twins = torch.randperm(n, generator=torch.Generator().manual_seed(0)), torch.tensor([0, 17, 9_000, n - 1])
    x[twins], y[twins] = x[0].clone(), y[0].clone()
    found = head.score(x, y)
    size = 1e-5 * float(found.abs().max())
    with torch.no_grad(): alone = torch.stack([head(x[i], y[i]) for i in range(0, n, 1999)])
    close(alone, found[::1999], rtol=1e-5, atol=size)
    close(head.score(x[order], y[order]), found[order], rtol=1e-5, atol=size)
    threads(3)
    close(head.score(x, y), found, rtol=1e-5, atol=size)
    (tied,) = score_lists(head, torch.cat([x, y]), [(order, order + n)])
    at = torch.stack([(order == twin).nonzero()[0, 0] for twin in twins])
    assert len(tied[at].unique()) == 1
    close(tied, found[order], rtol=1e-5, atol=size)
