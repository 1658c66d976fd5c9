"Score, search and explain: what a fitted head says"
import bz2
import contextlib
import gzip
import io
import json
import lzma
import os
import shutil
import signal
import threading
from functools import partial

import numpy as np
import pandas as pd
import pytest
import torch
from command_line import program, read, rows_of, run, stopped
from typer.testing import CliRunner

from rolebregman.baselines import HEADS
from rolebregman.cli import scoring, searching
from rolebregman.cli.app import app
from rolebregman.cli.scoring import PairFile
from rolebregman.datasets import Items, coded
from rolebregman.heads import load_head


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
    assert not Items(tmp_path / "words.txt.npy").open_ended


def test_blocks_change_nothing(project, monkeypatch):
    whole = run("score head pairs.csv", project).stdout
    monkeypatch.setattr(searching, "PairFile", partial(PairFile, rows=7))
    for at_once in (scoring.AT_ONCE, 0):  # held as codes, and read anew each time
        monkeypatch.setattr(scoring, "AT_ONCE", at_once)
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
    assert done.stderr == (
        "standard input: columns: child (source), parent (target); 2 pairs; of those in the file fit has trained on "
        "2, chosen the epoch on 0 and held out 0; --drop-seen leaves out what it has seen\n"
        "left out: self-pair (1), pair of an id without a vector (1)\n")


@pytest.mark.parametrize("packed, kind", [
    (gzip.compress(b"child,parent\n"), "gzip"), (bz2.compress(b"a,b\n"), "bzip2"), (lzma.compress(b"a,b\n"), "xz"),
    (b"PK\x03\x04rest", "a zip or an Excel file"), (b"PAR1rest", "Parquet")], ids=["gz", "bz2", "xz", "zip", "parquet"])
def test_what_is_packed_is_named_on_standard_input(project, packed, kind):
    "Its advice was an encoding"
    for line in ("score head -", "evaluate head -", "fit - --vectors vectors.csv"):
        said = run(line, project, 1, packed).stderr
        assert f"standard input holds {kind}, expected CSV or TSV as text: unpack it before the pipe" in said


@pytest.mark.parametrize("text", ['{"child": "a", "parent": "b"}\n', '[{"child": "a"}]', '{\n"child": ["a"]}'])
def test_json_is_named_on_standard_input(project, text):
    said = run("score head -", project, 1, text).stderr
    assert said == "Error: standard input holds JSON, expected CSV or TSV: name the file in place of -\n"
    assert "JSON" not in run("score head -", project, 1, "[child],[parent]\na,b\n").stderr


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
    done = run("search words n00004 -k 120", project)
    assert len(done.stdout.splitlines()) == 121
    assert "looked for among 121 items: those of fit, and those asked about" in done.stderr
    assert "looked for" not in run("search head n00004 -k 3", project).stderr  # among all of the table


def test_search_gives_as_many_as_there_are(project):
    assert len(run("search head n00004 -k 500", project).stdout.splitlines()) == 121


def test_search_shows_the_texts_of_what_it_finds(project, tree):
    names = tree.nodes["id"]
    pd.DataFrame(dict(id=names[5:], text="the " + names[5:])).to_csv(project / "texts.csv", index=False)
    run("fit pairs.csv --vectors vectors.csv --texts texts.csv --epochs 0 --out told", project)
    found = read(run("search told n00040 -k 120", project).stdout).fillna("")
    expected = ["the " + name if name in set(names[5:]) else "" for name in found["target"]]
    assert list(found["text"]) == expected and "" in expected


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


def test_a_pipe_gives_what_a_file_gives(project):
    wanted = run("score head pairs.tsv", project).stdout
    with open(project / "pairs.tsv") as pairs:
        done = program("score head -", project, stdin=pairs)
        out, said = done.communicate()
    assert done.returncode == 0 and out.decode() == wanted and b"\r" not in said
    assert said.startswith(b"pairs scored: 120, ")


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


def test_ctrl_c_counts_where_a_library_swallows_it(project, monkeypatch):
    def broken(*_, **__):
        try: signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt: raise ValueError("reading failed") from None
    monkeypatch.setattr(coded, "read_coded", broken)
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    try: assert run("score head pairs.csv", project, 130).stderr == "stopped; no file was left half-written\n"
    finally: signal.signal(signal.SIGINT, handler)


HOSTILE = {"n00001": "=1+1", "n00002": "@SUM(A1)", "n00003": "-cmd", "n00004": "-1.5", "n00005": "a\x1b]0;title\x07b"}


@pytest.fixture(scope="module")
def hostile(tree, tmp_path_factory):
    "A folder whose ids are orders to a spreadsheet and to a terminal, and a head that was fitted on it"
    folder = tmp_path_factory.mktemp("hostile")
    names = [HOSTILE.get(name, name) for name in tree.nodes["id"]]
    table = pd.DataFrame(tree.features).rename(columns="x{}".format)
    table.insert(0, "id", names)
    table.to_csv(folder / "vectors.csv", index=False)
    edges = np.concatenate(list(tree.edges.values()))
    pd.DataFrame(np.array(names)[edges], columns=["child", "parent"]).to_csv(folder / "pairs.csv", index=False)
    run("fit pairs.csv --vectors vectors.csv --epochs 1", folder)
    return folder


