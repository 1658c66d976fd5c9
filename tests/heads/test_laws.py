"The laws of a distance head, asked of every head in the registry and of every kind of Bregman head"

import copy
import io
import json
import pickle
from functools import partial

import pytest
import torch
from heads.cases import CASES, F32, F64, PEERS, RIVALS, D, close, fresh, heads, moved, points
from safetensors import safe_open
from torch.nn.functional import softplus

from rolebregman.baselines import HEADS, EntailmentCones, make_head
from rolebregman.datasets import toy_tree
from rolebregman.evaluation import preference_rate
from rolebregman.heads import INPUTS, MAPS, ROLES, BregmanHead, DistanceHead, load_head
from rolebregman.theory import bregman_divergence
from rolebregman.training import TrainConfig, fit

each_head = heads()
each_bregman_head = heads(lambda head: isinstance(head, BregmanHead))
each_dtype = pytest.mark.parametrize("dtype", [F32, F64], ids=["float32", "float64"])


# ---- what a head says of itself

@each_head
def test_what_a_head_says_of_itself(case):
    head = fresh(case)
    assert isinstance(head, DistanceHead) and head.dim == head.config["dim"] == D
    for promise in "symmetric", "nonnegative": assert type(vars_of(type(head), promise)) is bool
    assert json.loads(json.dumps(head.config)) == json.loads(json.dumps(type(head)(**head.config).config))
    assert type(head).__doc__ and len(type(head).__doc__) > 20


def vars_of(cls, name): return next(vars(c)[name] for c in cls.__mro__ if name in vars(c))


@each_head
def test_same_seed_same_head(case):
    a, b = fresh(case), fresh(case)
    assert a(points(5), points(5, seed=1)).equal(b(points(5), points(5, seed=1)))


# ---- laws

@each_dtype
@heads(lambda head: head.nonnegative)
def test_never_negative_where_promised(case, dtype):
    head = moved(case, dtype)
    x = points(100, dtype=dtype)
    for scale in (0.0, 1e-8, 1e-4, 1e-2, 1.0, 100.0):
        y = x + (points(100, seed=1, scale=scale) - 3).to(dtype)
        for a, b in ((x, y), (y, x)):
            value = head(a, b)
            assert value.isfinite().all() and (value >= 0).all()
    with torch.no_grad():  # where source and target views come close, the corner in which differences cancel
        u = head.encode_source(x)
        if u.shape == head.encode_target(x).shape:
            for scale in (0.0, 1e-8, 1e-5): assert (head.compare(u, u + scale * torch.randn_like(u)) >= 0).all()


@heads(among=RIVALS)
def test_100000_pairs_are_finite_and_never_negative_where_promised(case):
    head = moved(case, F32)
    with torch.no_grad():
        for scale in (1.0, 1e-3, 1e-6):
            x = points(33_334, dtype=F32)
            y = x + (points(33_334, seed=1, scale=scale) - 3).float()
            value = head(x, y)
            assert value.isfinite().all()
            if head.nonnegative: assert (value >= 0).all()


@each_bregman_head
def test_role_diagonal_identity(case):
    "A Bregman head is zero where the two views coincide, and only there"
    head = moved(case)
    u, v = head.encode_source(points(50)), head.encode_target(points(50, seed=1))
    assert head.compare(u, u).eq(0).all() and head.compare(v, v).eq(0).all()
    assert (head.compare(u, v) > 1e-6).all()
    near = head.compare(u, u + 1e-7 * torch.randn_like(u))
    if head.config["strong_convexity"] > 0: assert (near > 0).all() and (near < 1e-10).all()
    x = points(50)
    if head.config["roles"] in ("none", "shared"): assert head(x, x).eq(0).all()
    else: assert (head(x, x) > 1e-6).all()  # an item is not at distance zero from itself: the roles differ


