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
import pytest
import torch
from command_line import root, run

from rolebregman.baselines import HEADS
from rolebregman.cli import fitting
from rolebregman.common import sha256
from rolebregman.datasets import Items, from_pairs, toy_tree
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
        texts = [(project / name / "report.txt").read_text().splitlines() for name in ("other", "head")]
        other, mine = ([line for line in text if not line.startswith("vectors: ")] for text in texts)
        assert other == mine and "vectors: coordinates: x0 to x11" in texts[1]


def test_what_was_found_in_the_vectors_is_said_and_in_the_report(project, tmp_path):
    "Which columns are coordinates, what was left out, and that ids are numbers of rows where a file brings none"
    table = pd.read_csv(project / "vectors.csv").assign(note="word")
    table.rename(columns={"name": "id"}).to_csv(tmp_path / "noted.csv", index=False)
    done = run(f"fit pairs.csv --vectors {tmp_path}/noted.csv --epochs 0 --out noted", project)
    assert "vectors of 12 dimensions; coordinates: x0 to x11; columns not used: note\n" in done.stderr
    assert "vectors: coordinates: x0 to x11; columns not used: note\n" in done.stdout
    rows = {name: str(row) for row, name in enumerate(table["name"])}
    pd.read_csv(project / "pairs.csv").replace(rows).to_csv(tmp_path / "numbered.csv", index=False)
    done = run(f"fit {tmp_path}/numbered.csv --vectors vectors.npy --epochs 0 --out numbered", project)
    assert "vectors of 12 dimensions; ids: the numbers of the rows, from 0\n" in done.stderr


def test_ids_that_are_not_those_of_the_vectors_are_refused(project, tmp_path):
    "The vectors of a table went to other ids, and nothing was said"
    names = (project / "ids.txt").read_text().split()
    (tmp_path / "turned.txt").write_text("\n".join(names[::-1]))
    np.savez(tmp_path / "own.npz", x=np.load(project / "vectors.npy"), ids=np.array(names))
    for vectors in ("vectors.csv", f"{tmp_path}/own.npz", "vectors.parquet"):
        line = f"fit pairs.csv --vectors {vectors} --epochs 0 --out turned"
        said = run(f"{line} --ids {tmp_path}/turned.txt", project, 1).stderr
        assert f"row 0 (the first is 0) is '{names[-1]}', but the vectors have ids of their own, and there" in said
        run(f"{line} --ids ids.txt", project)


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


@pytest.mark.parametrize("settings, says", [
    ("--set margin=1 --set margin=2", "margin is there 2 times"),
    ("--set margin=2 --set bad=1", "--set bad=1: 'bad' is not known"),
    ("--set margin=2 --set loss=softmax", "--set loss=softmax: has an option of its own"),
    ("--set margin=2 --set batch_size=-1", "--set batch_size=-1: ")])
def test_the_setting_that_is_wrong_is_named(project, settings, says):
    assert says in run(f"fit pairs.csv --vectors vectors.csv {settings} --out wrong", project, 2).stderr


def test_without_validation_the_report_does_not_speak_of_it(project):
    text = run("fit - --vectors vectors.csv --epochs 2 --fractions 1 0 0 --out one", project,
               stdin="source,target\nn00001,n00000\n").stdout
    assert "2 epochs, the last is kept\n" in text and "validation" not in text


def test_a_log_has_a_line_every_so_often(project):
    done = run("fit pairs.csv --vectors vectors.csv --epochs 40 --patience 0 --out logged", project)
    lines = [line for line in done.stderr.splitlines() if "/40 epochs, loss " in line]
    assert [int(line.split("/")[0]) for line in lines] == list(range(2, 41, 2)) and "\r" not in done.stderr
    assert lines[-1].endswith("at most 00:00 left") and re.search(r"validation [01]\.\d{3}, ", lines[0])
    assert run("fit pairs.csv --vectors vectors.csv --epochs 0 --out logged", project).stderr.count("\n") == 2


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


