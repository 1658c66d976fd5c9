"Equal pairs have equal distances, to the last bit, wherever they stand: no constant scorer wins by rounding"
import numpy as np
import pandas as pd
import pytest
import torch

from rolebregman.baselines import HEADS, make_head
from rolebregman.datasets import DirectedDataset
from rolebregman.evaluation import evaluate, filtered_ranks, score_edges, score_lists
from rolebregman.heads import BregmanHead, DistanceHead, distinct_rows, encode_rows, pair_distances
from rolebregman.training import TrainConfig, fit

WIDTH = 8


def dataset(features, pairs=200):
    "Pairs of items with these features, nearly all of them in the test split"
    n = len(features)
    edges = np.stack([np.arange(pairs) % n, (7 * np.arange(pairs) + 1) % n], 1)
    edges = edges[edges[:, 0] != edges[:, 1]]
    return DirectedDataset("alike", features.astype(np.float32), pd.DataFrame(dict(id=np.arange(n))),
                           dict(train=edges[:20], valid=edges[20:40], test=edges[40:]), seed=0)


def alike(n=200):
    return np.tile(np.random.default_rng(0).normal(size=WIDTH), (n, 1))


def off_its_start(name, seed, dtype=torch.float32):
    torch.manual_seed(seed)
    head = make_head(name, dim=WIDTH)
    with torch.no_grad():
        for weight in head.parameters(): weight.add_(0.05 * torch.randn_like(weight))
    return head.to(dtype)


@pytest.fixture(params=[1, 3])
def threads(request):
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield
    torch.set_num_threads(before)


def is_a_draw(found):
    rates = {name: found[name] for name in ("ranking_accuracy", "direction_accuracy", "auc", "average_precision")}
    assert rates == dict.fromkeys(rates, 0.5) and found["tie_rate"] == 1 and found["gap_mean"] == 0
    assert found["mrr"] == pytest.approx(1 / 51, rel=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_no_head_tells_equal_vectors_apart(dtype, threads):
    ds, more = dataset(alike()), dict(direction_prior=2, role_bregman_lowrank=1, role_bregman_residual=1)
    for name, seed in [*dict.fromkeys(HEADS, 0).items(), *more.items()]:
        is_a_draw(evaluate(off_its_start(name, seed, dtype), ds))


def blind(name):
    "A head that sees nothing of its inputs, which differ"
    head = off_its_start(name, 0)
    with torch.no_grad():
        for part in (getattr(head, "maps", {}).values() if name != "mlp" else [head.rest[-1]]):
            for name, weight in part.named_parameters():
                if name != "offset" and not name.endswith("bias"): weight.zero_()
    return head


@pytest.mark.parametrize("name", ["role_bregman", "mlp"])
def test_a_head_that_is_blind_wins_nothing_on_vectors_that_differ(name, threads):
    "All its encodings are equal, or all its outputs"
    is_a_draw(evaluate(blind(name), dataset(np.random.default_rng(1).normal(size=(200, WIDTH)))))


class Softplus(DistanceHead):
    "Says the same of every pair, by a function that a processor computes in two ways"

    def compare(self, u, v):
        return torch.nn.functional.softplus(0 * (u + v).sum(-1) + 2.518796920776367)


def test_a_constant_wins_nothing(threads):
    is_a_draw(evaluate(Softplus(WIDTH), dataset(np.random.default_rng(1).normal(size=(211, WIDTH)), 211)))


def test_twins_among_others_tie():
    "Each vector three times: the pairs of its copies are equal in every role, and the others are as they were"
    some = np.random.default_rng(2).normal(size=(67, WIDTH))
    ds = dataset(np.concatenate([some, some, some]), 201)
    copies = np.stack([np.arange(201) % 67, (5 * np.arange(201) + 3) % 67], 1)
    edges, others = copies + 67 * np.array([[0, 1]]), np.stack([copies[:, 1], copies[:, 1] + 134], 1)
    for name in HEADS:
        for seed in range(2):
            head = off_its_start(name, seed)
            forward, reverse, negative = score_edges(head, ds.features, edges, others)
            assert torch.equal(negative, forward[:, None].expand(-1, 2)), name
            f = torch.from_numpy(ds.features)
            torch.testing.assert_close(forward, head(*f[edges.T]).detach(), rtol=1e-4, atol=1e-6)
            torch.testing.assert_close(reverse, head(*f[edges.T[::-1].copy()]).detach(), rtol=1e-4, atol=1e-6)


@pytest.fixture
def parts_made(monkeypatch):
    "Every time that distances were computed from parts of the items"
    seen, by = [], BregmanHead.item_parts
    monkeypatch.setattr(BregmanHead, "item_parts", lambda *given: seen.append(by(*given)) or seen[-1])
    return seen


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", ["role_bregman", "icnn_bregman", "role_bregman_residual"])
def test_twins_tie_where_there_are_pairs_enough_for_parts(name, dtype, threads, parts_made):
    "Three copies of 67 items, in lists of pairs"
    some = np.random.default_rng(2).normal(size=(67, WIDTH))
    features = np.concatenate([some, some, some]).astype(np.float32)
    i, j = (torch.from_numpy(part) for part in np.random.default_rng(3).integers(67, size=(2, 9000)))
    for seed in range(2):
        head = off_its_start(name, seed, dtype)
        lists = score_lists(head, features, [(i, j), (i + 67, j), (i + 134, j + 67), (i, i), (i + 67, i)])
        assert lists[0].equal(lists[1]) and lists[0].equal(lists[2]) and lists[3].equal(lists[4])
        assert len(lists[0].unique()) > 1000 or dtype == torch.bfloat16
    assert len(parts_made) == 2 and all(parts_made)


def test_calls_that_are_compared_with_each_other_are_asked_without_parts(parts_made):
    "Else a pair of a large block and of a small one would differ in its last bit"
    head = off_its_start("role_bregman", 0)
    u, v = torch.randn(2, 60, WIDTH)
    i, j = torch.cartesian_prod(torch.arange(60), torch.arange(60)).T
    with torch.no_grad():
        whole = pair_distances(head, u, v, i, j, parts=False)
        some = torch.cat([pair_distances(head, u, v, *ends, parts=False) for ends in zip(i.split(700), j.split(700))])
        assert not parts_made
        torch.testing.assert_close(pair_distances(head, u, v, i, j), whole, rtol=3e-6, atol=0)
    assert len(parts_made) == 1 and torch.allclose(some, whole, rtol=1e-6)


@pytest.mark.parametrize("name", HEADS)
def test_full_ranks_of_equal_vectors_are_in_the_middle(name):
    head, ds = off_its_start(name, 0), dataset(alike(60), 60)
    left_out = np.bincount(ds.holding[:, 0], minlength=60)[ds.edges["test"][:, 0]]
    assert filtered_ranks(head, ds).tolist() == (1 + (60 - 1 - left_out) / 2).tolist()


def test_cones_rank_a_twin_as_a_tie_where_they_cancel():
    "Near the edge of a cone a distance is a difference of rounded angles, beyond any band of its own size"
    some = np.random.default_rng(3).normal(size=(50, WIDTH))
    head = off_its_start("entailment_cones", 1)
    ds = dataset(np.concatenate([some, some]), 100)
    found = filtered_ranks(head, ds)
    assert ((found * 2) % 1 == 0).all() and not torch.equal(found % 1, 0 * found), "a twin counts one half"


def test_the_epoch_is_not_chosen_by_rounding():
    for name, seed in ("direction_prior", 2), ("mlp", 0):
        head = off_its_start(name, seed).requires_grad_(False)
        head.inputs = "raw"
        history = fit(head, dataset(alike()), TrainConfig(valid_negatives=100), progress=False)
        assert history.rows[0]["ranking_accuracy"] == history.rows[0]["direction_accuracy"] == 0.5


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int64], ids=str)
def test_distinct_rows_against_a_loop(dtype):
    rows = torch.randint(-1, 2, (300, 3), generator=torch.Generator().manual_seed(0)).to(dtype)
    wanted = [next(j for j in range(i + 1) if torch.equal(rows[i], rows[j])) for i in range(300)]
    for block in (1, 7, 300): assert distinct_rows(rows.__getitem__, 300, block).tolist() == wanted


