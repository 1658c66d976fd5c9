"What every sub-command keeps to"
import json
from pathlib import Path
from typing import Annotated

import numpy as np
import pytest
import typer
from command_line import forked, program
from typer.testing import CliRunner

from rolebregman import __version__
from rolebregman.cli.command import (
    as_json,
    command,
    in_words,
    pairs_file,
    progress,
    say,
    show,
    try_command,
    watched,
    write_output,
)
from rolebregman.cli.inputs import ends_of, items_of
from rolebregman.training import History


def test_progress_is_a_bar_on_a_terminal_and_few_lines_in_a_log(monkeypatch, capsys):
    tell, history = progress(3), History(None)
    history.add(0, 1.0, 1.0, 0.5, 0.5)
    history.add(1, 0.25, 0.5, float("nan"), float("nan"))  # without validation
    tell(history)
    assert capsys.readouterr().err.startswith("1/3 epochs, loss 0.750, at most 00:0")
    monkeypatch.setattr("rolebregman.cli.command.watched", lambda: True)
    assert progress(3) is True


def test_columns_as_said_now_come_before_those_of_fit_and_those_that_are_not_there_are_guessed(tmp_path):
    how = dict(source="child", target="parent")
    items = dict(vectors=None, ids=None, texts=None, id_column=None, encoder=None)
    report = dict(inputs=dict(items=items, pairs="pairs.csv", how=how))
    (tmp_path / "report.json").write_text(json.dumps(report))
    (tmp_path / "same.csv").write_text("child,parent,note\na,b,c\n")
    (tmp_path / "other.csv").write_text("from,to\na,b\n")
    guessed = dict(source=None, target=None)
    assert ends_of(tmp_path, tmp_path / "same.csv") == how
    assert ends_of(tmp_path, tmp_path / "same.csv", "note", "child") == dict(source="note", target="child")
    assert ends_of(tmp_path, tmp_path / "other.csv") == ends_of(tmp_path / "none", tmp_path / "same.csv") == guessed


def test_json_has_no_nan():
    assert as_json({1: np.float32(0.5), "b": (float("nan"), np.array([2])), "c": Path("x")}, None) == (
        '{"1": 0.5, "b": [null, [2]], "c": "x"}')


def test_a_file_appears_whole_or_not_at_all(tmp_path):
    def broken(file):
        file.write("half of it")
        raise KeyboardInterrupt
    write_output(tmp_path / "deep" / "result.csv", lambda file: file.write("whole"))
    with pytest.raises(KeyboardInterrupt): write_output(tmp_path / "deep" / "result.csv", broken)
    assert [path.read_text() for path in (tmp_path / "deep").iterdir()] == ["whole"]


def test_a_line_that_is_tried_is_shown_with_what_it_prints(tmp_path, capsys):
    try_command("rolebregman --version", tmp_path)
    assert capsys.readouterr().out == f"$ rolebregman --version\nrolebregman {__version__}\n"
    with pytest.raises(AssertionError, match="no dataset 'spam'"): try_command("rolebregman data show spam")


def test_vectors_come_from_what_is_said_now(tmp_path):
    assert items_of(tmp_path, vectors=tmp_path / "v.npy").vectors == tmp_path / "v.npy"
    with pytest.raises(typer.BadParameter, match="say where vectors are: --vectors"): items_of(tmp_path)


def test_what_is_said_goes_to_standard_error(capsys):
    say("a line")
    assert capsys.readouterr() == ("", "a line\n") and not watched()


def test_a_file_of_pairs_has_its_help():
    assert pairs_file("pairs").help == "pairs"


def test_advice_names_options_that_the_command_has():
    fault = ValueError("e.csv: column 'source' is odd (source=); pass min_label=, label='strength' or missing='drop'")
    options = dict(vectors="--vectors", source="--source", label="--tag", missing="--missing")
    assert in_words(fault, options) == (
        "e.csv: column 'source' is odd (--source); pass --min-label (an option of fit), --tag strength or "
        "--missing drop")
    options = dict(sep="--sep", split_column="--split-column")
    assert in_words(ValueError("say sep= or split_column='split'"), options) == "say --sep or --split-column split"
    assert in_words(ValueError("pass id_column='Unnamed: 0' if"), dict(options, id_column="--id-column")) == (
        "pass --id-column 'Unnamed: 0' if")
    assert in_words(ValueError("pass split='edge'"), options) == "pass split='edge'", "it takes arguments as they are"
    assert in_words(ValueError("DirectedHead(source=3, out=5) is odd"), dict(out="--out")) == (
        "DirectedHead(source=3, out=5) is odd")


@pytest.mark.parametrize("more, says", [("label='holds'", "--label holds (an option of fit)"), ("k=", "--top"),
                                        ("ids=", "--ids")])
def test_a_command_knows_its_options(capsys, more, says):
    trial = typer.Typer()
    trial.callback()(lambda: None)

    @command(trial, "trial run")
    def run(
        k: Annotated[int, typer.Option("-k", "--top")] = 1,
        ids: Annotated[str, typer.Option()] = "",
        vectors: Annotated[str, typer.Option()] = "",
    ):
        raise ValueError(f"pass {more}")

    assert CliRunner().invoke(trial, ["run"]).stderr == f"Error: pass {says}\n"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
@pytest.mark.parametrize("line", ["data list --json", "score head pairs.csv", "evaluate head"])
def test_a_full_disk_behind_standard_output_is_one_line(project, line):
    with open("/dev/full", "w") as full: said, status = forked(line, project, full)
    assert status == 1
    assert said.splitlines()[-1] == "Error: standard output: No space left on device"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
def test_so_it_is_where_python_itself_ends(project):
    with open("/dev/full", "w") as full:
        done = program("data list", project, stdout=full)
        said = done.communicate()[1].decode()
    assert done.returncode == 1 and said.splitlines()[-1] == "Error: standard output: No space left on device"


def test_a_result_is_shown_without_what_steers_a_terminal(capsys):
    show("a\x1b[2J\tb\n\u202ec")
    assert capsys.readouterr().out == "a\\u001b[2J\tb\n\\u202ec\n"