@pytest.fixture(scope="module")
def labelled(tmp_path_factory):
    "The pairs of a tree and as many that do not hold, in one file and in two of which ten rows are in both"
    folder, tree = tmp_path_factory.mktemp("labelled"), toy_tree(depth=4, branching=3, dim=8, seed=1)
    names, rng = tree.nodes["id"].to_numpy(), np.random.default_rng(0)
    held = np.concatenate(list(tree.edges.values()))
    others = np.stack([held[:, 0], rng.integers(0, len(names), len(held))], 1)
    known = {*map(tuple, tree.holding.tolist())}
    others = np.array([(s, t) for s, t in others.tolist() if s != t and (s, t) not in known])
    rows = pd.DataFrame(names[np.concatenate([held, others])], columns=["child", "parent"])
    rows = rows.assign(label=np.repeat([1, 0], [len(held), len(others)])).sample(frac=1, random_state=0)
    rows.to_csv(folder / "labelled.csv", index=False)
    rows[:150].to_csv(folder / "train.csv", index=False)
    rows[140:].to_csv(folder / "test.csv", index=False)
    vectors = pd.DataFrame(tree.features).rename(columns="x{}".format)
    vectors.assign(id=names).to_csv(folder / "vectors.csv", index=False)
    return folder, rows


def test_rows_that_do_not_hold_are_kept_with_the_head_and_measured(labelled):
    folder, rows = labelled
    line = run("fit labelled.csv --vectors vectors.csv --epochs 3 --out head", folder).stdout
    report = json.loads((folder / "head" / "report.json").read_text())
    split = pd.read_csv(folder / "head" / "split.csv")
    counts = split[split["holds"] == 0]["split"].value_counts().to_dict()
    assert counts == {part: n for part, n in report["denied"].items() if n}
    assert sum(counts.values()) == (rows["label"] == 0).sum() and "learned from" in line and "label auc" in line
    again = json.loads(run("evaluate head --json", folder).stdout)
    assert {name: again[name] for name in report["metrics"]["test"]} == report["metrics"]["test"]
    told = run("evaluate head labelled.csv", folder)
    assert f"of those that do not hold it has learned from {counts['train']}" in told.stderr
    new = json.loads(run("evaluate head labelled.csv --drop-seen --json", folder).stdout)
    assert new["seen"]["denied"] == counts["train"] == new["dropped"]["seen by fit (denied)"]


def test_between_two_parts_of_the_nodes_they_are_kept_as_well(labelled):
    folder, rows = labelled
    how = "--split node --fractions 0.5 0.25 0.25 --vectors vectors.csv --epochs 1 --out apart"
    run(f"fit labelled.csv {how}", folder)
    report, split = json.loads((folder / "apart" / "report.json").read_text()), pd.read_csv(folder / "apart/split.csv")
    between = split[(split["holds"] == 0) & split["split"].isna()]
    assert len(between) == report["data"]["dropped"]["labelled as not holding, between two parts of the nodes"] > 0
    assert (split["holds"] == 0).sum() == (rows["label"] == 0).sum()
    assert [*report["denied"]] == ["train", "valid", "test"]
    again = json.loads(run("evaluate apart --json", folder).stdout)
    assert {name: again[name] for name in report["metrics"]["test"]} == report["metrics"]["test"]


