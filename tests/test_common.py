"The same numbers with a compiler and without one; no test here needs a compiler"
import csv
import io
import logging
import os
import resource
import shutil
import string
import subprocess
import sys
import threading
import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file

from rolebregman.baselines import make_head
from rolebregman.common import (
    beside,
    compiled,
    csv_text,
    in_threads,
    number_pairs,
    one_at_a_time,
    pairs_of_numbers,
    printable,
    refuse_unpacked,
    sorted_numbers,
    sorted_unique,
    unpacked,
    write_faults_named,
    write_whole,
)
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


LETTERS = string.ascii_letters + string.digits + " ,;'\"\n\r\t=@-+é日%{}"


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.text(LETTERS, min_size=1), st.text(LETTERS, min_size=1),
                          st.floats(width=32, allow_nan=False), st.integers(0, 10**9)), min_size=1, max_size=9))
def test_text_is_what_pandas_writes_and_reads_back_as_it_was(rows):
    "pandas leaves a carriage return without quotes, and a reader then takes it for the end of the line"
    table = pd.DataFrame(rows, columns=["source", "target", "distance", "rank"])
    table = table.astype(dict(source="str", target="str", distance=np.float32))
    for header in (True, False):
        text = csv_text(table, header)
        back = pd.read_csv(io.StringIO(text, newline=""), dtype=str, keep_default_na=False,
                           header=0 if header else None)
        assert back.iloc[:, :2].to_numpy().tolist() == [list(row[:2]) for row in rows]
        assert [list(map(str, row[:2])) for row in csv.reader(io.StringIO(text, newline=""))][-len(rows):] == (
            back.iloc[:, :2].to_numpy().tolist())
        if "\r" not in text:
            assert text == table.to_csv(index=False, header=header, float_format="%.7g", lineterminator="\n")


def test_sorted_unique_is_numpys():
    codes = np.random.default_rng(0).integers(0, 50, 200)
    assert np.array_equal(sorted_unique(codes), np.unique(codes)) and not len(sorted_unique(codes[:0]))
    assert np.array_equal(sorted_unique(np.arange(9)[::-1]), np.arange(9)) and len(sorted_unique(codes[:1])) == 1


def test_pairs_are_numbers_and_back():
    rng = np.random.default_rng(2)
    pairs = np.unique(rng.integers(0, 700, (160_000, 2)), axis=0)  # more than one block
    pairs = pairs[pairs[:, 0] != pairs[:, 1]]
    numbers = number_pairs(*pairs.astype(np.int16).T, 700)
    assert numbers.dtype == np.int64 and (np.diff(numbers) > 0).all()
    assert (pairs_of_numbers(numbers, 700) == pairs).all()
    other = rng.permutation(700)
    assert (pairs_of_numbers(numbers, 700, other) == other[pairs]).all()


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


@pytest.mark.parametrize("limit", [0, 5, 4000])
@pytest.mark.parametrize("write", [
    lambda path: path.write_text("x" * 9000), lambda path: np.save(path.open("wb"), np.ones(3000)),
    lambda path: pd.DataFrame(np.ones((900, 9))).to_csv(path), lambda path: save_file(dict(a=torch.ones(3000)), path),
    lambda path: shutil.copyfile(__file__, path), lambda path: path.write_bytes(b"x" * 9000)],
    ids=["text", "array", "table", "tensors", "copy", "bytes"])
def test_what_cannot_be_written_whole_names_the_file_and_leaves_the_old_one(tmp_path, limit, write):
    (tmp_path / "kept").write_text("old")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    try:
        with warnings.catch_warnings(action="ignore"), pytest.raises(OSError) as error:
            write_whole(tmp_path / "kept", write)
    finally: resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert str(error.value.filename) == str(tmp_path / "kept") and error.value.strerror
    assert [path.name for path in tmp_path.iterdir()] == ["kept"] and (tmp_path / "kept").read_text() == "old"


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no device that is always full")
def test_a_device_that_is_full_is_named():
    with pytest.raises(OSError, match="No space left on device: '/dev/full'"): write_whole("/dev/full", "text")


