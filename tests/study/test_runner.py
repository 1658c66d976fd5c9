"""The grid and its store: resumed, interrupted, killed, failing, and the same whatever the number of processes."""
import inspect
import json
import multiprocessing
import os
import random
import re
import subprocess
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from rolebregman.baselines import HEADS
from rolebregman.datasets import LOADERS, main
from rolebregman.study import (
    AXES,
    COLUMNS,
    DATASETS,
    GRADED,
    GRID,
    SCALES,
    SEARCH,
    Scale,
    Store,
    Task,
    chosen_settings,
    findings,
    fit_and_evaluate,
    graded_study,
    keep_settings,
    narrow_table,
    neighbours,
    open_dataset,
    paired,
    paper_results,
    print_summary,
    provenance,
    results_figure,
    results_table,
    run_grid,
    runner,
    search,
    widened,
)

FAST = dict(batch_size=64, lr=1e-2, epochs=3)
DIVERGES = dict(FAST, lr=1e30)
CHANGING = ["seconds", "peak_memory_mb", "commit"]  # somebody may commit while the tests run


def tasks(heads=("euclidean", "role_bregman", "direction_prior"), seeds=(0, 1), train=FAST):
    return [Task("toy", head, seed, train=train) for seed in seeds for head in heads]


def steady(rows):
    return rows.drop(columns=CHANGING)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    "The grid run in one go in this process"
    return run_grid(tasks(), Store(tmp_path_factory.mktemp("grid") / "rows.csv"), progress=False)


def test_columns_are_those_of_the_issue():
    assert " ".join(COLUMNS) == (
        "dataset head seed scale ranking_accuracy direction_accuracy negative_rate mrr hits@1 hits@3 hits@10 auc "
        "average_precision gap_mean forward_preferred_rate tie_rate direction_prior_wrong direction_matched seconds "
        "peak_memory_mb parameters config commit versions error")


def test_a_row_is_complete(undisturbed):
    assert list(undisturbed.columns) == COLUMNS and (undisturbed["error"] == "").all()
    assert undisturbed.drop(columns=["error", "direction_prior_wrong"]).notna().all(axis=None)
    assert (undisturbed["seconds"] > 0).all() and undisturbed["peak_memory_mb"].between(50, 50_000).all()
    assert (undisturbed.query("head == 'euclidean'")["direction_accuracy"] == 0.5).all()


def test_the_same_rows_from_two_processes(undisturbed, tmp_path):
    rows = run_grid(tasks(), Store(tmp_path / "rows.csv"), jobs=2, progress=False)
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
    pytest.importorskip("ray")
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
def test_a_line_that_was_cut_off_is_fitted_again(undisturbed, tmp_path, cut):
    store = Store(tmp_path / "rows.csv")
    run_grid(tasks()[:3], store, progress=False)
    os.truncate(store.path, store.path.stat().st_size - cut)
    assert len(store.rows()) == 2
    rows = run_grid(tasks(), store, progress=False)
    pd.testing.assert_frame_equal(steady(rows), steady(undisturbed), check_exact=True)
    assert store.path.read_bytes().endswith(b"\n") and len(store.path.read_bytes().splitlines()) == 1 + len(tasks())


def test_killed_twenty_times_and_resumed(undisturbed, tmp_path):
    path, draw = tmp_path / "rows.csv", random.Random(0)
    processes = multiprocessing.get_context("forkserver")  # imports once, then forks
    processes.set_forkserver_preload(["rolebregman.study.runner"])
    for _ in range(20):
        run = processes.Process(target=run_grid, args=(tasks(), Store(path)), kwargs=dict(progress=False))
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


def test_workers_know_a_dataset_that_was_added_where_the_grid_began(undisturbed, tmp_path, monkeypatch):
    monkeypatch.setitem(DATASETS, "mine", lambda seed, quiet: open_dataset("toy", seed, quiet=quiet))
    mine = [Task("mine", task.head, task.seed, train=task.train) for task in tasks()]
    rows = run_grid(mine, Store(tmp_path / "rows.csv"), jobs=2, progress=False)
    same = undisturbed.assign(dataset="mine")
    pd.testing.assert_frame_equal(steady(rows), steady(same), check_exact=True)


