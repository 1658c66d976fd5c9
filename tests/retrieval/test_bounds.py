"A head that has changed is noticed, and tables are read whatever they come as"
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from retrieval.brute_force import D, agree

from rolebregman.baselines import make_head
from rolebregman.heads import BregmanHead
from rolebregman.icnn import ACTIVATIONS
from rolebregman.retrieval import Nearest, TargetIndex, as_array, as_numbers, check_rows, fingerprint


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


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_targets_and_queries_may_be_files_and_are_read_in_blocks(dtype, tmp_path, monkeypatch):
    Y = np.random.default_rng(0).standard_normal((400, D)).astype(dtype)
    np.save(tmp_path / "y.npy", Y)
    mapped = np.load(tmp_path / "y.npy", mmap_mode="r")
    monkeypatch.setattr(Nearest, "sizes", property(lambda self: SimpleNamespace(
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


def test_a_class_that_has_moved_is_the_same_class():
    "A digest on disk outlives the rooms of the library; classes of others are known by their module"
    names = {}
    for module in ("rolebregman.heads", "rolebregman.heads.another_room", "theirs.heads", "theirs.rooms"):
        torch.manual_seed(0)
        Moved = type("BregmanHead", (BregmanHead,), {"__module__": module, "__qualname__": "BregmanHead"})
        names[module] = fingerprint(Moved(D))
    torch.manual_seed(0)
    assert names["rolebregman.heads"] == names["rolebregman.heads.another_room"] == fingerprint(BregmanHead(D))
    assert len(set(names.values())) == 3


def test_anything_becomes_an_array_or_numbers():
    assert as_array(torch.ones(2, requires_grad=True), "X").tolist() == [1, 1]
    swapped = np.arange(3.0).astype(">f8")[::-1]
    assert as_numbers(swapped, "X").tolist() == [2, 1, 0]
    with pytest.raises(ValueError, match="Y: expected real numbers, found complex"): as_numbers([1j], "Y")
    with pytest.raises(ValueError, match="X: "): as_array([[1], [1, 2]], "X")


@pytest.mark.parametrize("bad, words", [(torch.nan, "row 12 holds a NaN"), (1e20, r"row 12 is too far out \(1e\+20\)")])
def test_the_first_bad_row_is_named(bad, words):
    x = torch.zeros(5, 2)
    check_rows(x, "Y", 10, "leave it out")
    x[2, 1] = x[4, 0] = bad
    with pytest.raises(ValueError, match=f"Y: {words}.*; leave it out"): check_rows(x, "Y", 10, "leave it out")


def test_large_vectors_that_the_head_standardises_are_searched(tmp_path):
    Y = torch.randn(40, D)
    head = make_head("role_bregman", D, inputs="standard").fit_standardizer(Y * 1e25)
    plain = make_head("role_bregman", D, inputs="standard").fit_standardizer(Y)
    plain.load_state_dict({**head.state_dict(), **{k: v for k, v in plain.state_dict().items() if "standardizer" in k}})
    found, wanted = (TargetIndex(h, y).search(y[:5], 3) for h, y in ((head, Y * 1e25), (plain, Y)))
    assert found[1].tolist() == wanted[1].tolist()
    torch.testing.assert_close(found[0], wanted[0], rtol=1e-4, atol=1e-5)
