"What a later command is given: the vectors of the head, the columns of the pairs, the labels"
import json
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import typer
from command_line import read, run

from rolebregman.cli.inputs import (
    columns_text,
    coordinate_names,
    ends_of,
    inputs_of,
    items_of,
    labels_of,
    pairs_of,
    vectors_of,
)
from rolebregman.datasets import Items


@pytest.fixture
def own(project, tmp_path):
    "A copy of a user's folder"
    return shutil.copytree(project, tmp_path / "own")


def table(path):
    return pd.read_csv(path, dtype=str)


# Vectors that changed

def permuted_csv(own):
    found = table(own / "vectors.csv")
    found[[*found.columns[::-1]]].to_csv(own / "vectors.csv", index=False)


def permuted_parquet(own):
    run("fit pairs.csv --vectors vectors.parquet --epochs 4", own)
    found = pd.read_parquet(own / "vectors.parquet")
    found[[*found.columns[::-1]]].to_parquet(own / "vectors.parquet")


@pytest.mark.parametrize("change", [permuted_csv, permuted_parquet])
def test_columns_in_another_order_are_put_in_order(own, change):
    before = run("score head pairs.csv", own).stdout
    change(own)
    done = run("score head pairs.csv", own)
    pd.testing.assert_frame_equal(read(done.stdout), read(before), rtol=1e-4, atol=1e-4)
    assert "its columns stand in another order than those of fit, and are put in that order" in done.stderr
    assert run("evaluate head --json", own).stdout == run(
        f"evaluate head --json --vectors {'vectors.csv' if change is permuted_csv else 'vectors.parquet'}", own).stdout


def test_columns_in_another_order_are_put_in_order_in_a_file_of_new_items(own):
    found = table(own / "vectors.csv").assign(name=lambda t: "new" + t["name"])
    found.to_csv(own / "new.csv", index=False)
    found[["name", *[f"x{i}" for i in range(11, -1, -1)]]].to_csv(own / "turned.csv", index=False)
    pairs = "child,parent\nnewn00004,newn00001\nnewn00001,newn00004\n"
    plain = run("score head - --vectors new.csv", own, stdin=pairs)
    turned = run("score head - --vectors turned.csv", own, stdin=pairs)
    pd.testing.assert_frame_equal(read(turned.stdout), read(plain.stdout), rtol=1e-5, atol=1e-5)
    assert "fit knew none of its items" in plain.stderr and "put in that order" in turned.stderr


@pytest.mark.parametrize("turned", [["b", "B", "A", "a", *"cCdD"], ["A", "a", *"bBcCdD"]])
def test_columns_that_differ_in_case_alone_are_columns_of_their_own(own, turned):
    found = pd.read_csv(own / "vectors.csv").set_index("name").iloc[:, :8].set_axis([*"aAbBcCdD"], axis=1)
    found.to_csv(own / "cased.csv")
    run("fit pairs.csv --vectors cased.csv --epochs 2 --out cased", own)
    found.rename(index="new{}".format)[turned].to_csv(own / "turned.csv")
    (own / "new.csv").write_text("child,parent\nnewn00004,newn00001\n")
    (own / "old.csv").write_text("child,parent\nn00004,n00001\n")
    wanted, done = run("score cased old.csv", own), run("score cased new.csv --vectors turned.csv", own)
    assert read(done.stdout)["gap"][0] == pytest.approx(read(wanted.stdout)["gap"][0], rel=1e-5)
    assert "put in that order by their names" in done.stderr


def test_other_columns_are_refused_and_other_names_are_said(own):
    found = table(own / "vectors.csv")
    found.rename(columns=dict(x3="spam")).to_csv(own / "odd.csv", index=False)
    said = run("score head pairs.csv --vectors odd.csv", own, 1).stderr
    assert said.startswith("Error: odd.csv: its columns are not those of fit: 'x3' is not among")
    found.rename(columns=lambda name: name.replace("x", "dim")).to_csv(own / "named.csv", index=False)
    done = run("score head pairs.csv --vectors named.csv", own)
    assert "its columns are called ['dim0', 'dim1', 'dim2'], those of fit ['x0'," in done.stderr
    assert done.stdout == run("score head pairs.csv", own).stdout