def test_a_search_in_which_every_trial_of_a_head_fails_chooses_nothing(tmp_path):
    how = dict(heads=["euclidean", "mlp"], budget=2, train=dict(epochs=1), progress=False,
               grid=[(lr, 1.0, 0.01, 1.0) for lr in (1e30, 1e31)])
    with pytest.raises(ValueError, match=r"every trial of euclidean on toy failed.*FloatingPointError: .*search.csv"):
        search("toy", tmp_path / "search.csv", tmp_path / "chosen.json", **how)
    assert not (tmp_path / "chosen.json").exists()


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
        assert name.split("/")[0].split("+")[0] == opened.args[0] # cora+2hop is of rolebregman.study.ogb
        assert name.endswith("/node") == (opened.keywords.get("split") == "node")
    assert {name for scale in SCALES.values() for name in scale.datasets} <= set(DATASETS)
    assert len(SCALES["paper"].datasets) == 6 and (SCALES["paper"].seeds, SCALES["paper"].limit) == (10, 5000)


def test_scales_and_node_disjoint_splits_on_real_words(real):
    real("wordnet")
    small, whole = open_dataset("wordnet", 0, "paper", quiet=True), open_dataset("wordnet/node", 0, "full", quiet=True)
    assert len(small.edges["train"]) == 5000 and len(whole.edges["train"]) > 5000
    ends = [set(whole.edges[part].ravel()) for part in ("train", "valid", "test")]
    assert not (ends[0] & ends[1] or ends[0] & ends[2] or ends[1] & ends[2])


def test_numbers_and_texts_come_back_as_they_were(tmp_path):
    store = Store(tmp_path / "rows.csv")
    row = dict(dataset="toy", head="mlp", seed=3, scale="quick", mrr=0.1 + 0.2, auc=1 / 3, config="00123456",
               commit="12e4567", error='ValueError: a "quoted", comma')
    store.append(row)
    found = store.rows().loc[0]
    assert {k: found[k] for k in row} == row and np.isnan(found["seconds"])


