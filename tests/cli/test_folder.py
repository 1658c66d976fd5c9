"The files of a head's folder: together or not at all, and checked when they are read"
import json
import os
import resource
import shutil
from pathlib import Path

import pytest
import typer
from command_line import forked, run

from rolebregman.cli import fitting
from rolebregman.cli.folder import (
    FILES,
    check_head,
    check_together,
    fingerprints,
    read_kept,
    report_of,
    require_writable,
    split_table,
    write_kept,
    write_together,
)
from rolebregman.common import sha256
from rolebregman.datasets import Items, toy_tree
from rolebregman.heads import BregmanHead


def contents(path):
    return {file.name: file.read_bytes() for file in path.iterdir()}


@pytest.fixture
def own(project, tmp_path):
    "A copy of a user's folder, and what is in the head's"
    shutil.copytree(project, tmp_path / "own")
    (tmp_path / "own" / "head" / "notes.md").write_text("mine")
    return tmp_path / "own", contents(tmp_path / "own" / "head")


REFIT = "fit pairs.csv --vectors vectors.csv --epochs 1 --head euclidean --seed 3"


def test_a_folder_has_its_files_with_the_rights_of_new_ones_and_their_checksums(project):
    found = {path.name: path.stat().st_mode & 0o777 for path in (project / "head").iterdir()}
    assert set(found) == set(FILES) and len(set(found.values())) == 1
    assert set(report_of(project / "head")["files"]) == set(FILES) - {"report.json"}


@pytest.mark.parametrize("broken", ["report", "write_kept", "model", "replace", "stop"])
def test_a_refit_that_fails_leaves_the_old_folder(own, monkeypatch, broken):
    where, before = own
    def fail(*_, **__): raise OSError("no space left on device")
    if broken == "report": monkeypatch.setattr(fitting, "_report_text", fail)
    if broken == "write_kept": monkeypatch.setattr(fitting, "write_kept", fail)
    if broken == "model": monkeypatch.setattr("rolebregman.heads.files.save_file", fail)
    if broken in ("replace", "stop"):
        moves, replace = [], os.replace
        def third(old, new):
            if Path(new).parent == (where / "head").resolve(): moves.append(new)
            if len(moves) == 3 and Path(new) == moves[-1]:
                moves.append(None)
                raise OSError("gone") if broken == "replace" else KeyboardInterrupt
            return replace(old, new)
        monkeypatch.setattr(os, "replace", third)
    run(REFIT, where, 130 if broken == "stop" else 1)
    after = contents(where / "head")
    after.pop(fitting.CHECKPOINT)  # what was learned is not lost: --resume goes on from it
    assert after == before
    monkeypatch.undo()
    assert len(run("score head pairs.csv", where).stdout.splitlines()) == 121


def test_a_refit_changes_all_files_but_those_that_are_not_its_own(own):
    where, before = own
    run(REFIT, where)
    after = contents(where / "head")
    assert after.keys() == before.keys() and after["notes.md"] == b"mine"
    assert {name for name in FILES if after[name] == before[name]} <= {"items.csv"}, "the items are the same"


def test_a_new_folder_that_fails_holds_nothing_but_what_was_learned(own, monkeypatch):
    where, _ = own
    def fail(*_): raise OSError("no space left on device")
    monkeypatch.setattr(fitting, "write_kept", fail)
    run(f"{REFIT} --out deep/new", where, 1)
    assert list(contents(where / "deep" / "new")) == [fitting.CHECKPOINT]
    monkeypatch.undo()
    run(f"{REFIT} --out deep/new --resume", where)
    assert set(contents(where / "deep" / "new")) == set(FILES)


