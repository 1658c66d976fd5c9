"""The grid and its store: resumed, interrupted, killed, failing, and the same whatever the number of processes."""
import inspect
import json
import os
import random
import shutil
import subprocess
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from torch.nn.functional import one_hot

from rolebregman.baselines import HEADS, make_head
from rolebregman.common import named_generator
from rolebregman.datasets import LOADERS, load_dataset, toy_tree
from rolebregman.datasets.negatives import NegativeSampler
from rolebregman.evaluation import filtered_ranks, score_split, split_metrics
from rolebregman.study import (
    DATASETS,
    SCALES,
    Store,
    Task,
    filtered_mrr,
    fit_and_evaluate,
    open_dataset,
    processor,
    provenance,
    run_grid,
    runner,
    trained_control,
)
from rolebregman.study.store import COLUMNS

FAST = dict(batch_size=64, lr=1e-2, epochs=3)
DIVERGES = dict(FAST, lr=1e30)
CHANGING = ["seconds", "peak_memory_mb", "commit"]  # somebody may commit while the tests run


def tasks(heads=("euclidean", "role_bregman", "direction_prior"), seeds=(0, 1), train=FAST):
    return [Task("toy", head, seed, train=train) for seed in seeds for head in heads]


def steady(rows):
    return rows.drop(columns=CHANGING)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    "The store of the grid run in one go in this process"
    store = Store(tmp_path_factory.mktemp("grid") / "rows.csv")
    run_grid(tasks(), store, progress=False)
    return store


@pytest.fixture(scope="module")
def undisturbed(whole):
    "Its rows"
    return whole.rows()


def test_a_row_is_complete(undisturbed):
    assert list(undisturbed.columns) == COLUMNS and (undisturbed["error"] == "").all()
    not_of_a_tree = ["error", "direction_prior_wrong", "filtered_mrr", "label_auc", "label_average_precision"]
    assert undisturbed.drop(columns=not_of_a_tree).notna().all(axis=None)
    assert (undisturbed["seconds"] > 0).all() and undisturbed["peak_memory_mb"].between(50, 50_000).all()
    assert (undisturbed.query("head == 'euclidean'")["direction_accuracy"] == 0.5).all()


@pytest.fixture(scope="module")
def from_two_processes(tmp_path_factory):
    "Rows of the grid, and of three tasks that open a dataset of their own"
    class Mine(Task):  # inside, so that it is sent, for this file cannot be imported everywhere
        def open(self, quiet=False): return open_dataset("toy", self.seed, quiet=quiet)

    mine = [Mine("mine", task.head, task.seed, train=task.train) for task in tasks()[:3]]
    store = Store(tmp_path_factory.mktemp("two") / "rows.csv")
    rows = run_grid([*tasks(), *mine], store, jobs=2, progress=False)
    return rows[:len(tasks())], rows[len(tasks()):].reset_index(drop=True), mine


def test_the_same_rows_from_two_processes(undisturbed, from_two_processes):
    rows, _, _ = from_two_processes
    pd.testing.assert_frame_equal(steady(rows), steady(undisturbed), check_exact=True)


def test_the_same_rows_from_a_running_dask_cluster_even_with_threads_in_a_worker(undisturbed, tmp_path):
    distributed = pytest.importorskip("distributed")
    store = Store(tmp_path / "rows.csv")
    with distributed.LocalCluster(n_workers=2, threads_per_worker=2, processes=True, dashboard_address=None) as cluster:
        how = dict(progress=False, backend="dask", address=cluster.scheduler_address)
        run_grid(tasks()[:1], store, **how)
        rows = run_grid(tasks(), store, **how)
        assert len(cluster.scheduler_info["workers"]) == 2  # it is still there
    pd.testing.assert_frame_equal(steady(rows), steady(undisturbed), check_exact=True)


def test_the_same_rows_from_a_ray_cluster_of_our_own(undisturbed, tmp_path):
    pytest.importorskip("ray", reason="ray is not installed here: pip install 'rolebregman[scale]'")
    rows = run_grid(tasks(), Store(tmp_path / "rows.csv"), jobs=2, progress=False, backend="ray")
    pd.testing.assert_frame_equal(steady(rows), steady(undisturbed), check_exact=True)


