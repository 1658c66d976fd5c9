"Role maps and the role-aware Bregman head; the laws that it shares with all heads are in test_laws.py"
import copy

import pytest
import torch
from torch.nn import functional as F

from rolebregman.heads import INITS, MAPS, ROLES, BregmanHead, RoleMap
from rolebregman.icnn import ACTIVATIONS, ICNN
from rolebregman.theory import bregman_divergence

D = 6  # width of the embeddings
F32, F64 = torch.float32, torch.float64
SMALL = dict(hidden=(8, 7), rank=3)


def points(n, seed=0, dtype=F64):
    "Raw embeddings, off centre and not of unit size, as encoders make them"
    return (3.0 + 0.5 * torch.randn(n, D, dtype=F64, generator=torch.Generator().manual_seed(seed))).to(dtype)


# ---- role maps

@pytest.mark.parametrize("maps", MAPS)
@pytest.mark.parametrize("init", INITS)
@pytest.mark.parametrize("proj_dim", [None, 4])
def test_role_maps_do_not_share_memory(maps, init, proj_dim):
    head = BregmanHead(D, proj_dim, maps=maps, init=init, **SMALL)
    x = points(3, dtype=F32)
    starts_equal = init != "independent"
    assert head.encode_source(x).equal(head.encode_target(x)) == starts_equal or maps in ("lowrank", "residual")
    before = head.encode_target(x)
    with torch.no_grad():
        for p in head.maps["source"].parameters(): p.add_(0.1)
    assert head.encode_target(x).equal(before)
    pointers = [t.data_ptr() for t in head.state_dict().values()]
    assert len(set(pointers)) == len(pointers)


# ---- a fresh Bregman head is a sensible metric

@pytest.mark.parametrize("maps", MAPS)
@pytest.mark.parametrize("roles", ROLES)
def test_a_fresh_identity_head_ranks_by_nearness(roles, maps):
    head = BregmanHead(D, roles=roles, maps=maps, **SMALL).fit_standardizer(points(200))
    x = points(200)
    with torch.no_grad():
        assert head(x, x).eq(0).all()
        near, far = head(x, x + 0.05 * torch.randn_like(x)), head(x, points(200, seed=1))
    assert (near < far).float().mean() > 0.98


# ---- precision, and weights that are held

@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_half_precision_head_computes_its_divergence_in_float32(dtype):
    "Its weights are rounded once; what is computed from them is as exact as in float32, and never negative"
    torch.manual_seed(0)
    head, exact = BregmanHead(8, hidden=(16, 16)).to(dtype), BregmanHead(8, hidden=(16, 16)).double()
    exact.load_state_dict(head.state_dict())
    v = torch.randn(50, 8).to(dtype)
    u = (v.float() + 0.01 * torch.randn(50, 8)).to(dtype)
    found, true = head.compare(u, v), exact.compare(u.double(), v.double())
    assert found.dtype == torch.float32 and (found >= 0).all()
    assert ((found - true) / true).abs().max() < 1e-5
    assert head(u, v).isfinite().all()


def test_autocast_leaves_the_divergence_alone():
    torch.manual_seed(0)
    head = BregmanHead(8, hidden=(16, 16))
    u, v = torch.randn(2, 30, 8)
    with torch.autocast("cpu", dtype=torch.bfloat16): found = head.potential.divergence(u, v)
    assert torch.equal(found, head.potential.divergence(u, v))
    with torch.autocast("cpu", dtype=torch.bfloat16): assert (head(u, v) >= 0).all()


def test_held_weights_change_nothing_and_are_let_go():
    torch.manual_seed(0)
    head = BregmanHead(8, hidden=(16, 16))
    u, v = torch.randn(2, 30, 8)
    plain = head.compare(u, v)
    with head.held_weights(): held = head.compare(u, v) + head.compare_all(u, v, exact=False).diagonal() * 0
    assert torch.equal(held, plain)
    of, wanted = (torch.autograd.grad(d.sum(), list(head.potential.parameters())) for d in (held, plain))
    for a, b in zip(of, wanted): torch.testing.assert_close(a, b)
    with torch.no_grad(): head.potential.output.raw += 1
    assert not torch.equal(head.compare(u, v), plain)
    with pytest.raises(ValueError, match="width"), head.held_weights(): head(u, v[:, :5])
    assert head.potential._held is None


