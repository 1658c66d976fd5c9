"""Ranks by inner products are those of the exact distances: random heads, duplicates, near-duplicates, outliers."""
import logging

import numpy as np
import pytest
import torch

from rolebregman.baselines import HEADS, make_head
from rolebregman.common import out_of_memory
from rolebregman.heads import BregmanHead, Candidates, doubled, encode_rows, gather_rows, robust_centre, target_forms


def exact_ranks(head, u, v, own, out=()):
    "By all exact distances, the mean of the optimistic and the pessimistic rank; equal encodings tie"
    d = head.compare_all(u, v, exact=True)
    mine, same = d.gather(1, own[:, None]), (v[own][:, None] == v).all(-1)
    counts = torch.ones_like(same)
    counts[torch.arange(len(u)), own] = False
    if out: counts[out] = False
    nearer, tied = (d < mine) & ~same & counts, ((d == mine) | same) & counts
    return 1 + nearer.double().sum(1) + tied.double().sum(1) / 2


def hard_targets(g, n, dim, gap):
    "Points, others `gap` beside them, and outliers near and far"
    near, noise, far = torch.randn(3, n, dim, generator=g, dtype=torch.float64)
    return torch.cat([near, near + gap * noise, 30 * far, 1e6 * far[:n // 4]])


def draw(seed):
    "A random head, of float64, some sources and targets, and positions of their own targets"
    g = torch.Generator().manual_seed(seed)
    torch.manual_seed(seed)
    dim = int(torch.randint(2, 12, (), generator=g))
    name = list(HEADS)[seed % len(HEADS)]
    head = make_head(name, dim=dim).double()
    with torch.no_grad():
        for p in head.parameters(): p.add_(0.3 * torch.randn(p.shape, generator=g, dtype=torch.float64))
    items = hard_targets(g, int(torch.randint(8, 40, (), generator=g)), dim, gap=10.0 ** -int(seed % 7 + 1))
    own = torch.randint(len(items), (12,), generator=g)
    sources = items[own] + 0.1 * torch.randn(12, dim, generator=g, dtype=torch.float64)
    v = head.encode_target(items)
    return head, head.encode_source(sources), torch.cat([v, v[::2]]), own, g # half of the targets stand twice


@pytest.mark.parametrize("seed", range(100))
@torch.inference_mode()
def test_ranks_are_those_of_the_exact_distances(seed):
    head, u, v, own, g = draw(seed)
    out = torch.randint(len(u), (30,), generator=g), torch.randint(len(v), (30,), generator=g)
    among = Candidates(head, v, block=50)
    assert among.ranks(u, own, tile=300).tolist() == exact_ranks(head, u, v, own).tolist()
    assert among.ranks(u, own, out).tolist() == exact_ranks(head, u, v, own, out).tolist()


@pytest.mark.parametrize("seed", range(100))
@torch.inference_mode()
def test_signs_are_those_of_the_exact_distances(seed):
    head, u, v, own, g = draw(seed)
    others = torch.randint(len(v), (len(u), 40), generator=g)
    wanted = (head.compare_all(u, v).gather(1, others) - head.compare_all(u, v).gather(1, own[:, None])).sign()
    wanted[(v[others] == v[own][:, None]).all(-1)] = 0
    assert torch.equal(Candidates(head, v).signs(u, own, others), wanted)


@pytest.mark.parametrize("name", [n for n in HEADS if make_head(n, dim=8).product_form])
@torch.inference_mode()
def test_in_float32_a_rank_is_off_by_no_more_than_the_last_digits_of_the_exact_distances(name):
    g = torch.Generator().manual_seed(5)
    head, items = make_head(name, dim=8), hard_targets(g, 60, 8, 1e-6).float()
    own = torch.randint(120, (50,), generator=g)
    u, v = head.encode_source(items[own] + 0.1), head.encode_target(items)
    d = head.compare_all(u, v, exact=True).double()
    mine = d.gather(1, own[:, None])
    slack = 1e-5 * mine.abs() if head.nonnegative else 1e-6 * u.norm(dim=1)[:, None] * v.norm(dim=1)
    low, high = 1 + (d < mine - slack).sum(1), (d <= mine + slack).sum(1)
    found = Candidates(head, v).ranks(u, own)
    assert (low <= found).all() and (found <= high).all()
    assert (found == exact_ranks(head, u, v, own)).double().mean() > 0.8


@torch.inference_mode()
def test_the_plain_form_would_get_near_ties_wrong():
    "What the settling is for: the same ranks straight from the form are wrong"
    g = torch.Generator().manual_seed(3)
    torch.manual_seed(3)
    head, items = BregmanHead(8), hard_targets(g, 200, 8, 1e-4).float()
    own = torch.randint(400, (50,), generator=g)
    u, v = head.encode_source(items[own] + 0.02), head.encode_target(items)
    d = head.compare_all(u, v, exact=False)
    plain = 1 + (d < d.gather(1, own[:, None])).sum(1)
    exact = exact_ranks(head, u, v, own)
    assert (Candidates(head, v).ranks(u, own) - exact).abs().max() <= 0.5 < (plain - exact).abs().max()


@torch.inference_mode()
def test_only_near_ties_are_measured_again():
    torch.manual_seed(0)
    head = BregmanHead(16)
    u, v = head.encode_source(torch.randn(40, 16)), head.encode_target(torch.randn(5000, 16))
    among, settled = Candidates(head, v), []
    settle = among._settle
    among._settle = lambda u, own, i, j: settled.append(len(i)) or settle(u, own, i, j)
    among.ranks(u, torch.arange(40))
    assert sum(settled) < 40 + 1e-3 * 40 * 5000 # the first 40 are the own distances, which are looked at


@pytest.mark.parametrize("error", [MemoryError(), torch.cuda.OutOfMemoryError("full"),
                                   RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: ..."),
                                   RuntimeError("Error: std::bad_alloc")])
@torch.inference_mode()
def test_out_of_memory_halves_the_tile_and_says_so(error, caplog):
    head, u, v, own, _ = draw(4)
    among, tile = Candidates(head, v), Candidates._tile
    wanted = among.ranks(u, own)
    def cramped(u, own, sources, out, start, stop):
        if stop - start > 10: raise error
        return tile(among, u, own, sources, out, start, stop)
    among._tile = cramped
    with caplog.at_level(logging.WARNING):
        assert torch.equal(among.ranks(u, own), wanted)
    assert "out of memory: the ranking of 12 sources goes on in blocks of" in caplog.text
    among._tile = lambda *_: (_ for _ in ()).throw(error)
    with pytest.raises(type(error)): among.ranks(u, own)


@torch.inference_mode()
def test_out_of_memory_halves_the_blocks_that_are_encoded_and_laid_out(monkeypatch, caplog):
    head, items = make_head("role_bregman", dim=4), torch.randn(300, 4)
    v = head.encode_target(items)
    wanted = Candidates(head, v).vectors

    def scarce(inner, x, *rest):
        if len(x) > 100: raise RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: ...")
        return inner(x, *rest)

    gradient = type(head.potential).gradient
    monkeypatch.setattr(type(head.potential), "gradient", lambda self, x: scarce(lambda x: gradient(self, x), x))
    assert torch.equal(Candidates(head, v, block=200).vectors, wanted)
    found = encode_rows(lambda x: scarce(head.encode_target, x), items, torch.arange(300))
    assert torch.allclose(found, v, rtol=1e-5, atol=1e-6)
    assert "the laying out of targets goes on in blocks of 100 rows" in caplog.text
    assert "encoding goes on in blocks of" in caplog.text


def test_other_errors_are_not_taken_for_a_lack_of_memory():
    assert not out_of_memory(RuntimeError("shape mismatch")) and not out_of_memory(ValueError("can't allocate memory"))


@torch.inference_mode()
def test_a_target_of_which_the_form_says_nothing_is_ranked_all_the_same():
    torch.manual_seed(0)
    head, items = make_head("role_bregman", dim=8), torch.randn(60, 8)
    u, v, own = head.encode_source(items[:20] + 0.1), head.encode_target(items), torch.arange(20).flip(0)
    among = Candidates(head, v)
    among.vectors[3], among.bias[3], among.norm[3] = torch.nan, torch.inf, torch.inf
    assert torch.equal(among.ranks(u, own), exact_ranks(head, u, v, own))


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("name", ["mlp", "role_bregman"])
@torch.inference_mode()
def test_a_distance_that_is_not_finite_is_refused(name, value):
    torch.manual_seed(0)
    head, items = make_head(name, dim=4), torch.randn(50, 4)
    items[7] = value
    u, v = head.encode_source(items[:5]), head.encode_target(items)
    among = Candidates(head, v)
    with pytest.raises(ValueError, match="gives a distance that is not finite"): among.ranks(u, torch.arange(5))
    with pytest.raises(ValueError, match="gives a distance that is not finite"):
        among.signs(u, torch.arange(5), torch.full((5, 1), 7))
    out = torch.arange(5), torch.full((5,), 7)
    assert among.ranks(u, torch.arange(5), out).isfinite().all(), "what is left out does not count"


@torch.inference_mode()
def test_rows_are_encoded_as_they_are_and_a_file_is_read_where_needed(tmp_path):
    items = np.random.default_rng(0).normal(size=(30, 4)).astype(np.float16)
    np.save(tmp_path/"items.npy", items)
    mapped, rows = np.load(tmp_path/"items.npy", mmap_mode="r"), [3, 29, 3, 0]
    head = make_head("role_bregman", dim=4)
    for some in mapped, torch.from_numpy(items):
        found = encode_rows(head.encode_target, some, rows, block=3)
        assert found.dtype == torch.float32
        assert found.numpy() == pytest.approx(head.encode_target(items[rows].astype(np.float32)).numpy(), rel=1e-5)
    assert encode_rows(head.encode_source, mapped, []).shape == (0, 4)


def test_the_centre_is_not_moved_by_an_outlier():
    targets = torch.tensor([[1.0], [2.0], [1e9]])
    assert robust_centre(targets).tolist() == [2] and robust_centre(targets).dtype == torch.float64


def test_what_is_laid_out_is_the_form_rounded_once():
    head, targets = BregmanHead(4), torch.randn(9, 4)
    fine, centre = BregmanHead(4).double(), robust_centre(targets)
    fine.load_state_dict(head.state_dict())
    vectors, bias, norms = target_forms(fine, targets, centre, block=4)
    wanted = fine.target_form(targets.double(), centre)
    assert torch.equal(vectors, wanted[0].float()) and torch.equal(bias, wanted[1].float())
    assert torch.equal(norms, wanted[0].norm(dim=1).float())


def test_no_targets_are_laid_out_with_the_width_of_the_form():
    fine = BregmanHead(4).double()
    vectors, bias, norms = target_forms(fine, torch.zeros(0, 4), torch.zeros(4).double())
    assert vectors.shape == (0, fine.target_form(torch.zeros(1, 4).double(), torch.zeros(4).double())[0].shape[1])
    assert bias.shape == norms.shape == (0,) and vectors.dtype == bias.dtype == norms.dtype == torch.float32


@pytest.mark.parametrize("kind", ["tensor", "array", "memory-mapped"])
def test_rows_are_gathered_in_the_order_asked_for(kind, tmp_path):
    table, rows = torch.randn(7, 3), torch.tensor([5, 0, 5, 6])
    np.save(tmp_path / "table.npy", table.numpy())
    mapped = np.load(tmp_path / "table.npy", mmap_mode="r")
    given = {"tensor": table, "array": table.numpy(), "memory-mapped": mapped}[kind]
    assert torch.equal(gather_rows(given, rows), table[rows])


def test_what_is_doubled_is_a_copy_in_float64():
    head, x = BregmanHead(4).half(), torch.randn(3, 4).half()
    fine = doubled(head)
    assert doubled(x).dtype == torch.float64 and torch.equal(doubled(x), x.double())
    assert {(p.dtype, p.requires_grad) for p in fine.parameters()} == {(torch.float64, False)}
    assert {(p.dtype, p.requires_grad) for p in head.parameters()} == {(torch.float16, True)}


class OnMps(torch.Tensor):
    "Says of itself what a tensor on MPS does, which has no float64"
    device = property(lambda self: torch.device("mps"))

    def double(self): raise TypeError("Cannot convert a MPS Tensor to float64 dtype")

    def cpu(self): return self.as_subclass(torch.Tensor)


def test_where_a_device_has_no_float64_the_cpu_doubles():
    x = torch.randn(9, 4)
    found = doubled(x.as_subclass(OnMps))
    assert type(found) is torch.Tensor and torch.equal(found, x.double())
    assert torch.equal(robust_centre(x.as_subclass(OnMps)), robust_centre(x))