def test_a_stopped_grid_goes_on_and_does_nothing_twice(undisturbed, tmp_path):
    store = Store(tmp_path / "rows.csv")
    run_grid(tasks()[:2], store, progress=False)
    head = store.path.read_bytes()
    rows = run_grid(tasks(), store, progress=False)
    pd.testing.assert_frame_equal(steady(rows), steady(undisturbed), check_exact=True)
    assert store.path.read_bytes().startswith(head) and len(store.path.read_bytes().splitlines()) == 1 + len(tasks())


@pytest.mark.parametrize("cut", [1, 40, 150])
def test_a_line_that_was_cut_off_is_fitted_again(whole, undisturbed, tmp_path, cut):
    store = Store(shutil.copy(whole.path, tmp_path))
    os.truncate(store.path, store.path.stat().st_size - cut)
    assert len(store.rows()) == len(tasks()) - 1
    rows = run_grid(tasks(), store, progress=False)
    pd.testing.assert_frame_equal(steady(rows), steady(undisturbed), check_exact=True)
    assert store.path.read_bytes().endswith(b"\n") and len(store.path.read_bytes().splitlines()) == 1 + len(tasks())


def test_killed_twenty_times_and_resumed(undisturbed, copies, tmp_path):
    path, draw = tmp_path / "rows.csv", random.Random(0)
    for _ in range(20):
        run = copies.Process(target=run_grid, args=(tasks(), Store(path)), kwargs=dict(progress=False))
        run.start()
        time.sleep(draw.uniform(0.1, 0.5))
        run.kill()
        run.join()
    rows = run_grid(tasks(), Store(path), progress=False)
    pd.testing.assert_frame_equal(steady(rows), steady(undisturbed), check_exact=True)
    pd.testing.assert_frame_equal(steady(Store(path).rows()), steady(undisturbed), check_exact=True)
    assert len(path.read_bytes().splitlines()) == 1 + len(tasks())


def test_failures_are_rows_and_are_fitted_again_on_request(tmp_path):
    store, bad = Store(tmp_path / "rows.csv"), tasks(heads=["role_bregman"], seeds=[0], train=DIVERGES)
    mixed = bad + tasks(heads=["euclidean"], seeds=[0])
    rows = run_grid(mixed, store, progress=False)
    assert "broke down" in rows.loc[0, "error"] and np.isnan(rows.loc[0, "mrr"]) and rows.loc[1, "error"] == ""
    size = store.path.stat().st_size
    run_grid(mixed, store, progress=False)
    assert store.path.stat().st_size == size
    run_grid(mixed, store, retry=True, progress=False)
    assert len(store.path.read_bytes().splitlines()) == 4 and len(store.rows()) == 2
    store.append(dict(rows.loc[0], mrr=0.5, error=""))
    assert run_grid(mixed, store, retry=True, progress=False).loc[0, "mrr"] == 0.5
    assert len(store.path.read_bytes().splitlines()) == 5


def test_a_dataset_that_cannot_be_opened_fails_its_fits_only(tmp_path, monkeypatch):
    def gone(seed, quiet): raise OSError("no source\nanswers")
    monkeypatch.setitem(runner.DATASETS, "gone", gone)
    grid = [Task("gone", "euclidean", 0), *tasks(heads=["euclidean"], seeds=[0])]
    rows = run_grid(grid, Store(tmp_path / "rows.csv"), progress=False)
    assert rows["error"].tolist() == ["OSError: no source answers", ""]


def test_a_dataset_that_cannot_be_opened_is_tried_once_a_run(tmp_path, monkeypatch):
    tried = []
    def gone(seed, quiet):
        tried.append(seed)
        raise OSError("not there")
    monkeypatch.setitem(runner.DATASETS, "gone", gone)
    grid, store = [Task("gone", head, seed) for seed in (0, 1) for head in HEADS], Store(tmp_path / "rows.csv")
    assert (run_grid(grid, store, progress=False)["error"] == "OSError: not there").all() and tried == [0, 1]
    run_grid(grid, store, progress=False, retry=True)
    assert tried == [0, 1, 0, 1]