# ---- errors of the constructor

@pytest.mark.parametrize("change, message", [(dict(dim=0), "dim must be a whole number of at least 1, found 0"),
    (dict(roles="all"), "none, shared, source, target, both.*'all'"), (dict(maps="deep"), "linear.*'deep'"),
    (dict(init="zero"), "identity.*'zero'"), (dict(rank=0), "rank"), (dict(extra=-1), "extra must be at least 0"),
    (dict(features=-2), "features must be at least 0, found -2"), (dict(features=2.0), "features must be a whole"),
    (dict(rank=-1), "rank must be at least 1, found -1"),
    (dict(proj_dim=3, roles="source"), "proj_dim must be 6, found 3"), (dict(roles="none", extra=2), "extra=2"),
    (dict(activation="relu"), "squareplus"), (dict(strong_convexity=-0.1), "-0.1"), (dict(hidden=()), "hidden")])
def test_constructor_errors_name_expected_and_found(change, message):
    with pytest.raises(ValueError, match=message): BregmanHead(**{"dim": D} | change)


@pytest.mark.parametrize("arguments, message", [(dict(dim=8, proj_dim=0), "proj_dim .* at least 1"),
    (dict(dim=8.0), "dim must be a whole number .* found 8.0"), (dict(dim=8, hidden=16), "widths as .*, found 16"),
    (dict(dim=8, hidden=(8, 2.5)), r"widths as .*, found \(8, 2.5\)")])
def test_arguments_of_the_wrong_kind_are_named(arguments, message):
    with pytest.raises(ValueError, match=message): BregmanHead(**arguments)


def test_a_role_map_without_a_start_is_the_identity_with_coordinates_behind():
    map = RoleMap(3, 3, "residual", None, rank=2, extra=2)
    x = torch.randn(5, 3)
    assert torch.equal(map(x)[:, :3], x) and map(x).shape == (5, 5)
    assert torch.equal(RoleMap(3, 2, "linear", torch.eye(2, 3), 2, 0)(x), x[:, :2])


@pytest.mark.parametrize("rank, extra", [(48, 400), (400, 48)])
def test_further_coordinates_start_with_a_tenth_of_the_spread_of_what_they_are_made_of(rank, extra):
    torch.manual_seed(0)
    weight = RoleMap(8, 8, "residual", None, rank, extra).coordinates[-1].weight
    assert weight.std().item() == pytest.approx(0.1 / max(rank, extra) ** 0.5, rel=0.05)


# ---- what is learned, what is meant by nothing said, and the narrowest

@pytest.mark.parametrize("maps, init, learned", [("linear", "identity", True), ("affine", "identity", True),
    ("lowrank", "identity", False), ("lowrank", "independent", False), ("residual", "identity", False),
    ("residual", "same", True), ("residual", "independent", True)])
def test_which_maps_learn_where_they_start(maps, init, learned):
    "A low-rank map is a fixed one and a change of it; a residual one learns both, and the identity stays one"
    head = BregmanHead(D, maps=maps, init=init, **SMALL)
    weights = dict(head.named_parameters())
    assert [f"maps.{side}.start" in weights for side in ("source", "target")] == [learned] * 2
    head(points(5, dtype=F32), points(5, seed=1, dtype=F32)).sum().backward()
    if learned: assert all(weights[f"maps.{side}.start"].grad.abs().sum() > 0 for side in ("source", "target"))


def test_defaults_are_those_of_the_paper():
    head = BregmanHead(D)
    assert head.config == dict(dim=D, proj_dim=D, hidden=(128, 128), strong_convexity=0.1, roles="both", maps="linear",
                               init="identity", activation="squareplus", rank=16, extra=0, features=0)
    alone = ICNN(D)
    for potential in head.potential, alone:
        assert [skip.out_features for skip in potential.skips] == [128, 128] and potential.strong_convexity == 0.1
        assert potential.activation is ACTIVATIONS["squareplus"]


