"The command: what it writes, where it writes it, and how it ends"
import contextlib
import hashlib
import io
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from typer.testing import CliRunner

from rolebregman import __version__
from rolebregman.baselines import HEADS
from rolebregman.cli import app as cli
from rolebregman.cli import own_files
from rolebregman.cli.command import app, ends_of, progress
from rolebregman.datasets import LOADERS, Place, RawFile, Source, sources, toy_tree
from rolebregman.heads import BregmanHead, load_head
from rolebregman.training import History
from rolebregman.training import fit as train

root = Path(__file__).resolve().parents[2]
# Started by a shell in the background, a program ignores Ctrl-C; here it is to be heard.
PROGRAM = ("import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
           "from rolebregman.cli.app import app; app(prog_name='rolebregman')")
METRICS = ["ranking_accuracy", "direction_accuracy", "mrr"]


def run(line, folder=".", status=0, stdin=None):
    "The result of a command line, which must end with `status`"
    with contextlib.chdir(folder):
        done = CliRunner().invoke(app, shlex.split(line), input=stdin)
    assert done.exit_code == status, f"{line}\n{done.output}\n{done.exception!r}"
    return done


def read(text): return pd.read_csv(io.StringIO(text))


def program(line, folder, **how):
    "The command as a program of its own"
    env = {**os.environ, "PYTHONPATH": str(root), "OMP_NUM_THREADS": "1"}
    return subprocess.Popen([sys.executable, "-c", PROGRAM, *shlex.split(line)], cwd=folder, env=env,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, **how)


@pytest.fixture(scope="module")
def tree():
    return toy_tree(depth=4, branching=3, dim=12, seed=1)


@pytest.fixture(scope="module")
def project(tree, tmp_path_factory):
    "A user's folder: pairs and vectors in every format, and a fitted head"
    folder = tmp_path_factory.mktemp("project")
    names, vectors = tree.nodes["id"].to_numpy(), tree.features
    pairs = pd.DataFrame(names[np.concatenate(list(tree.edges.values()))], columns=["child", "parent"])
    pairs.to_csv(folder / "pairs.csv", index=False)
    pairs.to_csv(folder / "pairs.tsv", index=False, sep="\t")
    np.save(folder / "vectors.npy", vectors)
    (folder / "ids.txt").write_text("\n".join(names) + "\n")
    table = pd.DataFrame(vectors).rename(columns="x{}".format)
    table.assign(name=names).to_csv(folder / "vectors.csv", index=False)
    table.assign(id=names).to_parquet(folder / "vectors.parquet")
    (folder / "vectors.txt").write_text("".join(f"{n} {' '.join(map(str, v))}\n" for n, v in zip(names, vectors)))
    run("fit pairs.csv --vectors vectors.csv --epochs 4", folder)
    return folder


def rows_of(tree, ids):
    return torch.from_numpy(tree.features[pd.Index(tree.nodes["id"]).get_indexer(ids)])


# What one types

def commands():
    return ["fit", "evaluate", "score", "search", "explain", "study", "study ablations", "study more-negatives",
            "study rival-starts", "study gaps", "study citations", "study joint", "explorer", "bench", "data list",
            "data fetch", "data show"]


@pytest.mark.parametrize("name", commands())
def test_every_example_in_the_help_is_a_command_that_exists(name):
    help = run(f"{name} --help").stdout
    examples = re.findall(r"^    ?(.*\brolebregman .*)$", help.split("Examples:")[1], re.M)
    assert examples and all(f"rolebregman {name}" in line for line in examples)
    for line in examples: # an option that is unknown is refused before --help is looked at
        run(re.split(r" [<>|] ", line.split("rolebregman ", 1)[1])[0] + " --help")
    assert "--debug" in help


def test_help_needs_neither_torch_nor_pandas():
    code = ("import sys\nfrom rolebregman.cli.app import app\nfor name in sys.argv[1:]:\n"
            "    try: app([*name.split(), '--help'])\n    except SystemExit as end: assert end.code == 0\n"
            "assert not {'torch', 'pandas', 'numpy', 'matplotlib'} & set(sys.modules)")
    subprocess.run([sys.executable, "-c", code, "", *commands()], check=True, capture_output=True,
                   env={**os.environ, "PYTHONPATH": str(root)})


