"Evaluation that stays held out: labels and columns of `fit`, known positives, what was seen, a split that is kept"
import json
import shutil

import numpy as np
import pandas as pd
import pytest
from command_line import run

from rolebregman.cli import evaluating
from rolebregman.cli.inputs import items_of
from rolebregman.datasets import from_pairs, toy_tree
from rolebregman.datasets.sources import sha256
from rolebregman.evaluation import evaluate
from rolebregman.heads import load_head

TREE = toy_tree(depth=4, branching=3, dim=8, seed=1)
NAMES = TREE.nodes["id"].to_numpy()
PAIRS = pd.DataFrame(NAMES[np.concatenate(list(TREE.edges.values()))], columns=["child", "parent"])


def closure():
    "Every item with each of its ancestors"
    parent = dict(PAIRS.to_numpy().tolist())
    rows = []
    for child in parent:
        above = child
        while above in parent:
            above = parent[above]
            rows.append((child, above))
    return pd.DataFrame(rows, columns=["child", "parent"])


def measured(line, folder):
    return json.loads(run(f"{line} --json", folder).stdout)


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    "The tree of the issue as files, and heads that were fitted on them"
    folder = tmp_path_factory.mktemp("tree")
    vectors = pd.DataFrame(TREE.features).rename(columns="x{}".format)
    vectors.insert(0, "id", NAMES)
    vectors.to_csv(folder / "vectors.csv", index=False)
    (folder / "words.txt").write_text("".join(f"{n} {' '.join(map(str, v))}\n" for n, v in zip(NAMES, TREE.features)))
    PAIRS.to_csv(folder / "pairs.csv", index=False)
    closure().to_csv(folder / "closure.csv", index=False)
    rng = np.random.default_rng(0)
    others = pd.DataFrame(NAMES[rng.integers(0, len(NAMES), (400, 2))], columns=["child", "parent"])
    others = others[others["child"] != others["parent"]].assign(strength=1)
    graded = pd.concat([PAIRS.assign(strength=rng.integers(6, 11, len(PAIRS))), others])
    graded = graded.drop_duplicates(["child", "parent"])[:318]
    graded.to_csv(folder / "graded.csv", index=False)
    run("fit closure.csv --vectors vectors.csv --out head", folder)
    run("fit graded.csv --label strength --min-label 5 --vectors vectors.csv --epochs 20 --out graded", folder)
    return folder


def held_out(head, name):
    "The held-out pairs of a head's folder as a file of their own"
    split = pd.read_csv(head / "split.csv")
    split[split["split"] == "test"][["source", "target"]].to_csv(head.parent / name, index=False)


# Known positives

def test_held_out_pairs_from_a_file_give_the_number_of_the_held_out_pairs(tree):
    held_out(tree / "head", "test.csv")
    whole = measured("evaluate head --candidates all", tree)
    file = measured("evaluate head test.csv --candidates all", tree)
    assert whole["mrr"] == pytest.approx(0.756, abs=5e-4) and file["mrr"] == whole["mrr"] and file["pairs"] == 43
    assert [file[f"hits@{k}"] for k in (1, 3, 10)] == [whole[f"hits@{k}"] for k in (1, 3, 10)]
    assert {part: n for part, n in file["seen"].items() if n} == dict(test=43)


@pytest.mark.parametrize("more", ["--vectors words.txt", "--vectors vectors.csv --split node --fractions 0.5 0.2 0.3",
                                  "--vectors vectors.csv --fractions 0.4 0.3 0.3 --seed 5"])
def test_so_they_do_with_other_vectors_and_other_splits(tree, more):
    run(f"fit closure.csv {more} --epochs 8 --out other", tree)
    held_out(tree / "other", "other.csv")
    whole = measured("evaluate other --candidates all", tree)
    file = measured("evaluate other other.csv --candidates all", tree)
    assert file["mrr"] == whole["mrr"] and file["pairs"] == whole["pairs"]


def test_an_older_folder_knows_its_positives_from_the_file_of_pairs(tree, tmp_path):
    old = shutil.copytree(tree, tmp_path / "old")
    held_out(old / "head", "test.csv")
    wanted = measured("evaluate head --candidates all", old)
    report = json.loads((old / "head" / "report.json").read_text())
    del report["files"], report["inputs"]["files"]
    (old / "head" / "report.json").write_text(json.dumps(report))
    for name in ("split.csv", "items.csv"): (old / "head" / name).unlink()
    assert measured("evaluate head --candidates all", old) == wanted
    assert measured("evaluate head test.csv --candidates all", old)["mrr"] == wanted["mrr"]
    (old / "closure.csv").unlink()
    assert "which pairs fit knew is not known" in run("evaluate head test.csv", old).stderr