@pytest.mark.parametrize("roles", ROLES)
def test_both_sides_have_the_same_features_whatever_maps_they_have(roles):
    "By hand: the embedding and softplus of the perceptron beside it, then what the role does"
    torch.manual_seed(0)
    head = BregmanHead(D, roles=roles, maps="lowrank", features=4, hidden=(8,)).double()
    with torch.no_grad():
        for weight in head.parameters(): weight.add_(0.3 * torch.randn_like(weight))
    x, made = points(5), head.features
    inner = F.gelu(x @ made.change[0].weight.T + made.change[0].bias)
    learned = x @ made.start.T + inner @ made.change[2].weight.T + made.change[2].bias
    seen = torch.cat([x, (1 + learned.exp()).log()], 1)
    for side, view in ("source", head.source(x)), ("target", head.target(x)):
        own = head.maps["shared"] if roles == "shared" else head.maps[side] if side in head.maps else None
        wanted = seen if own is None else seen + seen @ own.change[0].weight.T @ own.change[1].weight.T + own.offset
        torch.testing.assert_close(view, wanted, rtol=1e-12, atol=1e-12)
    assert head.potential.dim == head.config["proj_dim"] == D + 4


@pytest.mark.parametrize("maps", MAPS)
def test_one_of_everything(maps):
    "One dimension, unit, rank and coordinate more: nothing is squeezed away, and it is what the definition says"
    torch.manual_seed(0)
    head = BregmanHead(1, hidden=(1,), maps=maps, rank=1, extra=1).double()
    with torch.no_grad():
        for weight in head.parameters(): weight.add_(0.3 * torch.randn_like(weight))
    x, y = torch.randn(5, 1, dtype=F64), torch.randn(4, 1, dtype=F64)
    u, v = head.encode_source(x), head.encode_target(y)
    assert u.shape == (5, 2) and head.pairwise(x, y).shape == (5, 4) and head.potential.hessian(v).shape == (4, 2, 2)
    wanted = bregman_divergence(head.potential, u[:, None], v)
    assert head.pairwise(x, y).allclose(wanted, rtol=1e-9) and head.pairwise(x, y, exact=False).allclose(wanted)


@pytest.mark.parametrize("proj_dim, init", [(4, "same"), (8, "independent"), (16, "identity"), (32, "independent")])
def test_a_map_that_is_drawn_keeps_lengths_or_the_size_of_a_coordinate(proj_dim, init):
    "Orthonormal rows where it narrows; where it widens, orthogonal columns of length sqrt(proj_dim / dim)"
    weights = BregmanHead(8, proj_dim=proj_dim, init=init).state_dict()
    for side in "source", "target":
        weight = next(value for name, value in weights.items() if side in name and value.shape == (proj_dim, 8))
        narrow = weight @ weight.T if proj_dim <= 8 else weight.T @ weight * (8 / proj_dim)
        torch.testing.assert_close(narrow, torch.eye(min(8, proj_dim)))


# ---- many pairs

def test_pairs_are_exact_by_parts_and_tables_are_those_of_the_recursion():
    "Against float64, with pairs of one place among them; where a gradient is wanted there are none"
    torch.manual_seed(0)
    head = BregmanHead(D, 9, maps="residual").fit_standardizer(points(200, dtype=F32))
    x, y = points(90, dtype=F32), points(110, seed=1, dtype=F32)
    i, j = torch.cartesian_prod(torch.arange(90), torch.arange(110)).T
    with torch.no_grad():
        u, v = head.encode_source(x), head.encode_target(y)
        v[:40] = u[:40]
        v[40:60] = u[40:60] + 1e-6 * torch.randn(20, 9)
        found = head.item_parts(u, v, len(i)).pairs(i, j).view(90, 110)
        torch.testing.assert_close(head.compare_all(u, v), head.compare(u[:, None], v), rtol=3e-6, atol=0)
    true = copy.deepcopy(head).double().potential.divergence(u.double()[:, None], v.double())
    assert ((found - true).abs() <= 2e-6 * true).all() and found[range(40), range(40)].eq(0).all()
    assert head.compare_all(u, v).requires_grad and head.item_parts(u, v, 1 << 20) is None


def test_what_has_a_distance_of_its_own_is_asked_for_it():
    class Twice(BregmanHead):
        def compare(self, u, v): return 2 * super().compare(u, v)

    head, x = Twice(D), points(90, dtype=F32)
    with torch.no_grad():
        u, v = head.encode_source(x), head.encode_target(x)
        assert head.item_parts(u, v, 1 << 20) is None
        plain = BregmanHead(D)
        assert plain.item_parts(u, v, 1 << 20)
        plain.compare = lambda u, v: 2 * plain.potential.divergence(u, v)
        assert plain.item_parts(u, v, 1 << 20) is None
