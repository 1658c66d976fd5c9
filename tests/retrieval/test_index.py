"Search equals brute force, whatever the head, the filter and the engine; and says what is wrong"
import builtins
import json
import logging
import os
import threading
from pathlib import Path

import numpy as np
import pytest
import torch

from rolebregman.baselines import HEADS, make_head
from rolebregman.heads import INITS, MAPS, ROLES, BregmanHead
from rolebregman.icnn import ACTIVATIONS
from rolebregman.retrieval import GROUP, Faiss, Nearest, SourceIndex, TargetIndex, fingerprint, put, smallest
from rolebregman.retrieval import index as retrieval

D = 12
SIDES = TargetIndex, SourceIndex
FORMS = [name for name in HEADS if HEADS[name].head.product_form]


def any_head(seed):
    "A head of a registry or a Bregman head with drawn options, its parameters moved from where they start"
    g = np.random.default_rng(seed)
    torch.manual_seed(seed)
    names = list(HEADS)
    if seed % 3 == 0: head = make_head(names[seed // 3 % len(names)], dim=D)
    else:
        roles = str(g.choice(ROLES))
        wide = roles in ("both", "shared")
        head = BregmanHead(D, proj_dim=int(g.choice([3, 8, D])) if wide else D, roles=roles, maps=str(g.choice(MAPS)),
                           hidden=[(8,), (16, 8), (8, 8, 8)][g.integers(3)], init=str(g.choice(INITS)),
                           strong_convexity=float(g.choice([0.0, 0.1, 1.0])), extra=0 if roles == "none" else 2,
                           activation=str(g.choice(["squareplus", "softplus"])))
    with torch.no_grad():
        for p in head.parameters(): p.add_(0.1 * torch.randn_like(p))
    return head


def hard_items(g, m):
    "Points, a crowd that nearly coincides, twins, and outliers a thousand and a million times as far"
    Y = torch.randn(m, D, generator=g)
    crowd = torch.randint(m, (m // 2,), generator=g)
    Y[crowd] = Y[:1] + 1e-4 * torch.randn(len(crowd), D, generator=g)
    Y[crowd[::9]] = Y[:1].clone()
    Y[1:2], Y[2:3] = Y[1:2] * 1e3, Y[2:3] * 1e6
    return Y


def distances_of(index, X, Y):
    "By the head's own distance of every pair"
    with torch.no_grad(): return index.head.pairwise(X, Y) if index.kind == "target" else index.head.pairwise(Y, X).T


def agree(index, X, Y, k, filter=None, allowed=None):
    "The distances found are the k smallest, and each is the head's own for its row"
    own = distances_of(index, X, Y)
    distances, rows = index.search(X, k, filter)
    if allowed is not None: own = own.masked_fill(~allowed, torch.inf)
    wanted = own.topk(k, largest=False).values
    # A head of both signs rounds relative to its terms, not to what is left of them
    near = 1e-5 * wanted.abs() + 3e-6 * wanted.abs().amax(1, keepdim=True) * (not index.head.nonnegative) + 1e-12
    assert ((distances - wanted).abs() <= near).all()
    assert ((own.gather(1, rows) - distances).abs() <= near).all()
    assert all(len(set(row.tolist())) == k for row in rows)
    assert not index.head.nonnegative or (distances >= 0).all()
    assert (distances.diff(dim=1) >= 0).all()


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
    again = Nearest._again
    monkeypatch.setattr(Nearest, "_again", lambda self, q, s, level, some, *rest: (
        seen.extend(some.tolist()), again(self, q, s, level, some, *rest))[1])
    X = torch.cat([torch.randn(20, D, generator=g), Y[:1] + 0.01 * torch.randn(3, D, generator=g)])
    agree(TargetIndex(head, Y), X, Y, 10)
    assert seen == [20, 21, 22]


@pytest.mark.parametrize("m, k", [(1, 1), (5, 5), (16, 16), (17, 3), (2000, 1), (2000, 70), (GROUP**3 + 5, 9)])
@torch.inference_mode()
def test_smallest_of_each_column(m, k):
    x = torch.randn(m, 4).masked_fill(torch.rand(m, 4) < 0.1, torch.inf)
    found = smallest(x, k)
    assert torch.equal(x.T.gather(1, found).sort().values, x.T.topk(k, largest=False).values)
    assert all(len(set(row.tolist())) == k for row in found)


@pytest.mark.parametrize("backend", ["exact", "faiss"])
@pytest.mark.parametrize("kind", ["shared", "own", "rare", "pairs"])
@pytest.mark.parametrize("name", ["role_bregman", "bilinear", "mlp"])
def test_a_filter_is_kept_to(name, kind, backend):
    if backend == "faiss": pytest.importorskip("faiss", reason="FAISS is an extra")
    g, m = torch.Generator().manual_seed(1), 4000
    head, X, Y = make_head(name, dim=D), torch.randn(6, D, generator=g), torch.randn(m, D, generator=g)
    if backend == "faiss" and not head.product_form: backend = "exact"
    allowed = torch.rand(*((6,) if kind not in ("shared", "rare") else ()), m, generator=g) > 0.5
    if kind == "rare": allowed = torch.rand(m, generator=g) < 0.002
    allowed[..., 17:40] = True
    filter = tuple((~allowed).nonzero().T) if kind == "pairs" else allowed
    index = TargetIndex(head, Y, backend, factory="Flat" if backend == "faiss" else "")
    agree(index, X, Y, 20, filter, allowed)


@pytest.mark.parametrize("factory, tune", [("Flat", ""), ("IVF20,Flat", "nprobe=20"), ("HNSW16", "efSearch=500"),
                                           ("PCA8,Flat", ""), ("", "nprobe=1")])
def test_what_an_engine_misses_under_a_filter_the_exact_search_finds(factory, tune):
    pytest.importorskip("faiss", reason="FAISS is an extra")
    g = torch.Generator().manual_seed(1)
    X, Y = torch.randn(6, D, generator=g), torch.randn(1500, D, generator=g)
    index = TargetIndex(make_head("role_bregman", dim=D), Y, "faiss", factory=factory, tune=tune)
    few = torch.arange(1500) % 100 == 3
    if factory != "PCA8,Flat": agree(index, X, Y, 15, few, few)
    index.remove(range(1485))
    left = torch.arange(1500) >= 1485
    distances, rows = index.search(X, 15)
    assert (rows.sort().values == left.nonzero()[:, 0]).all() and distances.isfinite().all()


@pytest.mark.parametrize("name, factory", [*((name, "") for name in FORMS), ("role_bregman", "Flat"),
                                           ("bilinear", "Flat"), ("role_bregman", "HNSW16"), ("cosine", "HNSW16")])
def test_engines_report_their_recall_and_return_the_heads_own_distances(name, factory):
    pytest.importorskip("faiss", reason="FAISS is an extra")
    g = torch.Generator().manual_seed(3)
    head, X, Y = make_head(name, dim=D), torch.randn(50, D, generator=g), torch.randn(3000, D, generator=g)
    index = TargetIndex(head, Y, "faiss", factory=factory)
    distances, rows = index.search(X, 10)
    near = 1e-5 if head.nonnegative else 1e-4
    torch.testing.assert_close(distances, distances_of(index, X, Y).gather(1, rows), rtol=near, atol=1e-6)
    assert 0.05 < index.recall(X) <= 1 and (factory != "Flat" or index.recall(X) == 1)
    assert TargetIndex(head, Y).recall(X) == 1


def test_an_engine_follows_what_comes_and_goes():
    pytest.importorskip("faiss", reason="FAISS is an extra")
    X, Y = torch.randn(6, D), torch.randn(900, D)
    index = TargetIndex(make_head("role_bregman", dim=D), Y[:300], "faiss", factory="Flat")
    index.add(Y[300:])
    agree(index, X, Y, 7)
    index.remove(range(0, 900, 3))  # a third: FAISS keeps them, the search does not
    stay = torch.arange(900) % 3 > 0
    assert index.engine.index.ntotal == 900
    agree(index, X, Y, 7, None, stay)
    index.remove(range(1, 900, 3))  # more than half: made anew
    assert index.engine.index.ntotal == len(index) == 300
    index.add(100 * Y[:5], ids=range(0, 15, 3))
    assert len(index) == 305 and index.recall(X) == 1


def test_targets_come_and_go():
    X, Y = torch.randn(6, D), torch.randn(500, D)
    index = TargetIndex(make_head("role_bregman", dim=D), Y[:200])
    assert index.add(Y[200:]).tolist() == list(range(200, 500))
    agree(index, X, Y, 7)
    gone = index.search(X, 1)[1][:, 0].unique()
    index.remove(gone)
    stay = torch.ones(500, dtype=torch.bool)
    stay[gone] = False
    assert index.ids.tolist() == stay.nonzero()[:, 0].tolist()
    agree(index, X, Y, 7, None, stay)
    even = torch.arange(500) % 2 == 0
    agree(index, X, Y, 7, even[stay], even & stay)  # a mask is in the order of ids
    with pytest.raises(ValueError, match=f"ids: {int(gone[0])} is not in the index"): index.remove(gone)
    index.add(Y[gone], ids=gone)
    agree(index, X, Y, 7)
    index.remove([])
    with pytest.raises(ValueError, match="whole numbers, found float64"): index.remove([1.5])
    index.remove(7)
    assert len(index) == 499 and index.add(Y[:1]).tolist() == [500]


@pytest.mark.parametrize("ids, wrong", [([1, 2], "expected 3 of them"), ([1.5, 2, 3], "whole numbers"),
                                        ([7, 8, 7], "7 stands twice"), ([9, 4, 8], "4 is in the index already"),
                                        ([7, -1, 8], "-1 stands for nothing"), ([[1, 2], [3]], "ids: "),
                                        (np.arange(3, dtype="u8") + 2**63 - 1, "9223372036854775809 does not fit")])
def test_ids_are_unique(ids, wrong):
    index = TargetIndex(make_head("euclidean", dim=D), torch.randn(6, D))
    with pytest.raises(ValueError, match=wrong): index.add(torch.randn(3, D), ids=ids)
    assert len(index) == len(index.items) == 6


def test_ids_do_not_run_over():
    index = TargetIndex(make_head("euclidean", dim=D), torch.randn(2, D), ids=[3, 2**63 - 2])
    with pytest.raises(ValueError, match="ids: none are left above 9223372036854775806"): index.add(torch.randn(3, D))
    assert index.add(torch.randn(1, D), ids=[7]).dtype == index.ids.dtype == np.int64


@pytest.mark.parametrize("error", [RuntimeError("Error: std::bad_alloc"), MemoryError(), KeyboardInterrupt()])
@pytest.mark.parametrize("where", ["extend", "engine", "after"])
@pytest.mark.parametrize("backend", ["exact", "faiss"])
def test_an_addition_that_fails_adds_nothing(backend, where, error, monkeypatch):
    if backend == "faiss": pytest.importorskip("faiss", reason="FAISS is an extra")
    X, Y = torch.randn(6, D), torch.randn(900, D)
    index = TargetIndex(make_head("role_bregman", dim=D), Y[:500], backend, factory="Flat")
    whole = {"extend": (TargetIndex, "extend"), "engine": (Faiss, "_append"), "after": (np, "concatenate")}[where]
    inner = getattr(*whole)

    def failing(*args):
        inner(*args)  # what is half done, is done by half
        raise error

    with monkeypatch.context() as patched:
        patched.setattr(*whole, failing)
        if where != "engine" or backend == "faiss":
            with pytest.raises(type(error)): index.add(Y[500:])
    assert len(index) == len(index.ids) == 500
    agree(index, X, Y[:500], 7)
    assert index.add(Y[500:]).tolist() == list(range(500, 900))
    agree(index, X, Y, 7)


def test_a_removal_is_whole_or_none(monkeypatch):
    pytest.importorskip("faiss", reason="FAISS is an extra")
    X, Y = torch.randn(6, D), torch.randn(50, D)
    index = TargetIndex(make_head("role_bregman", dim=D), Y, "faiss", factory="Flat")
    monkeypatch.setattr(Faiss, "keep", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt): index.remove([1, 2])
    agree(index, X, Y, 7)


def strided(Y):
    "The same numbers in other strides, byte orders and types"
    return {"reversed": Y[::-1].copy()[::-1], "columns": Y[:, ::-1].copy()[:, ::-1], "fortran": np.asfortranarray(Y),
            "big-endian": Y.astype(">f4"), "double": Y.astype(">f8"), "tensor": torch.from_numpy(Y), "list": Y.tolist()}


@pytest.mark.parametrize("kind", strided(np.zeros((2, D), np.float32)))
def test_any_strides_and_byte_order(kind):
    X, Y = np.random.default_rng(0).standard_normal((2, 40, D)).astype(np.float32)
    head = make_head("role_bregman", dim=D)
    index, wanted = TargetIndex(head, strided(Y)[kind]), TargetIndex(head, Y).search(X, 5)
    for a, b in zip(index.search(strided(X)[kind], 5), wanted): assert torch.equal(a, b)
    for a, b in zip(index.rerank(strided(X)[kind], wanted[1]), wanted): assert torch.equal(a, b)


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


@pytest.mark.parametrize("name", ["max_affine_bregman", "deep_divergence"])
@pytest.mark.parametrize("backend", ["exact", "faiss"])
def test_a_form_that_overflows_is_no_fault_of_the_rows(name, backend):
    if backend == "faiss": pytest.importorskip("faiss", reason="FAISS is an extra")
    g = torch.Generator().manual_seed(0)
    X, Y = torch.randn(5, D, generator=g), torch.randn(300, D, generator=g)
    index = SourceIndex(make_head(name, dim=D), 1e4 * Y, backend)
    if backend == "exact": agree(index, X, 1e4 * Y, 12)
    assert index.search(X, 12)[0].isfinite().all()
    with pytest.raises(ValueError, match="the form of source .* overflows"): index.to_vectors()
    back = TargetIndex(index.head, Y, backend)
    agree(back, 1e17 * X, Y, 12)  # queries whose form overflows are answered by the exact search, whatever the engine
    with pytest.raises(ValueError, match="X: the form of row 0 overflows"): back.query_vectors(1e17 * X)


@pytest.mark.parametrize("name", ["role_bregman", "mlp"])
def test_saved_and_loaded_with_what_lies_far_out(name, tmp_path):
    X, Y = torch.randn(5, D), torch.randn(60, D)
    Y[3] *= 1e15
    index = TargetIndex(make_head(name, dim=D), Y)
    for a, b in zip(TargetIndex.load(index.save(tmp_path)).search(X, 60), index.search(X, 60)): assert torch.equal(a, b)


def test_nothing_asked_and_nothing_there():
    "No queries give nothing, of the right shape; an index without items says so"
    head, X, Y = make_head("role_bregman", dim=D), torch.randn(5, D), torch.randn(30, D)
    index, none = TargetIndex(head, Y), TargetIndex(head, Y[:0])
    assert [tuple(part.shape) for part in index.rerank(X[:0], np.zeros((0, 3), int))] == [(0, 3), (0, 3)]
    assert [part.shape for part in index.query_vectors(X[:0])] == [(0, index.to_vectors().shape[1]), (0,)]
    with pytest.raises(ValueError, match="X: expected at least one query"): index.recall(X[:0])
    for use in (none.to_vectors, lambda: none.query_vectors(X), lambda: none.recall(X),
                lambda: none.rerank(X, [[-1]] * 5)):
        with pytest.raises(ValueError, match="the index is empty"): use()


@pytest.mark.parametrize("name", ["role_bregman", "mlp"])
@pytest.mark.parametrize("side", SIDES)
def test_saved_and_loaded_it_gives_the_same(name, side, tmp_path):
    head, X, Y = make_head(name, dim=D), torch.randn(6, D), torch.randn(300, D)
    index = side(head, Y, ids=np.arange(300) * 7)
    index.remove([21, 28])
    index.save(tmp_path / "a")
    names = {p.name for p in (tmp_path / "a").iterdir()}
    index.save(tmp_path / "a")  # in place of the first
    assert {p.name for p in (tmp_path / "a").iterdir()} == names
    before = {p: p.read_bytes() for p in (tmp_path / "a").iterdir() if p.is_file()}
    for again in side.load(tmp_path / "a"), side.load(tmp_path / "a", head, verify=True):
        for a, b in zip(again.search(X, 5), index.search(X, 5)): assert torch.equal(a, b)
        assert len(again) == 298 and again.kind == index.kind
        again.items.mul_(2)
        again.add(Y[:2]), again.remove([0])
    assert all(p.read_bytes() == data for p, data in before.items()), "what is done in memory leaves the files alone"
    index.add(Y[:3])
    index.save(tmp_path / "a")
    assert len(side.load(tmp_path / "a")) == 301
    assert len(list((tmp_path / "a").iterdir())) == len(names), "the old arrays are gone"


@pytest.mark.parametrize("factory", ["Flat", "IVF10,Flat", "HNSW8"])
def test_an_engine_is_saved_with_its_index(factory, tmp_path):
    pytest.importorskip("faiss", reason="FAISS is an extra")
    X, Y = torch.randn(6, D), torch.randn(400, D)
    index = TargetIndex(make_head("icnn_bregman", dim=D), Y, "faiss", factory=factory)
    index.remove(range(100))
    index.save(tmp_path)
    again = TargetIndex.load(tmp_path)
    for a, b in zip(again.search(X, 5), index.search(X, 5)): assert torch.equal(a, b)
    for one in again, index: one.add(Y[:100])
    for a, b in zip(again.search(X, 5), index.search(X, 5)): assert torch.equal(a, b)


def test_an_empty_index_is_saved_too(tmp_path):
    index = TargetIndex(make_head("role_bregman", dim=D), torch.zeros(0, D))
    again = TargetIndex.load(index.save(tmp_path))
    assert len(again) == 0 and again.add(torch.randn(3, D)).tolist() == [0, 1, 2]


def test_a_crash_while_saving_leaves_the_old_index(tmp_path, monkeypatch):
    index = TargetIndex(make_head("role_bregman", dim=D), torch.randn(30, D))
    index.save(tmp_path)
    index.add(torch.randn(30, D))
    calls, save = [], np.save

    def failing(*args, **kwargs):
        calls.append(1)
        if len(calls) == 3: raise OSError("no space left on device")
        save(*args, **kwargs)

    monkeypatch.setattr(np, "save", failing)
    with pytest.raises(OSError, match="no space"): index.save(tmp_path)
    assert len(TargetIndex.load(tmp_path, verify=True)) == 30
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith(".")] == [".lock"]
    monkeypatch.undo()
    assert len(TargetIndex.load(index.save(tmp_path), verify=True)) == 60


def damage(path, how):
    data = path.read_bytes()
    if how == "missing": path.unlink()
    elif how == "short": path.write_bytes(data[:-40])
    elif how == "head": path.write_bytes(b"x" * 80 + data[80:])
    elif how == "bit": path.write_bytes(data[:-3] + bytes([data[-3] ^ 1]) + data[-2:])


@pytest.mark.parametrize("name", ["ids", "items", "rows", "centre"])
@pytest.mark.parametrize("how, error, verify", [("missing", FileNotFoundError, False), ("short", ValueError, False),
                                                ("head", ValueError, False), ("bit", ValueError, True)])
def test_a_damaged_file_is_named(name, how, error, verify, tmp_path):
    TargetIndex(make_head("role_bregman", dim=D), torch.randn(30, D)).save(tmp_path)
    (path,) = tmp_path.glob(f"{name}-*")
    damage(path, how)
    with pytest.raises(error, match=f"{path.name} is (missing|damaged)"): TargetIndex.load(tmp_path, verify=verify)


@pytest.mark.parametrize("text", ["{", "[]", "null", '{"class": "TargetIndex"}'])
def test_a_damaged_description_is_named(text, tmp_path):
    TargetIndex(make_head("role_bregman", dim=D), torch.randn(30, D)).save(tmp_path)
    (tmp_path / "index.json").write_text(text)
    with pytest.raises(ValueError, match="index.json is damaged"): TargetIndex.load(tmp_path)
    (tmp_path / "index.json").unlink()
    with pytest.raises(FileNotFoundError, match="index.json is missing"): TargetIndex.load(tmp_path)


@pytest.mark.parametrize("key, value", [
    ("files", {}), ("files", {"ids": 3}), ("files", 3), ("count", 29), ("count", None), ("count", -1), ("class", 3),
    ("fingerprint", None), ("fingerprint", 7), ("fingerprint", "../.."), ("backend", "annoy"), ("factory", None),
    ("tune", 1), ("lift", 3), ("lift", [1.0]), ("lift", [1.0, 2.0])])
def test_a_description_that_does_not_fit_is_refused(key, value, tmp_path):
    TargetIndex(make_head("role_bregman", dim=D), torch.randn(30, D)).save(tmp_path)
    path = tmp_path / "index.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {key: value}))
    with pytest.raises(ValueError, match="index.json (is damaged|holds a)"): TargetIndex.load(tmp_path)


@pytest.mark.parametrize("name", ["ids", "items", "rows", "centre"])
@pytest.mark.parametrize("change", [lambda files, name: files.pop(name),
                                    lambda files, name: files[name].update(file=3),
                                    lambda files, name: files[name].update(bytes="many"),
                                    lambda files, name: files[name].update(file="../index.json"),
                                    lambda files, name: files.update({name: files["rows" if name == "items" else
                                                                                  "items"]})])
def test_a_file_that_is_not_named_as_it_should_be_is_refused(name, change, tmp_path):
    TargetIndex(make_head("role_bregman", dim=D), torch.randn(30, D)).save(tmp_path)
    path = tmp_path / "index.json"
    about = json.loads(path.read_text())
    change(about["files"], name)
    path.write_text(json.dumps(about))
    with pytest.raises(ValueError, match=f"index.json is damaged.* {name}"): TargetIndex.load(tmp_path)


def test_an_array_of_another_shape_is_refused(tmp_path):
    TargetIndex(make_head("role_bregman", dim=D), torch.randn(30, D)).save(tmp_path)
    path = tmp_path / "index.json"
    about = json.loads(path.read_text())
    about["files"]["items"] = put(tmp_path, "items", lambda file: np.save(file, np.zeros((30, 5), np.float32)))
    path.write_text(json.dumps(about))
    with pytest.raises(ValueError, match=r"expected shape \(30, .*found \(30, 5\)"): TargetIndex.load(tmp_path)


def test_two_may_save_into_one_folder_and_a_third_read_it(tmp_path):
    "Whatever the order, what is read is one of the two"
    head = make_head("role_bregman", dim=D)
    made = [TargetIndex(head, torch.randn(m, D)) for m in (20, 30)]
    made[0].save(tmp_path)
    failures = []

    def often(index):
        try:
            for _ in range(12): index.save(tmp_path)
        except Exception as error: failures.append(error)

    threads = [threading.Thread(target=often, args=(index,)) for index in made]
    for thread in threads: thread.start()
    found = set()
    while any(thread.is_alive() for thread in threads): found.add(len(TargetIndex.load(tmp_path)))
    for thread in threads: thread.join()
    assert not failures and found <= {20, 30} and len(TargetIndex.load(tmp_path, verify=True)) in (20, 30)


def test_a_saver_waits_for_another(tmp_path, monkeypatch):
    "The second starts where the first stands before its index.json; both come through, and the folder is whole"
    head = make_head("role_bregman", dim=D)
    first, second = (TargetIndex(head, torch.randn(m, D)) for m in (20, 30))
    write, other = retrieval.write_whole, threading.Thread(target=second.save, args=(tmp_path,))

    def slowly(*args):
        if threading.current_thread() is not other and not other.ident:
            other.start()
            other.join(0.3)
        write(*args)

    monkeypatch.setattr(retrieval, "write_whole", slowly)
    first.save(tmp_path)
    other.join()
    assert len(TargetIndex.load(tmp_path, verify=True)) == 30


def test_a_reader_whose_index_is_replaced_reads_the_new_one(tmp_path, monkeypatch):
    head = make_head("role_bregman", dim=D)
    TargetIndex(head, torch.randn(20, D)).save(tmp_path)
    new, take = [TargetIndex(make_head("role_bregman", dim=D), torch.randn(30, D))], retrieval.take

    def slowly(*args):
        if new: new.pop().save(tmp_path)
        return take(*args)

    monkeypatch.setattr(retrieval, "take", slowly)
    assert len(TargetIndex.load(tmp_path)) == 30


def test_what_older_indices_and_killed_savers_leave_is_removed_and_nothing_else(tmp_path):
    for _ in range(2): TargetIndex(make_head("role_bregman", dim=D), torch.randn(20, D)).save(tmp_path)
    names = {path.name for path in tmp_path.iterdir()}
    assert sum(name.startswith("head-") for name in names) == 1
    mine = {"notes.txt", "rows-of-mine", "head-first", ".rows"}
    left = {".rows.4711", ".engine.1", ".index.json.ab12", "rows-0123456789abcdef"}
    for name in left | mine: (tmp_path / name).touch()
    (tmp_path / "head-0123456789abcdef").mkdir()
    TargetIndex.load(tmp_path).save(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == names | mine


def test_arrays_are_on_disk_before_the_index_that_names_them(tmp_path, monkeypatch):
    "Each file is flushed before it gets its name, and index.json is the last to get one"
    done, sync, replace = [], os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda handle: (done.append("fsync"), sync(handle))[1])
    monkeypatch.setattr(os, "replace", lambda a, b: (done.append(Path(b).name.partition("-")[0]), replace(a, b))[1])
    TargetIndex(make_head("role_bregman", dim=D), torch.randn(20, D)).save(tmp_path)
    head, rest = done[:6], done[6:]
    assert head == ["fsync", "model.safetensors", "fsync", "config.json", "fsync", "fsync"]
    assert rest[::2] == ["fsync"] * 5 and rest[1::2] == ["ids", "items", "rows", "centre", "index.json"]


def test_another_head_is_refused(tmp_path):
    index = TargetIndex(make_head("role_bregman", dim=D), torch.randn(30, D))
    index.save(tmp_path)
    for other in make_head("role_bregman", dim=D), make_head("mlp", dim=D), make_head("role_bregman", dim=D).double():
        with pytest.raises(ValueError, match="made by another head"): TargetIndex.load(tmp_path, other)
    with pytest.raises(ValueError, match="holds a TargetIndex, not a SourceIndex: use TargetIndex.load"):
        SourceIndex.load(tmp_path)


def turned(weights):
    "Other places for the same numbers"
    weights[[0, 1]] = weights[[1, 0]]


def flipped(weights):
    "Other signs, as many of either kind"
    flat = weights.flatten()
    up, down = (flat > 0).nonzero()[:20], (flat < 0).nonzero()[:20]
    flat[up], flat[down] = -flat[up], -flat[down]


@pytest.mark.parametrize("change", [lambda head: head.potential.output.raw.data.add_(1e-3),  # which no version tells
                                    lambda head: head.fit_standardizer(torch.randn(9, D)),
                                    lambda head: torch.optim.SGD(head.parameters(), 0.1).step(
                                        lambda: head(torch.ones(D), torch.zeros(D)).backward()),
                                    lambda head: head.double(),
                                    lambda head: turned(head.potential.skips[0].weight.data),
                                    lambda head: turned(head.potential.skips[0].weight.detach().numpy()),
                                    lambda head: flipped(head.potential.skips[0].weight.data),
                                    lambda head: setattr(head.potential, "strong_convexity", 9.0),
                                    lambda head: setattr(head.potential, "activation", ACTIVATIONS["softplus"])])
def test_a_head_that_has_changed_is_noticed(change):
    head, Y = make_head("role_bregman", dim=D), torch.randn(30, D)
    index, before = TargetIndex(head, Y), fingerprint(head)
    index.search(Y[:2], 3)
    change(head)
    if fingerprint(head) == before: pytest.fail("the change is none")
    for use in (lambda: index.search(Y[:2], 3), lambda: index.add(Y[:2]), lambda: index.save("unused"),
                lambda: index.query_vectors(Y), lambda: index.rerank(Y[:1], [[1]])):
        with pytest.raises(ValueError, match="the head has changed"): use()
    TargetIndex(head, Y).search(Y[:2], 3)


def test_a_head_that_is_as_before_is_none_that_has_changed():
    head, Y = make_head("role_bregman", dim=D), torch.randn(30, D)
    index, weights = TargetIndex(head, Y), {key: value.clone() for key, value in head.state_dict().items()}
    with torch.no_grad(): head.potential.output.raw.mul_(2)
    head.load_state_dict(weights)
    head.eval()
    agree(index, Y[:3], Y, 4)


def test_bad_input_is_named():
    head, Y = make_head("role_bregman", dim=D), torch.randn(30, D)
    index = TargetIndex(head, Y)
    with pytest.raises(ValueError, match="k: 31 targets are wanted, but the index has 30"): index.search(Y, 31)
    with pytest.raises(ValueError, match="k: 5 targets are wanted, but the filter leaves 4"):
        index.search(Y, 5, filter=torch.arange(30) < 4)
    with pytest.raises(ValueError, match="the filter leaves 29 to a query"): index.search(Y, 30, filter=([0], [3]))
    for k in (0, -1, 2.5, None, True):
        with pytest.raises(ValueError, match="k: expected a whole number from 1"): index.search(Y, k)
    with pytest.raises(ValueError, match=r"filter: expected booleans of shape \(30,\) or \(30, 30\)"):
        index.search(Y, 5, filter=torch.ones(29, dtype=torch.bool))
    with pytest.raises(ValueError, match="found int64"): index.search(Y, 5, filter=[1, 2])
    with pytest.raises(ValueError, match="expected queries from 0 to 29, found 0 to 30"):
        index.search(Y, 5, filter=([0, 30], [1, 1]))
    with pytest.raises(ValueError, match="expected an id for each query"): index.search(Y, 5, filter=([0], [1, 1]))
    for filter in ([0.5], [1.5]), ([0], [1], [2]), "abc", (lambda i: i < 3), ([[1, 2], [3]], [0]), object():
        with pytest.raises(ValueError, match="^filter: "): index.search(Y, 5, filter=filter)
    for X in Y[:, 1:], Y[0], np.zeros((2, 2, D)), [], None, "abc":
        with pytest.raises(ValueError, match="X: expected rows of width 12, found shape"): index.search(X)
    for strange in Y.numpy().astype(object), Y.numpy().astype(complex), Y + 0j, Y.numpy().astype(str), [[1, 2], [3]]:
        for use in (lambda x: TargetIndex(head, x), index.search, index.query_vectors, index.recall):
            with pytest.raises(ValueError, match="^[XY]: "): use(strange)
    with pytest.raises(ValueError, match="X: expected a dense tensor"): index.search(Y.to_sparse())
    for other in torch.nn.Linear(D, D), None:
        with pytest.raises(ValueError, match="head: expected a DistanceHead, found"): TargetIndex(other, Y)
    with pytest.raises(ValueError, match="head: .* found Tensor; the head comes first"): TargetIndex(Y, head)
    with pytest.raises(ValueError, match="ids: -7 is not in the index"): index.rerank(Y[:1], [[-7]])
    bad = Y.clone()
    bad[7, 3], bad[9, 0] = torch.nan, torch.inf
    for use in (lambda: TargetIndex(head, bad), lambda: index.add(bad)):
        with pytest.raises(ValueError, match="Y: row 7 holds a NaN or an infinity; nothing was indexed"): use()
    with pytest.raises(ValueError, match="X: row 7 holds"): SourceIndex(head, bad)
    assert len(index) == len(index.ids) == 30
    with pytest.raises(ValueError, match="X: row 7 holds a NaN"): index.search(bad, 3)
    with pytest.raises(ValueError, match="Y: row 7 holds a NaN"): SourceIndex(head, Y).search(bad, 3)
    far = torch.where(torch.arange(30) == 3, 1e30, Y.T).T
    with pytest.raises(ValueError, match="row 3 is too far out"): index.add(far)
    with pytest.raises(ValueError, match="backend: expected 'exact' or 'faiss', found 'annoy'"):
        TargetIndex(head, Y, backend="annoy")
    with pytest.raises(ValueError, match="inner products, found MLP, which has no product form"):
        TargetIndex(make_head("mlp", dim=D), Y, backend="faiss")
    with pytest.raises(ValueError, match="no product form"): TargetIndex(make_head("mlp", dim=D), Y).to_vectors()
    assert "all distances computed: MLP" in repr(TargetIndex(make_head("mlp", dim=D), Y))
    assert repr(index) == "TargetIndex(30 targets, BregmanHead, exact, by inner products)"


def test_an_empty_index():
    head, Y = make_head("role_bregman", dim=D), torch.randn(30, D)
    empty = TargetIndex(head, Y[:0])
    with pytest.raises(ValueError, match="the index is empty: add targets"): empty.search(Y, 1)
    assert len(empty) == 0 and empty.add(Y).tolist() == list(range(30))
    agree(empty, Y[:3], Y, 4)
    empty.remove(range(30))
    with pytest.raises(ValueError, match="the index is empty"): empty.search(Y, 1)
    assert [tuple(part.shape) for part in TargetIndex(head, Y).search(Y[:0], 3)] == [(0, 3), (0, 3)]


def test_without_faiss_the_error_says_how_to_get_it(monkeypatch):
    find = builtins.__import__

    def missing(name, *args, **kwargs):
        if name == "faiss": raise ImportError(name)
        return find(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(ImportError, match=r"pip install 'rolebregman\[ann\]'"):
        TargetIndex(make_head("role_bregman", dim=D), torch.randn(30, D), "faiss")


def test_what_faiss_refuses_is_named():
    pytest.importorskip("faiss", reason="FAISS is an extra")
    head, Y = make_head("role_bregman", dim=D), torch.randn(30, D)
    for factory, tune in ("nonsense", ""), ("IVF100,Flat", ""), ("Flat", "nprobe=3"):
        with pytest.raises(ValueError, match=f"FAISS refuses factory='{factory}', tune='{tune}' for 30 rows"):
            TargetIndex(head, Y, "faiss", factory=factory, tune=tune)
    for factory in "IVF100,Flat", "NSG16":
        empty = TargetIndex(head, Y[:0], "faiss", factory=factory)
        with pytest.raises(ValueError, match="FAISS refuses"): empty.add(Y)
        assert len(empty) == len(empty.ids) == 0


@pytest.mark.parametrize("factory", ["IDMap,Flat", "NSG16", "LSH", "ITQ,LSH", "Flat,RFlat"])
def test_what_faiss_can_do_only_in_part_is_named_where_it_refuses(factory, tmp_path):
    pytest.importorskip("faiss", reason="FAISS is an extra")
    head, Y = make_head("role_bregman", dim=D), torch.randn(50, D)
    try:
        index = TargetIndex(head, Y, "faiss", factory=factory)
        assert index.search(Y, 3)[0].isfinite().all()
        index.save(tmp_path)
        TargetIndex.load(tmp_path).search(Y, 3, filter=torch.arange(50) % 2 == 0)
    except ValueError as error:
        assert f"FAISS refuses factory='{factory}'" in str(error)
        return
    pytest.fail("FAISS has learnt it: choose another")


def test_a_graph_that_cannot_grow_is_made_anew():
    pytest.importorskip("faiss", reason="FAISS is an extra")
    head, X, Y = make_head("role_bregman", dim=D), torch.randn(6, D), torch.randn(600, D)
    index = TargetIndex(head, Y[:300], "faiss", factory="NSG16")
    index.add(Y[300:])
    agree(TargetIndex(head, Y), X, Y, 5)
    assert len(index) == 600 and index.recall(X) > 0.5


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


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_targets_and_queries_may_be_files_and_are_read_in_blocks(dtype, tmp_path, monkeypatch):
    Y = np.random.default_rng(0).standard_normal((400, D)).astype(dtype)
    np.save(tmp_path / "y.npy", Y)
    mapped = np.load(tmp_path / "y.npy", mmap_mode="r")
    monkeypatch.setattr(Nearest, "sizes", property(lambda self: __import__("types").SimpleNamespace(
        queries=7, tile=300, memory=1 << 20)))
    agree(TargetIndex(make_head("role_bregman", dim=D), mapped), torch.from_numpy(Y[:20]), torch.from_numpy(Y), 6)
    rows = TargetIndex(make_head("cosine", dim=D), mapped).search(mapped, 1)[1]
    assert rows[:, 0].tolist() == list(range(400))


def test_a_table_larger_than_memory_is_read_in_blocks():
    "Of a table of a million rows no more than a block is asked for at once"
    asked = []

    class Table:
        shape, dtype = (1_000_000, D), np.float32

        def __len__(self): return len(range(self.shape[0]))

        def __getitem__(self, part):
            asked.append(len(range(*part.indices(len(self)))))
            return np.full((asked[-1], D), part.start % 1000, np.float32)

    index = TargetIndex(make_head("cosine", dim=D), Table())
    assert len(index) == sum(asked) == 1_000_000 and max(asked) * D <= 1 << 22


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", ["role_bregman", "euclidean", "bilinear"])
def test_heads_of_other_types(name, dtype, tmp_path):
    head, X, Y = make_head(name, dim=D).to(dtype), torch.randn(5, D), torch.randn(300, D)
    index = TargetIndex(head, Y)
    assert ("half precision" in index.method) == (dtype != torch.float64)
    distances, rows = index.search(X, 4)
    with torch.no_grad(): own = head.pairwise(X, Y)
    assert distances.dtype == own.dtype
    assert torch.equal(distances, own.topk(4, largest=False).values) or dtype == torch.float64
    torch.testing.assert_close(distances, own.gather(1, rows), rtol=1e-9 if dtype == torch.float64 else 0.02, atol=1e-3)
    assert torch.equal(TargetIndex.load(index.save(tmp_path)).search(X, 4)[1], rows)


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("side", SIDES)
def test_vectors_for_any_engine(name, side):
    "Their inner products order the rows as the head does, and give its distances up to rounding"
    X, Y = torch.randn(6, D), torch.randn(300, D)
    index = side(make_head(name, dim=D), Y)
    index.remove([5])
    vectors, (queries, bias) = torch.from_numpy(index.to_vectors()), map(torch.from_numpy, index.query_vectors(X))
    products = queries @ vectors.T
    with torch.no_grad(): found = index.head.from_form(bias[:, None] - products)
    torch.testing.assert_close(found, distances_of(index, X, Y)[:, index.ids], rtol=1e-4, atol=1e-5)
    best = torch.from_numpy(index.ids)[products.topk(20).indices]
    best[:, -1] = -1
    for a, b in zip(index.rerank(X, best), index.search(X, 19)):
        if a.is_floating_point(): torch.testing.assert_close(a[:, :19], b, rtol=1e-5, atol=1e-6)
    assert index.rerank(X, best)[0][:, -1].isinf().all() and (index.rerank(X, best)[1][:, -1] == -1).all()
    with pytest.raises(ValueError, match="ids: 5 is not in the index"): index.rerank(X, best.clamp(max=5, min=5))
    with pytest.raises(ValueError, match="ids: expected 6 rows"): index.rerank(X, best[:3])


@pytest.mark.parametrize("inference", [True, False])
def test_an_index_does_not_depend_on_how_it_is_called(inference):
    "In or out of inference mode, and with a head whose weights ask for gradients"
    head, X, Y = make_head("role_bregman", dim=D), torch.randn(5, D), torch.randn(300, D)
    with torch.inference_mode(inference): index = TargetIndex(head, Y)
    with torch.inference_mode(not inference): found = index.search(X, 4)
    assert not found[0].requires_grad and torch.equal(found[1], TargetIndex(head, Y).search(X, 4)[1])
    assert all(p.requires_grad for p in head.parameters())


@pytest.mark.parametrize("factory", ["Flat", "IVF10,Flat", "HNSW8"])
def test_faiss_is_asked_as_before_where_another_library_has_replaced_its_methods(factory):
    import faiss.contrib.torch_utils  # as pytorch-metric-learning does; it stays for the tests that follow

    torch.manual_seed(0)
    head, Y = make_head("role_bregman", 8), torch.randn(400, 8)
    index = TargetIndex(head, Y[:300], backend="faiss", factory=factory)
    index.add(Y[300:])
    distances, rows = index.search(Y[:5], 3, filter=torch.arange(400) % 2 == 0)
    assert (rows % 2 == 0).all() and faiss.contrib.torch_utils
    with torch.inference_mode(): own = head(Y[:5, None], Y[rows])
    assert torch.allclose(distances, own, rtol=1e-5)