def test_a_task_opens_a_dataset_of_its_own_wherever_it_is_fitted(undisturbed, from_two_processes):
    _, rows, mine = from_two_processes
    same = undisturbed[:3].assign(dataset="mine", config=[task.config for task in mine])
    pd.testing.assert_frame_equal(steady(rows), steady(same), check_exact=True)


def test_a_worker_that_dies_is_a_row(tmp_path, monkeypatch):
    monkeypatch.setattr(runner, "finished", lambda work, todo, *how: ((task, RuntimeError("died")) for task in todo))
    rows = run_grid(tasks(), Store(tmp_path / "rows.csv"), progress=False)
    assert (rows["error"] == "RuntimeError: died").all() and rows["mrr"].isna().all() and (rows["commit"] != "").all()


def test_a_task_named_twice_is_fitted_once(tmp_path):
    store = Store(tmp_path / "rows.csv")
    rows = run_grid(tasks()[:1] * 3, store, progress=False)
    assert len(rows) == 3 and len(store.rows()) == 1


def test_every_dataset_of_the_study_has_a_loader_that_knows_its_options():
    for name, opened in DATASETS.items():
        if name == "toy": continue
        loader, options = LOADERS[opened.args[0]], opened.keywords | dict(seed=0, quiet=True)
        inspect.signature(loader).bind(**options)
        assert name.split("/")[0].split("+")[0] == opened.args[0] # cora+2hop is of rolebregman.study.citation_fits
        assert name.endswith("/node") == (opened.keywords.get("split") == "node")
    assert {name for scale in SCALES.values() for name in scale.datasets} <= set(DATASETS)
    assert len(SCALES["paper"].datasets) == 6 and (SCALES["paper"].seeds, SCALES["paper"].limit) == (10, 5000)


def test_scales_and_node_disjoint_splits_on_real_words(real):
    real("wordnet")
    small, whole = open_dataset("wordnet", 0, "paper", quiet=True), open_dataset("wordnet/node", 0, "full", quiet=True)
    assert len(small.edges["train"]) == 5000 and len(whole.edges["train"]) > 5000
    ends = [set(whole.edges[part].ravel()) for part in ("train", "valid", "test")]
    assert not (ends[0] & ends[1] or ends[0] & ends[2] or ends[1] & ends[2])


def test_the_key_knows_what_the_result_depends_on():
    base = Task("toy", "role_bregman", 0)
    same = Task("toy", "role_bregman", 1, train=dict(seed=4))
    assert base.config == same.config and len(base.config) == 8
    other = [Task("toy", "role_bregman", 0, train=dict(lr=0.123)), Task("toy", "role_bregman", 0, split="valid"),
             Task("toy", "role_bregman", 0, options=dict(strong_convexity=0.7)), Task("toy", "mlp", 0),
             Task("toy", "role_bregman", 0, "paper")]
    assert len({base.config, *(t.config for t in other)}) == 1 + len(other)


def test_how_long_to_train_is_the_scales_and_the_same_for_every_head():
    for scale, (epochs, patience) in dict(quick=(30, 6), paper=(60, 10), full=(30, 6)).items():
        for head in HEADS:
            training = Task("toy", head, 3, scale, train=dict(lr=0.5)).training
            assert (training.epochs, training.patience, training.lr, training.seed) == (epochs, patience, 0.5, 3)


def test_a_task_of_an_unknown_scale_is_refused():
    with pytest.raises(ValueError, match="Task.scale is 'x'; expected one of quick, paper, full"):
        Task("toy", "mlp", 0, scale="x")


def test_a_fit_leaves_threads_and_random_numbers_alone():
    state = torch.random.get_rng_state()
    torch.set_num_threads(2)
    try:
        assert fit_and_evaluate(tasks()[1])["error"] == "" and torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(1)
    assert torch.equal(state, torch.random.get_rng_state())


