"What a filter leaves out is not returned, and ids are whole numbers, each once"
import numpy as np
import pytest
import torch
from retrieval.brute_force import D, agree

from rolebregman.baselines import make_head
from rolebregman.retrieval import TargetIndex


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
