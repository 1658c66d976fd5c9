"Divergences from parts of their items: as exact as by the recursion, and by the recursion where they would not be"

import copy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from icnn.test_potential import F32, F64, HIDDEN, each_activation, each_lambda, mp_divergence, net, points

from rolebregman.icnn import ICNN, PAIRS_PER_ITEM, ItemParts, item_parts
from rolebregman.icnn import parts as module

LAST_DIGITS = 2e-7  # one of float32 for the criterion, and one half for the rounding of the result


@pytest.fixture
def threads():
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


@pytest.fixture
def recursions(monkeypatch):
    "How many pairs went by the recursion"
    seen, by = [0], ItemParts._by_recursion

    def counted(self, i, j):
        seen[0] += len(i)
        return by(self, i, j)

    monkeypatch.setattr(ItemParts, "_by_recursion", counted)
    return seen


def both_ways(phi, u, v):
    "The divergences of rows that belong together, from a list of pairs and from the table of all"
    parts, at = ItemParts(phi, u, v), torch.arange(len(u))
    return parts.pairs(at, at), parts.all_pairs().diagonal()


@each_lambda
@each_activation
def test_against_80_digits_at_every_displacement(name, strong):
    "The bound is that of the recursion"
    phi = net((6, 5), strong, name, k=3, dtype=F32, spread=0.5)
    for i, scale in enumerate(10.0**e for e in range(-8, 4)):
        v = points(3, 3, seed=i, dtype=F32)
        u = v * (1e-4 if scale < 1e-6 else 1)
        v, u = u.clone(), u + points(3, 3, scale=scale, seed=i + 100, dtype=F32)
        true = [mp_divergence(phi, a, b) for a, b in zip(u, v)]
        for found in both_ways(phi, u, v):
            for a, b in zip(found.tolist(), true): assert abs(a - b) <= 1e-5 * b, (scale, a, float(b))


@pytest.mark.parametrize("spread", [0.0, 1.0], ids=["fresh", "moved"])
@each_lambda
@each_activation
@settings(max_examples=25, deadline=None)
@given(exponent=st.floats(-8, 3), centre=st.floats(-3, 3), away=st.sampled_from([0, 30]),
       hidden=st.sampled_from([(32, 32), *HIDDEN]), seed=st.integers(0, 2**32 - 1))