def committed(folder):
    "A repository in which all files are committed"
    for words in (["init", "-q"], ["add", "."], ["-c", "user.name=a", "-c", "user.email=a@b.c", "commit", "-qm", "x"]):
        subprocess.run(["git", *words], cwd=folder, check=True)


@pytest.fixture
def installed(tmp_path, monkeypatch):
    "A function that makes a package of this name, in a folder, the one that runs"
    def install(folder):
        (folder / "rolebregman").mkdir(parents=True)
        (folder / "rolebregman" / "__init__.py").write_text("")
        monkeypatch.setattr("rolebregman.__file__", str(folder / "rolebregman" / "__init__.py"))
        return folder / "rolebregman" / "__init__.py"

    return install


def test_provenance_is_the_commit_of_the_own_repository(installed, tmp_path):
    module = installed(tmp_path)
    assert provenance()["commit"] == "unknown", "outside git"
    (tmp_path / "settings.ini").write_text("[DEFAULT]\nlib_name = rolebregman\n")
    committed(tmp_path)
    clean = provenance()["commit"]
    (tmp_path / "settings.ini").write_text("[DEFAULT]\nlib_name = rolebregman\nversion = 1\n")
    assert provenance()["commit"] == clean, "what is no part of the library, such as rows that are being written"
    module.write_text("1")
    assert len(clean) >= 7 and provenance()["commit"] == clean + "+"


@pytest.mark.parametrize("where, settings", [("lib/site-packages", None), ("", None),
    ("", "[DEFAULT]\nlib_name = stranger\n"), ("vendored", "[DEFAULT]\nlib_name = rolebregman\n")])
def test_a_row_does_not_tell_the_commit_of_a_stranger(installed, tmp_path, where, settings):
    installed(tmp_path / where)
    if settings: (tmp_path / "settings.ini").write_text(settings)
    (tmp_path / "theirs.py").touch()
    committed(tmp_path)
    assert provenance()["commit"] == "unknown"


def test_a_package_that_a_repository_ignores_is_not_of_it(installed, tmp_path):
    (tmp_path / ".gitignore").write_text("rolebregman/\n")
    (tmp_path / "settings.ini").write_text("[DEFAULT]\nlib_name = rolebregman\n")
    installed(tmp_path)
    committed(tmp_path)
    assert provenance()["commit"] == "unknown"


def test_a_hook_of_a_stranger_does_not_say_which_repository_is_meant(tmp_path, monkeypatch):
    (tmp_path / "theirs.py").touch()
    committed(tmp_path)
    before = provenance()["commit"]
    monkeypatch.setenv("GIT_DIR", str(tmp_path / ".git"))
    monkeypatch.setenv("GIT_WORK_TREE", str(tmp_path))
    assert provenance()["commit"].rstrip("+") == before.rstrip("+")


@pytest.mark.parametrize("told, name", [
    ("processor\t: 0\nmodel name\t: Some CPU @ 2.10GHz\nflags\t\t: sse\n", "Some CPU @ 2.10GHz"),
    ("Features\t: fp\n", "arm"), (None, "arm")])
def test_a_row_names_the_processor_that_made_it(monkeypatch, told, name):
    def read_text(path, *args):
        assert str(path) == "/proc/cpuinfo"
        if told is None: raise FileNotFoundError(path)
        return told

    monkeypatch.setattr(Path, "read_text", read_text)
    monkeypatch.setattr("platform.processor", lambda: "")
    monkeypatch.setattr("platform.machine", lambda: "arm")
    monkeypatch.setattr("torch.backends.cpu.get_cpu_capability", lambda: "AVX2")
    assert processor() == f"{name}, AVX2"


def test_tasks_that_open_otherwise_do_not_share_a_dataset(tmp_path):
    class Deeper(Task):
        def open(self, quiet=False): return load_dataset("toy", depth=4, seed=self.seed)

    mixed = [kind("toy", head, 0, train=FAST) for kind, head in ((Task, "euclidean"), (Deeper, "cosine"))]
    rows = run_grid(mixed, Store(tmp_path / "rows.csv"), progress=False)
    assert rows["mrr"].tolist() == [fit_and_evaluate(task)["mrr"] for task in mixed]
    assert rows.loc[1, "mrr"] != fit_and_evaluate(Task("toy", "cosine", 0, train=FAST))["mrr"]


