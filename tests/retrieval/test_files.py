"What is saved is read again or named as damaged, whoever saves, reads or dies meanwhile"
import json
import os
import resource
import shutil
import threading
from pathlib import Path

import numpy as np
import pytest
import torch
from retrieval.brute_force import SIDES, D

from rolebregman.baselines import make_head
from rolebregman.heads import load_head
from rolebregman.retrieval import SourceIndex, TargetIndex, flush_to_disk, index, read_description, write_part


@pytest.mark.parametrize("name", ["role_bregman", "mlp"])
@pytest.mark.parametrize("side", SIDES)
def test_saved_and_loaded_it_gives_the_same(name, side, tmp_path):
    head, X, Y = make_head(name, dim=D), torch.randn(6, D), torch.randn(300, D)
    index = side(head, Y, ids=np.arange(300) * 7)
    index.remove([21, 28])
    index.save(tmp_path / "a")
    names = {p.name for p in (tmp_path / "a").iterdir()}
    index.save(tmp_path / "a")  # in place of the first
    assert {p.name for p in (tmp_path / "a").iterdir()} == names
    before = {p: p.read_bytes() for p in (tmp_path / "a").iterdir() if p.is_file()}
    for again in side.load(tmp_path / "a"), side.load(tmp_path / "a", head, verify=True):
        for a, b in zip(again.search(X, 5), index.search(X, 5)): assert torch.equal(a, b)
        assert len(again) == 298 and again.kind == index.kind
        again.items.mul_(2)
        again.add(Y[:2]), again.remove([0])
    assert all(p.read_bytes() == data for p, data in before.items()), "what is done in memory leaves the files alone"
    index.add(Y[:3])
    index.save(tmp_path / "a")
    assert len(side.load(tmp_path / "a")) == 301
    assert len(list((tmp_path / "a").iterdir())) == len(names), "the old arrays are gone"


@pytest.mark.parametrize("name", ["role_bregman", "mlp"])
def test_saved_and_loaded_with_what_lies_far_out(name, tmp_path):
    X, Y = torch.randn(5, D), torch.randn(60, D)
    Y[3] *= 1e15
    index = TargetIndex(make_head(name, dim=D), Y)
    for a, b in zip(TargetIndex.load(index.save(tmp_path)).search(X, 60), index.search(X, 60)): assert torch.equal(a, b)


def test_an_empty_index_is_saved_too(tmp_path):
    index = TargetIndex(make_head("role_bregman", dim=D), torch.zeros(0, D))
    again = TargetIndex.load(index.save(tmp_path))
    assert len(again) == 0 and again.add(torch.randn(3, D)).tolist() == [0, 1, 2]


def test_a_crash_while_saving_leaves_the_old_index(tmp_path, monkeypatch):
    index = TargetIndex(make_head("role_bregman", dim=D), torch.randn(30, D))
    index.save(tmp_path)
    index.add(torch.randn(30, D))
    calls, save = [], np.save

    def failing(*args, **kwargs):
        calls.append(1)
        if len(calls) == 3: raise OSError("no space left on device")
        save(*args, **kwargs)

    monkeypatch.setattr(np, "save", failing)
    with pytest.raises(OSError, match="no space"): index.save(tmp_path)
    assert len(TargetIndex.load(tmp_path, verify=True)) == 30
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith(".")] == [".lock"]
    monkeypatch.undo()
    assert len(TargetIndex.load(index.save(tmp_path), verify=True)) == 60


def damage(path, how):
    data = path.read_bytes()
    if how == "missing": path.unlink()
    elif how == "short": path.write_bytes(data[:-40])
    elif how == "head": path.write_bytes(b"x" * 80 + data[80:])
    elif how == "bit": path.write_bytes(data[:-3] + bytes([data[-3] ^ 1]) + data[-2:])


@pytest.mark.parametrize("name", ["ids", "items", "rows", "centre"])
@pytest.mark.parametrize("how, error, verify", [("missing", FileNotFoundError, False), ("short", ValueError, False),
                                                ("head", ValueError, False), ("bit", ValueError, True)])
def test_a_damaged_file_is_named(name, how, error, verify, tmp_path):
    TargetIndex(make_head("role_bregman", dim=D), torch.randn(30, D)).save(tmp_path)
    (path,) = tmp_path.glob(f"{name}-*")
    damage(path, how)
    with pytest.raises(error, match=f"{path.name} is (missing|damaged)"): TargetIndex.load(tmp_path, verify=verify)


@pytest.mark.parametrize("text", ["{", "[]", "null", '{"class": "TargetIndex"}'])
def test_a_damaged_description_is_named(text, tmp_path):
    TargetIndex(make_head("role_bregman", dim=D), torch.randn(30, D)).save(tmp_path)
    (tmp_path / "index.json").write_text(text)
    with pytest.raises(ValueError, match="index.json is damaged"): TargetIndex.load(tmp_path)
    (tmp_path / "index.json").unlink()
    with pytest.raises(FileNotFoundError, match="index.json is missing"): TargetIndex.load(tmp_path)