@each_head
def test_symmetric_heads_are_and_others_are_not(case):
    head = moved(case)
    x, y = points(100), points(100, seed=1)
    forward, backward = head(x, y), head(y, x)
    if head.symmetric:
        close(forward, backward, rtol=1e-12, atol=1e-13)
        assert head.gap(x, y).abs().max() < 1e-12
        if head.nonnegative:
            close(head(x, x), torch.zeros(100, dtype=F64), rtol=0, atol=1e-6)  # a root of rounding at most
            assert (forward > 1e-4).all()
    else:
        apart = (forward - backward).abs() > 1e-6 * (forward.abs() + backward.abs())
        assert apart.double().mean() > (0.6 if "hard" in case else 0.9)  # many pairs share a piece of a hard maximum


@each_dtype
@each_head
def test_gap(case, dtype):
    head, x, y = moved(case, dtype), points(20, 1, dtype=dtype), points(10, seed=1, dtype=dtype)
    gap = head.gap(x, y)
    assert gap.shape == (20, 10) and gap.equal(-head.gap(y, x)) and gap.equal(head(x, y) - head(y, x))
    assert head.gap(x, x).eq(0).all()


@each_head
def test_scores_depend_on_both_items(case):
    head = moved(case)
    scores = head.pairwise(points(20), points(20, seed=1))
    assert scores.std(0).min() > 1e-4 and scores.std(1).min() > 1e-4


@pytest.mark.parametrize("case", PEERS)
def test_a_fresh_peer_is_a_sensible_metric_of_order_one(case):
    torch.manual_seed(0)
    head = make_head(case, 64)
    x, noise, y = torch.randn(3, 500, 64)
    with torch.no_grad(): near, far = head(x, x + 0.1 * noise), head(x, y)
    assert (near < far).float().mean() > 0.97
    assert 0.1 < far.std() < 10 and far.abs().mean() < 30


# ---- the formula (those of the rivals: tests/baselines)

@each_bregman_head
def test_a_bregman_head_is_the_divergence_of_its_potential(case):
    "Against the definition, with the autograd gradient of the potential"
    head, x, y = moved(case), points(9), points(7, seed=1)
    u, v = head.source(head.standardizer(x)), head.target(head.standardizer(y))
    close(head.pairwise(x, y), bregman_divergence(head.potential, u[:, None], v), rtol=1e-9, atol=1e-10)


# ---- shapes

@each_head
def test_broadcasting_and_empty_batches(case):
    head = moved(case)
    for left, right, out in (((), (), ()), ((5,), (), (5,)), ((), (5,), (5,)), ((4, 1), (3,), (4, 3)),
        ((1, 3), (4, 1), (4, 3)), ((2, 1, 1), (3, 2), (2, 3, 2)), ((0,), (0,), (0,)), ((0, 1), (5,), (0, 5)),
        ((4, 1), (0,), (4, 0))):
        x, y = points(*left), points(*right, seed=1)
        found = head(x, y)
        assert found.shape == out and head.gap(x, y).shape == out
        x, y = (a.reshape(-1, D) for a in torch.broadcast_tensors(x, y))
        if x.numel(): close(found.flatten(), torch.stack([head(a, b) for a, b in zip(x, y)]))


@each_head
def test_pairwise_equals_the_loop(case):
    head = moved(case)
    for n, m in (5, 4), (1, 6), (6, 1), (0, 5), (5, 0), (0, 0):
        x, y = points(n), points(m, seed=1)
        for exact in (True, False):
            found = head.pairwise(x, y, exact=exact)
            assert found.shape == (n, m)
            if found.numel(): close(found, torch.stack([torch.stack([head(a, b) for b in y]) for a in x]))


@pytest.mark.parametrize("case", HEADS)
def test_pairwise_over_more_than_one_block(case):
    head, x, y = moved(case, F32), points(34, dtype=F32), points(2000, seed=1, dtype=F32)
    with torch.no_grad():
        found, loop = head.pairwise(x, y), torch.stack([head(a, y) for a in x])
        close(found, loop, rtol=1e-5, atol=1e-5)
        fast = head.pairwise(x, y, exact=False)
        close(fast, loop, rtol=1e-4, atol=2e-6 * float(loop.abs().max()) + 1e-5)