def test_what_becomes_of_rows_that_do_not_hold_is_said(labelled):
    folder, rows = labelled
    parent = dict(rows.loc[rows["label"] == 1, ["child", "parent"]].to_numpy().tolist())
    above = pd.DataFrame([(child, parent[up]) for child, up in parent.items() if up in parent][:7],
                         columns=["child", "parent"])
    pd.concat([rows, above.assign(label=0)]).drop_duplicates().assign(weight=1).to_csv(folder / "more.csv", index=False)
    how = "--vectors vectors.csv --epochs 1 --out more"
    said = run(f"fit more.csv --transitive --weight-column weight {how}", folder).stdout
    report = json.loads((folder / "more" / "report.json").read_text())
    follow = report["data"]["kept"]["labelled as not holding"] - sum(report["denied"].values())
    assert f"implied by chains of pairs: {follow}, neither learned from nor measured" in said and follow >= 7
    part = np.where(rows["label"] == 0, "test", np.where(np.arange(len(rows)) % 4, "train", "test"))
    rows.assign(split=part).to_csv(folder / "parts.csv", index=False)
    said = run(f"fit parts.csv --split-column split {how}", folder).stdout
    assert "not learned from (none is in train)" in said


def test_denied_pairs_need_not_be_learned_from(labelled):
    folder, _ = labelled
    said = run("fit labelled.csv --vectors vectors.csv --epochs 1 --set denied_weight=0 --out without", folder).stdout
    assert "not learned from (denied_weight is 0)" in said


def test_a_file_for_the_test_and_a_pair_in_both_files(labelled):
    folder, rows = labelled
    found = run("fit train.csv --test test.csv --vectors vectors.csv --epochs 2 --out two", folder, status=1)
    assert "test.csv, row 0 (the first is 0)" in found.stderr
    assert "train.csv, row 140, as well, 10 such rows" in found.stderr and "(--drop-seen)" in found.stderr
    said = run("fit train.csv --test test.csv --vectors vectors.csv --epochs 2 --drop-seen --out two", folder).stdout
    assert "validation: " in said and "rows drawn from train.csv" in said and "seen in another part (10)" in said
    split = pd.read_csv(folder / "two" / "split.csv")
    tested = set(split[split["split"] == "test"][["source", "target"]].itertuples(index=False, name=None))
    assert tested == set(rows[150:][["child", "parent"]].itertuples(index=False, name=None))
    report = json.loads((folder / "two" / "report.json").read_text())
    assert report["inputs"]["held_out"] == {"test": sha256(folder / "test.csv")}


@pytest.mark.parametrize("sep, how", [(",", ""), (";", " --sep ';'")])
def test_training_pairs_without_labels_and_held_out_ones_with_labels(labelled, sep, how):
    folder, rows = labelled
    held, test = rows[rows["label"] == 1][:70], rows[150:]
    held = held[~held.index.isin(test.index)]
    held.drop(columns="label").to_csv(folder / "bare.csv", index=False)
    test.to_csv(folder / "judged.csv", index=False, sep=sep)
    done = run(f"fit bare.csv --test judged.csv --vectors vectors.csv --epochs 1 --out bare{how}", folder)
    assert "without labels: bare.csv: each row holds" in done.stderr and "without labels: bare.csv" in done.stdout
    assert ("not with that separator and encoding: bare.csv" in done.stderr) == bool(how)
    report = json.loads((folder / "bare" / "report.json").read_text())
    counts = test["label"].value_counts()
    assert report["pairs"]["test"] == counts[1] and report["denied"] == {"train": 0, "valid": 0, "test": counts[0]}
    assert "label_auc" in report["metrics"]["test"]


def test_a_checkpoint_in_the_folder_is_told_of_and_goes_when_the_head_is_there(project, tmp_path):
    line, file = f"fit pairs.csv --vectors vectors.csv --epochs 1 --out {tmp_path}", tmp_path / fitting.CHECKPOINT
    file.write_bytes(b"what a run before has left")
    said = run(f"{line} --resume", project, 1).stderr
    assert f"Error: {file} is no checkpoint of a training, or is damaged" in said and "Traceback" not in said
    assert f"{file} of an earlier run is there; --resume would go on from it" in run(line, project).stderr
    assert not file.exists() and (tmp_path / "config.json").exists()
    assert "of an earlier run" not in run(line, project).stderr


def test_several_processes_do_not_read_pairs_from_a_pipe(project, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert "several processes cannot read the pairs from standard input" in run("fit -", project, 2, "a,b\n").stderr