@pytest.mark.parametrize("key, value", [
    ("files", {}), ("files", {"ids": 3}), ("files", 3), ("count", 29), ("count", None), ("count", -1), ("class", 3),
    ("fingerprint", None), ("fingerprint", 7), ("fingerprint", "../.."), ("backend", "annoy"), ("factory", None),
    ("tune", 1), ("lift", 3), ("lift", [1.0]), ("lift", [1.0, 2.0])])
def test_a_description_that_does_not_fit_is_refused(key, value, tmp_path):
    TargetIndex(make_head("role_bregman", dim=D), torch.randn(30, D)).save(tmp_path)
    path = tmp_path / "index.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {key: value}))
    with pytest.raises(ValueError, match="index.json (is damaged|holds a)"): TargetIndex.load(tmp_path)


@pytest.mark.parametrize("name", ["ids", "items", "rows", "centre"])
@pytest.mark.parametrize("change", [lambda files, name: files.pop(name),
                                    lambda files, name: files[name].update(file=3),
                                    lambda files, name: files[name].update(bytes="many"),
                                    lambda files, name: files[name].update(file="../index.json"),
                                    lambda files, name: files.update({name: files["rows" if name == "items" else
                                                                                  "items"]})])
def test_a_file_that_is_not_named_as_it_should_be_is_refused(name, change, tmp_path):
    TargetIndex(make_head("role_bregman", dim=D), torch.randn(30, D)).save(tmp_path)
    path = tmp_path / "index.json"
    about = json.loads(path.read_text())
    change(about["files"], name)
    path.write_text(json.dumps(about))
    with pytest.raises(ValueError, match=f"index.json is damaged.* {name}"): TargetIndex.load(tmp_path)


def test_an_array_of_another_shape_is_refused(tmp_path):
    TargetIndex(make_head("role_bregman", dim=D), torch.randn(30, D)).save(tmp_path)
    path = tmp_path / "index.json"
    about = json.loads(path.read_text())
    about["files"]["items"] = write_part(tmp_path, "items", lambda file: np.save(file, np.zeros((30, 5), np.float32)))
    path.write_text(json.dumps(about))
    with pytest.raises(ValueError, match=r"expected shape \(30, .*found \(30, 5\)"): TargetIndex.load(tmp_path)


def test_two_may_save_into_one_folder_and_a_third_read_it(tmp_path):
    "Whatever the order, what is read is one of the two"
    head = make_head("role_bregman", dim=D)
    made = [TargetIndex(head, torch.randn(m, D)) for m in (20, 30)]
    made[0].save(tmp_path)
    failures = []

    def often(index):
        try:
            for _ in range(12): index.save(tmp_path)
        except Exception as error: failures.append(error)

    threads = [threading.Thread(target=often, args=(index,)) for index in made]
    for thread in threads: thread.start()
    found = set()
    while any(thread.is_alive() for thread in threads): found.add(len(TargetIndex.load(tmp_path)))
    for thread in threads: thread.join()
    assert not failures and found <= {20, 30} and len(TargetIndex.load(tmp_path, verify=True)) in (20, 30)


def test_a_saver_waits_for_another(tmp_path, monkeypatch):
    "The second starts where the first stands before its index.json; both come through, and the folder is whole"
    head = make_head("role_bregman", dim=D)
    first, second = (TargetIndex(head, torch.randn(m, D)) for m in (20, 30))
    write, other = index.write_whole, threading.Thread(target=second.save, args=(tmp_path,))

    def slowly(*args):
        if threading.current_thread() is not other and not other.ident:
            other.start()
            other.join(0.3)
        write(*args)

    monkeypatch.setattr(index, "write_whole", slowly)
    first.save(tmp_path)
    other.join()
    assert len(TargetIndex.load(tmp_path, verify=True)) == 30


def test_a_reader_whose_index_is_replaced_reads_the_new_one(tmp_path, monkeypatch):
    head = make_head("role_bregman", dim=D)
    TargetIndex(head, torch.randn(20, D)).save(tmp_path)
    new, read = [TargetIndex(make_head("role_bregman", dim=D), torch.randn(30, D))], index.read_parts

    def slowly(*args):
        if new: new.pop().save(tmp_path)
        return read(*args)

    monkeypatch.setattr(index, "read_parts", slowly)
    assert len(TargetIndex.load(tmp_path)) == 30