def test_rows_that_share_a_sum_are_not_equal(monkeypatch):
    monkeypatch.setattr("rolebregman.heads.ties._sums", lambda x: torch.zeros(len(x), dtype=torch.int64))
    rows = torch.tensor([[1.0, 2], [3, 4], [1, 2]])
    assert distinct_rows(rows.__getitem__, 3).tolist() == [0, 1, 0]


def test_equal_rows_are_encoded_once():
    seen = []

    def encode(x):
        seen.append(len(x))
        return 2 * x

    table = np.array([[1.0, 2], [3, 4], [1, 2], [-0.0, 0], [0, 0]])
    assert encode_rows(encode, table, [2, 1, 0, 3, 4, 2]).tolist() == [[2, 4], [6, 8], [2, 4], [0, 0], [0, 0], [2, 4]]
    assert seen == [0, 64]  # how wide it is; then three rows, filled up to a block


def test_a_symmetric_head_ties_with_the_reversal_in_any_block():
    head = off_its_start("poincare", 0)
    items = torch.randn(97, WIDTH)
    with torch.inference_mode():
        u, v = head.encode_source(items), head.encode_target(items)
        x, y = torch.randint(97, (2, 1001), generator=torch.Generator().manual_seed(0))
        there = pair_distances(head, u, v, x, y, block=100)
        back = pair_distances(head, u, v, y, x, block=1000)
    assert torch.equal(there, back)
    assert pair_distances(head, u, v, x[:0], y[:0]).shape == (0,)


def test_the_compiler_is_asked_where_one_asks_for_it_and_not_else(monkeypatch):
    asked, head = [], off_its_start("mlp", 0)
    u, pairs = head.encode_source(torch.randn(9, WIDTH)).detach(), torch.arange(9)
    v = head.encode_target(torch.randn(9, WIDTH)).detach()
    monkeypatch.setattr("rolebregman.heads.ties.compiled", lambda compare: asked.append(compare) or compare)
    plain = pair_distances(head, u, v, pairs, pairs)
    assert not asked and pair_distances(head, u, v, pairs, pairs, compile=True).equal(plain) and asked == [head.compare]