def test_other_faults_of_a_writer_stay_what_they_are(tmp_path):
    with pytest.raises(KeyError): write_whole(tmp_path / "a", lambda path: {}["b"])
    with pytest.raises(FileNotFoundError, match="missing"):
        write_whole(tmp_path / "a", lambda path: shutil.copyfile(tmp_path / "missing", path))
    with pytest.raises(FileNotFoundError, match="none/a"): write_whole(tmp_path / "none" / "a", "text")
    with pytest.raises(ZeroDivisionError), write_faults_named("a"): print(1 / 0)


def test_what_was_left_over_a_day_ago_goes_and_nothing_else(tmp_path):
    names = [".a.txt.0123abcd", ".a.txt.89abcdef", ".a.txt.lock", ".a.txt.mine", ".b.txt.0123abcd", "a.txt.0123abcd"]
    for name in names: (tmp_path / name).touch()
    for name in names[:1] + names[2:]: os.utime(tmp_path / name, (0, 0))
    write_whole(tmp_path / "a.txt", "text")
    assert {path.name for path in tmp_path.iterdir()} == {"a.txt", *names[1:]}


def test_a_folder_that_cannot_be_held_is_written_all_the_same(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "fcntl", None)  # as on Windows
    with one_at_a_time(tmp_path), one_at_a_time(tmp_path): (tmp_path / "a").touch()


def test_one_process_at_a_time_holds_a_folder(tmp_path):
    code = ("import sys\nfrom rolebregman.common import one_at_a_time\n"
            "with one_at_a_time(sys.argv[1]): print('in', flush=True); sys.stdin.read()")
    with subprocess.Popen([sys.executable, "-c", code, tmp_path], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                          text=True) as other:
        assert other.stdout.readline() == "in\n"
        ends, waiting = [], threading.Thread(target=lambda: hold(tmp_path, ends))
        waiting.start()
        waiting.join(0.2)
        assert not ends, "it waits"
        other.stdin.close()
        waiting.join(60)
    assert ends == ["held"]


def hold(folder, ends):
    with one_at_a_time(folder): ends.append("held")


def test_what_is_unpacked_comes_through_as_it_is(monkeypatch):
    data = np.random.default_rng(0).bytes(3_000_000)
    assert unpacked(io.BytesIO(data), "x").read() == data
    assert list(unpacked(io.BytesIO(b"a\nb"), "x")) == [b"a\n", b"b"]
    monkeypatch.setenv("ROLEBREGMAN_MAX_GIB", str(3_000_000 / 2**30))
    assert unpacked(io.BytesIO(data), "x").read() == data, "as much as is allowed"
    with pytest.raises(ValueError, match="x unpacks to more than"): unpacked(io.BytesIO(data + b"1"), "x").read()
    with pytest.raises(ValueError, match="y unpacks to more than"): refuse_unpacked(10**7, "y")


def test_printable_text_is_what_it_was_where_nothing_steers():
    usual = "Zürich → 東京\t🙂 'quoted' \\x1b\nnext"
    assert printable(usual) == usual
    assert printable("\x00\x1b\r\x7f\x9b\u2028\u202e") == "\\u0000\\u001b\\u000d\\u007f\\u009b\u2028\\u202e"


@pytest.mark.parametrize("n, kind", [(5, np.int8), (300, np.int16), (300, np.int64), (70_000, np.int32), (10**6, int)])
def test_sorted_numbers_are_those_that_sorting_gives(n, kind):
    "Also where pairs repeat"
    for count in (0, 1, 100, 200_000):
        first, second = np.random.default_rng(count).integers(0, n, (2, count)).astype(kind)
        found = sorted_numbers(first, second, n)
        assert found.dtype == np.int64 and (found == np.sort(first.astype(np.int64) * n + second)).all()
