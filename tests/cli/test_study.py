"The study's sub-commands: what they take, how they end, and what they print"
import inspect
import json
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
import typer
from command_line import run

from rolebregman.cli import study as room
from rolebregman.study import main_study

root = Path(__file__).resolve().parents[2]


def test_the_main_study_takes_what_its_function_takes():
    options = {name: p.default for name, p in inspect.signature(room.main_study).parameters.items()}
    own = {name: p.default for name, p in inspect.signature(main_study.run_main_study).parameters.items()}
    assert set(own) - {"how", "with_search"} <= set(options) and options["search"] is own["with_search"]
    for name in ("seeds", "scale", "out", "chosen"): assert str(options[name]) == str(own[name])


def test_study_prints_rows_as_json(tmp_path):
    done = run("study --datasets toy --heads cosine --seeds 1 --jobs 1 --out . --json", tmp_path)
    (row,) = json.loads(done.stdout)
    assert row["dataset"] == "toy" and row["direction_accuracy"] == 0.5 and "paper R" in done.stderr


@pytest.mark.parametrize("raised, status, said", [
    (KeyboardInterrupt(), 130, "stopped; quick.csv has what was finished, the same command goes on there"),
    (ImportError("no dask"), 1, "Error: no dask"), (ConnectionError("nobody"), 1, "Error: nobody")])
def test_study_says_how_it_ended(tmp_path, monkeypatch, raised, status, said):
    def stop(*_, **__): raise raised
    monkeypatch.setattr(main_study, "run_grid", stop)
    done = run("study --datasets toy --heads cosine --seeds 1 --out .", tmp_path, status)
    assert done.stderr.strip() == said


def test_study_ends_with_1_where_nothing_could_be_fitted(tmp_path):
    (tmp_path / "chosen.json").write_text(json.dumps({"toy": {"mlp": {"train": dict(lr=1e30, epochs=3)}}}))
    done = run("study --datasets toy --heads mlp --seeds 1 --jobs 1 --out . --chosen chosen.json", tmp_path, 1)
    assert "1 fit failed, add --retry" in done.stdout
    more = "study --datasets toy --heads mlp,cosine --seeds 1 --jobs 1 --out . --chosen chosen.json"
    assert "1 fit failed, add --retry" in run(more, tmp_path, 0).stdout


@pytest.mark.parametrize("wrong, said", [
    ("--heads euclid", "unknown head euclid; expected some of: euclidean"), ("--datasets gone", "unknown dataset gone"),
    ("--scale huge", "unknown scale huge; expected some of: quick paper full"), ("--seeds -1", "--seeds"),
    ("--backend threads", "unknown back-end threads; expected some of: loky dask ray"), ("spam", "spam")])
def test_wrong_usage_ends_with_2(tmp_path, wrong, said):
    done = run(f"study --out . {wrong}", tmp_path, 2)
    assert said in " ".join(done.stderr.replace("│", " ").split()) and not list(tmp_path.iterdir())


@pytest.mark.parametrize("wrong, said", [
    ("--chosen nope.json", "Error: nope.json: there is no such file"), ("--out file", "Error: file: this is a file")])
def test_faults_are_one_line(tmp_path, wrong, said):
    (tmp_path / "file").touch()
    done = run(f"study --datasets toy {wrong}", tmp_path, 1)
    assert done.stderr.startswith(said) and done.stderr.count("\n") == 1


def test_a_standing_needs_outcomes_of_test_pairs(tmp_path):
    done = run("study standing --rows none.csv --out new", tmp_path, 1)
    assert done.stderr.startswith("Error: none.csv has no outcomes of test pairs") and not list(tmp_path.iterdir())


@pytest.fixture
def other():
    "A sub-command for the time of a test"
    asked = []
    @room.questions.command("other")
    def other(seeds: room.Seeds = 5, json_: room.Json = False):
        asked.append(seeds)
        room.carry_out(lambda: print("working") or pd.DataFrame([dict(seeds=seeds)]), "rows.csv", json_)
    yield asked
    room.questions.registered_commands.pop()


def test_a_sub_command_runs_alone_and_its_rows_have_standard_output(other):
    done = run("study other --seeds 3 --json")
    assert json.loads(done.stdout) == [dict(seeds=3)] and done.stderr == "working\n" and other == [3]
    assert run("study other").stdout == "working\n"


def test_options_before_the_name_of_a_sub_command_are_refused(other):
    assert "options stand behind the name: study other" in run("study --seeds 3 other", status=2).stderr
    assert not other


def test_ctrl_c_in_a_sub_command_says_where_it_goes_on(capsys):
    def stop(): raise KeyboardInterrupt
    with pytest.raises(typer.Exit) as end: room.carry_out(stop, "there.csv")
    assert end.value.exit_code == 130 and capsys.readouterr().err.startswith("stopped; there.csv has what was finished")


def test_bench_ends_as_the_benchmarks_end(monkeypatch):
    called = []
    monkeypatch.setattr(subprocess, "run", lambda args: called.append(args) or subprocess.CompletedProcess(args, 3))
    run("bench --report --json", status=3)
    assert called == [[sys.executable, root / "tests" / "benchmarks" / "run.py", "--report", "--json"]]


def test_budgets_as_json():
    script = root / "tests" / "benchmarks" / "run.py"
    done = subprocess.run([sys.executable, script, "--report", "--json"], capture_output=True, text=True, check=True)
    assert {"what", "ratio", "bar", "met"} <= set(json.loads(done.stdout)[0])


def test_bench_says_where_the_benchmarks_are(tmp_path, monkeypatch):
    monkeypatch.setattr(room, "__file__", str(tmp_path / "rolebregman" / "cli" / "study.py"))
    assert "in the repository, not in the package" in run("bench", status=1).stderr