def test_never_worse_than_the_recursion(name, strong, spread, exponent, centre, away, hidden, seed):
    "Against float64: to the last digits of float32, or about as far off as the recursion"
    phi = net(hidden, strong, name, k=16, dtype=F32, spread=spread)
    v = 10**centre * (points(64, 16, seed=seed, dtype=F32) + away)
    u = v + points(64, 16, scale=10**exponent, seed=seed // 2 + 1, dtype=F32)
    u[0] = v[0]
    with torch.no_grad():
        true = copy.deepcopy(phi).double().divergence(u.double(), v.double())
        recursion = phi.divergence(u, v).double()
    counts = true > 1e-30
    share = ((recursion - true).abs() / true)[counts].max() if counts.any() else 0
    for found in both_ways(phi, u, v):
        assert found.dtype == F32 and (found >= 0).all() and found[(u == v).all(-1)].eq(0).all()
        assert ((found - true).abs() <= max(LAST_DIGITS, 4 * share) * true)[counts].all()


@each_activation
def test_the_criterion_is_needed_and_is_what_keeps_near_pairs(name, recursions, monkeypatch):
    phi = net((32, 32), 0.1, name, k=16, dtype=F32)
    v = points(500, 16, dtype=F32)
    u = v + points(500, 16, scale=1e-6, seed=1, dtype=F32)
    true = copy.deepcopy(phi).double().divergence(u.double(), v.double())
    off = lambda: max(((found - true).abs() / true).max() for found in both_ways(phi, u, v))
    assert off() < 1e-5 and recursions[0] >= 1000
    monkeypatch.setattr(module, "_NEAR", 0.0)
    recursions[0] = 0
    assert off() > 1e-4 and recursions[0] < 1000


@each_activation
def test_far_pairs_need_no_recursion(name, recursions):
    phi = net((32, 32), 0.1, name, k=16, dtype=F32)
    both_ways(phi, points(300, 16, dtype=F32), points(300, 16, seed=1, dtype=F32))
    assert recursions[0] == 0


@each_activation
@pytest.mark.parametrize("hidden", HIDDEN)
def test_the_roundings_that_are_allowed_are_more_than_there_are(name, hidden):
    "Equation (4), in which the criterion is stated, bounds the error; a quarter of what is allowed is never reached"
    for strong in 0.0, 0.1:
        phi = net(hidden, strong, name, dtype=F64, spread=1.0)
        for place, far in (1e-6, 1e-6), (1.0, 1e-3), (1.0, 1.0), (1e3, 1.0), (1e6, 1e-2):
            v = points(100, 4, scale=place)
            u = v + points(100, 4, scale=far, seed=1)
            parts = ItemParts(phi, u, v)
            error = (parts.level + parts.rise - (u * parts.gradient).sum(-1) - phi.divergence(u, v)).abs()
            at = torch.arange(100)
            roundings = parts._edge(at, at) * torch.finfo(F32).eps
            assert (error <= roundings / 4).all()


def extremes():
    "Rows of zeros, of tiny and of huge numbers of both signs, and of some that are no numbers"
    rows = points(12, 4, dtype=F32)
    for i, size in enumerate((0, 1e-38, -1e-30, 1e18, -1e18, 1e30, 3e38, torch.inf, torch.nan)): rows[i] = size
    rows[9] *= 1e18
    return rows


@each_lambda
@each_activation
def test_at_extremes_there_is_a_number_where_the_recursion_has_one(name, strong):
    x = extremes()
    phi = net((32, 32), strong, name, dtype=F32)
    with torch.no_grad(): recursion = phi.divergence(x[:, None], x)
    i, j = torch.cartesian_prod(torch.arange(len(x)), torch.arange(len(x))).T
    parts = ItemParts(phi, x, x)
    for found in parts.all_pairs(), parts.pairs(i, j).view(len(x), -1):
        known = recursion.isfinite()
        assert found[known].isfinite().all() and not (found < 0).any()
        torch.testing.assert_close(found[known], recursion[known], rtol=2e-5, atol=1e-30)
        lost = (x[:, None].isfinite() & x.isfinite()).all(-1).logical_not()
        assert not found[lost].isfinite().any()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_half_precision_counts_as_its_numbers(dtype):
    phi = net((32, 32), 0.1, dtype=dtype)
    u, v = points(60, 4, dtype=dtype), points(60, 4, seed=1, dtype=dtype)
    true = copy.deepcopy(phi).double().divergence(u.double(), v.double())
    for found in both_ways(phi, u, v):
        assert found.dtype == F32 and ((found - true).abs() <= LAST_DIGITS * true).all()


def test_blocks_and_threads_change_no_more_than_the_last_digit_and_nothing_is_left_out(monkeypatch, threads):
    phi = net((32, 32), 0.1, k=16, dtype=F32)
    u, v = points(70, 16, dtype=F32), points(90, 16, seed=1, dtype=F32)
    v[5] = u[3]
    i, j = torch.cartesian_prod(torch.arange(70), torch.arange(90)).T
    wanted = ItemParts(phi, u, v).all_pairs()
    for count, size in (1, 1 << 10), (3, 7), (2, 1 << 20):
        threads(count)
        monkeypatch.setattr(module, "_PAIRS", size)
        monkeypatch.setattr(module, "_ITEMS", size)
        monkeypatch.setattr(module, "_TILE", (size, size + 3))
        parts = ItemParts(phi, u, v)
        for found in parts.all_pairs(), parts.pairs(i, j).view(70, 90):
            torch.testing.assert_close(found, wanted, rtol=1.3e-7, atol=0)
            assert found[3, 5] == 0


def test_no_items_and_no_pairs():
    phi, none = net(dtype=F32), torch.zeros(0, 4)
    some, at = points(3, 4, dtype=F32), torch.zeros(0, dtype=torch.int64)
    for u, v in (none, some), (some, none), (none, none):
        parts = ItemParts(phi, u, v)
        assert parts.all_pairs().shape == (len(u), len(v)) and parts.pairs(at, at).shape == (0,)


def test_where_it_pays_and_can_be():
    phi, x = net((32, 32), dtype=F32), points(1000, 4, dtype=F32)
    enough = 1024 + 2000 * PAIRS_PER_ITEM
    with torch.no_grad():
        assert isinstance(item_parts(phi, x, x, enough), ItemParts)
        assert item_parts(phi, x, x, enough - 1) is None
        assert item_parts(net((64,), dtype=F32), x, x, enough)
        assert item_parts(net((32, 31), dtype=F32), x, x, enough) is None
        assert item_parts(copy.deepcopy(phi).double(), x.double(), x.double(), enough) is None
        assert item_parts(phi, x.double(), x, enough) is None
        assert item_parts(phi.to("meta"), x.to("meta"), x.to("meta"), enough) is None


def test_not_where_a_graph_is_recorded():
    phi, x = net((32, 32), dtype=F32), points(40, 4, dtype=F32)
    asked = lambda x: [item_parts(phi, x, x, 1 << 20)]
    assert asked(x) == [None]
    with torch.no_grad():
        seen = []
        torch.func.vmap(lambda x: seen.extend(asked(x)) or x)(x[None])
        torch.jit.trace(lambda x: seen.extend(asked(x)) or x * 1, x, check_trace=False)
        assert seen == [None, None] and asked(x) != [None]


def test_parts_have_no_gradient_and_leave_the_potential_as_it_is():
    phi = ICNN(4, (32,))
    before = copy.deepcopy(phi.state_dict())
    found = ItemParts(phi, points(9, 4, dtype=F32), points(9, 4, dtype=F32)).all_pairs()
    assert not found.requires_grad and all(p.requires_grad for p in phi.parameters()) and phi._held is None
    assert all(before[name].equal(value) for name, value in phi.state_dict().items())
