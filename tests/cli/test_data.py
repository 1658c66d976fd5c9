"The benchmarks and their raw files"
import hashlib
import json
from pathlib import Path

from command_line import run

from rolebregman.datasets import (
    LOADERS,
    Place,
    RawFile,
    Source,
    list_sources,
    sources,
)


def test_data_list_names_every_dataset_and_file():
    assert list(json.loads(run("data list --json").stdout)) == list(LOADERS)
    lines = run("data list").stdout.splitlines()
    assert [line.split()[0] for line in lines if line[0] != " "] == list(LOADERS) and max(map(len, lines)) <= 80
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


def test_the_listing_of_files_says_what_is_needed_to_get_one(tmp_path, monkeypatch, own_cache):
    monkeypatch.setenv("ROLEBREGMAN_MIRROR", str(tmp_path))
    (tmp_path / "sick").mkdir()
    (tmp_path / "sick" / "SICK.txt").write_bytes(b"any")
    lines = run("data list --files").stdout.splitlines()
    assert len(lines) == 1 + len(list_sources()) and {"not known", "in a mirror only"} <= {
        word for line in lines for word in ("not known", "in a mirror only") if word in line}
    sick = next(line for line in lines if line.split()[:2] == ["sick", "SICK.txt"])
    for part in ("2,432,648", "1539c2d05980", "CC BY-NC-SA 3.0", "zenodo.org", "mirror"):
        assert part in sick