def test_what_fit_has_seen_is_said_and_can_be_left_out(tree):
    done = run("evaluate head closure.csv --candidates all", tree)
    assert ("closure.csv: columns: child (source), parent (target); 426 pairs; of those in the file fit has trained on "
            "340, chosen the epoch on 43 and held out 43; --drop-seen leaves out what it has seen") in done.stderr
    fresh, whole = measured("evaluate head closure.csv --candidates all --drop-seen", tree), measured(
        "evaluate head --candidates all", tree)
    assert fresh["pairs"] == 43 and fresh["mrr"] == whole["mrr"]
    assert fresh["dropped"] == {"seen by fit (train)": 340, "seen by fit (valid)": 43}
    split = pd.read_csv(tree / "head" / "split.csv")
    split[split["split"] == "train"].drop(columns="split").to_csv(tree / "train.csv", index=False)
    assert "each of the 340 pairs has been seen by fit" in run("evaluate head train.csv --drop-seen", tree, 1).stderr


def test_new_pairs_of_new_items_are_measured_among_all(tree):
    (tree / "fresh.csv").write_text("from,to\nn00120,n00119\nn00100,n00118\n")
    found = measured("evaluate head fresh.csv --candidates all", tree)
    assert not any(found["seen"].values()) and found["pairs"] == 2


# Rows that do not hold

@pytest.fixture(scope="module")
def judged(tree):
    "Pairs of the tree, others that do not hold and do not follow from them, and a head that was fitted on both"
    rng, held = np.random.default_rng(1), {*map(tuple, closure().to_numpy())}
    others = pd.DataFrame(NAMES[rng.integers(0, len(NAMES), (90, 2))], columns=["child", "parent"]).drop_duplicates()
    others = others[[a != b and (a, b) not in held for a, b in others.to_numpy()]]
    rows = pd.concat([PAIRS.assign(label=1), others.assign(label=0)])
    rows.to_csv(tree / "judged.csv", index=False)
    run("fit judged.csv --vectors vectors.csv --epochs 2 --out judged", tree)
    return tree, rows


def test_what_fit_did_not_learn_from_is_not_said_to_be_seen(judged):
    folder, _ = judged
    run("fit judged.csv --vectors vectors.csv --epochs 2 --set denied_weight=0 --out without", folder)
    old = shutil.copytree(folder / "judged", folder / "without_setting", dirs_exist_ok=True)
    report = json.loads((old / "report.json").read_text())
    del report["training"]["denied_weight"]  # as a version wrote that did not know of it
    (old / "report.json").write_text(json.dumps(report))
    for head in ("without", "without_setting"):
        done = run(f"evaluate {head} judged.csv --drop-seen", folder)
        assert "learned from" not in done.stderr and "(denied)" not in done.stderr
        assert measured(f"evaluate {head} judged.csv", folder)["seen"]["denied"] == 0
    assert measured("evaluate judged judged.csv", folder)["seen"]["denied"] > 0


def older(head, new, forget=()):
    "A folder as a version wrote it that did not keep what does not hold"
    old = shutil.copytree(head, new, dirs_exist_ok=True)
    split, report = pd.read_csv(old / "split.csv", dtype=str), json.loads((old / "report.json").read_text())
    split[split["holds"] == "1"].drop(columns="holds").to_csv(old / "split.csv", index=False, lineterminator="\n")
    report["files"]["split.csv"] = sha256(old / "split.csv")
    for name in forget: del report["data"]["kept"][name]
    (old / "report.json").write_text(json.dumps(report))
    return old


@pytest.mark.parametrize("line", ["", " judged.csv", " both.csv --drop-seen"])
@pytest.mark.parametrize("forget, says", [((), "the {count} pairs"), (("labelled as not holding",), "pairs, if any,")])
def test_a_folder_that_does_not_keep_what_did_not_hold_says_so(judged, line, forget, says):
    folder, rows = judged
    pd.concat([PAIRS[:9].set_axis(["parent", "child"], axis=1), PAIRS]).to_csv(folder / "both.csv", index=False)
    old = older(folder / "judged", folder / "old", forget)
    said = says.format(count=(rows["label"] == 0).sum())
    assert f"split.csv was written by an older version, without {said} that did not hold for fit" in run(
        f"evaluate {old.name}{line}", folder).stderr
    assert "older version" not in run(f"evaluate judged{line}", folder).stderr


