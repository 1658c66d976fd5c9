"Search equals brute force, whatever the head, the filter and the engine; and says what is wrong"
import builtins
import json
import logging

import numpy as np
import pytest
import torch

from rolebregman.baselines import HEADS, make_head
from rolebregman.heads import INITS, MAPS, ROLES, BregmanHead
from rolebregman.nearest import GROUP, Nearest, fingerprint, smallest
from rolebregman.peers import PEERS
from rolebregman.retrieval import SourceIndex, TargetIndex

D = 12
SIDES = TargetIndex, SourceIndex
FORMS = [name for name in HEADS if HEADS[name].head.product_form]


def any_head(seed):
    "A head of a registry or a Bregman head with drawn options, its parameters moved from where they start"
    g = np.random.default_rng(seed)
    torch.manual_seed(seed)
    names = [*HEADS, *PEERS]
    name = names[seed // 3 % len(names)]
    if seed % 3 == 0: head = make_head(name, dim=D) if name in HEADS else PEERS[name][0](D, **PEERS[name][1])
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
                                        ([7, 8, 7], "7 stands twice"), ([9, 4, 8], "4 is in the index already")])
def test_ids_are_unique(ids, wrong):
    index = TargetIndex(make_head("euclidean", dim=D), torch.randn(6, D))
    with pytest.raises(ValueError, match=wrong): index.add(torch.randn(3, D), ids=ids)
    assert len(index) == len(index.items) == 6


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
    assert not [p for p in tmp_path.iterdir() if p.name.startswith(".")]
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


@pytest.mark.parametrize("key, value", [("files", {}), ("files", {"ids": 3}), ("files", 3), ("count", 29)])
def test_a_description_that_does_not_fit_is_refused(key, value, tmp_path):
    TargetIndex(make_head("role_bregman", dim=D), torch.randn(30, D)).save(tmp_path)
    path = tmp_path / "index.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {key: value}))
    with pytest.raises(ValueError, match="is damaged"): TargetIndex.load(tmp_path)


def test_another_head_is_refused(tmp_path):
    index = TargetIndex(make_head("role_bregman", dim=D), torch.randn(30, D))
    index.save(tmp_path)
    for other in make_head("role_bregman", dim=D), make_head("mlp", dim=D), make_head("role_bregman", dim=D).double():
        with pytest.raises(ValueError, match="made by another head"): TargetIndex.load(tmp_path, other)
    with pytest.raises(ValueError, match="holds a TargetIndex, not a SourceIndex: use TargetIndex.load"):
        SourceIndex.load(tmp_path)


@pytest.mark.parametrize("change", [lambda head: head.potential.output.raw.data.add_(1e-3),  # which no version tells
                                    lambda head: head.fit_standardizer(torch.randn(9, D)),
                                    lambda head: torch.optim.SGD(head.parameters(), 0.1).step(
                                        lambda: head(torch.ones(D), torch.zeros(D)).backward()),
                                    lambda head: head.double()])
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
    for k in (0, -1, 2.5, None, True + 0.0):
        with pytest.raises(ValueError, match="k: expected a whole number from 1"): index.search(Y, k)
    with pytest.raises(ValueError, match=r"filter: expected booleans of shape \(30,\) or \(30, 30\)"):
        index.search(Y, 5, filter=torch.ones(29, dtype=torch.bool))
    with pytest.raises(ValueError, match="found torch.int64"): index.search(Y, 5, filter=[1, 2])
    with pytest.raises(ValueError, match="expected queries from 0 to 29, found 0 to 30"):
        index.search(Y, 5, filter=([0, 30], [1, 1]))
    with pytest.raises(ValueError, match="expected an id for each query"): index.search(Y, 5, filter=([0], [1, 1]))
    for X in Y[:, 1:], Y[0], np.zeros((2, 2, D)), []:
        with pytest.raises(ValueError, match="X: expected rows of width 12, found shape"): index.search(X)
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
    empty = TargetIndex(head, Y[:0], "faiss", factory="IVF100,Flat")
    with pytest.raises(ValueError, match="FAISS refuses"): empty.add(Y)
    assert len(empty) == len(empty.ids) == 0


@pytest.mark.parametrize("error", [torch.OutOfMemoryError("full"), MemoryError(),
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