@each_bregman_head
def test_the_matrix_form_is_accurate_far_from_the_origin(case):
    "In float32: its base point is amid the targets, or it would lose all digits here"
    torch.manual_seed(0)
    head = CASES[case]()  # its standardiser leaves the data where they are
    x, y = 1000 + torch.randn(30, D), 1000 + torch.randn(30, D)
    with torch.no_grad():
        if (head.encode_source(x) - head.encode_target(x)).abs().max() > 1: return  # the roles themselves are far apart
        exact, fast = head.pairwise(x, y), head.pairwise(x, y, exact=False)
    assert (exact - fast).abs().max() < 1e-3 * exact.max()


@each_head
def test_pairwise_is_differentiable_in_both_forms(case):
    head, x, y = moved(case), points(4), points(5, seed=1)
    def grads(scores):
        g = torch.autograd.grad(scores.square().sum(), list(head.parameters()), allow_unused=True)
        return [torch.zeros(()) if p is None else p for p in g]
    loop = grads(head(x[:, None], y))
    for exact in (True, False):
        for a, b in zip(grads(head.pairwise(x, y, exact=exact)), loop): close(a, b, rtol=1e-8, atol=1e-8)


@each_head
def test_encoding_once_gives_the_same(case):
    head, x, y = moved(case), points(6), points(4, seed=1)
    u, v = head.encode_source(x), head.encode_target(y)
    assert len(u) == 6 and len(v) == 4
    close(head.compare(u[:4], v), head(x[:4], y))
    close(head.compare(u[:, None], v), head.pairwise(x, y))
    close(head.source(head.standardizer(x)), u, rtol=0, atol=0)
    close(head.target(head.standardizer(y)), v, rtol=0, atol=0)


@each_head
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


# ---- inputs

@each_head
def test_arrays_lists_and_other_float_types(case):
    head, x, y = moved(case, F32), points(5, dtype=F32), points(5, seed=1, dtype=F32)
    expected = head(x, y)
    assert expected.dtype == F32
    for a in (x.numpy(), x.double(), x.double().numpy(), x.tolist()):
        assert head(a, y).equal(expected) and head(a, y).dtype == F32
    assert head.pairwise(x.numpy(), y.numpy()).shape == (5, 5)
    half = x.half()
    assert head(half, y).equal(head(half.float(), y))
    assert head(half.numpy(), y).equal(head(half, y))


@each_dtype
@each_head
def test_result_has_the_dtype_of_the_head(case, dtype):
    head = moved(case, dtype)
    value = head(points(5, dtype=F32), points(5, seed=1, dtype=F64))
    assert value.dtype == dtype and value.isfinite().all()


@each_head
def test_float32_is_close_to_float64(case):
    wide = moved(case)
    narrow = copy.deepcopy(wide).float()
    x, y = points(100, dtype=F32), points(100, seed=1, dtype=F32)
    a, b = narrow(x, y).double(), wide(x, y)
    assert ((a - b).abs() <= 1e-5 * b.abs() + 1e-5).all(), float((a - b).abs().max())


@heads(lambda head: head.nonnegative and not isinstance(head, EntailmentCones))  # an angle
def test_float32_loses_nothing_between_close_items(case):
    "On encoded pairs, relative to the distance, down to differences of a thousandth"
    wide = moved(case)
    narrow = copy.deepcopy(wide).float()
    u = wide.encode_source(points(300)).float()
    v = u + 1e-3 * torch.randn(u.shape, generator=torch.Generator().manual_seed(2))
    a, b = narrow.compare(u, v).double(), wide.compare(u.double(), v.double())
    assert ((a - b).abs() <= 1e-3 * b + 1e-30).double().mean() > 0.99 and ((a - b).abs() <= 1e-2 * b).all()


@each_head
def test_wrong_width_names_expected_and_found(case):
    head, x = fresh(case), points(5)
    for wrong in (x[:, :1], torch.ones(5, D + 3)):
        for call, args in ((head, (wrong, x)), (head, (x, wrong)), (head.pairwise, (x, wrong)), (head.gap, (wrong, x)),
            (head.encode_source, (wrong,)), (head.encode_target, (wrong,))):
            with pytest.raises(ValueError, match=rf"width {D}.*{wrong.shape[-1]}"): call(*args)
    with pytest.raises(ValueError, match=rf"width {D}"): head(torch.tensor(1.0), x)