def test_a_trained_head_is_that_of_the_row(undisturbed):
    task = tasks()[1]
    ds = task.open(quiet=True)
    found = split_metrics(score_split(task.trained(ds), ds))
    assert found["mrr"] == undisturbed.loc[1, "mrr"] and found["gap_mean"] == undisturbed.loc[1, "gap_mean"]


def test_what_no_setting_says_goes_into_hash_and_settings():
    class Told(Task):
        hidden_settings, labels = dict(b=1, a=2), dict(name="told")
    plain, told = Task("toy", "mlp", 0, train=dict(lr=0.1)), Told("toy", "mlp", 0, train=dict(lr=0.1))
    assert (plain.hidden_settings, plain.labels) == ({}, {}) and json.loads(plain.settings) == dict(lr=0.1)
    assert list(json.loads(told.settings).items()) == [("name", "told"), ("lr", 0.1), ("b", 1), ("a", 2)]
    assert told.config != plain.config and told.training == plain.training
    Told.hidden_settings = dict(a=2, b=1)
    assert Told("toy", "mlp", 0, train=dict(lr=0.1)).config == told.config  # the order is nothing


def test_the_control_is_blind_to_the_pair_and_leaves_random_numbers_alone():
    ds, state = toy_tree(3, 3, 8), torch.random.get_rng_state()
    scores = trained_control(Task("toy", "mlp", 3), ds)
    assert torch.equal(state, torch.random.get_rng_state())
    again = trained_control(Task("toy", "mlp", 3), ds)
    assert torch.equal(scores.forward, again.forward)
    # D(x, y) = softplus(f(x) + g(y)): undone, the distances are sums of a number of the source and one of the target.
    x = torch.as_tensor(ds.edges["test"][:, 0])
    y = NegativeSampler(ds).sample(x, 100, named_generator(ds.name, "test", ds.seed))
    undone = scores.negative.double().expm1().log().flatten()
    ends = [one_hot(i.flatten(), ds.num_nodes).double() for i in (x[:, None].expand_as(y), y)]
    sums = torch.cat(ends, 1)
    fitted = sums @ torch.linalg.lstsq(sums, undone[:, None], driver="gelsd").solution
    assert (fitted[:, 0] - undone).abs().max() < 1e-5 < undone.std()


def test_the_control_is_the_same_for_every_head_of_a_task():
    ds = toy_tree(3, 2, 6)
    one, other = (trained_control(Task("toy", head, 1), ds) for head in ("mlp", "cosine"))
    assert torch.equal(one.forward, other.forward) and torch.equal(one.negative, other.negative)
    assert not torch.equal(one.forward, trained_control(Task("toy", "mlp", 2), ds).forward)


def test_ranks_among_all_are_of_the_same_pairs_for_every_head_and_of_all_pairs_where_they_are_few():
    ds, head = toy_tree(seed=1), make_head("euclidean", dim=32)
    whole = (1 / filtered_ranks(head, ds)).mean().item()
    assert filtered_mrr(head, ds) == whole != filtered_mrr(head, ds, most=5) == filtered_mrr(head, ds, most=5)


@pytest.mark.parametrize("dataset, changes", [("toy", True), ("wordnet/node", True), ("go/all", True), ("sick", False),
                                              ("hyperlex/random", False), ("hyperlex/lexical", True),
                                              ("snli/dev-as-train", False)])
def test_only_a_fit_whose_dataset_was_revised_has_another_hash(dataset, changes, monkeypatch):
    now = Task(dataset, "mlp", 0).config
    monkeypatch.setattr(runner, "REVISIONS", {})
    assert (Task(dataset, "mlp", 0).config != now) == changes
    assert Task(dataset, "mlp", 0, train=dict(hard_share=0.0)).config == Task(dataset, "mlp", 0).config
    assert Task(dataset, "mlp", 0, train=dict(hard_share=0.5)).config != Task(dataset, "mlp", 0).config
