"The same numbers with a compiler and without one; no test here needs a compiler"
import logging
import os
import subprocess
import sys

import numpy as np
import pytest
import torch

from rolebregman.baselines import make_head
from rolebregman.common import beside, compiled, in_threads, sorted_unique
from rolebregman.datasets import toy_tree
from rolebregman.evaluation import score_edges
from rolebregman.retrieval import TargetIndex
from rolebregman.training import TrainConfig, fit


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
            "from rolebregman.common import compiled\nfrom rolebregman.icnn import ICNN\n"
            "phi, x = ICNN(4, (5, 3)), torch.randn(2, 9, 4)\n"
            "assert torch.equal(compiled(phi.divergence)(*x), phi.divergence(*x))")
    away = {"CXX": str(tmp_path / "none"), "TORCHINDUCTOR_CACHE_DIR": str(tmp_path), "OMP_NUM_THREADS": "1"}
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, **away})
    assert run.returncode == 0, run.stderr
    assert "running ICNN.divergence without the compiler" in run.stderr


def test_sorted_unique_is_numpys():
    codes = np.random.default_rng(0).integers(0, 50, 200)
    assert np.array_equal(sorted_unique(codes), np.unique(codes)) and not len(sorted_unique(codes[:0]))
    assert np.array_equal(sorted_unique(np.arange(9)[::-1]), np.arange(9)) and len(sorted_unique(codes[:1])) == 1


@pytest.mark.parametrize("n, block", [(0, 3), (2, 3), (3, 3), (10, 3), (9, 3), (5, 1)])
def test_in_threads_each_row_is_worked_on_once(n, block):
    times = np.zeros(n, int)
    def work(start, stop):
        assert stop - start <= block
        times[start:stop] += 1
    in_threads(work, n, block)
    assert (times == 1).all()


def test_what_a_thread_raises_is_raised():
    with pytest.raises(ZeroDivisionError):
        in_threads(lambda start, stop: 1 // start, 10, 3)
    begun = beside(divmod, 7, 0)
    with pytest.raises(ZeroDivisionError):
        begun.result()
    assert beside(divmod, 7, 2).result() == (3, 1)


@pytest.mark.skipif(os.name == "nt", reason="no rights of this kind on Windows")
@pytest.mark.parametrize("umask, mode", [(0o022, 0o644), (0o027, 0o640), (0o002, 0o664)])
def test_files_have_the_rights_that_the_user_gives_to_new_files(tmp_path, umask, mode):
    before = os.umask(umask)
    try:
        head = make_head("euclidean", dim=4)
        files = list(head.save_pretrained(tmp_path / "head").iterdir())
        TargetIndex(head, np.eye(4, dtype="float32")).save(tmp_path / "index")
        files += [path for path in (tmp_path / "index").rglob("*") if path.is_file()]
        found = {path.relative_to(tmp_path).as_posix(): path.stat().st_mode & 0o777 for path in files}
        (tmp_path / "head" / "model.safetensors").chmod(0o600)
        head.save_pretrained(tmp_path / "head")
    finally: os.umask(before)
    assert "head/model.safetensors" in found and len(found) > 5
    assert set(found.values()) == {mode}, found
    assert (tmp_path / "head" / "model.safetensors").stat().st_mode & 0o777 == 0o600, "what the user has set stays"