@each_head
def test_device_moves(case):
    head, x, y = moved(case), points(5), points(5, seed=1)
    expected = head(x, y)
    assert head.to("cpu").to(F32).to(F64)(x, y).allclose(expected, rtol=1e-4, atol=1e-4)
    empty = copy.deepcopy(head).to("meta")
    assert empty(x.to("meta"), y.to("meta")).device.type == "meta"  # no tensor stays behind on another device
    assert empty.pairwise(x.to("meta"), y.to("meta"), exact=False).shape == (5, 5)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
def test_on_a_gpu():
    for case in CASES:
        head, x, y = moved(case), points(5), points(5, seed=1)
        expected, found = head(x, y), copy.deepcopy(head).cuda()(x.numpy(), y)
        assert found.is_cuda, case
        close(found.cpu(), expected, rtol=1e-9, atol=1e-9)


# ---- standardiser

@each_head
def test_standardiser(case):
    features, head = points(300, scale=4), fresh(case)
    before = copy.deepcopy(head.standardizer.state_dict())
    assert head.fit_standardizer(features.numpy()) is head
    z = head.standardizer(features)
    if head.inputs == "standard":
        close(z.mean(0), torch.zeros(D, dtype=F64), atol=1e-12)
        close(z.square().sum(-1).mean(), torch.tensor(float(D), dtype=F64))
        scale = (z[0] - z[1]) / (features[0] - features[1])
        close(scale, scale[:1].expand(D))  # one scale for all: the shape of the cloud is kept
    else: assert z.equal(features) and before.keys() == head.standardizer.state_dict().keys()
    assert not any(p.requires_grad for p in head.standardizer.state_dict().values())


@heads(lambda head: head.inputs == "standard")
def test_moving_and_scaling_data_and_standardiser_changes_nothing(case):
    head = moved(case)
    features, x, y = points(300), points(20), points(20, seed=1)
    expected = head.fit_standardizer(features)(x, y)
    shift = 10 * torch.randn(D, dtype=F64)
    for s in (0.01, 100.0):
        head.fit_standardizer(features * s + shift)
        close(head(x * s + shift, y * s + shift), expected, rtol=1e-8, atol=1e-9)
    assert not head(x, y).allclose(expected, rtol=0.01)  # without the shift it is another input


@each_head
def test_a_head_without_fit_takes_inputs_as_they_are(case):
    torch.manual_seed(0)
    head, x = CASES[case]().double(), points(5)
    assert head.standardizer(x).equal(x)


# ---- inputs

each_registered = pytest.mark.parametrize("name", HEADS)
each_input = pytest.mark.parametrize("inputs", INPUTS)


def seen_by(name, inputs, features=None, dtype=F64):
    "A head of the registry with these inputs, fitted"
    torch.manual_seed(0)
    return make_head(name, D, inputs=inputs).to(dtype).fit_standardizer(points(200, dtype=dtype) if features is None
                                                                        else features)


@each_input
@each_registered
def test_inputs_come_back_with_a_saved_head(name, inputs, tmp_path):
    head, x, y = seen_by(name, inputs), points(5), points(5, seed=1)
    head.save_pretrained(tmp_path)
    back = load_head(tmp_path)
    assert (back.inputs, back.standardizer.fitted) == (inputs, True) and back(x, y).equal(head(x, y))
    close(back.pairwise(x, y).diagonal(), back(x, y), rtol=1e-12, atol=1e-12)
    close(back.score(x.numpy(), y), head(x, y), rtol=1e-12, atol=1e-12)
    single = seen_by(name, inputs, dtype=F32)
    close(single(x.float(), y.float()).double(), seen_by(name, inputs)(x, y), rtol=1e-3, atol=1e-3)


