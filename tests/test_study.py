"""The grid and its store: resumed, interrupted, killed, failing, and the same whatever the number of processes."""
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from rolebregman import runner
from rolebregman.baselines import HEADS
from rolebregman.runner import COLUMNS, Store, Task, chosen_settings, fit_and_evaluate, provenance, run_grid, search
from rolebregman.study import findings, main, paired, paper_results, results_figure, results_table

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
        "average_precision gap_mean forward_preferred_rate tie_rate seconds peak_memory_mb parameters config commit "
        "versions error")


def test_a_row_is_complete(undisturbed):
    assert list(undisturbed.columns) == COLUMNS and (undisturbed["error"] == "").all()
    assert undisturbed.drop(columns="error").notna().all(axis=None)
    assert (undisturbed["seconds"] > 0).all() and undisturbed["peak_memory_mb"].between(50, 50_000).all()
    assert (undisturbed.query("head == 'euclidean'")["direction_accuracy"] == 0.5).all()


def test_the_same_rows_from_two_processes(undisturbed, tmp_path):
    rows = run_grid(tasks(), Store(tmp_path / "rows.csv"), jobs=2, progress=False)
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


def test_killed_and_resumed(undisturbed, tmp_path):
    path = tmp_path / "rows.csv"
    code = f"""
from rolebregman.runner import Store, Task, run_grid
run_grid([Task("toy", h, s, train={FAST!r}) for s in (0, 1) for h in ("euclidean", "role_bregman", "direction_prior")],
         Store({str(path)!r}), progress=False)"""
    for lines in (2, 4):
        process = subprocess.Popen([sys.executable, "-c", code], cwd=Path(__file__).parent.parent)
        try:
            end = time.monotonic() + 60
            while process.poll() is None and time.monotonic() < end:
                if path.exists() and path.read_bytes().count(b"\n") >= lines: break
                time.sleep(0.002)
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait()
        assert path.read_bytes().count(b"\n") >= lines
    rows = run_grid(tasks(), Store(path), progress=False)
    pd.testing.assert_frame_equal(steady(rows), steady(undisturbed), check_exact=True)
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
    with pytest.raises(ValueError, match="line 2: 100 fields, expected 23; the line is damaged"): Store(path).rows()


def test_the_key_knows_what_the_result_depends_on():
    base = Task("toy", "role_bregman", 0)
    same = Task("toy", "role_bregman", 1, train=dict(seed=4))
    assert base.config == same.config and len(base.config) == 8
    other = [Task("toy", "role_bregman", 0, train=dict(lr=0.123)), Task("toy", "role_bregman", 0, split="valid"),
             Task("toy", "role_bregman", 0, options=dict(strong_convexity=0.7)), Task("toy", "mlp", 0),
             Task("toy", "role_bregman", 0, "paper")]
    assert len({base.config, *(t.config for t in other)}) == 1 + len(other)


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
    chosen = tmp_path / "chosen.json"
    chosen.write_text(json.dumps({"other": {"mlp": {"train": {"lr": 5.0}}}}))
    best = search("toy", tmp_path / "search.csv", chosen, heads=["mlp", "direction_prior"], seeds=(100,),
                  trials=[dict(lr=lr, batch_size=64, epochs=3) for lr in (1e-6, 1e-2, 1e30)], progress=False)
    assert best["head"].tolist() == ["mlp", "direction_prior"]
    for head in best["head"]:
        assert chosen_settings(chosen, "toy", head)["train"] == dict(lr=1e-2, batch_size=64, epochs=3)
    assert chosen_settings(chosen, "other", "mlp")["train"] == {"lr": 5.0}
    assert chosen_settings(chosen, "other", "order") == dict(train={}, options={})
    rows = Store(tmp_path / "search.csv", COLUMNS + ["settings"]).rows()
    assert len(rows) == 6 and (rows["error"] != "").sum() == 2
    task = Task("toy", "mlp", 100, train=json.loads(rows.loc[1, "settings"]), split="valid")
    assert fit_and_evaluate(task)["mrr"] == rows.loc[1, "mrr"]


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
    assert "2 heads x 2 seeds = 4 fits, 0 of them done before" in first and "paper R-Acc" in first
    assert (tmp_path / "quick.png").stat().st_size > 1000
    assert len((tmp_path / "quick.csv").read_text().splitlines()) == 5
    main(**arguments)
    second = capsys.readouterr().out
    assert "4 of them done before" in second and first.splitlines()[2:] == second.splitlines()[2:]


def test_the_command_fails_where_nothing_could_be_fitted(tmp_path, capsys):
    chosen = tmp_path / "chosen.json"
    chosen.write_text(json.dumps({"toy": {"mlp": {"train": DIVERGES}}}))
    with pytest.raises(SystemExit) as stop:
        main(datasets="toy", heads="mlp", seeds=1, jobs=1, out=tmp_path, chosen=chosen)
    assert stop.value.code == 1 and "failed: mlp, seed 0: FloatingPointError" in capsys.readouterr().out


@pytest.mark.parametrize("wrong", [dict(heads="euclid"), dict(datasets="gone"), dict(scale="huge")])
def test_unknown_names_are_listed(wrong):
    with pytest.raises(SystemExit, match="expected some of"): main(**wrong)