COMMANDS = ("score head pairs.csv", "search head n00004 -k 2", "explain head n00004 n00001", "evaluate head",
            "evaluate head pairs.csv")


@pytest.mark.parametrize("line", COMMANDS)
def test_other_numbers_are_refused_unless_they_are_named(own, line):
    found = table(own / "vectors.csv")
    found.loc[7, "x3"] = "0.125"
    found.to_csv(own / "vectors.csv", index=False)
    said = run(line, own, 1).stderr
    assert said.startswith("Error: vectors.csv is not what fit has read: 1 of the 121 items of fit have another "
                           "vector, as 'n00007'") and said.count("\n") == 1
    assert "1 of the 121 items that fit knew have other vectors" in run(f"{line} --vectors vectors.csv", own).stderr


@pytest.mark.parametrize("line", COMMANDS)
def test_new_items_are_said_and_change_nothing_for_the_others(own, line):
    before = run(line, own)
    with open(own / "vectors.csv", "a") as file: file.write(",".join(["9"] * 12 + ["new"]) + "\n")
    done = run(line, own)
    assert "has changed since fit: 1 items are new, 0 are gone, the others are as they were" in done.stderr
    if line.startswith(("score", "explain")): assert done.stdout == before.stdout


def test_the_same_vectors_in_another_format_need_no_word(own):
    done = run("score head pairs.csv --vectors vectors.parquet", own)
    assert done.stdout == run("score head pairs.csv", own).stdout and done.stderr.count("\n") == 1


def test_ids_and_texts_are_looked_after_too(own):
    run("fit pairs.csv --vectors vectors.npy --ids ids.txt --epochs 1 --out ided", own)
    names = (own / "ids.txt").read_text().split()
    (own / "ids.txt").write_text("\n".join([names[1], names[0], *names[2:]]) + "\n")
    assert "2 of the 121 items of fit have another vector" in run("score ided pairs.csv", own, 1).stderr
    np.save(own / "vectors.npy", np.load(own / "vectors.npy")[:, ::-1])
    (own / "ids.txt").write_text("\n".join(names) + "\n")
    assert "121 of the 121 items of fit have another" in run("score ided pairs.csv", own, 1).stderr


def test_word_vectors_that_grow_are_the_same_and_those_that_change_are_not(own):
    run("fit pairs.csv --vectors vectors.txt --epochs 1 --out words", own)
    before = run("score words pairs.csv", own).stdout
    with open(own / "vectors.txt", "a") as file: file.write("new " + " ".join(["1"] * 12) + "\n")
    done = run("score words pairs.csv", own)
    assert "the others are as they were" in done.stderr and done.stdout == before
    lines = (own / "vectors.txt").read_text().splitlines()
    (own / "vectors.txt").write_text("\n".join(line.rsplit(" ", 1)[0] + " 0.5" for line in lines) + "\n")
    assert "is not what fit has read" in run("search words n00004", own, 1).stderr


# Folders that moved

def decoy(where, own):
    "Another vectors.csv, pairs.csv and report where a path would lead that is read letter by letter"
    found = table(own / "vectors.csv")
    found[[f"x{i}" for i in range(12)]] = found[[f"x{i}" for i in range(12)]].astype(float) * -3 + 1
    found.to_csv(where / "vectors.csv", index=False)


@pytest.mark.parametrize("line", COMMANDS)
def test_a_link_to_the_folder_leads_to_the_files_of_the_folder(own, tmp_path, line):
    wanted = run(line, own).stdout
    other = tmp_path / "other"
    other.mkdir()
    decoy(other, own)
    (other / "head").symlink_to(own / "head")
    shutil.copy(own / "pairs.csv", other / "mine.csv")
    assert run(line.replace("pairs.csv", "mine.csv"), other).stdout == wanted


def test_a_folder_behind_a_link_is_written_for_where_it_truly_is(own, tmp_path):
    far = tmp_path / "far" / "away"
    far.mkdir(parents=True)
    decoy(far, own)
    (own / "link").symlink_to(far / "head")
    (far / "head").mkdir()
    run("fit pairs.csv --vectors vectors.csv --epochs 4 --out link", own)
    wanted = run("score head pairs.csv", own).stdout
    assert run("score link pairs.csv", own).stdout == wanted
    assert run(f"score {far / 'head'} {own / 'pairs.csv'}", tmp_path).stdout == wanted


