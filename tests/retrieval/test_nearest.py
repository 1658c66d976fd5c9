"The nearest equal brute force, whatever the head and the items"
import logging

import pytest
import torch
from retrieval.brute_force import FORMS, SIDES, D, agree, any_head, distances_of, hard_items

from rolebregman.baselines import make_head
from rolebregman.heads import BregmanHead
from rolebregman.retrieval import GROUP, Nearest, SourceIndex, TargetIndex, smallest


@pytest.mark.parametrize("seed", range(200))
def test_search_equals_brute_force(seed):
    head, g = any_head(seed), torch.Generator().manual_seed(seed)
    m = int(torch.randint(20, 1500, (), generator=g))
    Y = hard_items(g, m) if seed % 4 else torch.randn(m, D, generator=g)
    X = torch.cat([torch.randn(5, D, generator=g), Y[:1] + 0.01 * torch.randn(5, D, generator=g), Y[:1]])
    k = min(m, int(torch.randint(1, 21, (), generator=g)))
    agree(SIDES[seed % 5 == 0](head, Y), X, Y, k)


def test_a_crowd_sends_some_queries_through_the_tiles_again(monkeypatch):
    "So that the law above covers that path, and others do without it"
    g, seen = torch.Generator().manual_seed(0), []
    head, Y = BregmanHead(D, D, (16, 16)), hard_items(g, 3000)
    again = Nearest._all_within
    monkeypatch.setattr(Nearest, "_all_within", lambda self, q, s, level, some, *rest: (
        seen.extend(some.tolist()), again(self, q, s, level, some, *rest))[1])
    X = torch.cat([torch.randn(20, D, generator=g), Y[:1] + 0.01 * torch.randn(3, D, generator=g)])
    agree(TargetIndex(head, Y), X, Y, 10)
    assert seen == [20, 21, 22]


def test_what_is_left_out_stays_out_where_a_tile_has_fewer_than_are_asked_for(monkeypatch):
    X, Y = torch.randn(4, D), torch.randn(40, D)
    index = TargetIndex(make_head("mlp", dim=D), Y)
    monkeypatch.setattr(index.sizes, "tile", 1)  # so a tile has k items
    nearest = index.search(X, 2)[1]
    out = torch.arange(4).repeat_interleave(2), nearest.flatten()
    allowed = torch.ones(4, 40, dtype=torch.bool)
    allowed[out] = False
    agree(index, X, Y, 5, out, allowed)


@pytest.mark.parametrize("m, k", [(1, 1), (5, 5), (16, 16), (17, 3), (2000, 1), (2000, 70), (GROUP**3 + 5, 9)])
@torch.inference_mode()
def test_smallest_of_each_column(m, k):
    x = torch.randn(m, 4).masked_fill(torch.rand(m, 4) < 0.1, torch.inf)
    found = smallest(x, k)
    assert torch.equal(x.T.gather(1, found).sort().values, x.T.topk(k, largest=False).values)
    assert all(len(set(row.tolist())) == k for row in found)


@pytest.mark.parametrize("far", [1e5, 3e9, 1e15, 1e17])
@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("side", SIDES)
def test_what_lies_far_out_is_found_by_the_heads_own_distance(side, name, far):
    "Items and queries whose form overflows are measured, not refused: the distance itself is finite"
    g = torch.Generator().manual_seed(2)
    X, Y = torch.randn(8, D, generator=g), torch.randn(400, D, generator=g)
    Y[3], Y[77] = Y[3] * far, Y[77] * far / 10
    X[2] *= far
    head = make_head(name, dim=D)
    if not distances_of(TargetIndex(head, Y[:1]) if side is TargetIndex else SourceIndex(head, Y[:1]), X, Y)[
            [0, 1, *range(3, 8)]].isfinite().all(): pytest.skip("the head's own distance overflows")
    if not distances_of(side(head, Y[:1]), X, Y).isfinite().all(): X = X[3:]
    agree(side(head, Y), X, Y, 9)
    agree(side(head, Y), X, Y, 400)