def test_version():
    assert run("--version").stdout == f"rolebregman {__version__}\n"


def test_the_shell_completes_names_of_commands():
    env = {**os.environ, "PYTHONPATH": str(root), "_ROLEBREGMAN_COMPLETE": "complete_bash",
           "COMP_WORDS": "rolebregman ev", "COMP_CWORD": "1"}
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=env, capture_output=True, text=True)
    assert done.stdout.split() == ["evaluate"]


# What comes out

def test_fit_writes_a_head_that_is_the_librarys_own(project, tree):
    report = json.loads((project / "head" / "report.json").read_text())
    assert report["head"]["name"] == "directed_bregman" and report["pairs"] == dict(train=96, valid=12, test=12)
    assert report["inputs"]["pairs"] == "../pairs.csv" and set(report["metrics"]) == {"valid", "test"}
    ds = cli._dataset(project / "pairs.csv", own_files.Items(project / "vectors.csv"), report["inputs"]["how"])
    torch.manual_seed(0)
    mine = cli._settings("directed_bregman", dict(epochs=4, patience=20), [])[0]
    head = HEADS["directed_bregman"].head(12, maps="residual", rank=48, extra=16)
    train(head, ds, mine, progress=False)
    saved = load_head(project / "head").state_dict()
    assert all(torch.equal(value, saved[name]) for name, value in head.state_dict().items())


def test_the_same_vectors_in_any_format_give_the_same_head(project):
    wanted = hashlib.sha256((project / "head" / "model.safetensors").read_bytes())
    for vectors in ("vectors.npy --ids ids.txt", "vectors.npy --ids vectors.csv --id-column name", "vectors.parquet",
                    "vectors.csv --id-column name"):
        run(f"fit pairs.tsv --vectors {vectors} --epochs 4 --out other", project)
        found = hashlib.sha256((project / "other" / "model.safetensors").read_bytes())
        assert found.digest() == wanted.digest(), vectors
        assert (project / "other" / "report.txt").read_text() == (project / "head" / "report.txt").read_text()


def test_evaluate_gives_the_numbers_of_the_report(project):
    report = json.loads((project / "head" / "report.json").read_text())
    for part in ("valid", "test"):
        found = json.loads(run(f"evaluate head --part {part} --json", project).stdout)
        assert (found.pop("pairs"), found.pop("dropped")) == (12, {}) and found == report["metrics"][part]


def test_evaluate_refuses_held_out_pairs_that_are_no_longer_those_of_fit(project, tmp_path):
    shutil.copytree(project, tmp_path, dirs_exist_ok=True)
    with open(tmp_path / "pairs.csv", "a") as file: file.write("n00120,n00001\n")
    said = run("evaluate head", tmp_path, 1).stderr
    assert said.startswith("Error: pairs.csv has changed since fit") and said.count("\n") == 1
    assert json.loads(run("evaluate head pairs.csv --json", tmp_path).stdout)["pairs"] == 121


def test_evaluate_takes_all_pairs_of_a_file(project):
    assert json.loads(run("evaluate head pairs.tsv --json --candidates all", project).stdout)["pairs"] == 120
    assert "pairs" in run("evaluate head pairs.csv", project).stdout.splitlines()[0]