@pytest.mark.parametrize("line", ["score head pairs.csv", "search head n00000 n00009 -k 120"])
def test_cells_that_a_spreadsheet_runs_are_said_and_quoted_where_asked(hostile, line):
    plain, quoted = run(line, hostile), run(f"{line} --spreadsheet", hostile)
    assert "cells begin with =, +, - or @, and a spreadsheet runs them; --spreadsheet puts '" in plain.stderr
    assert "spreadsheet" not in quoted.stderr
    for text, mark in ((plain.stdout, ""), (quoted.stdout, "'")):
        cells = set(pd.read_csv(io.StringIO(text), dtype=str).iloc[:, :3].to_numpy().ravel())
        assert {mark + "=1+1", mark + "@SUM(A1)", mark + "-cmd", "-1.5"} <= cells, "a number is no order"
    assert quoted.stdout.replace("'", "") == plain.stdout and run(f"{line} --json", hostile).stderr.count("begin") == 0


def test_ids_do_not_steer_the_terminal_and_stay_as_they_are_in_a_pipe(hostile, monkeypatch):
    steering = HOSTILE["n00005"]
    for line in ("score head pairs.csv", "search head n00000 -k 120"):
        assert steering in run(line, hostile).stdout
        monkeypatch.setattr("typer.testing._NamedTextIOWrapper.isatty", lambda _: True, raising=False)
        shown = run(line, hostile).stdout
        monkeypatch.undo()
        assert "\x1b" not in shown and "\x07" not in shown and "a\\u001b]0;title\\u0007b" in shown


def test_what_is_said_of_a_file_does_not_steer_the_terminal(hostile):
    steering = "x\x1b[2Jy\x9b2J\u202e"
    pairs = pd.read_csv(hostile / "pairs.csv").rename(columns=dict(child=f"{steering}child"))
    pairs.assign(**{f"{steering}more": 1}).to_csv(hostile / "odd.csv", index=False)
    fit = "fit odd.csv --vectors vectors.csv --epochs 1 --target parent --source '{}child' --out odd"
    for line, status in ((fit, 0), ("score odd pairs.csv", 0), ("fit odd.csv --vectors '{}' --out odd", 2),
                         ("fit odd.csv --vectors vectors.csv --set '{}=1'", 2), ("search head '{}'", 1)):
        done = run(line.format(steering), hostile, status)
        assert not set("\x1b\x9b\u202e") & set(done.stderr), line
    assert not set("\x1b\x9b\u202e") & set((hostile / "odd" / "report.txt").read_text())


def test_an_explanation_and_its_json_do_not_steer_the_terminal(hostile):
    line = ["explain", "head", HOSTILE["n00005"], "n00000"]
    with contextlib.chdir(hostile):
        plain, as_json = (CliRunner().invoke(app, [*line, *more]) for more in ([], ["--json"]))
    assert plain.exit_code == as_json.exit_code == 0 and "\x1b" not in plain.output + as_json.output
    assert json.loads(as_json.stdout)["source"] == HOSTILE["n00005"], "the same JSON"


@pytest.fixture
def by_name(monkeypatch):
    "A taxonomy of five words, and vectors made from texts, in the place of WordNet and Sentence-BERT"
    from rolebregman.datasets import Taxonomy, pairs, taxonomy
    pairs_ = np.array([[1, 0], [2, 0], [3, 0], [4, 1]])
    small = Taxonomy("wordnet", np.arange(5).astype(str).astype(object),
                     np.array(["thing", "plant", "animal", "stone", "rose"], object), pairs_, {})
    monkeypatch.setattr(taxonomy, "read_taxonomy", lambda name, quiet: small)
    letters = lambda text: np.random.default_rng(sum(map(ord, text))).normal(size=384)
    monkeypatch.setattr(pairs, "encode_texts", lambda texts, *_, **__: np.stack([*map(letters, texts)]).astype("f4"))


def test_a_head_that_comes_with_the_package_is_asked_by_its_name(by_name, tmp_path):
    head = load_head("wordnet-minilm")
    lines = run("score wordnet-minilm - --decide", tmp_path, stdin="source,target\nrose,plant\n").stdout
    row = read(lines).iloc[0]
    assert row[["this_way", "other_way", "neither"]].sum() == pytest.approx(1, abs=1e-6)
    found = json.loads(run("explain --head wordnet-minilm rose plant --json", tmp_path).stdout)
    assert found["distance"] == pytest.approx(row["distance"], rel=1e-4)
    assert found["probabilities"]["this way"] == pytest.approx(row["this_way"], abs=1e-4)
    assert [near["term"] for near in found["nearest"]] == ["thing"], "the one term with three children"
    text = run("explain wordnet-minilm rose plant --picture pair.png", tmp_path).stdout
    assert "nearest of 1 terms that are broad in wordnet" in text and (tmp_path / "pair.png").is_file()
    assert json.loads(run("explain wordnet-minilm rose plant -k 0 --json", tmp_path).stdout)["nearest"] == []
    table = read(run("search wordnet-minilm rose -k 3", tmp_path).stdout)
    assert table["target"].tolist() == ["thing"] and head.dim == 384


def test_where_the_taxonomy_cannot_be_had_the_pair_is_explained_and_that_is_said(by_name, tmp_path, monkeypatch):
    from rolebregman.datasets import taxonomy

    def unreachable(name, quiet): raise ConnectionError("wordnet: no place has it")

    monkeypatch.setattr(taxonomy, "read_taxonomy", unreachable)
    said = run("explain wordnet-minilm rose plant", tmp_path).stdout
    assert "probabilities: this way" in said and "are not known: wordnet: no place has it" in said


def test_a_name_that_is_none_lists_those_that_are(tmp_path):
    for line in ("score wordnet pairs.csv", "explain --head wordnet a b", "search wordnet a", "evaluate wordnet"):
        output = run(line, tmp_path, status=2).output
        assert "go-minilm, wordnet-minilm" in " ".join(output.split())
    (tmp_path / "file").touch()
    assert "is not a folder written" in " ".join(run("search file a", tmp_path, status=2).output.split())