@pytest.mark.parametrize("error", [torch.OutOfMemoryError("full"), MemoryError(), RuntimeError("std::bad_alloc"),
                                   RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: ...")])
@pytest.mark.parametrize("name, way", [("role_bregman", "by_products"), ("mlp", "by_scan")])
def test_out_of_memory_halves_the_block_and_says_so(name, way, error, monkeypatch, caplog):
    X, Y = torch.randn(60, D), torch.randn(500, D)
    index, inner = TargetIndex(make_head(name, dim=D), Y), getattr(Nearest, way)

    def scarce(self, q, *rest):
        if len(q) > 10: raise error
        return inner(self, q, *rest)

    monkeypatch.setattr(Nearest, way, scarce)
    with caplog.at_level(logging.WARNING): agree(index, X, Y, 5)
    assert caplog.text.count("out of memory: the search goes on in blocks of") == 6  # 512, 256, ..., 8
    monkeypatch.setattr(Nearest, way, lambda *_: (_ for _ in ()).throw(RuntimeError("something else")))
    with pytest.raises(RuntimeError, match="something else"): index.search(X, 5)


def test_candidates_that_are_left_out_become_minus_one():
    j, out = torch.tensor([[0, 2, -1], [2, 1, 0]]), (torch.tensor([1, 0]), torch.tensor([2, 0]))
    assert Nearest(make_head("euclidean", dim=2)).leave_out(j, 3, out).tolist() == [[-1, 2, -1], [-1, 1, 0]]


def test_a_head_that_has_changed_is_noticed():
    near = Nearest(head := BregmanHead(3))
    near.check_head()
    with torch.no_grad(): next(head.parameters()).add_(1)
    with pytest.raises(ValueError, match="make the index anew"): near.check_head()


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_a_distance_that_is_no_number_ranks_nothing(value):
    near = Nearest(make_head("euclidean", dim=2))
    near.check_distances(torch.zeros(2, 3))
    with pytest.raises(ValueError, match="Euclidean gives a distance that is not finite; nothing is ranked by it"):
        near.check_distances(torch.tensor([[0.0, value]]))


def test_a_scan_ranks_nothing_by_a_distance_that_is_no_number():
    index = TargetIndex(make_head("mlp", dim=D), torch.randn(20, D))
    index.items[3] = torch.nan
    with pytest.raises(ValueError, match="gives a distance that is not finite; nothing is ranked by it"):
        index.search(torch.randn(2, D), 3)


@pytest.mark.parametrize("memory", [1, 3, 5, 6, 7, 100])
def test_what_is_settled_in_parts_is_settled_alike(monkeypatch, memory):
    "Parts of as many queries as there are, of fewer and of more"
    g = torch.Generator().manual_seed(1)
    torch.manual_seed(1)
    Y, X = torch.randn(300, D, generator=g), torch.randn(6, D, generator=g)
    index = TargetIndex(BregmanHead(D), Y)
    whole, settle = index.search(X, 4), Nearest.settle

    def in_parts(self, q, s, spare, j, k):
        monkeypatch.setattr(self.sizes, "memory", memory * j.shape[1] * self.rows.shape[1])
        return settle(self, q, s, spare, j, k)

    monkeypatch.setattr(Nearest, "settle", in_parts)
    assert all(torch.equal(one, other) for one, other in zip(index.search(X, 4), whole))


@pytest.mark.parametrize("name", ["euclidean", "role_bregman"])
def test_twins_of_a_query_in_the_centre_are_found(name):
    "Where no bound is above another one, and no rounding between them"
    index = TargetIndex(make_head(name, dim=D), torch.zeros(20, D))
    distances, rows = index.search(torch.zeros(2, D), 3)
    assert (distances == distances[0, 0]).all() and distances[0, 0] >= 0
    assert all(len(set(row.tolist())) == 3 and min(row) >= 0 for row in rows)