def test_what_older_indices_and_killed_savers_leave_is_removed_and_nothing_else(tmp_path):
    for _ in range(2): TargetIndex(make_head("role_bregman", dim=D), torch.randn(20, D)).save(tmp_path)
    names = {path.name for path in tmp_path.iterdir()}
    assert sum(name.startswith("head-") for name in names) == 1
    mine = {"notes.txt", "rows-of-mine", "head-first", ".rows"}
    left = {".rows.4711", ".engine.1", ".index.json.ab12", "rows-0123456789abcdef"}
    for name in left | mine: (tmp_path / name).touch()
    (tmp_path / "head-0123456789abcdef").mkdir()
    TargetIndex.load(tmp_path).save(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == names | mine


def test_arrays_are_on_disk_before_the_index_that_names_them(tmp_path, monkeypatch):
    "Each file is flushed before it gets its name, and index.json is the last to get one"
    done, sync, replace = [], os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda handle: (done.append("fsync"), sync(handle))[1])
    monkeypatch.setattr(os, "replace", lambda a, b: (done.append(Path(b).name.partition("-")[0]), replace(a, b))[1])
    TargetIndex(make_head("role_bregman", dim=D), torch.randn(20, D)).save(tmp_path)
    head, rest = done[:8], done[8:]
    assert head[1].startswith(".config.json.")
    assert head[::2] == ["fsync"] * 4 and head[3::2] == ["model.safetensors", "config.json", "fsync"]
    assert rest[::2] == ["fsync"] * 5 and rest[1::2] == ["ids", "items", "rows", "centre", "index.json"]


def test_another_head_is_refused(tmp_path):
    index = TargetIndex(make_head("role_bregman", dim=D), torch.randn(30, D))
    index.save(tmp_path)
    for other in make_head("role_bregman", dim=D), make_head("mlp", dim=D), make_head("role_bregman", dim=D).double():
        with pytest.raises(ValueError, match="made by another head"): TargetIndex.load(tmp_path, other)
    with pytest.raises(ValueError, match="holds a TargetIndex, not a SourceIndex: use TargetIndex.load"):
        SourceIndex.load(tmp_path)


old = Path(__file__).parents[1] / "saved" / "index"  # of the first format, whose digest named modules


def test_an_index_of_the_first_format_is_that_of_its_head(tmp_path):
    "Also of the same head loaded anew; another is refused, and saved again it is of today's format"
    folder = shutil.copytree(old, tmp_path / "index")
    head, X = load_head(next(folder.glob("head-*"))), torch.randn(5, 8)
    wanted = TargetIndex.load(folder).search(X, 3)
    index = TargetIndex.load(folder, head, verify=True)
    other = load_head(next(folder.glob("head-*")))
    with torch.no_grad(): next(other.parameters()).add_(1)
    with pytest.raises(ValueError, match="made by another head"): TargetIndex.load(folder, other)
    again = TargetIndex.load(TargetIndex.load(folder).save(folder), verify=True)
    for found in index.search(X, 3), again.search(X, 3):
        for a, b in zip(found, wanted): assert torch.equal(a, b)
    assert json.loads((folder / "index.json").read_text())["format"] == 2
    assert [path.name for path in folder.glob("head-*")] == [f"head-{again.fingerprint[:16]}"]


def test_a_head_that_was_changed_beside_its_index_is_noticed(tmp_path):
    index = TargetIndex(make_head("role_bregman", dim=D), torch.randn(30, D))
    beside = next(index.save(tmp_path).glob("head-*"))
    make_head("role_bregman", dim=D).save_pretrained(beside)
    with pytest.raises(ValueError, match="made by another head"): TargetIndex.load(tmp_path)


def test_what_is_written_is_on_disk_before_the_file_is_closed(tmp_path):
    with open(tmp_path / "a", "wb") as file:
        file.write(b"all")
        flush_to_disk(file)
        assert (tmp_path / "a").read_bytes() == b"all"


def test_a_saved_index_says_what_it_is(tmp_path):
    TargetIndex(make_head("euclidean", dim=3), torch.randn(5, 3)).save(tmp_path)
    about = read_description(tmp_path / "index.json")
    assert about == json.loads((tmp_path / "index.json").read_text())
    (tmp_path / "index.json").write_text("{}")
    with pytest.raises(ValueError, match="index.json is damaged"): read_description(tmp_path / "index.json")


@pytest.mark.parametrize("limit", [0, 50, 1000, 4000])
def test_an_index_for_which_there_is_no_room_leaves_the_old_one(tmp_path, limit):
    X = torch.randn(5, D)
    before = TargetIndex(make_head("role_bregman", dim=D), torch.randn(30, D))
    found = before.search(X, 3)
    before.save(tmp_path)
    other = TargetIndex(make_head("role_bregman", dim=D), torch.randn(2000, D))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    try:
        with pytest.raises(OSError) as error: other.save(tmp_path)
    finally: resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert str(error.value.filename).startswith(str(tmp_path)) and error.value.strerror
    for a, b in zip(TargetIndex.load(tmp_path, verify=True).search(X, 3), found): assert torch.equal(a, b)


def test_a_description_that_is_nested_too_deep_is_damaged(tmp_path):
    (tmp_path / "index.json").write_text("[" * 100_000)
    with pytest.raises(ValueError, match="index.json is damaged"): read_description(tmp_path / "index.json")
