"One registry: what its lines promise, and that a new head is a class and a line"
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
import torch
from heads.cases import PEERS

from rolebregman.baselines import GROUPS, HEADS, Entry, heads_of_group, make_head
from rolebregman.heads import BregmanHead, DistanceHead, SharedMap

root = Path(__file__).resolve().parents[2]


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
    assert heads_of_group("ours") == ("role_bregman_lowrank", "role_bregman_residual", "directed_bregman",
                                       "feature_bregman")
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