@pytest.mark.parametrize("line", COMMANDS)
def test_a_folder_that_was_moved_never_reads_another_file(own, tmp_path, line):
    other = tmp_path / "other"
    other.mkdir()
    shutil.copy(own / "pairs.csv", other / "mine.csv")
    (own / "head").rename(other / "head")
    line = line.replace("pairs.csv", "mine.csv")
    said = run(line, other, 1).stderr
    assert said.startswith("Error: there is no file vectors.csv, from which fit has read the vectors; name it with "
                           "--vectors")
    decoy(other, own)
    assert "Error: vectors.csv is not what fit has read: 121 of the 121" in run(line, other, 1).stderr
    assert run(f"{line} --vectors {own / 'vectors.csv'}", other).stdout


def test_a_folder_that_keeps_its_vectors_needs_nothing_else(own, tmp_path):
    run("fit pairs.csv --vectors vectors.npy --ids ids.txt --epochs 4 --keep-vectors --out kept", own)
    wanted = [run(line.replace("head", "kept"), own).stdout for line in COMMANDS]
    other = tmp_path / "other"
    other.mkdir()
    shutil.move(own / "kept", other / "head")
    shutil.copy(own / "pairs.csv", other / "mine.csv")
    decoy(other, own)
    shutil.rmtree(own)
    assert [run(line.replace("pairs.csv", "mine.csv"), other).stdout for line in COMMANDS] == wanted
    assert {"vectors.npy", "ids.txt"} <= {path.name for path in (other / "head").iterdir()}


@pytest.mark.parametrize("packed, kept", [
    ("v.csv.bz2", "vectors.csv.bz2"), ("v.CSV.XZ", "vectors.csv.xz"), ("v.csv.zst", "vectors.csv.zst"),
    ("v.csv.zip", "vectors.csv.zip"), ("v.csv.gz", "vectors.csv.gz")])
def test_vectors_that_are_kept_stay_packed_as_they_were(own, packed, kept):
    pd.read_csv(own / "vectors.csv", dtype=str).to_csv(
        own / packed, index=False, compression="infer" if packed.islower() else "xz")
    run(f"fit pairs.csv --vectors {packed} --epochs 1 --keep-vectors --out packed", own)
    wanted = run("score packed pairs.csv", own).stdout
    assert (own / "packed" / kept).read_bytes() == (own / packed).read_bytes()
    (own / packed).unlink()
    assert run("score packed pairs.csv", own).stdout == wanted


def test_an_older_folder_is_read_as_before_and_that_it_is_unchecked_is_said(own):
    wanted = run("score head pairs.csv", own).stdout
    path = own / "head" / "report.json"
    report = json.loads(path.read_text())
    del report["files"], report["inputs"]["files"]
    path.write_text(json.dumps(report))
    done = run("score head pairs.csv", own)
    assert done.stdout == wanted
    assert "by an older version, without checksums: vectors.csv is taken as it is" in done.stderr


# The functions themselves

def test_the_names_of_coordinates_are_found_whatever_else_a_table_holds(tmp_path):
    vectors = np.random.default_rng(0).normal(size=(20, 3)).astype("float32")
    whole = pd.DataFrame(vectors, columns=["a", "b", "c"])
    for where, extra in ((0, "id"), (3, "word"), (1, "number")):
        found = whole.copy()
        found.insert(where, extra, range(20) if extra == "number" else [f"w{i}" for i in range(20)])
        found.to_csv(tmp_path / "v.csv", index=False)
        found.to_parquet(tmp_path / "v.parquet")
        for name in ("v.csv", "v.parquet"):
            assert coordinate_names(tmp_path / name, vectors) == ["a", "b", "c"], (name, extra)
    assert coordinate_names(tmp_path / "v.npy", vectors) is coordinate_names(None, vectors) is None
    assert coordinate_names(tmp_path / "v.csv", vectors[:, ::-1]) is None