@each_registered
def test_what_each_kind_of_inputs_is_blind_to(name):
    features, x, y = points(200), points(20), points(20, seed=1)
    lengths = torch.linspace(0.01, 100, 20, dtype=F64)[:, None]
    head = seen_by(name, "unit", features)
    close(head(x * lengths, y / lengths), head(x, y), rtol=1e-9, atol=1e-9)
    for inputs, change in (("scale", lambda z: z * 50), ("standard", lambda z: z * 50 - 7)):
        expected = seen_by(name, inputs, features)(x, y)
        close(seen_by(name, inputs, change(features))(change(x), change(y)), expected, rtol=1e-8, atol=1e-8)
    assert seen_by(name, "raw", features)(x, y).equal(seen_by(name, "raw", 9 * features)(x, y))


@each_input
@each_registered
def test_a_zero_vector_has_a_distance_and_a_gradient(name, inputs):
    head, x = seen_by(name, inputs), torch.zeros(1, D, dtype=F64, requires_grad=True)
    distance = head(x, points(1))
    distance.sum().backward()
    assert distance.isfinite().all() and x.grad.isfinite().all()


# ---- saving

@each_dtype
@each_head
def test_saved_and_loaded_bit_for_bit(case, dtype, tmp_path):
    head, x, y = moved(case, dtype), points(50, dtype=dtype), points(50, seed=1, dtype=dtype)
    assert head.save_pretrained(tmp_path / "a" / "head") == tmp_path / "a" / "head"
    loaded = load_head(str(tmp_path / "a" / "head"))
    assert type(loaded) is type(head) and loaded.config == head.config and not loaded.training
    state = loaded.state_dict()
    assert state.keys() == head.state_dict().keys()
    for name, value in head.state_dict().items():
        assert value.equal(state[name]) and value.dtype == state[name].dtype, name
    assert loaded(x, y).equal(head.eval()(x, y)) and loaded(x, y).dtype == dtype
    assert loaded(x.numpy(), y.numpy()).equal(head(x, y))  # raw embeddings: the standardiser came along
    # A loaded head can be trained on, and saved over what is there.
    loss = loaded.train()(x, y).sum()
    if list(loaded.parameters()): loss.backward()
    loaded.save_pretrained(tmp_path / "a" / "head")
    assert load_head(tmp_path / "a" / "head")(x, y).equal(head(x, y))


