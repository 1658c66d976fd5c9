"The decision in the report of a fit, beside scores, of one pair, and of a head that has none"
import json
import shutil

import numpy as np
import pandas as pd
import pytest
import torch
from command_line import read, rows_of, run

from rolebregman.datasets import toy_tree
from rolebregman.heads import CLASSES, load_head
from rolebregman.training import answers_of, decision_metrics

COLUMNS = ["this_way", "other_way", "neither"]


@pytest.fixture(scope="module")
def bushy(): return toy_tree(depth=6, branching=3, dim=12, seed=1)


@pytest.fixture(scope="module")
def folder(bushy, tmp_path_factory):
    folder = tmp_path_factory.mktemp("bushy")
    names = bushy.nodes["id"].to_numpy()
    pairs = pd.DataFrame(names[np.concatenate(list(bushy.edges.values()))], columns=["child", "parent"])
    pairs.to_csv(folder / "pairs.csv", index=False)
    pairs.to_parquet(folder / "pairs.parquet")
    pd.DataFrame(bushy.features).add_prefix("x").assign(id=names).to_csv(folder / "vectors.csv", index=False)
    run("fit pairs.csv --vectors vectors.csv --epochs 2", folder)
    return folder


def test_the_report_of_a_fit_tells_of_the_decision(folder):
    report, head = json.loads((folder / "head" / "report.json").read_text()), load_head(folder / "head")
    said = report["decision"]
    assert said["threshold"] == head.decision.threshold and said["prior"] == list(head.decision.prior)
    assert said["asked"]["pairs"] == 109 and said["asked"]["split"] == "valid"
    assert {name: head.decision.about[name] for name in said["metrics"]["valid"]} == said["metrics"]["valid"]
    text = (folder / "head" / "report.txt").read_text()
    assert f"from probability {head.decision.threshold:g} on" in text and "calibration error" in text


def test_evaluate_measures_what_the_report_does(folder):
    report = json.loads((folder / "head" / "report.json").read_text())["decision"]["metrics"]
    for part in "valid", "test":
        assert json.loads(run(f"evaluate head --part {part} --json", folder).stdout)["decision"] == report[part]
    of_file = json.loads(run("evaluate head pairs.csv --json", folder).stdout)["decision"]
    assert 0 < of_file["precision"] <= 1 and of_file["calibration_error"] < 0.2, "all of a file's pairs are asked"
    rare = json.loads(run("evaluate head --json --prior 0.01 0.01 0.98", folder).stdout)["decision"]
    assert rare["log_score"] < report["test"]["log_score"] and rare["recall"] < report["test"]["recall"]
    said = run("evaluate head --picture deep/reliability.png", folder).stdout
    assert (folder / "deep" / "reliability.png").read_bytes()[:4] == b"\x89PNG" and "log score" in said


def test_where_nothing_is_said_to_run_its_precision_is_a_dash(folder):
    run("fit pairs.csv --vectors vectors.csv --epochs 1 --head euclidean --out near", folder)
    lines = (folder / "near" / "report.txt").read_text().splitlines()
    assert "precision                        -         -" in lines
    said = run("evaluate head --prior 1e-9 1e-9 0.999999998", folder).stdout
    assert "precision                        -" in said.splitlines()


def test_of_a_head_whose_training_pairs_are_not_known_no_number_of_them_is_given(folder, tmp_path):
    shutil.copytree(folder / "head", tmp_path / "head")
    for name in "split.csv", "report.json", "report.txt":
        (tmp_path / "head" / name).unlink()
    how = f"evaluate {tmp_path / 'head'} pairs.csv --vectors vectors.csv"
    done = run(how, folder)
    assert "which pairs fit knew is not known" in done.stderr and "trained on" not in done.stderr
    assert set(json.loads(run(f"{how} --json", folder).stdout)["seen"].values()) == {None}
    assert "none can be left out" in run(f"{how} --drop-seen", folder, 1).stderr


@pytest.mark.parametrize("threshold", ["0", "0.5"])
def test_a_threshold_without_decide_is_refused(folder, threshold):
    done = run(f"score head pairs.csv --threshold {threshold}", folder, 2)
    assert "--prior and --threshold belong to --decide" in done.stderr


def test_scores_are_decided(folder, bushy):
    done, head = run("score head pairs.csv --decide", folder), load_head(folder / "head")
    table, plain = read(done.stdout), read(run("score head pairs.csv", folder).stdout)
    assert list(table) == [*plain, *COLUMNS, "decision"] and table[list(plain)].equals(plain)
    x, y = (rows_of(bushy, table[end]) for end in ("source", "target"))
    wanted = head.decide(x, y).numpy()
    np.testing.assert_allclose(table[COLUMNS], wanted, atol=2e-4)
    assert (table["decision"] == np.array(CLASSES)[head.decision.classes(table[COLUMNS].to_numpy())]).all()
    assert f"{head.decision.about['precision']:.3f} of what was said to run this way did" in done.stderr
    text = pd.read_csv(folder / "pairs.csv")[["parent", "child"]].to_csv(index=False, header=["source", "target"])
    turned = read(run("score head - --decide", folder, stdin=text).stdout)
    np.testing.assert_allclose(turned[COLUMNS].to_numpy()[:, [1, 0, 2]], table[COLUMNS], atol=1e-6)


