"One registry: what its lines promise, the laws of the peers, and that a new head is a class and a line"
import copy
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
import torch
from baselines.rivals import CASES, F32, F64, PEERS, D, close, moved, points

from rolebregman.baselines import GROUPS, HEADS, EntailmentCones, Entry, heads_of_group, make_head
from rolebregman.heads import BregmanHead, DistanceHead, SharedMap, load_head

root = Path(__file__).resolve().parents[2]
each_case = pytest.mark.parametrize("case", CASES)


# ---- the registry

def test_the_order_of_the_registry_is_that_of_tables_and_plans():
    committed = """euclidean cosine mahalanobis poincare bilinear order iqe wide_norm transe rotate tversky
        max_affine_bregman deep_divergence entailment_cones hit mlp direction_prior icnn_bregman role_bregman
        role_bregman_lowrank role_bregman_residual directed_bregman""".split()
    assert [name for name in HEADS if name in committed] == committed, "a head more is free to come"


def test_each_head_is_in_one_group():
    assert {entry.group for entry in HEADS.values()} == set(GROUPS)
    assert sorted(name for group in GROUPS for name in heads_of_group(group)) == sorted(HEADS)
    assert heads_of_group("control") == ("direction_prior",)
    assert heads_of_group("ours") == ("role_bregman_lowrank", "role_bregman_residual", "directed_bregman")
    assert all(HEADS[name].head is BregmanHead for name in heads_of_group("ours"))
    with pytest.raises(ValueError, match="no group 'rivals'; the registry has paper, peer, control, ours"):
        heads_of_group("rivals")


@pytest.mark.parametrize("name", HEADS)
def test_a_head_is_public_in_its_room_so_the_reference_has_it(name):
    head = HEADS[name].head
    assert head.__name__ in import_module(head.__module__).__all__
    assert getattr(import_module(head.__module__.rpartition(".")[0]), head.__name__) is head, "and in the face"


NEW_HEAD = """
import sys
import pytest
import torch
from rolebregman.baselines import HEADS, Entry
from rolebregman.heads import DistanceHead

class Manhattan(DistanceHead):
    "A learned scale times the mean of absolute differences"
    symmetric = nonnegative = True
    def __init__(self, dim):
        super().__init__(dim)
        self.log_scale = torch.nn.Parameter(torch.zeros(()))
    def compare(self, u, v): return self.log_scale.exp() * (u - v).abs().mean(-1)

HEADS["manhattan"] = Entry(Manhattan, {}, "peer", "mean of absolute differences")
from rolebregman.study import SCALES
assert "manhattan" in SCALES["paper"].heads and "manhattan" in SCALES["full"].heads
assert "manhattan" not in SCALES["quick"].heads, "a quick run has no peers"
sys.exit(pytest.main(["tests/heads/test_laws.py", "-k", "manhattan", "-q", "-p", "no:cacheprovider"]))
"""


def test_a_class_and_a_line_bring_a_new_head_into_the_study_and_the_law_suite():
    run = subprocess.run([sys.executable, "-c", NEW_HEAD], cwd=root, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr
    assert int(run.stdout.split(" passed")[0].split()[-1]) > 25, "many laws were asked of it"


# ---- the peers

def test_the_peers_keep_their_promises():
    for name in PEERS:
        head = make_head(name, 384)
        assert not head.symmetric and head.config["dim"] == 384 and isinstance(head, DistanceHead)
        assert 190_000 < sum(p.numel() for p in head.parameters()) < 270_000  # about the mlp's 263,000
    assert {name for name in PEERS if not HEADS[name].head.nonnegative} >= {"tversky", "hit"}  # one more may come


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


@pytest.mark.parametrize("case", PEERS)
def test_a_fresh_head_is_a_sensible_metric_of_order_one(case):
    torch.manual_seed(0)
    head = make_head(case, 64)
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


@pytest.mark.parametrize("name", HEADS)
def test_a_line_of_the_registry_makes_the_head_that_it_describes(name):
    entry = HEADS[name]
    head = make_head(name, dim=64)
    assert isinstance(entry, Entry) and type(head) is entry.head and entry.about
    assert head.config.items() >= entry.config.items()


@pytest.mark.parametrize("name", [n for n in heads_of_group("peer") if HEADS[n].head.source is SharedMap.source])
def test_a_shared_map_treats_both_items_alike(name):
    head, x = make_head(name, 4), torch.randn(3, 4)
    assert torch.equal(head.encode_source(x), head.encode_target(x))