@each_head
def test_nothing_on_disk_is_a_pickle(case, tmp_path):
    moved(case).save_pretrained(tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["config.json", "model.safetensors"]
    about = json.loads((tmp_path / "config.json").read_text())
    assert str(tmp_path) not in json.dumps(about)
    with safe_open(tmp_path / "model.safetensors", "pt") as f: assert set(f.keys()) == set(fresh(case).state_dict())


# ---- gradients

@each_head
def test_gradients(case):
    head, x, y = moved(case), points(3).requires_grad_(), points(3, seed=1).requires_grad_()
    names, values = [*zip(*head.named_parameters())] or [(), ()]
    def score(x, y, *params): return torch.func.functional_call(head, dict(zip(names, params)), (x, y))
    assert torch.autograd.gradcheck(score, (x, y, *values), fast_mode=True)
    assert torch.autograd.gradcheck(score, (x, y), eps=1e-7, atol=1e-5)


@each_dtype
@each_head
def test_gradients_are_finite_at_the_corners(case, dtype):
    "An item against itself, the origin, the mean of the data, and outliers a thousand times as far out"
    for head in (fresh(case, dtype), moved(case, dtype)):
        x = points(5, dtype=dtype)
        mean, far = head.standardizer.mean.expand(5, D), points(5, seed=1, scale=1000, dtype=dtype)
        for a, b in ((x, x), (0 * x, x), (x, 0 * x), (0 * x, 0 * x), (mean, mean), (x, far), (far, x), (far, far),
            (far, -far)):
            a, b = (z.detach().clone().requires_grad_() for z in (a, b))
            score = head(a, b)
            grads = torch.autograd.grad(score.sum(), [a, b, *head.parameters()], allow_unused=True)
            for value in (score, *grads): assert value is None or value.isfinite().all()
        u = head.encode_source(x).detach().requires_grad_()
        if u.shape != head.encode_target(x).shape: continue
        v = u.detach().clone().requires_grad_()  # and where the two views coincide
        for grad in torch.autograd.grad(head.compare(u, v).sum(), [u, v], allow_unused=True):
            assert grad is None or grad.isfinite().all()


@each_head
def test_no_parameter_of_a_fresh_head_is_dead(case):
    "Within three steps of a ranking and a direction loss every block has had a gradient (B A with B = 0 needs two)"
    head = fresh(case, F32)
    parameters = dict(head.named_parameters())
    largest = dict.fromkeys(parameters, 0.0)
    optimiser = torch.optim.Adam(parameters.values(), lr=1e-3) if parameters else None
    for step in range(3 if parameters else 0):
        x, y, z = (points(64, seed=3 * step + i, dtype=F32) for i in range(3))
        loss = softplus(head(x, y) - head(x, z)).mean()
        loss = loss + softplus(head(x, y) - head(y, x)).mean()
        optimiser.zero_grad()
        loss.backward()
        for name, p in parameters.items():
            if p.grad is not None: largest[name] = max(largest[name], float(p.grad.abs().max()))
        optimiser.step()
    assert all(g > 1e-8 for g in largest.values()), [n for n, g in largest.items() if g <= 1e-8]


@each_head
def test_memory_is_not_shared_between_parameters(case):
    head = fresh(case)
    pointers = [t.data_ptr() for t in head.state_dict().values() if t.numel()]
    assert len(set(pointers)) == len(pointers)


# ---- direction can be learned

def _directed():
    for name in HEADS: yield name, partial(make_head, name)
    for roles, maps in zip(ROLES, [*MAPS, MAPS[1]]):  # all sides, all maps
        yield f"bregman-{roles}-{maps}", partial(BregmanHead, hidden=(32, 32), rank=8, roles=roles, maps=maps)


DIRECTED = {name: make for name, make in _directed() if not make(2).symmetric}


@pytest.mark.parametrize("name", DIRECTED)
def test_toy_tree_child_to_parent_is_smaller_than_the_reverse(name):
    "For every head that can have a direction, on edges trained on and on edges held out"
    tree = toy_tree(depth=5, seed=0)
    torch.manual_seed(0)
    head = DIRECTED[name](tree.dim)
    fit(head, tree, TrainConfig(epochs=20, patience=0, lr=1e-2, batch_size=64), progress=False)
    share = {}
    for split, edges in tree.edges.items():
        child, parent = torch.from_numpy(tree.features)[edges.T]
        with torch.no_grad(): share[split] = preference_rate(head(child, parent), head(parent, child))
    assert share["train"] > 0.9 and share["valid"] + share["test"] > 2 * 0.75, share


@heads(lambda head: head.symmetric)
def test_a_symmetric_head_gets_exactly_one_half(case):
    head, x, y = moved(case, F32), points(500, dtype=F32), points(500, seed=1, dtype=F32)
    with torch.no_grad(): assert preference_rate(head(x, y), head(y, x)) == 0.5


def test_registry():
    assert set(HEADS) >= {"euclidean", "cosine", "mahalanobis", "bilinear", "mlp", "order", "poincare",
        "direction_prior", "icnn_bregman", "role_bregman", "role_bregman_lowrank", "role_bregman_residual",
        "directed_bregman"}
    with pytest.raises(ValueError, match="'nobody'.*euclidean.*role_bregman"): make_head("nobody", D)
    head = make_head("role_bregman", D, proj_dim=3, hidden=(4,))
    assert head.config["proj_dim"] == 3 and head.potential.dim == 3
    config = {name: make_head(name, D).config for name in HEADS if "bregman" in name}
    assert config["icnn_bregman"]["roles"] == "none" and config["role_bregman"]["roles"] == "both"
    assert config["role_bregman_lowrank"]["maps"] == "lowrank" and config["role_bregman_residual"]["maps"] == "residual"


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", HEADS)
def test_inputs_of_half_precision_count_in_float32(name, dtype):
    torch.manual_seed(0)
    head = make_head(name, dim=12)
    x, y = (torch.randn(2, 9, 12) * 3).to(dtype)
    assert torch.equal(head(x, y), head(x.float(), y.float()))
    assert head(x, y).dtype == torch.float32


@pytest.mark.parametrize("name", HEADS)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_every_head_scores_in_half_precision(name, dtype):
    torch.manual_seed(0)
    head, (x, y) = make_head(name, 8), torch.randn(2, 6, 8)
    with torch.inference_mode():
        exact = head(x, y)
        rough = head.to(dtype)(x.to(dtype), y.to(dtype)).float()
    assert torch.allclose(rough, exact, rtol=0.1, atol=0.1 * float(exact.abs().max()))


@pytest.mark.parametrize("name", [name for name, entry in HEADS.items() if entry.head.product_form])
def test_the_two_parts_of_a_product_form_make_the_distance(name):
    head = make_head(name, dim=4).double()
    u, v = head.encode_source(torch.randn(5, 4)), head.encode_target(torch.randn(3, 4))
    (s, s_bias), (t, t_bias) = head.source_form(u, v.mean(0)), head.target_form(v, v.mean(0))
    found = head.from_form(s_bias[:, None] + t_bias - s @ t.T)
    assert torch.allclose(found, head.compare(u[:, None], v), atol=1e-10)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", [name for name in HEADS if HEADS[name].head.product_form])
def test_the_product_form_takes_half_precision(name, dtype):
    "In float32, where its terms cancel: the same as the float32 head of the same weights and inputs"
    torch.manual_seed(0)
    head, x, y = make_head(name, dim=6).to(dtype), torch.randn(7, 6), torch.randn(5, 6)
    found = head.pairwise(x, y, exact=False)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, head.pairwise(x, y).float(), rtol=0.1, atol=0.1)
    found.sum().backward()
    single = make_head(name, dim=6)
    wanted = single.pairwise(x, y, exact=False)
    with torch.autocast("cpu", torch.bfloat16):
        u, v = single.encode_source(x).float(), single.encode_target(y).float()
        lowered = single.compare_all(u, v, exact=False)
    assert torch.equal(lowered, single.compare_all(u, v, exact=False)) and lowered.shape == wanted.shape


