"Fit and evaluate: the head, its folder and the report"
import hashlib
import inspect
import json
import os
import re
import shutil
import signal
import threading

import numpy as np
import pandas as pd
import torch
from command_line import root, run

from rolebregman.baselines import HEADS
from rolebregman.cli import fitting
from rolebregman.datasets import (
    Items,
    from_pairs,
)
from rolebregman.heads import BregmanHead, load_head
from rolebregman.training import fit as train


def test_fit_writes_a_head_that_is_the_librarys_own(project, tree):
    report = json.loads((project / "head" / "report.json").read_text())
    assert report["head"]["name"] == "directed_bregman" and report["pairs"] == dict(train=96, valid=12, test=12)
    assert report["inputs"]["pairs"] == "../pairs.csv" and set(report["metrics"]) == {"valid", "test"}
    ds = fitting.dataset_of(project / "pairs.csv", Items(project / "vectors.csv"), report["inputs"]["how"])
    torch.manual_seed(0)
    mine = fitting._settings("directed_bregman", dict(epochs=4, patience=20), [])[0]
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


def test_the_default_head_is_that_of_the_readme(project):
    ours = load_head(project / "head")
    assert type(ours) is BregmanHead and ours.config == BregmanHead(12, maps="residual", rank=48, extra=16).config
    assert 'BregmanHead(ds.dim, maps="residual", rank=48, extra=16)' in (root / "README.md").read_text()


def test_ctrl_c_leaves_the_old_head(project, monkeypatch):
    before = {path.name: path.read_bytes() for path in (project / "head").iterdir()}
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        threading.Timer(0.7, os.kill, (os.getpid(), signal.SIGINT)).start()
        done = run("fit pairs.csv --vectors vectors.csv --epochs 1000000 --patience 0", project, 130)
    finally: signal.signal(signal.SIGINT, handler)
    assert done.stdout == "" and done.stderr.splitlines()[-1] == "stopped; no file was left half-written"
    assert {path.name: path.read_bytes() for path in (project / "head").iterdir()} == before


def test_the_encoder_is_that_of_the_library():
    ours = inspect.signature(fitting.fit).parameters["encoder"].default
    assert ours == Items.encoder == inspect.signature(from_pairs).parameters["encoder"].default


def test_a_transitive_relation_and_a_share_of_hard_negatives(project, tree):
    run("fit pairs.csv --vectors vectors.csv --epochs 2 --transitive --hard-share 0.5 --out chained", project)
    report = json.loads((project / "chained" / "report.json").read_text())
    assert report["data"]["implied pairs, never negatives"] == len(tree.implied)
    assert report["training"]["hard_share"] == 0.5
    assert f"never negatives: {len(tree.implied)}" in (project / "chained" / "report.txt").read_text()
    found = json.loads(run("evaluate chained --json", project).stdout)
    assert {name: found[name] for name in report["metrics"]["test"]} == report["metrics"]["test"]
    every = json.loads(run("evaluate chained --candidates all --json", project).stdout)
    assert every["mrr"] != found["mrr"] and every["hard_ranking_accuracy"] == found["hard_ranking_accuracy"]