def test_a_folder_of_pairs_without_labels_has_lost_nothing(tree):
    assert "older version" not in run(f"evaluate {older(tree / 'head', tree / 'old').name}", tree).stderr


def test_pairs_that_fit_knew_with_the_other_label_are_said_and_count_as_seen(judged):
    folder, _ = judged
    split = pd.read_csv(folder / "judged" / "split.csv")
    learned = split[(split["split"] == "train")].drop(columns="split").rename(columns=dict(holds="label"))
    tested = split[(split["split"] == "test")].drop(columns="split").rename(columns=dict(holds="label"))
    turned = pd.concat([some.assign(label=1 - label)[:5 + label] for label, some in learned.groupby("label")])
    pd.concat([turned, tested]).to_csv(folder / "turned.csv", index=False)
    assert "; 11 were labelled otherwise for fit" in run("evaluate judged turned.csv", folder).stderr
    found = measured("evaluate judged turned.csv --drop-seen", folder)
    assert found["seen"]["otherwise"] == 11 == found["dropped"]["seen by fit, labelled otherwise"]
    tested.to_csv(folder / "tested.csv", index=False)
    for metric in ("label_auc", "gap_mean"):  # which hang on no sample
        assert found[metric] == measured("evaluate judged tested.csv", folder)[metric]
        assert found[metric] == measured("evaluate judged", folder)[metric]


def test_what_chains_of_pairs_imply_is_no_row_that_does_not_hold(judged):
    folder, rows = judged
    run("fit judged.csv --vectors vectors.csv --epochs 2 --transitive --out chains", folder)
    direct = {*map(tuple, PAIRS.to_numpy())}
    implied = closure()[[pair not in direct for pair in map(tuple, closure().to_numpy())]][:9]
    pd.concat([rows, implied.assign(label=0)]).to_csv(folder / "chained.csv", index=False)
    found = measured("evaluate chains chained.csv", folder)
    assert found["dropped"] == {"labelled as not holding, but implied by others": 9}
    assert found["label_auc"] == measured("evaluate chains judged.csv", folder)["label_auc"]


def test_what_was_judged_in_training_is_no_hard_candidate_of_new_pairs(tree):
    ds = from_pairs(pd.DataFrame(dict(source=["a", "a"], target=["b", "c"], label=[1, 0])), TREE.features[:5],
                    ids=list("abcde"), fractions=(1, 0, 0))
    known = pd.DataFrame(dict(source=["a"], target=["c"], split=["train"], holds=["0"]))
    for drop_seen, share in ((False, 1), (True, 0)):
        some, _ = evaluating._with_known(ds, known, drop_seen, transitive=False)
        head = load_head(tree / "head")
        assert evaluate(head, some, "train")["hard_pair_rate"] == share


# Labels and columns

def test_a_file_of_strengths_is_read_as_by_fit(tree):
    found, plain = measured("evaluate graded graded.csv --candidates all", tree), measured(
        "evaluate graded pairs.csv --candidates all", tree)
    assert found["pairs"] == 120 and found["mrr"] == plain["mrr"] > 0.6
    assert found["read"]["label column"] == "strength" and found["read"]["min label"] == 5
    said = run("evaluate graded graded.csv", tree).stderr
    assert "columns: child (source), parent (target), strength (label); a pair holds from 5 on; 120 pairs" in said


def test_labels_and_columns_can_be_said_anew(tree):
    table = pd.read_csv(tree / "graded.csv")
    assert measured("evaluate graded graded.csv --min-label 8", tree)["pairs"] == (table["strength"] >= 8).sum()
    table = table.assign(sure=(table["strength"] == 10).astype(int), up=table["parent"])
    table.to_csv(tree / "sure.csv", index=False)
    found = measured("evaluate graded sure.csv --label sure", tree)
    assert found["pairs"] == table["sure"].sum() and "min label" not in found["read"]
    done = run("evaluate graded sure.csv --label sure --source child --target up", tree)
    assert "columns: child (source), up (target), sure (label); left unused: parent, strength" in done.stderr
    assert run("evaluate graded - --min-label 8 --json", tree, stdin=(tree / "graded.csv").read_text()).stdout == run(
        "evaluate graded graded.csv --min-label 8 --json", tree).stdout


@pytest.mark.parametrize("said", ["--label strength", "--min-label 3", "--source child", "--target parent",
                                  "--drop-seen"])