def test_score_gives_every_row_its_distances_in_order(project, tree):
    rows = [("n00004", "n00001"), ("n00001", "n00004"), ("n00004", "n00001"), ("n00002", "n00002")]
    text = "source,target\n" + "".join(f"{s},{t}\n" for s, t in rows)
    run("score head - --out deep/scores.csv", project, stdin=text)
    table = pd.read_csv(project / "deep" / "scores.csv")
    assert list(table) == ["source", "target", "distance", "reverse_distance", "gap"]
    assert list(zip(table["source"], table["target"])) == rows
    head, x, y = load_head(project / "head"), *(rows_of(tree, side) for side in zip(*rows))
    np.testing.assert_allclose(table["distance"], head.score(x, y), rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(table["reverse_distance"], head.score(y, x), rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(table["gap"], table["distance"] - table["reverse_distance"], atol=1e-6)


def test_small_distances_are_kept_in_json(project, tmp_path):
    vectors = np.load(project / "vectors.npy")[:2]
    vectors[1] = vectors[0] + 3e-5
    np.save(tmp_path / "near.npy", vectors)
    run("fit pairs.csv --vectors vectors.csv --head icnn_bregman --epochs 0 --out plain_potential", project)
    line = f"score plain_potential - --json --vectors {tmp_path / 'near.npy'}"
    row = json.loads(run(line, project, stdin="source,target\n0,1\n").stdout)
    wanted = load_head(project / "plain_potential").score(*torch.from_numpy(vectors)[:, None]).item()
    assert 0 < wanted < 1e-8 and row["distance"] == pytest.approx(wanted, rel=1e-4)


def test_the_kind_of_a_file_is_its_last_suffix(project, tmp_path):
    wanted = run("score head pairs.tsv", project).stdout
    pd.read_csv(project / "pairs.csv").to_parquet(tmp_path / "p.csv.parquet")
    shutil.copy(project / "pairs.tsv", tmp_path / "p.csv.tsv")
    shutil.copy(project / "pairs.csv", tmp_path / "P.CSV")
    shutil.copy(project / "vectors.npy", tmp_path / "v.csv.npy")
    shutil.copy(project / "vectors.npy", tmp_path / "V.NPY")
    shutil.copy(project / "vectors.csv", tmp_path / "V.CSV")
    for name in ("p.csv.parquet", "p.csv.tsv", "P.CSV"):
        assert run(f"score head {tmp_path / name}", project).stdout == wanted
    for more in ("v.csv.npy --ids ids.txt", "V.NPY --ids ids.txt", "V.CSV"):
        assert run(f"score head pairs.tsv --vectors {tmp_path}/{more}", project).stdout == wanted
    assert not own_files.Items(tmp_path / "words.txt.npy").open_ended


def test_counts_are_taken_as_vectors(project, tmp_path):
    counts = np.random.default_rng(0).integers(0, 9, (121, 12))
    np.save(tmp_path / "counts.npy", counts.astype("uint8"))
    np.save(tmp_path / "floats.npy", counts.astype("float32"))
    pd.DataFrame(counts).assign(id=(project / "ids.txt").read_text().split()).rename(columns=str).to_parquet(
        tmp_path / "counts.parquet")
    heads = []
    for vectors in ("counts.npy --ids ids.txt", "floats.npy --ids ids.txt", "counts.parquet"):
        run(f"fit pairs.csv --vectors {tmp_path}/{vectors} --epochs 1 --out {tmp_path / 'head'}", project)
        heads.append((tmp_path / "head" / "model.safetensors").read_bytes())
    assert heads[0] == heads[1] == heads[2]


def test_options_with_spaces_and_settings_with_an_option_of_their_own(project):
    run("fit pairs.csv --vectors vectors.csv --epochs 0 --set 'hidden=[8, 4]' --out set", project)
    assert load_head(project / "set").config["hidden"] == (8, 4)
    for name in ("seed", "epochs", "lr", "loss", "patience"):
        said = run(f"fit pairs.csv --vectors vectors.csv --set {name}=1 --out set", project, 2).stderr
        assert f"--set {name}=1: has an option of its own: --{name}" in said


def test_without_validation_the_report_does_not_speak_of_it(project):
    text = run("fit - --vectors vectors.csv --epochs 2 --fractions 1 0 0 --out one", project,
               stdin="source,target\nn00001,n00000\n").stdout
    assert "2 epochs, the last is kept\n" in text and "validation" not in text


def test_a_log_has_a_line_every_so_often(project):
    done = run("fit pairs.csv --vectors vectors.csv --epochs 40 --patience 0 --out logged", project)
    lines = [line for line in done.stderr.splitlines() if "/40 epochs, loss " in line]
    assert [int(line.split("/")[0]) for line in lines] == list(range(2, 41, 2)) and "\r" not in done.stderr
    assert lines[-1].endswith("at most 00:00 left") and re.search(r"validation [01]\.\d{3}, ", lines[0])
    assert run("fit pairs.csv --vectors vectors.csv --epochs 0 --out logged", project).stderr.count("\n") == 1


def test_progress_is_a_bar_on_a_terminal_and_few_lines_in_a_log(monkeypatch, capsys):
    tell, history = progress(3), History(None)
    history.add(0, 1.0, 1.0, 0.5, 0.5)
    history.add(1, 0.25, 0.5, float("nan"), float("nan"))  # without validation
    tell(history)
    assert capsys.readouterr().err.startswith("1/3 epochs, loss 0.750, at most 00:0")
    monkeypatch.setattr("rolebregman.cli.command.watched", lambda: True)
    assert progress(3) is True


def test_a_width_that_does_not_fit_names_the_file():
    own_files.Items(Path("v.npy")).check_width(np.zeros((2, 3)), 3)
    with pytest.raises(ValueError, match="v.npy: vectors of 3 numbers, but the head takes 4"):
        own_files.Items(Path("v.npy")).check_width(np.zeros((2, 3)), 4)


def test_the_default_head_is_that_of_the_readme(project):
    ours = load_head(project / "head")
    assert type(ours) is BregmanHead and ours.config == BregmanHead(12, maps="residual", rank=48, extra=16).config
    assert 'BregmanHead(ds.dim, maps="residual", rank=48, extra=16)' in (root / "README.md").read_text()


def test_blocks_change_nothing(project, monkeypatch):
    whole = run("score head pairs.csv", project).stdout
    monkeypatch.setattr(cli, "pair_blocks", partial(own_files.pair_blocks, rows=7))
    done = run("score head pairs.csv", project)
    pd.testing.assert_frame_equal(read(done.stdout), read(whole), rtol=1e-6, atol=1e-6)
    assert done.stderr.splitlines()[0] == "7/120" and "\r" not in done.stderr


@pytest.mark.parametrize("head", sorted(HEADS))
def test_every_head_can_be_scored(project, head):
    run(f"fit pairs.csv --vectors vectors.csv --epochs 0 --head {head} --out any", project)
    lines = run("score any pairs.csv", project).stdout.splitlines()
    assert len(lines) == 121
    if load_head(project / "any").symmetric: assert {line.rsplit(",", 1)[1] for line in lines[1:]} == {"0"}


def test_missing_vectors_are_named_or_dropped(project):
    text = "child,parent\nn00001,n00000\nn00001,spam\n"
    said = run("score head -", project, 1, text)
    assert said.stdout == "" and said.stderr == (
        "Error: standard input, row 1 (the first is 0): target 'spam' has no vector. 1 such ids: add what is missing, "
        "or drop their pairs with --missing drop\n")
    done = run("score head - --missing drop", project, stdin=text)
    assert len(done.stdout.splitlines()) == 2 and "; 1 dropped, without a vector" in done.stderr
    text += "n00004,n00001\nn00002,n00002\n"
    done = run("evaluate head - --missing drop --json", project, stdin=text)
    assert json.loads(done.stdout)["dropped"] == {"self-pair": 1, "pair of an id without a vector": 1}
    assert done.stderr == "left out: self-pair (1), pair of an id without a vector (1)\n"


@pytest.mark.parametrize("find", ["targets", "sources"])
def test_search_finds_what_all_distances_give(project, tree, find):
    table = read(run(f"search head n00040 n00004 -k 5 --find {find}", project).stdout)
    head, asked, names = load_head(project / "head"), rows_of(tree, ["n00040", "n00004"]), tree.nodes["id"].to_numpy()
    items = torch.from_numpy(tree.features)
    with torch.no_grad():
        all = head.pairwise(asked, items) if find == "targets" else head.pairwise(items, asked).T
    for item, distances in zip(["n00040", "n00004"], all.numpy()):
        distances = pd.Series(distances, names).drop(item).sort_values()[:5]
        mine = table[table["item"] == item]
        assert list(mine[find[:-1]]) == list(distances.index) and list(mine["rank"]) == [1, 2, 3, 4, 5]
        np.testing.assert_allclose(mine["distance"], distances, rtol=1e-5)


def test_search_reads_items_from_standard_input(project):
    found = run("search head -", project, stdin="n00004\n\nn00001\n").stdout
    assert found == run("search head n00004 n00001", project).stdout


def test_search_among_words_knows_the_items_of_the_pairs(project):
    run("fit pairs.csv --vectors vectors.txt --epochs 0 --out words", project)
    assert len(run("search words n00004 -k 120", project).stdout.splitlines()) == 121


def test_search_gives_as_many_as_there_are(project):
    assert len(run("search head n00004 -k 500", project).stdout.splitlines()) == 121


def test_search_shows_the_texts_of_what_it_finds(project, tree):
    names = tree.nodes["id"]
    pd.DataFrame(dict(id=names[5:], text="the " + names[5:])).to_csv(project / "texts.csv", index=False)
    run("fit pairs.csv --vectors vectors.csv --texts texts.csv --epochs 0 --out told", project)
    found = read(run("search told n00040 -k 120", project).stdout).fillna("")
    expected = ["the " + name if name in set(names[5:]) else "" for name in found["target"]]
    assert list(found["text"]) == expected and "" in expected


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


def test_the_columns_of_fit_are_those_of_later_pairs(project):
    table = pd.read_csv(project / "pairs.csv")
    table.set_axis(["part", "whole"], axis=1).to_csv(project / "parts.csv", index=False)
    run("fit parts.csv --vectors vectors.csv --source part --target whole --epochs 0 --out parts", project)
    expected = run("score parts pairs.csv", project).stdout
    assert run("score parts parts.csv", project).stdout == expected
    assert run("score parts -", project, stdin=(project / "parts.csv").read_text()).stdout == expected
    turned = run("score parts parts.csv --source whole --target part", project).stdout
    assert list(read(turned)["gap"]) == pytest.approx(list(-read(expected)["gap"]), abs=1e-5)
    assert "pairs" in run("evaluate parts parts.csv", project).stdout


def test_explain_gives_the_distances_of_score_and_a_picture(project):
    scored = read(run("score head -", project, stdin="source,target\nn00004,n00001\n").stdout)
    found = json.loads(run("explain head n00004 n00001 --json --picture pair.png", project).stdout)
    for name in ("distance", "reverse_distance", "gap"):
        assert found[name] == pytest.approx(scored[name][0], rel=1e-4, abs=1e-6)
    assert (project / "pair.png").read_bytes().startswith(b"\x89PNG")
    done = run("explain head n00004 n00001 --picture - --json", project)
    assert done.stdout_bytes.startswith(b"\x89PNG") and done.stdout_bytes.endswith(b"IEND\xaeB`\x82")
    assert json.loads(done.stderr) == found
    way = "as it is written" if found["gap"] < 0 else "the other way"
    assert f"the pair runs {way}" in run("explain head n00004 n00001", project).stdout


def test_a_letter_that_the_font_lacks_is_one_line(project, tmp_path):
    (tmp_path / "ids.txt").write_text((project / "ids.txt").read_text().replace("n00004", "日本"), encoding="utf-8")
    where = f"--vectors vectors.npy --ids {tmp_path / 'ids.txt'} --picture {tmp_path / 'pair.png'}"
    said = run(f"explain head 日本 n00001 {where}", project).stderr
    assert said in ("", "the font of the picture lacks some letters of the ids; set font.family in a matplotlibrc\n")


def test_the_folder_may_move_with_its_files(project, tmp_path):
    shutil.copytree(project, tmp_path / "moved")
    (tmp_path / "moved" / "vectors.csv").replace(tmp_path / "vectors.csv")
    assert "no file" in run("score head pairs.csv", tmp_path / "moved", 1).stderr
    (tmp_path / "vectors.csv").replace(tmp_path / "moved" / "vectors.csv")
    assert run("score moved/head moved/pairs.csv", tmp_path).stdout == run("score head pairs.csv", project).stdout


# Data

def test_data_list_names_every_dataset_and_file():
    assert list(json.loads(run("data list --json").stdout)) == list(LOADERS)
    assert [line.split()[0] for line in run("data list").stdout.splitlines()] == list(LOADERS)
    assert {row["source"] for row in json.loads(run("data list --files --json").stdout)} == set(sources.SOURCES)


def test_data_fetch_brings_a_file_that_is_right(tmp_path, monkeypatch, own_cache):
    monkeypatch.setenv("ROLEBREGMAN_MIRROR", str(tmp_path))
    (tmp_path / "there.txt").write_text("abc")
    file = RawFile("there.txt", hashlib.sha256(b"abc").hexdigest(), 3)
    thing = Source("thing", "A thing", "none", (file,), (Place("mirror", "there.txt"),))
    monkeypatch.setitem(sources.SOURCES, "thing", thing)
    path = json.loads(run("data fetch thing --json").stdout)["thing"]
    assert Path(path).read_text() == "abc"
    Path(path).unlink()
    (tmp_path / "there.txt").write_text("abd")
    assert "thing (A thing) could not be had" in run("data fetch thing", status=1).stderr


def test_data_show_counts_a_tree():
    found = json.loads(run("data show toy depth=2 branching=4 --json").stdout)
    assert found["nodes"] == 21 and found["train"] + found["valid"] + found["test"] == 20
    assert "three of its pairs:" in run("data show toy depth=2 branching=4").stdout


def test_an_unknown_device_is_named_with_those_there_are(project):
    said = run("evaluate head --device gpu", project, 2).stderr
    assert "'gpu' is no device to compute on here; choose from cpu" in said


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
def test_every_command_computes_the_same_on_a_gpu(project):
    def numbers(line): return read(run(line, project).stdout).select_dtypes("number").to_numpy()
    for line in ("score head pairs.csv", "search head n00001 n00004"):
        np.testing.assert_allclose(numbers(f"{line} --device cuda"), numbers(line), rtol=1e-4, atol=1e-4)
    run("fit pairs.csv --vectors vectors.csv --epochs 2 --out gpu --device cuda", project)
    assert not load_head(project / "gpu").standardizer.mean.is_cuda
    found = json.loads(run("evaluate gpu --json --device cuda", project).stdout)
    assert found == pytest.approx(json.loads(run("evaluate gpu --json", project).stdout), abs=0.02)


# How it ends

@pytest.mark.parametrize("line", [
    "fit nowhere.csv", "fit pairs.csv --vectors nowhere.npy", "fit pairs.csv --vectors vectors.csv --head spam",
    "fit pairs.csv --vectors vectors.csv --loss spam", "fit pairs.csv --vectors vectors.csv --set spam=1",
    "fit pairs.csv --vectors vectors.csv --set lr=-1", "fit pairs.csv --vectors vectors.csv --epochs -1", "fit", "spam",
    "score head", "score nowhere pairs.csv", "score head pairs.csv --spam", "score . pairs.csv", "evaluate .",
    "evaluate head --candidates none", "evaluate head pairs.csv --part test", "search head n00001 -k 0",
    "study --heads spam", "study --seeds many", "fit pairs.csv --vectors -",
    "fit pairs.csv --vectors vectors.csv --out -", "fit pairs.csv --ids ids.txt",
    "score head pairs.csv --ids ids.txt", "score head pairs.csv --id-column name",
    "fit pairs.csv --vectors vectors.csv --set proj_dim=0", "fit pairs.csv --vectors vectors.csv --set rank=2.5",
    "fit pairs.csv --vectors vectors.csv --set hidden=8", "fit pairs.csv --vectors vectors.csv --set lr",
    "fit pairs.csv --vectors vectors.csv --set strong_convexity=much", "evaluate head --candidates ²",
    "fit pairs.csv --vectors vectors.csv --seed 99999999999999999999", "evaluate head --candidates 1000",
    "explain head n00004 n00001 --picture pair.xyz", "data show toy depth=deep",
    "data show toy depth=0", "study --seeds -1", "study --jobs -3", "evaluate head --device gpu",
    "fit pairs.csv --vectors vectors.csv --device cuda:99", "score head pairs.csv --device mps",
    "search head n00001 --device cuda:x"])
def test_wrong_usage_ends_with_2(project, line):
    done = run(line, project, 2)
    assert done.stdout == "" and "Traceback" not in done.stderr and "Error: " in done.stderr or line == "fit"


FAULTS = {
    "fit pairs.csv --vectors few.csv": "Error: pairs.csv, row 0 (the first is 0): source 'n00001' has no vector",
    "fit two.csv --vectors vectors.csv": "are too few to split",
    "fit pairs.csv --vectors words.csv": "Error: words.csv, row 1 (the first is 0): column 'x' holds 'spam'",
    "fit pairs.csv --vectors bare.csv": "Error: bare.csv: its first line is ['n00001', '0.1', '0.2']",
    "score head odd.csv": "among the columns ['a', 'b']; pass --source and --target",
    "score head hole.csv": "Error: hole.csv, row 1 (the first is 0): column 'target' is empty",
    "score head ragged.csv": "Error: ragged.csv: Error tokenizing data",
    "score head pairs.csv --vectors narrow.csv": "Error: narrow.csv: vectors of 2 numbers, but the head takes 12",
    "search head n0004": "Error: there is no item 'n0004' with a vector (did you mean 'n00",
    "explain plain n00004 n00001": "Error: plain holds a Euclidean, which has no potential to look into",
    "data show spam": "Error: no dataset 'spam'",
    "evaluate damaged": "report.json is damaged",
    "score strange pairs.csv": "report.json is damaged",
    "score narrower pairs.csv": "of another head than config.json says: size mismatch for",
    "fit pairs.csv --vectors nan.npy --ids ids.txt": "Error: nan.npy: features: row 3, column 1 is nan",
    "fit pairs.csv --vectors vectors.npy --ids two.csv --id-column source": "Error: two.csv: ids: 1 of them for 121",
    "fit pairs.csv --vectors vectors.npy --ids twice.txt": "Error: twice.txt: ids: 'n00001' stands more than once",
    "fit pairs.csv --vectors same.npy --ids ids.txt": "Error: same.npy: features: all rows are equal",
    "fit pairs.csv --vectors vectors.csv --fractions nan 0.5 0.5": "expected three shares that sum to 1",
    "fit pairs.csv --vectors ids.md": "Error: ids.md: expected vectors in a file with one of .npy",
    "evaluate head pairs.csv --vectors narrow.csv": "Error: narrow.csv: vectors of 2 numbers, but the head takes 12",
    "evaluate head --vectors narrow.csv": "Error: narrow.csv: vectors of 2 numbers, but the head takes 12",
}


@pytest.fixture(scope="module")
def faulty(project):
    for name, text in {
            "few.csv": "id,x\nspam,1\nspun,2\n", "two.csv": "source,target\nn00001,n00000\n",
            "ragged.csv": "source,target\na,b\nc,d,e\n", "words.csv": "id,x\nn00001,1\nn00002,spam\n",
            "bare.csv": "n00001,0.1,0.2\nn00002,0.1,0.2\n", "odd.csv": "a,b\n1,2\n",
            "hole.csv": "source,target\nn00001,n00000\nn00001,\n",
            "narrow.csv": "id,x,y\n" + "".join(f"n{i:05},1,{i}\n" for i in range(121))}.items():
        (project / name).write_text(text)
    run("fit pairs.csv --vectors vectors.csv --head euclidean --epochs 0 --out plain", project)
    shutil.copytree(project / "head", project / "damaged", dirs_exist_ok=True)
    (project / "damaged" / "report.json").write_text("{")
    shutil.copytree(project / "head", project / "strange", dirs_exist_ok=True)
    (project / "strange" / "report.json").write_text('{"inputs": {"pairs": "pairs.csv", "items": "x", "how": {}}}')
    shutil.copytree(project / "head", project / "narrower", dirs_exist_ok=True)
    about = json.loads((project / "head" / "config.json").read_text())
    about["config"]["rank"] = 5
    (project / "narrower" / "config.json").write_text(json.dumps(about))
    vectors = np.load(project / "vectors.npy")
    np.save(project / "same.npy", np.ones_like(vectors))
    vectors[3, 1] = np.nan
    np.save(project / "nan.npy", vectors)
    names = (project / "ids.txt").read_text()
    (project / "twice.txt").write_text(names.replace("n00004", "n00001"))
    (project / "ids.md").write_text(names)
    return project


@pytest.mark.parametrize("line", FAULTS)
def test_a_fault_is_one_line_and_ends_with_1(faulty, line):
    done = run(line, faulty, 1)
    assert done.stdout == "" and done.stderr.count("\n") == 1 + done.stderr.startswith("training")
    assert FAULTS[line] in done.stderr


def test_debug_shows_where(faulty):
    assert isinstance(run("search head spam --debug", faulty, 1).exception, ValueError)


def test_a_pipe_gives_what_a_file_gives(project):
    wanted = run("score head pairs.tsv", project).stdout
    with open(project / "pairs.tsv") as pairs:
        done = program("score head -", project, stdin=pairs)
        out, said = done.communicate()
    assert done.returncode == 0 and out.decode() == wanted and b"\r" not in said
    assert said.startswith(b"pairs scored: 120, ")


def stopped(process, when):
    "Exit status and standard error of a process that gets Ctrl-C as soon as `when` is true"
    end = time.monotonic() + 120
    while not when():
        assert process.poll() is None and time.monotonic() < end, process.communicate()
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    return process.communicate(timeout=60)[1].decode(), process.returncode


def test_ctrl_c_leaves_no_half_written_scores(project, tmp_path):
    lines = (project / "pairs.csv").read_text().splitlines(keepends=True)
    (tmp_path / "many.csv").write_text(lines[0] + "".join(lines[1:]) * 2500)
    out = tmp_path / "out"
    process = program(f"score head {tmp_path / 'many.csv'} --out {out / 'scores.csv'}", project)
    said, status = stopped(process, lambda: out.is_dir() and any(out.iterdir()))
    assert status == 130 and list(out.iterdir()) == [], said
    assert said.splitlines()[-1] == "stopped; no file was left half-written" and "Traceback" not in said


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes on this system")
def test_a_pipe_and_a_link_are_written_through_and_never_replaced(project, tmp_path):
    wanted = run("score head pairs.csv", project).stdout
    os.mkfifo(tmp_path / "pipe")
    got = []
    reader = threading.Thread(target=lambda: got.append((tmp_path / "pipe").read_text()), daemon=True)
    reader.start()
    run(f"score head pairs.csv --out {tmp_path / 'pipe'}", project)
    reader.join(20)
    assert got == [wanted] and (tmp_path / "pipe").is_fifo()
    (tmp_path / "real.csv").write_text("old")
    (tmp_path / "real.csv").chmod(0o600)
    (tmp_path / "link.csv").symlink_to("real.csv")
    run(f"score head pairs.csv --out {tmp_path / 'link.csv'}", project)
    assert (tmp_path / "link.csv").is_symlink() and (tmp_path / "real.csv").read_text() == wanted
    assert (tmp_path / "real.csv").stat().st_mode & 0o777 == 0o600
    assert sorted(p.name for p in tmp_path.iterdir()) == ["link.csv", "pipe", "real.csv"]


def test_ctrl_c_leaves_the_old_head(project, monkeypatch):
    before = {path.name: path.read_bytes() for path in (project / "head").iterdir()}
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        threading.Timer(0.7, os.kill, (os.getpid(), signal.SIGINT)).start()
        done = run("fit pairs.csv --vectors vectors.csv --epochs 1000000 --patience 0", project, 130)
    finally: signal.signal(signal.SIGINT, handler)
    assert done.stdout == "" and done.stderr.splitlines()[-1] == "stopped; no file was left half-written"
    assert {path.name: path.read_bytes() for path in (project / "head").iterdir()} == before


def test_ctrl_c_counts_where_a_library_swallows_it(project, monkeypatch):
    def broken(*_, **__):
        try: signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt: raise ValueError("reading failed") from None
    monkeypatch.setattr(cli, "pair_blocks", broken)
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    try: assert run("score head pairs.csv", project, 130).stderr == "stopped; no file was left half-written\n"
    finally: signal.signal(signal.SIGINT, handler)