@pytest.mark.parametrize("name", HEADS)
def test_a_head_can_be_copied_while_weights_are_held(name):
    head, x = make_head(name, dim=6), torch.randn(3, 6)
    with head.held_weights():
        head(x, x).sum().backward()
        other = copy.deepcopy(head)
        again = pickle.loads(pickle.dumps(head))
    for one in other, again:
        assert torch.equal(one(x, x.flip(0)), head(x, x.flip(0)))
        with torch.no_grad():
            for weight in one.parameters(): weight.add_(0.1)
        assert not torch.equal(one(x, x.flip(0)), head(x, x.flip(0))) or name == "cosine"


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("inputs", ["standard", "unit"])
@pytest.mark.parametrize("name", HEADS)
def test_a_trace_is_the_head(name, inputs):
    torch.manual_seed(0)
    head = make_head(name, dim=6, inputs=inputs).fit_standardizer(torch.randn(50, 6)).eval()
    x, y, more, others = torch.randn(4, 9, 6).unbind()
    traced = torch.jit.trace(head, (x[:4], y[:4]))
    assert torch.equal(traced(more, others), head(more, others))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name, how", [("directed_bregman", dict(inputs="unit")),
                                       ("role_bregman", dict(activation="softplus", hidden=(8,)))])
def test_an_onnx_export_gives_the_same_distances(name, how):
    "For any number of pairs, computed by a library that knows nothing of ours"
    runtime = pytest.importorskip("onnxruntime", reason="a package for development")
    torch.manual_seed(0)
    head = make_head(name, dim=6, **how).fit_standardizer(torch.randn(50, 6)).eval()
    (x, y), n = torch.randn(2, 9, 6), torch.export.Dim("n")
    program = torch.onnx.export(head, (x[:4], y[:4]), dynamo=True, dynamic_shapes=({0: n}, {0: n}),
                                input_names=["x", "y"], verbose=False)
    program.save(file := io.BytesIO())
    found = runtime.InferenceSession(file.getvalue()).run(None, dict(x=x.numpy(), y=y.numpy()))[0]
    torch.testing.assert_close(torch.from_numpy(found), head(x, y).detach(), rtol=1e-5, atol=1e-6)
