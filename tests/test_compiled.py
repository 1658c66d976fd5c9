"The same numbers with and without a compiler, in half precision and under autocast; no test here needs a compiler"
import logging
import os
import subprocess
import sys

import pytest
import torch

from rolebregman.baselines import HEADS, make_head
from rolebregman.common import compiled
from rolebregman.datasets import toy_tree
from rolebregman.evaluation import score_edges
from rolebregman.heads import BregmanHead
from rolebregman.icnn import ICNN
from rolebregman.training import TrainConfig, fit


def test_values_and_gradients_agree_with_the_eager_ones():
    "Against float64, both within a few units of rounding; the shape may change from call to call"
    torch.manual_seed(0)
    phi, exact = ICNN(8, (16, 12)), ICNN(8, (16, 12)).double()
    exact.load_state_dict(phi.state_dict())
    fast = compiled(phi.divergence)
    for n in (64, 7, 128):
        u, v = (torch.randn(2, n, 8) + torch.tensor([0.0, 1e-3]).view(2, 1, 1)).unbind()
        u.requires_grad_(), v.requires_grad_()
        true = exact.divergence(u.double(), v.double())
        wanted = torch.autograd.grad(true.sum(), [u, v, *exact.parameters()])
        for found in (fast(u, v), phi.divergence(u, v)):
            assert ((found - true) / true).abs().max() < 3e-6
            of = torch.autograd.grad(found.sum(), [u, v, *phi.parameters()])
            for a, b in zip(of, wanted): assert (a - b).abs().max() <= 1e-5 * b.abs().max()


def test_training_and_scoring_agree_with_the_eager_ones():
    ds, histories = toy_tree(depth=3, dim=8), []
    for compile in (False, True):
        torch.manual_seed(0)
        head = make_head("role_bregman", dim=8, hidden=(8, 8))
        histories.append(fit(head, ds, TrainConfig(epochs=3, lr=1e-2), progress=False, compile=compile).table)
    torch.testing.assert_close(*(torch.tensor(h[["rank_loss", "direction_loss"]].values[1:]) for h in histories),
                               rtol=1e-4, atol=1e-5)
    edges = ds.edges["train"]
    scores = [score_edges(head, ds.features, edges, edges[:, ::-1].copy(), compile=c) for c in (False, True)]
    for eager, fast in zip(*scores): torch.testing.assert_close(eager, fast, rtol=1e-5, atol=1e-6)


def test_without_a_compiler_the_function_runs_as_it_is_and_the_log_says_so(monkeypatch, caplog):
    from torch._dynamo.exc import TorchDynamoException

    def broken(function, **_):
        def fail(*_): raise TorchDynamoException("No working C++ compiler found\nmore")
        return fail

    monkeypatch.setattr(torch, "compile", broken)
    with caplog.at_level(logging.INFO, "rolebregman"):
        fast = compiled(torch.add)
        for _ in range(2): assert fast(torch.ones(()), torch.ones(())) == 2
    assert len(caplog.records) == 1 and "without the compiler: No working C++ compiler found" in caplog.text
    monkeypatch.setattr(torch, "compile", lambda *_, **__: (_ for _ in ()).throw(RuntimeError("not on this system")))
    assert compiled(torch.add)(torch.ones(()), torch.ones(())) == 2


def test_an_error_of_the_function_itself_is_not_hidden(monkeypatch):
    monkeypatch.setattr(torch, "compile", lambda function, **_: function)
    with pytest.raises(RuntimeError, match="must match"): compiled(torch.add)(torch.ones(2), torch.ones(3))


def test_a_machine_that_has_no_compiler(tmp_path):
    "Truly so: a process of its own, whose compiler does not exist"
    code = ("import logging, torch; logging.basicConfig(level=20)\n"
            "from rolebregman.icnn.potential import ICNN, compiled\n"
            "phi, x = ICNN(4, (5, 3)), torch.randn(2, 9, 4)\n"
            "assert torch.equal(compiled(phi.divergence)(*x), phi.divergence(*x))")
    away = {"CXX": str(tmp_path / "none"), "TORCHINDUCTOR_CACHE_DIR": str(tmp_path), "OMP_NUM_THREADS": "1"}
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, **away})
    assert run.returncode == 0, run.stderr
    assert "running ICNN.divergence without the compiler" in run.stderr


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", HEADS)
def test_inputs_of_half_precision_count_in_float32(name, dtype):
    torch.manual_seed(0)
    head = make_head(name, dim=12)
    x, y = (torch.randn(2, 9, 12) * 3).to(dtype)
    assert torch.equal(head(x, y), head(x.float(), y.float()))
    assert head(x, y).dtype == torch.float32


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_half_precision_head_computes_its_divergence_in_float32(dtype):
    "Its weights are rounded once; what is computed from them is as exact as in float32, and never negative"
    torch.manual_seed(0)
    head, exact = BregmanHead(8, hidden=(16, 16)).to(dtype), BregmanHead(8, hidden=(16, 16)).double()
    exact.load_state_dict(head.state_dict())
    v = torch.randn(50, 8).to(dtype)
    u = (v.float() + 0.01 * torch.randn(50, 8)).to(dtype)
    found, true = head.compare(u, v), exact.compare(u.double(), v.double())
    assert found.dtype == torch.float32 and (found >= 0).all()
    assert ((found - true) / true).abs().max() < 1e-5
    assert head(u, v).isfinite().all()


def test_autocast_leaves_the_divergence_alone():
    torch.manual_seed(0)
    head = BregmanHead(8, hidden=(16, 16))
    u, v = torch.randn(2, 30, 8)
    with torch.autocast("cpu", dtype=torch.bfloat16): found = head.potential.divergence(u, v)
    assert torch.equal(found, head.potential.divergence(u, v))
    with torch.autocast("cpu", dtype=torch.bfloat16): assert (head(u, v) >= 0).all()


def test_held_weights_change_nothing_and_are_let_go():
    torch.manual_seed(0)
    head = BregmanHead(8, hidden=(16, 16))
    u, v = torch.randn(2, 30, 8)
    plain = head.compare(u, v)
    with head.held_weights(): held = head.compare(u, v) + head.compare_all(u, v, exact=False).diagonal() * 0
    assert torch.equal(held, plain)
    of, wanted = (torch.autograd.grad(d.sum(), list(head.potential.parameters())) for d in (held, plain))
    for a, b in zip(of, wanted): torch.testing.assert_close(a, b)
    with torch.no_grad(): head.potential.output.raw += 1
    assert not torch.equal(head.compare(u, v), plain)
    with pytest.raises(ValueError, match="width"), head.held_weights(): head(u, v[:, :5])
    assert head.potential._held is None