def test_inputs_are_written_as_seen_from_the_true_folder(own):
    (own / "link").symlink_to(own / "head")
    items = Items(own / "vectors.csv")
    inputs, copies = inputs_of(own / "pairs.csv", {}, items, own / "link")
    assert (inputs["pairs"], inputs["items"]["vectors"], copies) == ("../pairs.csv", "../vectors.csv", {})
    inputs, copies = inputs_of(Path("-"), {}, items, own / "head", keep=True)
    assert inputs["pairs"] is None and inputs["items"]["vectors"] == "vectors.csv"
    assert copies == {"vectors.csv": own / "vectors.csv"}


def test_vectors_are_those_of_the_head(own, tree):
    features, index, lacking = vectors_of(own / "head", items_of(own / "head"), [], 12)
    np.testing.assert_array_equal(features, tree.features)
    assert list(index) == list(tree.nodes["id"]) and lacking == "vector"
    with pytest.raises(ValueError, match="the head takes 9"): vectors_of(own / "head", items_of(own / "head"), [], 9)


def test_pairs_of_a_head_whose_pairs_came_through_a_pipe_are_not_known(own):
    run("fit - --vectors vectors.csv --epochs 1 --out piped", own, stdin=(own / "pairs.csv").read_text())
    with pytest.raises(typer.BadParameter, match="are not known"): pairs_of(own / "piped")
    assert json.loads(run("evaluate piped --json", own).stdout)["pairs"] == 12, "the folder keeps the split"


def test_columns_that_fit_took_are_taken_again(own):
    found = table(own / "pairs.csv")
    found.assign(source=found["parent"], target=found["child"]).to_csv(own / "more.csv", index=False)
    assert ends_of(own / "head", own / "more.csv") == dict(source="child", target="parent")
    found.rename(columns=dict(child=" Child", parent="PARENT")).to_csv(own / "cased.csv", index=False)
    assert ends_of(own / "head", own / "cased.csv") == dict(source=" Child", target="PARENT")
    assert run("score head more.csv", own).stdout == run("score head pairs.csv", own).stdout
    said = run("score head more.csv", own).stderr
    assert "columns: child (source), parent (target); left unused: source, target" in said


def test_labels_are_those_of_fit_or_as_said(own, capsys):
    report = json.loads((own / "head" / "report.json").read_text())
    report["inputs"]["how"] |= dict(label="strength", min_label=5)
    (own / "head" / "report.json").write_text(json.dumps(report))
    found = table(own / "pairs.csv")
    found.assign(Strength=6, sure=1).to_csv(own / "new.csv", index=False)
    assert labels_of(own / "head", own / "new.csv") == dict(label="Strength", min_label=5)
    assert labels_of(own / "head", own / "new.csv", min_label=7) == dict(label="Strength", min_label=7)
    assert labels_of(own / "head", own / "new.csv", "sure") == dict(label="sure", min_label=None)
    assert capsys.readouterr().err == ""
    assert labels_of(own / "head", own / "pairs.csv") == dict(label=None, min_label=None)
    assert "no column 'strength'" in capsys.readouterr().err


@pytest.mark.parametrize("header", ["child,parent,child", "Child,child,parent", "child,parent, PARENT",
                                    "child,parent,child.1"])
@pytest.mark.parametrize("line", ["score head -", "evaluate head -"])
def test_two_columns_that_could_be_the_one_of_fit_are_refused(own, header, line):
    said = run(line, own, 1, f"{header}\nn00004,n00001,n00002\n").stderr
    assert said.startswith(("Error: standard input: each of the columns ['", "Error: standard input has two columns '"))
    assert said.count("\n") == 1 and "rename" in said


@pytest.mark.parametrize("text", ["", "child,parent\n"])
def test_a_file_without_pairs_is_named(own, text):
    (own / "none.csv").write_text(text)
    for line in ("score head none.csv", "evaluate head none.csv"):
        assert run(line, own, 1).stderr.startswith("Error: none.csv")


def test_columns_are_told_as_the_reader_gives_them():
    ends = {"source column": "a", "target column": "b"}
    assert columns_text(ends) == "columns: a -> b"
    assert columns_text(ends | {"label column": "l", "columns not used": "c, d"}) == (
        "columns: a -> b, label l; left unused: c, d")
    assert columns_text(ends | {"used columns": dict(source="a", target="b"), "unused columns": ["c"]}) == (
        "columns: a (source), b (target); left unused: c")