@pytest.mark.parametrize("out", ["pairs.csv/head", "taken", "pairs.csv/deep/head"])
def test_an_out_that_cannot_be_written_is_refused_before_anything_is_read(own, out):
    where, _ = own
    (where / "taken" / "report.json").mkdir(parents=True)
    (where / "vectors.csv").write_text("nonsense")
    said = run(f"fit pairs.csv --vectors vectors.csv --out {out}", where, 2).stderr
    assert "cannot be written" in said and "training" not in said and not list(where.glob(".new-*"))


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write anywhere")
def test_an_out_without_the_right_to_write_is_refused(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(typer.BadParameter, match="cannot be written"): require_writable(tmp_path / "head")


@pytest.mark.parametrize("head, files", [("directed_bregman", 4), ("directed_bregman", 5), ("euclidean", 2)])
def test_a_process_that_is_killed_between_two_files_is_noticed(own, head, files):
    where, before = own
    replace, moves, folder = os.replace, [], (where / "head").resolve()

    def some(old, new):
        moves.extend([new] * (Path(new).parent == folder))
        if len(moves) > files: os._exit(9)
        return replace(old, new)

    def killed(): os.replace = some

    line = f"fit pairs.csv --vectors vectors.csv --epochs 1 --head {head} --seed 3"
    with open(os.devnull, "w") as nowhere: said, status = forked(line, where, nowhere, before=killed)
    assert status == 9, said
    assert any((where / "head" / name).read_bytes() != old for name, old in before.items())
    assert " is not the file that " in (said := run("evaluate head", where, 1).stderr) or "of another head" in said


def test_a_head_that_the_report_does_not_tell_of_is_said(own, capsys):
    where, _ = own
    BregmanHead(12, maps="residual", rank=48, extra=16).save_pretrained(where / "head")
    assert "model.safetensors is not the file that" in run("score head pairs.csv", where).stderr
    check_head(where / "head")
    assert "that tells of another head" in capsys.readouterr().err
    assert "may have been learned from here: fit again" in run("evaluate head", where, 1).stderr


def test_a_split_that_was_changed_is_refused(own):
    where, _ = own
    (where / "head" / "split.csv").write_text("source,target,split\nn00001,n00000,test\n")
    said = run("evaluate head", where, 1).stderr
    assert said.startswith("Error: head/split.csv is not the file that fit has written")


def test_what_is_kept_is_read_as_it_was(tmp_path):
    ds = toy_tree(depth=2, branching=3, dim=4)
    ids = ["007", "NA", "null", "a,b", 'say "x"', "ü", "-1", "1e5", "None", "x\ty", "1.0", "2\r3", "4\n5"]
    ds.nodes["id"] = ids
    write_kept(tmp_path, ds, Items(ds.features))
    record = dict(items=dict.fromkeys(("vectors", "ids", "texts", "id_column", "encoder")), pairs=None,
                  how=dict(source=None))
    known = {name: sha256(tmp_path / name)
             for name in ("split.csv", "items.csv")}
    (tmp_path / "report.json").write_text(json.dumps(dict(inputs=record, files=known)))
    assert list(read_kept(tmp_path, "items")["id"]) == ids
    split = read_kept(tmp_path, "split")
    for part, edges in ds.edges.items():
        mine = split[split["split"] == part]
        assert list(mine["source"]) == [ids[i] for i in edges[:, 0]]
    assert read_kept(tmp_path / "none", "split") is None


def test_fingerprints_tell_vectors_and_texts_apart():
    vectors = toy_tree(depth=2, branching=3, dim=4).features[:3]
    assert fingerprints(Items(vectors), vectors, "abc") == fingerprints(Items(vectors), vectors.astype(float), "abc")
    assert len({*fingerprints(Items(vectors), vectors, "abc")}) == 3
    assert fingerprints(Items(texts=dict(a="x", b="y")), None, "ab") == [
        *fingerprints(Items(texts=dict(a="x")), None, "a"), *fingerprints(Items(texts=dict(b="y")), None, "b")]


def test_files_are_put_through_a_link_and_keep_their_rights(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "a").write_text("old")
    (tmp_path / "real" / "a").chmod(0o600)
    (tmp_path / "link").symlink_to("real")
    write_together(tmp_path / "link", lambda new: (new / "a").write_text("new"))
    assert (tmp_path / "link").is_symlink() and (tmp_path / "real" / "a").read_text() == "new"
    assert (tmp_path / "real" / "a").stat().st_mode & 0o777 == 0o600 and len(list(tmp_path.iterdir())) == 2


def test_the_split_is_told_by_ids():
    ds = toy_tree(depth=3, branching=2, dim=4, seed=1)
    table, ids = split_table(ds), ds.nodes["id"].to_numpy()
    assert list(table) == ["source", "target", "split", "holds"] and set(table["holds"]) == {"1"}
    for part, edges in ds.edges.items():
        assert table.loc[table["split"] == part, ["source", "target"]].to_numpy().tolist() == ids[edges].tolist()
    assert set(map(tuple, table[["source", "target"]].to_numpy())) == set(map(tuple, ids[ds.positives]))
    ds.denied = {"test": (other := ds.edges["train"][:2, ::-1]), "": ds.edges["valid"][:1, ::-1]}
    table = split_table(ds)[lambda t: t["holds"] == "0"]
    assert table["split"].tolist() == ["test", "test", ""] and table["source"].tolist()[:2] == ids[other[:, 0]].tolist()


@pytest.mark.parametrize("line", ["evaluate head", "evaluate head --part valid --candidates all",
                                  "evaluate head pairs.csv", "evaluate head pairs.csv --drop-seen"])
@pytest.mark.parametrize("name", ["model.safetensors", "split.csv", "report.json"])  # the others are the same
def test_files_of_two_fits_are_not_measured(own, two_fits, line, name):
    "Of the same kind and shape: only their contents tell them apart"
    where, _ = own
    shutil.rmtree(where / "head")
    shutil.copytree(two_fits / "0", where / "head")
    shutil.copy(two_fits / "1" / name, where / "head" / name)
    done = run(line, where, 1)
    assert " is not the file that " in done.stderr and not done.stdout


@pytest.fixture(scope="module")
def two_fits(project):
    "Folders of fits with other seeds, so with other splits"
    for seed in (0, 1):
        run(f"fit pairs.csv --vectors vectors.csv --epochs 1 --seed {seed} --out {seed}", project)
    return project


def test_a_fit_that_ends_while_another_head_is_measured_is_noticed(own, two_fits, monkeypatch):
    where, _ = own
    from rolebregman import evaluation
    measure = evaluation.evaluate
    def meanwhile(*arguments):
        found = measure(*arguments)
        for name in FILES: shutil.copy(two_fits / "1" / name, where / "head" / name)
        return found
    monkeypatch.setattr(evaluation, "evaluate", meanwhile)
    done = run("evaluate head", where, 1)
    assert "head was written anew while it was read: run this again" in done.stderr and not done.stdout
    with pytest.raises(ValueError, match="written anew"): check_together(where / "head", None)


def test_what_a_killed_fit_has_left_is_swept(own):
    where, before = own
    (where / "head" / ".new-abcd" / "tmp0").mkdir(parents=True)
    (where / "head" / ".new-abcd" / "model.safetensors").write_bytes(b"x" * 1000)
    write_together(where / "head", lambda new: (new / "a").write_text("new"))
    assert contents(where / "head").keys() == before.keys() | {"a"}


@pytest.mark.parametrize("limit", [0, 300, 3000])
def test_a_fit_onto_a_full_disk_names_the_file_and_leaves_the_old_folder(own, limit):
    where, before = own
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    def fill(new):
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
        try: BregmanHead(12).save_pretrained(new)
        finally: resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    with pytest.raises(OSError, match="File too large") as error: write_together(where / "head", fill)
    assert Path(error.value.filename).parent == (where / "head").resolve()
    assert contents(where / "head") == before


def test_a_report_that_is_nested_too_deep_is_damaged(tmp_path):
    (tmp_path / "report.json").write_text("[" * 100_000)
    with pytest.raises(ValueError, match="report.json is damaged"): report_of(tmp_path)