def test_prior_and_threshold_are_options(folder):
    done = run("score head pairs.csv --decide --prior 0.001 0.001 0.998 --threshold 0.9", folder)
    table, head = read(done.stdout), load_head(folder / "head")
    forward, reverse = (table[name].to_numpy() for name in ("distance", "reverse_distance"))
    np.testing.assert_allclose(table[COLUMNS], head.decision.probabilities(forward, reverse, (0.001, 0.001, 0.998)),
                               rtol=1e-4, atol=1e-7)
    assert ((table["decision"] == "this way") == (table["this_way"] >= 0.9)).all()
    assert "from probability 0.9 on" in done.stderr and "0.001, 0.001, 0.998; fit has chosen" in done.stderr
    assert "belong to --decide" in run("score head pairs.csv --threshold 0.9", folder, status=2).output
    assert "sum to 1" in run("score head pairs.csv --decide --prior 0.5 0.5 0.5", folder, status=1).output
    assert run("score head pairs.csv --decide --threshold 1.5", folder, status=2).stdout == ""


def test_both_ends_of_a_threshold_are_thresholds(folder):
    none, all_ = (read(run(f"score head pairs.csv --decide --threshold {end}", folder).stdout) for end in (1, 0))
    assert (none["decision"] == "neither").all()
    this, other = (all_["decision"] == way for way in ("this way", "other way"))
    assert this.equals(all_["this_way"] > all_["other_way"]) and other.equals(all_["other_way"] > all_["this_way"])


def test_parts_are_decided_and_known_by_how(folder, tmp_path):
    (tmp_path / "parts").mkdir()
    shutil.copy(folder / "pairs.parquet", tmp_path / "parts" / "a.parquet")
    line = f"score head {tmp_path}/parts --out {tmp_path}/out"
    run(f"{line} --decide", folder)
    found = pd.read_parquet(tmp_path / "out" / "a.parquet")
    whole = read(run("score head pairs.csv --decide", folder).stdout)
    np.testing.assert_allclose(found[COLUMNS], whole[COLUMNS], atol=2e-6)
    assert "already there: 1" in run(f"{line} --decide", folder).output
    for other in "", " --decide --prior 0.1 0.1 0.8", " --decide --threshold 0.9":
        assert "was asked otherwise" in run(line + other, folder, status=1).output


def test_explain_says_how_likely(folder, bushy):
    child, parent = bushy.nodes["id"].iloc[bushy.edges["test"][0]]
    found = json.loads(run(f"explain head {child} {parent} --json", folder).stdout)
    assert list(found["probabilities"]) == list(CLASSES) and sum(found["probabilities"].values()) == pytest.approx(1)
    assert "probabilities: this way 0." in run(f"explain head {child} {parent}", folder).stdout
    rare = json.loads(run(f"explain head {child} {parent} --json --prior 0.01 0.01 0.98", folder).stdout)
    assert rare["probabilities"]["neither"] > found["probabilities"]["neither"]


def test_a_head_without_a_decision_works_as_before_and_says_so(project, tree):
    "Twelve validation pairs are too few"
    report = json.loads((project / "head" / "report.json").read_text())["decision"]
    assert list(report) == ["missing"] and "12 pairs that run one way; at least 20" in report["missing"]
    assert "decision: none, so no probabilities: the valid split" in (project / "head" / "report.txt").read_text()
    said = run("score head pairs.csv --decide", project, status=1)
    assert said.stdout == "" and "holds no decision" in said.stderr and "its report says so" in said.stderr
    assert "decision: none" in run("evaluate head", project).stdout
    assert "decision" not in json.loads(run("evaluate head --json", project).stdout)
    assert "holds no decision" in run("evaluate head --picture x.png", project, status=1).output
    child, parent = tree.nodes["id"].iloc[tree.edges["test"][0]]
    assert "this head has no decision" in run(f"explain head {child} {parent}", project).stdout


def test_the_decision_in_a_folder_is_that_of_the_library(folder, bushy):
    head = load_head(folder / "head")
    report = json.loads((folder / "head" / "report.json").read_text())
    assert set(report["decision"]["metrics"]["test"]) == set(decision_metrics(answers_of(head, bushy), head.decision))
    edited = (folder / "head" / "config.json").read_text().replace(f"{head.decision.threshold}", "0.123", 1)
    shutil.copytree(folder / "head", folder / "edited")
    (folder / "edited" / "config.json").write_text(edited)
    assert "was edited" in run("score edited pairs.csv --decide", folder, status=1).output
    assert torch.equal(load_head(folder / "head").decide(bushy.features[:5], bushy.features[5:10]),
                       head.decide(bushy.features[:5], bushy.features[5:10]))
