"An approximate engine returns the head's own distances, follows what comes and goes, and says what it cannot do"
import builtins

import pytest
import torch
from retrieval.brute_force import FORMS, D, agree, distances_of

from rolebregman.baselines import make_head
from rolebregman.retrieval import Faiss, TargetIndex


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


@pytest.mark.parametrize("factory", [
    "PQ4x4", "LSH", "RQ2x4", "NSG16", "PCA8,Flat", "OPQ2_8,PQ2x4", "Flat,RFlat", "PQ4x4,RFlat", "PCA6,IVF8,PQ3x4",
    "IVF8,SQ8", "PRQ2x2x4", "PCA6,HNSW8"])
def test_every_kind_of_index_lets_items_go_and_takes_filters(factory, tmp_path):
    "Many of them can neither remove nor leave out; what goes is never found, and what is found has its own distance"
    pytest.importorskip("faiss", reason="FAISS is an extra")
    g = torch.Generator().manual_seed(2)
    X, Y = torch.randn(6, D, generator=g), torch.randn(400, D, generator=g)
    index = TargetIndex(make_head("role_bregman", dim=D), Y, "faiss", factory=factory)
    index.remove(index.search(X, 20)[1].unique()[:150])  # the nearest, so that little is left of what FAISS finds
    index.save(tmp_path)
    even = torch.from_numpy(index.ids % 2 == 0)
    for one in index, TargetIndex.load(tmp_path):
        for filter in None, even, even[None].repeat(6, 1):
            distances, found = one.search(X, 10, filter=filter)
            left = torch.from_numpy(index.ids if filter is None else index.ids[even])
            assert torch.isin(found, left).all()
            assert all(len(row.unique()) == 10 for row in found)
            torch.testing.assert_close(distances, distances_of(index, X, Y).gather(1, found), rtol=1e-5, atol=1e-6)
    index.add(Y[:3], ids=[1000, 1001, 1002])
    assert index.search(X, len(index))[1].unique().tolist() == sorted(index.ids.tolist())


@pytest.mark.parametrize("factory", ["PQ8x4", "IVF8,PQ16x4", "OPQ3,PQ3x4", "IVF8,PQ2+8"])
def test_points_are_as_wide_as_a_product_quantiser_wants(factory):
    "The form of this head has 14 coordinates: lifted points have 15, which neither 8, nor 16, nor 4 divides"
    pytest.importorskip("faiss", reason="FAISS is an extra")
    g = torch.Generator().manual_seed(2)
    Y = torch.randn(300, 14, generator=g)
    index = TargetIndex(make_head("role_bregman", dim=14), Y, "faiss", factory=factory)
    assert index.engine.index.d in (15, 16) and index.search(Y[:5], 3)[0].isfinite().all()
    plain = TargetIndex(index.head, Y, "faiss", factory="Flat").engine
    rows = index.rows[:50]
    assert (index.engine.lift(rows)[0][:, 15:] == 0).all()
    assert (index.engine.lift(rows)[0][:, :15] == plain.lift(rows)[0]).all()


def test_lists_of_any_kind_are_not_looked_at_one_by_one():
    pytest.importorskip("faiss", reason="FAISS is an extra")
    X, Y = torch.randn(20, D), torch.randn(1500, D)
    for factory in "IVF40,Flat", "PCA10,IVF40,Flat", "IVF40,Flat,RFlat":
        index = TargetIndex(make_head("role_bregman", dim=D), Y, "faiss", factory=factory)
        assert index.recall(X) > 0.5, factory
        one = TargetIndex(index.head, Y, "faiss", factory=factory, tune="nprobe=1")
        assert one.recall(X) < index.recall(X), factory


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


@pytest.mark.parametrize("factory", ["IDMap,Flat"])
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


@pytest.fixture(params=["role_bregman", "bilinear"])
def index(request):
    pytest.importorskip("faiss", reason="FAISS is an extra")
    return TargetIndex(make_head(request.param, dim=6), torch.randn(300, 6), "faiss", factory="Flat")


@torch.no_grad()
def test_scan_products_and_engine_find_the_same(index):
    q, only = index.encode_query(torch.randn(4, 6)), torch.arange(0, 300, 2)
    out = torch.tensor([0, 3]), torch.tensor([7, 9])  # places among the items that count
    nothing = torch.zeros(2, 0, dtype=torch.int64).unbind()
    for k, which, leave in ((5, None, nothing), (5, None, out), (3, only, out)):
        wanted = index.by_scan(q, k, which, leave)
        for find in (index.by_products, index.by_engine):
            for found, right in zip(find(q, k, which, leave), wanted): assert torch.allclose(found, right, atol=1e-5)


@torch.no_grad()
def test_tiles_are_bounds_of_the_distance_and_infinite_where_left_out(index):
    q = index.encode_query(torch.randn(4, 6))
    out, d = (torch.tensor([1]), torch.tensor([20])), index.compare_all(q, index.items)
    for start, lower in index.tiles(index.query_rows(q)[0], None, out):
        if start <= 20 < start + len(lower): assert lower[20 - start, 1] == torch.inf
        order = lower[:, 0].argsort()
        assert (d[0, start + order].diff() > -1e-4).all(), "bounds come in the order of the distances"


@torch.no_grad()
def test_an_engine_made_of_what_was_saved_of_it_finds_the_same(index):
    engine = index.engine
    again = Faiss.from_saved(engine.name, engine.index, engine.serial.numpy(), engine.scale, engine.floor)
    q = index.encode_query(torch.randn(4, 6))
    wanted = index.by_engine(q, 5, None, torch.zeros(2, 0, dtype=torch.int64).unbind())
    index.engine = again
    found = index.by_engine(q, 5, None, torch.zeros(2, 0, dtype=torch.int64).unbind())
    assert all(torch.equal(a, b) for a, b in zip(found, wanted)) and not again.worn
