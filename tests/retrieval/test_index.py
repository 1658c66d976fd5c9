"Targets come and go, and what is wrong is said"
import json
import pickle
from concurrent.futures import ThreadPoolExecutor
from copy import copy, deepcopy

import numpy as np
import pytest
import torch
from retrieval.brute_force import FORMS, SIDES, D, agree, distances_of

from rolebregman.baselines import make_head
from rolebregman.retrieval import Faiss, Held, SourceIndex, TargetIndex


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


def change(index, Y, how):
    if how == "remove": index.remove(range(0, 300, 2))
    if how == "remove all": index.remove(index.ids)
    if how == "add": index.add(1e-3 * Y[:40])
    if how == "replace":
        index.remove(range(150))
        index.add(-Y[:150], ids=range(150))


@pytest.mark.parametrize("how", ["remove", "remove all", "add", "replace"])
@pytest.mark.parametrize("name, backend", [("role_bregman", "exact"), ("mlp", "exact"), ("role_bregman", "faiss")])
def test_a_search_sees_one_state_of_the_index(name, backend, how):
    "What others change while its queries are encoded is not there for it, in distances, ids, filters and vectors"
    if backend == "faiss": pytest.importorskip("faiss", reason="FAISS is an extra")
    g = torch.Generator().manual_seed(0)
    X, Y = torch.randn(6, D, generator=g), torch.randn(300, D, generator=g)
    index = TargetIndex(make_head(name, dim=D), Y, backend, factory="HNSW16" if backend == "faiss" else "")
    mask, (_, some) = torch.arange(300) % 3 > 0, index.search(X, 4)
    asks = [lambda: index.search(X, 9), lambda: index.search(X, 9, filter=mask), lambda: index.rerank(X, some),
            lambda: (torch.tensor(index.recall(X)),)]
    if name != "mlp": asks.append(lambda: tuple(map(torch.from_numpy, index.query_vectors(X))))
    whole, encode = index.held, index.encode_query
    assert isinstance(whole, Held) and whole.ids is index.ids
    for ask in asks:
        index.held, index.encode_query = whole, encode
        wanted = ask()

        def meanwhile(x):
            if index.held is whole: change(index, Y, how)
            return encode(x)

        index.encode_query = meanwhile
        found = ask()
        assert index.held is not whole
        assert all(torch.equal(a, b) for a, b in zip(found, wanted))


@pytest.mark.parametrize("backend", ["exact", "faiss"])
def test_threads_that_change_an_index_take_turns(backend):
    if backend == "faiss": pytest.importorskip("faiss", reason="FAISS is an extra")
    X, Y = torch.randn(3, D), torch.randn(320, D)
    index = TargetIndex(make_head("role_bregman", dim=D), Y[:20], backend, factory="Flat")
    with ThreadPoolExecutor(4) as pool:
        rows = [range(20 + 10 * i, 30 + 10 * i) for i in range(30)]
        adding = [pool.submit(index.add, Y[list(some)], ids=some) for some in rows]
        searching = [pool.submit(index.search, X, 5) for _ in range(30)]
        removing = [pool.submit(index.remove, i) for i in range(20)]
        for one in adding + removing: one.result()
    assert sorted(index.ids.tolist()) == list(range(20, 320))
    truth = distances_of(index, X, Y)
    for distances, found in [one.result() for one in searching] + [index.search(X, 5)]:
        torch.testing.assert_close(distances, truth.gather(1, found), rtol=1e-5, atol=1e-6)


def test_copies_and_pickles_of_an_index_are_their_own():
    X, Y = torch.randn(3, D), torch.randn(50, D)
    index = TargetIndex(make_head("role_bregman", dim=D), Y)
    for other in deepcopy(index), pickle.loads(pickle.dumps(index)), copy(index):
        other.remove(range(40))
        assert len(other) == 10 and len(index) == 50 and other.search(X, 10)[1].min() == 40
    agree(index, X, Y, 7)


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


def named(numbers):
    "A text for each whole number, of several widths, in another order than the numbers; nothing for -1"
    return np.array(["" if i < 0 else f"{(7 * i) % 101}-{'é' * (i % 3)}" for i in np.ravel(numbers)]).reshape(
        np.shape(numbers))


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("backend", ["exact", "faiss"])
def test_texts_as_ids_are_numbers_by_other_names(side, backend, tmp_path):
    "Whatever is done to an index of numbers is done to one of texts: added, removed, filtered, kept, copied"
    head, Y, X = make_head("role_bregman", dim=D, hidden=(8,)), torch.randn(60, D), torch.randn(5, D)
    numbers, texts = (side(head, Y[:40], backend, ids=ids(np.arange(40))) for ids in (np.array, named))

    def same(filter=None):
        names = filter if filter is None or len(filter) != 2 else (filter[0], list(named(filter[1])))
        (d, i), (e, j) = numbers.search(X, 6, filter), texts.search(X, 6, names)
        assert torch.equal(d, e) and j.dtype.kind == "U" and np.array_equal(named(i.numpy()), j)
        return i

    first = same()
    assert list(texts.add(Y[40:], named(np.arange(40, 60)))) == list(named(numbers.add(Y[40:])))
    same((np.arange(5), first[:, 0].numpy()))
    same(np.arange(60) % 2 == 0)
    numbers.remove(first[0])
    texts.remove(list(named(first[0].numpy())))
    texts.remove([])
    found = same()
    for index in texts, type(texts).load(texts.save(tmp_path), verify=True), pickle.loads(pickle.dumps(texts)):
        assert np.array_equal(index.ids, named(numbers.ids))
        asked = np.where(np.arange(6) == 2, -1, found.numpy())
        (d, i), (e, j) = numbers.rerank(X, asked), index.rerank(X, named(asked))
        assert torch.equal(d, e) and np.array_equal(named(i.numpy()), j) and (j[:, -1] == "").all()
    assert texts.search(X[:0], 3)[1].shape == (0, 3)
    texts.remove(texts.ids)
    assert texts.add(Y[:2]).tolist() == [0, 1], "an empty index takes either kind"


@pytest.mark.parametrize("ids", [["a", 1], ["a", None], ["a\0", "b"], ["a", ""], ["a", "a"], ["a", "c"], [1, 2], None,
                                 np.array(["a", 2.0], dtype=object), ["a"]])
def test_texts_that_are_no_ids(ids):
    index = TargetIndex(make_head("role_bregman", dim=D, hidden=(8,)), torch.randn(2, D), ids=["b", "c"])
    with pytest.raises(ValueError, match="ids: "): index.add(torch.randn(2, D), ids)
    for wrong in ["z"], [1], "z": pytest.raises(ValueError, index.remove, wrong)
    with pytest.raises(ValueError, match="filter: found whole numbers"): index.search(torch.randn(1, D), 1, ([0], [1]))
    with pytest.raises(ValueError, match="'z'|z is not"): index.rerank(torch.randn(1, D), [["b", "z"]])
    assert index.ids.tolist() == ["b", "c"]


def test_the_format_says_whether_ids_are_texts(tmp_path):
    head = make_head("euclidean", dim=D)
    for ids, said in (["b", "c"], 3), ([7, 8], 2):
        about = json.loads((TargetIndex(head, torch.randn(2, D), ids=ids).save(tmp_path) / "index.json").read_text())
        assert about["format"] == said and TargetIndex.load(tmp_path).ids.tolist() == ids