def test_what_belongs_to_a_file_is_refused_without_one(tree, said):
    assert f"{said.split()[0]} belongs to a file of pairs" in run(f"evaluate graded {said}", tree, 2).stderr


def test_columns_and_labels_of_other_names_are_those_of_fit(tree):
    table = pd.read_csv(tree / "graded.csv").set_axis(["part", "whole", "holds"], axis=1)
    table["holds"] = (table["holds"] > 5).astype(int)
    table.assign(source="x", target="y", label=1)[["label", "source", "whole", "part", "holds", "target"]].to_csv(
        tree / "own.csv", index=False)
    run("fit own.csv --source part --target whole --label holds --vectors vectors.csv --epochs 1 --out own", tree)
    assert measured("evaluate own own.csv", tree)["pairs"] == 120
    table.rename(columns=str.upper).to_csv(tree / "upper.csv", index=False)
    assert measured("evaluate own upper.csv", tree)["pairs"] == 120
    table[["part", "whole"]].to_csv(tree / "bare.csv", index=False)
    assert "no column 'holds', which told fit which of them hold" in run("evaluate own bare.csv", tree).stderr


# A split that is kept

def missing(tree, tmp_path):
    "A head that was fitted while five vectors were missing"
    own = shutil.copytree(tree, tmp_path / "own")
    whole = (own / "vectors.csv").read_text()
    lines = whole.splitlines(keepends=True)
    (own / "vectors.csv").write_text("".join(line for i, line in enumerate(lines) if i not in (3, 20, 50, 70, 90)))
    run("fit pairs.csv --vectors vectors.csv --missing drop --epochs 10 --out few", own)
    return own, whole


def test_a_split_does_not_move_when_vectors_arrive(tree, tmp_path):
    own, whole = missing(tree, tmp_path)
    before = pd.read_csv(own / "few" / "split.csv")
    (own / "vectors.csv").write_text(whole)
    done = run("evaluate few --json", own)
    assert "has changed since fit: 5 items are new, 0 are gone, the others are as they were" in done.stderr
    found = json.loads(done.stdout)
    assert found["pairs"] == (before["split"] == "test").sum()
    ds = evaluating._of_split(own / "few", items_of(own / "few"), 8, False)
    trained = {*before[before["split"] == "train"][["source", "target"]].itertuples(index=False, name=None)}
    tested = {*map(tuple, ds.nodes["id"].to_numpy()[ds.edges["test"]])}
    drawn = from_pairs(own / "pairs.csv", own / "vectors.csv", missing="drop")
    again = {*map(tuple, drawn.nodes["id"].to_numpy()[drawn.edges["test"]])}
    assert not tested & trained and again & trained, "drawn anew, pairs that were trained on would be among them"
    wanted = evaluate(load_head(own / "few"), ds)
    assert {name: found[name] for name in wanted} == pytest.approx(wanted)


def test_an_older_folder_whose_surviving_pairs_differ_is_refused(tree, tmp_path):
    own, whole = missing(tree, tmp_path)
    report = json.loads((own / "few" / "report.json").read_text())
    del report["files"], report["inputs"]["files"]
    (own / "few" / "report.json").write_text(json.dumps(report))
    run("evaluate few", own)
    (own / "vectors.csv").write_text(whole)
    assert "are no longer those of fit" in run("evaluate few", own, 1).stderr


def test_vectors_that_went_away_are_named(tree, tmp_path):
    own = shutil.copytree(tree, tmp_path / "own")
    lines = (own / "vectors.csv").read_text().splitlines(keepends=True)
    (own / "vectors.csv").write_text("".join(lines[:1] + lines[3:]))
    said = run("evaluate head", own, 1).stderr
    assert "of the pairs of fit have no vector now, the first 'n0" in said


def test_the_report_is_what_evaluate_gives_also_among_words(tree):
    run("fit pairs.csv --vectors words.txt --epochs 3 --out words", tree)
    for head in ("words", "graded", "head"):
        report = json.loads((tree / head / "report.json").read_text())
        for part in ("valid", "test"):
            found = measured(f"evaluate {head} --part {part}", tree)
            assert {name: found[name] for name in report["metrics"][part]} == report["metrics"][part]


