"""An index in shards is one index: the same ids and distances, bit for bit, whoever searches its parts."""
import numpy as np
import pytest
import torch

from rolebregman.baselines import HEADS, make_head
from rolebregman.retrieval import ShardedIndex, SourceIndex, TargetIndex

M, D = 331, 12


@pytest.fixture(scope="module")
def data():
    generator = torch.Generator().manual_seed(0)
    items = torch.randn(M, D, generator=generator)
    items[200:210] = items[7]  # equal items, in another shard
    return items, torch.randn(9, D, generator=generator)


def fitted(name, items):
    torch.manual_seed(0)
    return make_head(name, dim=D).fit_standardizer(items)


def same(one, other):
    return all(torch.equal(a, b) if isinstance(a, torch.Tensor) else np.array_equal(a, b) for a, b in zip(one, other))


@pytest.mark.parametrize("name", HEADS)
def test_any_number_of_shards_gives_what_one_index_gives(name, data):
    items, queries = data
    head = fitted(name, items)
    for side, single in dict(target=TargetIndex, source=SourceIndex).items():
        whole = single(head, items).search(queries, 20)
        for shards in (2, 7): assert same(ShardedIndex(head, items, shards, side).search(queries, 20), whole), shards


@pytest.mark.parametrize("shards", [2, 9])
def test_filters_and_ids_are_those_of_one_index(shards, data):
    items, queries = data
    head, names = fitted("directed_bregman", items), np.array([f"item {i}" for i in range(M)])
    rng = np.random.default_rng(0)
    masks = [rng.random(M) < 0.5, np.arange(M) < 5, rng.random((9, M)) < 0.7]
    out = (rng.integers(0, 9, 400), names[rng.integers(0, M, 400)])
    one, parts = TargetIndex(head, items, ids=names), ShardedIndex(head, items, shards, ids=names)
    for filter in (*masks, out, (np.zeros(0, int), names[:0]), None):
        assert same(parts.search(queries, 5, filter), one.search(queries, 5, filter))


def test_two_workers_of_a_dask_cluster_and_a_file_that_they_map(data, tmp_path):
    distributed = pytest.importorskip("distributed")
    items, queries = data
    np.save(tmp_path / "items.npy", items.numpy())
    mapped, head = np.load(tmp_path / "items.npy", mmap_mode="r")[10:], fitted("directed_bregman", items)
    own = dict(n_workers=2, threads_per_worker=1, host="127.0.0.1", dashboard_address=None)
    with distributed.LocalCluster(**own) as cluster:
        where = dict(backend="dask", address=cluster.scheduler_address)
        parts = ShardedIndex(head, mapped, 4, folder=tmp_path / "parts", **where)
        whole = TargetIndex(head, items[10:]).search(queries, 11)
        assert same(parts.search(queries, 11), whole)
        kept = sorted(path.name for path in parts.folder.iterdir())
        assert kept == [f"part-{number:05}" for number in range(4)]
        assert same(parts.search(queries, 11), whole)


def test_ray_where_it_is_installed(data):
    pytest.importorskip("ray", reason="ray is not installed here: pip install 'rolebregman[scale]'")
    items, queries = data
    head = fitted("directed_bregman", items)
    found = ShardedIndex(head, items, 3, jobs=2, backend="ray").search(queries)
    assert same(found, TargetIndex(head, items).search(queries))


def test_wrong_arguments_are_named(data):
    items, queries = data
    head = fitted("mlp", items)
    with pytest.raises(ValueError, match="shards: expected a whole number of at least 1, found 2.5"):
        ShardedIndex(head, items, 2.5)
    with pytest.raises(ValueError, match="side: expected 'target' or 'source', found 'targets'"):
        ShardedIndex(head, items, 2, "targets")
    with pytest.raises(ValueError, match="Y: expected at least one row"):
        ShardedIndex(head, items[:0], 2)
    with pytest.raises(ValueError, match="ids: 3 stands twice"):
        ShardedIndex(head, items[:2], 2, ids=[3, 3])
    with pytest.raises(ValueError, match="k: 332 targets are wanted, but the index has 331"):
        ShardedIndex(head, items, 2).search(queries, 332)
    with pytest.raises(ValueError, match="X: expected rows of width 12"):
        ShardedIndex(head, items, 2).search(queries[:, :3])