def test_other_columns_and_damaged_lines_are_errors(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("a,b\n1,2\n")
    with pytest.raises(ValueError, match="rows.csv has the columns a b; expected dataset"): Store(path).rows()
    path.write_text(",".join(COLUMNS) + "\n" + "," * 99 + "\n")
    with pytest.raises(ValueError, match="rows.csv, line 2: 100 fields, expected 25; the line is damaged"):
        Store(path).rows()


@pytest.mark.parametrize("column, text", [("mrr", "0.9x"), ("seed", ""), ("seed", "1.5"), ("auc", "\ufffd")])
def test_a_damaged_number_is_named_with_file_line_and_column(tmp_path, column, text):
    store = Store(tmp_path / "rows.csv")
    for seed in (0, 1): store.append(dict(dataset="toy", head="mlp", seed=seed, mrr=0.5))
    fields = store.path.read_text().splitlines()[2].split(",")
    fields[COLUMNS.index(column)] = text
    with open(store.path, "a") as file: file.write(",".join(fields) + "\n")
    with pytest.raises(ValueError, match=rf"rows.csv, line 4: {column} is '{text}', no number; the line is damaged"):
        store.rows()


def test_a_file_that_is_no_text_is_an_error_that_names_it(tmp_path):
    store = Store(tmp_path / "rows.csv")
    store.append(dict(dataset="toy", head="mlp", seed=0, mrr=0.5))
    store.path.write_bytes(store.path.read_bytes().replace(b"0.5", b"\xff\x00"))
    with pytest.raises(ValueError, match="rows.csv, line 2: .*the line is damaged"): store.rows()


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


def test_provenance_outside_git(monkeypatch, tmp_path):
    monkeypatch.setattr(runner.rolebregman, "__file__", str(tmp_path / "__init__.py"))
    assert provenance()["commit"] == "unknown"
    (tmp_path / "file").write_text("1")
    for words in (["init", "-q"], ["add", "."], ["-c", "user.name=a", "-c", "user.email=a@b.c", "commit", "-qm", "x"]):
        subprocess.run(["git", *words], cwd=tmp_path, check=True)
    clean = provenance()["commit"]
    (tmp_path / "file").write_text("2")
    assert len(clean) >= 7 and provenance()["commit"] == clean + "+"


def test_search_takes_the_best_on_validation_and_keeps_the_rest(tmp_path):
    chosen, policy = tmp_path / "chosen.json", dict(batch_size=64, epochs=2)
    chosen.write_text(json.dumps({"other": {"mlp": {"train": {"lr": 5.0}}}}))
    how = dict(heads=["mlp", "euclidean"], budget=5, train=policy, progress=False,
               grid=[(lr, 1.0, 0.01, 1.0) for lr in (1e-6, 1e-2, 1e30)])
    best = search("toy", tmp_path / "search.csv", chosen, **how).set_index("head")
    rows = Store(tmp_path / "search.csv", SEARCH).rows()
    assert (best["trials"] == 5).all() and rows["head"].value_counts().to_dict() == dict(mlp=5, euclidean=5)
    assert (rows["error"] != "").sum() == 2 and (rows["seed"] == 100).all()
    means = rows.assign(score=rows[["ranking_accuracy", "direction_accuracy"]].mean(axis=1).fillna(0))
    for head in best.index:
        row = means[means["head"] == head].set_index("settings")["score"]
        kept = chosen_settings(chosen, "toy", head)
        assert best.loc[head, "score"] == row.max() == row[json.dumps(kept["train"] | kept["options"])]
        assert kept["train"]["margin"] == kept["train"]["direction_margin"] and policy.items() <= kept["train"].items()
    assert chosen_settings(chosen, "other", "mlp")["train"] == {"lr": 5.0}
    assert chosen_settings(chosen, "other", "order") == dict(train={}, options={})
    chosen.write_text(json.dumps({"go/cellular_component": {"mlp": {"train": {"lr": 3.0}}}, "wordnet": {"mlp": {}}}
                                 | json.loads(chosen.read_text())))
    assert {chosen_settings(chosen, f"go/{part}", "mlp")["train"]["lr"]
            for part in ("all", "all/node", "biological_process", "cellular_component/node")} == {3.0}
    assert chosen_settings(chosen, "wordnet/node", "mlp")["train"] == {}
    size = (tmp_path / "search.csv").stat().st_size
    search("toy", tmp_path / "search.csv", chosen, **how)
    assert (tmp_path / "search.csv").stat().st_size == size
    kept = chosen_settings(chosen, "toy", "mlp")
    row = fit_and_evaluate(Task("toy", "mlp", 100, **kept, split="valid"))
    assert (row["ranking_accuracy"] + row["direction_accuracy"]) / 2 == best.loc["mlp", "score"]


def test_the_search_leaves_the_grid_where_the_best_is_at_its_edge():
    scores = dict.fromkeys(GRID, 0.5) | {GRID[-1]: 0.9}
    new = neighbours(scores, 8)
    assert GRID[-1] == (3e-3, 5.0, 0.1, 1.0) and not set(new) & set(GRID)
    assert {trial[0] for trial in new} == {3e-3, 1e-2} and {trial[1] for trial in new} == {5.0, 25.0}
    assert {trial[2] for trial in new} == {0.01, 0.1, 1.0} and {trial[3] for trial in new} == {0.5, 1.0, 2.0}
    for trial in new: assert sum(a != b for a, b in zip(trial, GRID[-1])) == 1
    assert {trial[3] for trial in neighbours(scores, 8, wide=False)} == {1.0}


def test_a_peak_is_found_wherever_it_is():
    top = (3e-5, 0.2, 10.0, 2.0)
    def score(trial): return -sum(abs(AXES[n].index(a) - AXES[n].index(b)) for n, a, b in zip(AXES, trial, top))
    scores = {trial: score(trial) for trial in GRID}
    while top not in scores: scores |= {trial: score(trial) for trial in neighbours(scores, 8)}
    assert len(scores) < 60 < 800 == np.prod([len(values) for values in AXES.values()])


@pytest.mark.parametrize("head", HEADS)
def test_twice_the_width_is_more_parameters_for_heads_that_have_one(head):
    tasks = [Task("toy", head, 0, train=dict(epochs=0), options=widened(head, 32, times)) for times in (0.5, 1, 2)]
    half, same, double = (fit_and_evaluate(task)["parameters"] for task in tasks)
    assert half < same < double if widened(head, 32, 2) else half == same == double


def test_table_findings_and_figure(undisturbed):
    rows = undisturbed.assign(dataset="go/cellular_component")
    table = results_table(rows)
    assert table.index.tolist() == [h for h in HEADS if h in set(rows["head"])]
    assert table.loc["role_bregman", ["paper R-Acc", "paper D-Acc"]].tolist() == ["0.987 ± 0.002", "0.942 ± 0.006"]
    assert table.loc["euclidean", "paper D-Acc"] == "" and table.loc["euclidean", "direction acc."] == "0.500 ± 0.000"
    mine = rows[rows["head"] == "role_bregman"]["mrr"]
    assert table.loc["role_bregman", "MRR"] == f"{mine.mean():.3f} ± {mine.std():.3f}"
    plain = rows[rows["head"] == "euclidean"].assign(head="icnn_bregman")
    said = findings(pd.concat([rows, plain]))
    assert len(said) == 3 and "of 2 seeds" in said[1] and "direction_prior" in said[2]
    assert paired(rows, "role_bregman", "euclidean").seeds == 2
    assert len(results_figure(rows).axes) == 2


def test_the_table_of_the_terminal_is_narrow(undisturbed):
    rows = undisturbed.assign(dataset="go/cellular_component")
    wide = pd.concat([rows, rows.assign(head="a_name_of_24_characters_")])
    for some in (rows, rows[rows["seed"] == 0], wide.assign(seconds=1234.56)):
        lines = narrow_table(some).splitlines()
        assert max(map(len, lines)) <= 100 and len(lines) == 1 + some["head"].nunique() + 2
    lines = narrow_table(rows).splitlines()
    assert lines[0].split() == "R-Acc D-Acc MRR neg paper R paper D s".split()
    mine = rows[rows["head"] == "role_bregman"]["mrr"]
    assert f"{mine.mean():.3f}±{mine.std():.3f}".replace("±0.", "±.") in lines[3] and "0.942±.006" in lines[3]


def test_the_papers_table_is_as_printed():
    table = paper_results().set_index(["dataset", "head"])
    assert len(table) == 18 and table.loc[("hyperlex", "icnn_bregman"), "direction_accuracy_mean"] == 0.3883
    assert table.loc[("go", "role_bregman"), "ranking_accuracy_mean"] == 0.9873 and (table["seeds"] == 10).all()


def test_the_command(tmp_path, capsys):
    arguments = dict(datasets="toy", heads="role_bregman,direction_prior", seeds=2, jobs=1, out=tmp_path,
                     chosen=tmp_path / "chosen.json")
    Path(arguments["chosen"]).write_text(json.dumps(
        {"toy": {h: {"train": FAST} for h in ("role_bregman", "direction_prior")}}))
    main(**arguments)
    first = capsys.readouterr().out
    assert "1 dataset x 2 seeds x 2 heads = 4 fits, 0 of them done before; workers: 1" in first and "paper R" in first
    assert f"made at commit {provenance()['commit'][:7]}" in first or "made at commit unknown" in first
    assert (tmp_path / "quick.png").stat().st_size > 1000
    assert len((tmp_path / "quick.csv").read_text().splitlines()) == 5
    main(**arguments)
    second = capsys.readouterr().out
    assert (f"nothing to fit: all 4 rows are in {tmp_path / 'quick.csv'}; --retry fits failed ones again, --out writes "
            "elsewhere") in second and first.splitlines()[2:] == second.splitlines()[2:]


def test_the_command_fails_where_nothing_could_be_fitted(tmp_path, capsys):
    chosen = tmp_path / "chosen.json"
    chosen.write_text(json.dumps({"toy": {"mlp": {"train": DIVERGES}}}))
    with pytest.raises(SystemExit) as stop:
        main(datasets="toy", heads="mlp", seeds=1, jobs=1, out=tmp_path, chosen=chosen)
    said = capsys.readouterr().out
    assert stop.value.code == 1 and "failed: toy, head and seed mlp 0: FloatingPointError" in said
    assert "1 fit failed, add --retry" in said


def test_the_command_goes_on_where_a_dataset_cannot_be_had(tmp_path, capsys, monkeypatch):
    def gone(seed, quiet): raise OSError("no source answers")
    monkeypatch.setitem(runner.DATASETS, "gone", gone)
    with pytest.raises(SystemExit) as stop:
        main(datasets="gone,toy", heads="cosine", seeds=4, jobs=1, out=tmp_path, search=True,
             chosen=tmp_path / "chosen.json")
    said = capsys.readouterr().out
    assert stop.value.code == 1 and "gone cannot be opened, so its fits will fail: no source answers" in said
    assert "failed: gone, 4 fits: OSError: no source answers" in said and (tmp_path / "quick-toy.png").exists()
    assert set(json.loads((tmp_path / "chosen.json").read_text())) == {"toy"}


def test_the_command_that_is_interrupted_says_where_to_go_on(tmp_path, monkeypatch):
    def stop(*_, **__): raise KeyboardInterrupt
    monkeypatch.setattr("rolebregman.study.main_results.run_grid", stop)
    with pytest.raises(SystemExit, match="stopped; .*quick.csv has what was finished"):
        main(datasets="toy", seeds=1, out=tmp_path)


def test_graded_rows_are_the_studys_fits_with_their_correlations(tmp_path, monkeypatch):
    def graded(seed, quiet):
        ds = DATASETS["toy"](seed, quiet)
        pairs = np.array([(i, j) for i in range(6) for j in range(6) if i != j])
        near = -np.square(ds.features[pairs[:, 0]] - ds.features[pairs[:, 1]]).sum(1)
        ds.graded = pd.DataFrame(dict(source=pairs[:, 0], target=pairs[:, 1], score=near, pos=["N", "V"] * 15,
                                      random=["test"] * 10 + ["train"] * 20, lexical="test", split="test"))
        return ds
    monkeypatch.setitem(DATASETS, "hyperlex/random", graded)
    monkeypatch.setitem(SCALES, "paper", Scale((), 2, train=FAST))
    path = tmp_path / "graded.csv"
    rows = graded_study(path, ["euclidean", "direction_prior"], 2, ["random"], chosen=tmp_path / "none.json",
                        progress=False)
    assert (rows["error"] == "").all() and len(Store(path, [*COLUMNS, *GRADED]).rows()) == 4
    euclidean, prior = (rows[rows["head"] == head] for head in ("euclidean", "direction_prior"))
    assert np.allclose(euclidean[list(GRADED)], 1)  # the scores are made of its own distance
    assert (prior["all"] < 0.9).all()
    plain = run_grid([Task("hyperlex/random", "euclidean", seed, "paper") for seed in (0, 1)],
                     Store(tmp_path / "plain.csv"), progress=False)
    assert steady(euclidean.reset_index(drop=True))[plain.columns.drop(CHANGING)].equals(steady(plain))


@pytest.mark.parametrize("wrong", [dict(heads="euclid"), dict(datasets="gone"), dict(scale="huge"),
                                   dict(backend="threads")])
def test_unknown_names_are_listed(wrong):
    with pytest.raises(SystemExit, match="expected some of"): main(**wrong)


@pytest.mark.parametrize("wrong, says", [(dict(seeds=-1), "--seeds -1: exp"), (dict(jobs=-3), "--jobs -3: exp"),
                                         (dict(chosen="nope.json"), "nope.json: there is no such file"),
                                         (dict(out=__file__), "this is a file, not a folder")])
def test_options_are_looked_at_before_anything_is_fitted(wrong, says, tmp_path):
    with pytest.raises(SystemExit, match=says): main(**dict(datasets="toy", out=str(tmp_path)) | wrong)
    assert not list(tmp_path.iterdir())


def test_what_no_setting_says_goes_into_hash_and_settings():
    class Told(Task):
        hidden_settings, labels = dict(b=1, a=2), dict(name="told")
    plain, told = Task("toy", "mlp", 0, train=dict(lr=0.1)), Told("toy", "mlp", 0, train=dict(lr=0.1))
    assert (plain.hidden_settings, plain.labels) == ({}, {}) and json.loads(plain.settings) == dict(lr=0.1)
    assert list(json.loads(told.settings).items()) == [("name", "told"), ("lr", 0.1), ("b", 1), ("a", 2)]
    assert told.config != plain.config and told.training == plain.training
    Told.hidden_settings = dict(a=2, b=1)
    assert Told("toy", "mlp", 0, train=dict(lr=0.1)).config == told.config  # the order is nothing


def test_settings_of_other_heads_and_datasets_stay(tmp_path):
    path = tmp_path / "new" / "chosen.json"
    for dataset, head, lr in (("a", "mlp", 1), ("a", "order", 2), ("b", "mlp", 3), ("a", "mlp", 4)):
        keep_settings(path, dataset, {head: dict(train=dict(lr=lr), options={})})
    kept = json.loads(path.read_text())
    lrs = {(d, h): settings["train"]["lr"] for d, heads in kept.items() for h, settings in heads.items()}
    assert lrs == {("a", "mlp"): 4, ("a", "order"): 2, ("b", "mlp"): 3}


def test_a_summary_says_what_failed_what_came_out_and_where(capsys):
    rows = pd.DataFrame([dict(dataset="d", head="mlp", error=error, mrr=value)
                         for error, value in (("", 0.25), ("", 0.75), ("broke", np.nan))])
    print_summary(rows, "there.csv", ["mrr"])
    said = capsys.readouterr().out
    assert said.startswith("failed, 1 fits such as d mlp: broke\n") and re.search(r"mlp +0\.5\n", said)
    assert said.endswith("\n3 rows, 1 of them failed: there.csv\n")
    print_summary(rows[rows["error"] != ""], "there.csv", ["mrr"])
    assert "mean over seeds" not in capsys.readouterr().out