def test_relations_parts_and_separators_are_those_that_were_said(tmp_path):
    parts = ["train"] * 100 + ["valid"] * 10 + ["test"] * 10
    table = PAIRS.assign(part=parts, relation="isa")
    other = pd.DataFrame(dict(child=PAIRS["parent"], parent=PAIRS["child"], part="train", relation="has"))
    pd.concat([table, other]).to_csv(tmp_path / "pairs.csv", sep=";", index=False, encoding="utf-16")
    np.save(tmp_path / "v.npy", TREE.features)
    (tmp_path / "ids.txt").write_text("\n".join(NAMES))
    line = "fit pairs.csv --vectors v.npy --ids ids.txt --epochs 1 --sep ';' --encoding utf-16"
    said = run(f"{line} --split-column part", tmp_path, 1).stderr
    assert "has" in said and "isa" in said and "--relation" in said, "two relations are not mixed without a word"
    done = run(f"{line} --split-column part --relation isa", tmp_path)
    report = json.loads((tmp_path / "head" / "report.json").read_text())
    assert report["pairs"] == dict(train=100, valid=10, test=10) and "relation: isa" in done.stderr
    split = pd.read_csv(tmp_path / "head" / "split.csv")
    assert set(map(tuple, split.loc[split["split"] == "test", ["source", "target"]].to_numpy())) == set(
        map(tuple, PAIRS.to_numpy()[110:]))
    # A later file: the relation is that of `fit`, the separator of this file is its own.
    pd.concat([table[-10:], other[-10:]]).to_csv(tmp_path / "later.csv", index=False)
    found = json.loads(run("evaluate head later.csv --candidates all --json", tmp_path).stdout)
    assert found["pairs"] == 10 and found["seen"]["test"] == 10
    assert found["mrr"] == measured("evaluate head --candidates all", tmp_path)["mrr"]
    assert json.loads(run("evaluate head later.csv --relation has --json", tmp_path).stdout)["seen"]["test"] == 0
    table[-10:].to_csv(tmp_path / "tabs.csv", sep="|", index=False)
    scores = run("score head tabs.csv --sep '|'", tmp_path).stdout
    assert len(scores.splitlines()) == 11


@pytest.mark.parametrize("how, typed", [
    (dict(sep=";", encoding="utf-16"), "--sep ';' and --encoding 'utf-16'"), (dict(sep="|"), "--sep '|'"),
    (dict(encoding="cp1252"), "--encoding 'cp1252'")])
def test_a_later_file_is_read_as_that_of_fit_and_it_is_said(tmp_path, how, typed):
    names = dict(zip(NAMES, [f"{name}é" for name in NAMES]))
    pairs = PAIRS.replace(names)
    pd.DataFrame(TREE.features).add_prefix("x").assign(id=names.values()).to_csv(tmp_path / "v.csv", index=False)
    pairs.to_csv(tmp_path / "pairs.csv", index=False, **how)
    pairs[-10:].to_csv(tmp_path / "later.csv", index=False, **how)
    pairs[-10:].to_csv(tmp_path / "plain.csv", index=False)
    options = " ".join(f"--{name} '{value}'" for name, value in how.items())
    run(f"fit pairs.csv --vectors v.csv --epochs 1 {options}", tmp_path)
    plain, later = (run(f"score head {name}.csv", tmp_path) for name in ("plain", "later"))
    assert later.stdout == plain.stdout and "read as for fit" not in plain.stderr
    assert f"the pairs are read as for fit, with {typed}\n" in later.stderr
    plain, later, said = (run(f"evaluate head {name}", tmp_path) for name in (
        "plain.csv --json", "later.csv --json", f"later.csv {options} --json"))
    same = lambda done: {k: v for k, v in json.loads(done.stdout).items() if k != "read"}
    assert same(plain) == same(later) == same(said) and "read as for fit" not in said.stderr
    assert f"the pairs are read as for fit, with {typed}\n" in later.stderr


def test_a_column_of_parts_that_was_not_named_is_said(tmp_path):
    PAIRS.assign(split="train", label=[1] * 119 + [0]).to_csv(tmp_path / "pairs.csv", index=False)
    pd.DataFrame(TREE.features).add_prefix("x").assign(id=NAMES).to_csv(tmp_path / "v.csv", index=False)
    done = run("fit pairs.csv --vectors v.csv --epochs 0", tmp_path)
    assert "split column not used" in done.stderr and "labelled as not holding: 1" in done.stdout


def test_a_file_of_new_pairs_is_taken_whole_and_no_option_is_named_that_evaluate_lacks(tree):
    PAIRS.assign(split=["train"] * 110 + ["test"] * 10, weight=2).to_csv(tree / "parts.csv", index=False)
    done = run("evaluate head parts.csv", tree)
    assert "left unused: split, weight; of split (train, test) all are measured; 120 pairs" in done.stderr
    assert "--split-column" not in done.stderr and "--weight-column" not in done.stderr
