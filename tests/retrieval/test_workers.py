"""Who does the work does not matter: for the results, for what dies, and for what is killed."""
import os
import signal
import subprocess
import sys
import time

import pytest
import torch

from rolebregman.retrieval import BACKENDS, finished, workers


def inverse(number):
    return 1 / number, os.getpid()


def needs(backend):
    "The back-end, or a skip that says which package is missing"
    if backend != "loky":
        package = dict(dask="distributed").get(backend, backend)
        pytest.importorskip(package, reason=f"{package} is not installed here: pip install 'rolebregman[scale]'")
    return backend


@pytest.mark.parametrize("backend", BACKENDS)
def test_what_raises_or_kills_its_worker_takes_nothing_with_it(backend):
    def work(number):  # inside, so that it is sent, for this file cannot be imported everywhere
        if number == 3: os.kill(os.getpid(), signal.SIGKILL)
        return 12 / number, os.environ.get("OMP_NUM_THREADS"), os.getpid()

    found = dict(finished(work, range(6), jobs=2, backend=needs(backend)))
    assert isinstance(found[0], ZeroDivisionError) and isinstance(found[3], Exception)
    for number in (1, 2, 4, 5): assert found[number][:2] == (12 / number, "1") and found[number][2] != os.getpid()


def test_a_cluster_that_stumbles_when_it_closes_takes_no_result_with_it(monkeypatch, caplog):
    "As Dask does where a killed worker is begun anew just then"
    cluster = pytest.importorskip("distributed").LocalCluster
    close = cluster.close

    def stumbles(self, *given, **named):
        close(self, *given, **named)
        raise AssertionError("can only join a started process")

    monkeypatch.setattr(cluster, "close", stumbles)
    found = dict(finished(inverse, [1, 2], jobs=1, backend="dask"))
    assert {number: outcome[0] for number, outcome in found.items()} == {1: 1.0, 2: 0.5}
    assert "were not closed in order (can only join a started process)" in caplog.text


def test_what_dask_itself_raises_is_told_from_what_the_work_raises():
    def raised_in(file):
        try:
            exec(compile("None.with_traceback", file, "exec"))
        except AttributeError as error:
            return error.with_traceback(error.__traceback__.tb_next)

    killed = type("KilledWorker", (Exception,), {})()
    own = [workers._of_cluster(outcome) for outcome in (raised_in("/lib/distributed/cfexecutor.py"), killed)]
    of_work = [workers._of_cluster(outcome) for outcome in (raised_in("/srv/work.py"), ZeroDivisionError(), 3, None)]
    assert all(own) and not any(of_work)


def test_one_job_is_this_process_and_its_threads_are_left_alone():
    before = torch.get_num_threads()
    found = list(finished(inverse, range(9)))
    assert [item for item, _ in found] == list(range(9)) and isinstance(found[0][1], ZeroDivisionError)
    assert {result[1] for _, result in found[1:]} == {os.getpid()} and torch.get_num_threads() == before
    assert list(finished(inverse, [], jobs=2)) == []


@pytest.mark.parametrize("cores", [1, 2])
def test_no_number_of_jobs_is_one_for_each_core(cores, monkeypatch):
    monkeypatch.setattr(workers, "cpu_count", lambda: cores)
    places = {place for _, (_, place) in finished(inverse, [1, 2], jobs=0)}
    assert (os.getpid() in places) is (cores == 1)


def test_what_was_under_way_in_a_killed_process_is_done_again(tmp_path):
    def work(path):
        if path.name == "b" and not path.exists():
            path.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return path.name

    items = [tmp_path / name for name in "abcd"]
    assert dict(finished(work, items, jobs=2)) == {path: path.name for path in items}


def alive(process):
    try: os.kill(process, 0)
    except ProcessLookupError: return False
    try: return open(f"/proc/{process}/stat").read().rpartition(")")[2].split()[0] != "Z"
    except OSError: return True


@pytest.mark.parametrize("backend", ["loky", "dask"])
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_a_parent_that_is_stopped_leaves_no_worker_behind(backend, how, tmp_path):
    code = f"""
import os, pathlib, signal, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # which a shell ignores for what it starts in the background
from rolebregman.retrieval import finished
def work(item):
    pathlib.Path({str(tmp_path)!r}, str(os.getpid())).touch()
    end = time.monotonic() + 120
    while time.monotonic() < end: pass
if __name__ == "__main__": list(finished(work, range(2), jobs=2, backend={needs(backend)!r}))"""
    (tmp_path / "run.py").write_text(code)
    parent = subprocess.Popen([sys.executable, tmp_path / "run.py"], stderr=subprocess.DEVNULL)
    end = time.monotonic() + 60
    while len(workers := [int(p.name) for p in tmp_path.iterdir() if p.name.isdigit()]) < 2 and time.monotonic() < end:
        time.sleep(0.05)
    parent.send_signal(how)
    assert parent.wait(60) != 0 and len(workers) == 2
    while any(map(alive, workers)) and time.monotonic() < end + 30: time.sleep(0.05)
    assert not any(map(alive, workers))


@pytest.mark.parametrize("backend, package", [("dask", "distributed"), ("ray", "ray")])
def test_a_missing_package_is_named_with_the_command_that_installs_it(backend, package, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ImportError, match=rf"needs the package {package}: pip install 'rolebregman\[scale\]'"):
        list(finished(inverse, [1], backend=backend))


@pytest.mark.parametrize("backend", ["dask", "ray"])
@pytest.mark.parametrize("address", ["127.0.0.1:9", "tcp://127.0.0.1:9", "127.0.0.1", "tcp://127.0.0.1:port"])
def test_an_address_where_nobody_is_is_told_at_once(backend, address):
    with pytest.raises(ConnectionError, match=f"nobody answers at {address}: "):
        list(finished(inverse, [1], backend=needs(backend), address=address))


def test_wrong_arguments_are_refused_before_anything_starts():
    with pytest.raises(ValueError, match="unknown back-end 'threads'; expected one of loky, dask, ray"):
        finished(inverse, [1], backend="threads")
    with pytest.raises(ValueError, match="'tcp://h:1' goes with the back-end dask or ray"):
        finished(inverse, [1], address="tcp://h:1")


def test_a_dask_cluster_of_our_own_listens_to_this_machine_alone():
    pytest.importorskip("distributed")
    psutil = pytest.importorskip("psutil")
    with BACKENDS["dask"](2, None) as submit:
        assert submit(inverse, 2).result()[0] == 0.5
        family = [psutil.Process(), *psutil.Process().children(recursive=True)]
        found = [connection.laddr.ip for process in family for connection in process.net_connections()
                 if connection.status == psutil.CONN_LISTEN]
    assert len(found) >= 4, "the scheduler, its dashboard and the workers"
    assert set(found) <= {"127.0.0.1", "::1"}
