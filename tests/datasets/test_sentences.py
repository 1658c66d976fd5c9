"""SICK and SNLI: on small hand-written files everywhere, on the real ones where they can be had."""
import gzip
import json
import zipfile

import numpy as np
import pytest

from rolebregman.datasets import SNLI_VARIANTS, FetchError, load_sick, load_snli, read_sick, read_snli


class Lengths:
    "A fast stand-in for Sentence-BERT"
    name, version = "lengths", "1"

    def __call__(self, texts):
        return np.array([[len(t), sum(map(ord, t)), 1] for t in texts], dtype=np.float32)


pytestmark = pytest.mark.usefixtures("own_cache")


def edges(ds, split):
    ids = ds.nodes.id.to_numpy()
    return {(ids[s], ids[t]) for s, t in ds.edges[split]}


# SICK

HEADER = ["pair_ID", "sentence_A", "sentence_B", "entailment_label", "relatedness_score", "entailment_AB",
          "entailment_BA", "SemEval_set"]
ROWS = [("a dog runs", "an animal runs", "entails", "neutral", "TRAIN"),
        ("a lad sits", "a boy sits", "entails", "entails", "TRAIN"),
        ("a dog runs", "nobody runs", "contradicts", "contradicts", "TRAIN"),
        ("a man eats", "a person eats", "entails", "contradicts", "TRAIN"),
        ("a cat sleeps ", "a cat is asleep", "entails", "entails", "TRIAL"),
        ("somebody sings", "a woman sings", "neutral", "neutral", "TEST"),
        ("a cow moos", "an animal moos", "entails", "neutral", "TEST"),
        ("a boy sits", "a lad sits", "entails", "entails", "TEST")] # the second row again, turned round


def sick_rows(rows=ROWS):
    return [[str(i), a, b, "?", "3.5", f"A_{ab}_B", f"B_{ba}_A", part] for i, (a, b, ab, ba, part) in enumerate(rows)]


def write(path, lines, end="\n"):
    path.write_bytes("".join("\t".join(fields) + end for fields in lines).encode())
    return path


def small_sick(tmp_path, end="\n", rows=ROWS):
    return write(tmp_path/"SICK.txt", [HEADER, *sick_rows(rows)], end)


def test_sick_comes_out_as_counted_by_hand(tmp_path):
    ds = load_sick(small_sick(tmp_path), encoder=Lengths(), quiet=True)
    assert edges(ds, "train") == {("a dog runs", "an animal runs")}
    assert edges(ds, "valid") == {("a cat sleeps", "a cat is asleep"), ("a cat is asleep", "a cat sleeps")}
    assert edges(ds, "test") == {("a cow moos", "an animal moos"), ("a lad sits", "a boy sits"),
                                 ("a boy sits", "a lad sits")}
    assert [ds.one_way(k).sum() for k in ("train", "valid", "test")] == [1, 0, 1]
    assert list(ds.nodes.id) == sorted(ds.nodes.text) and ds.num_nodes == 13 and len(ds.pool) == 13
    assert (ds.features == Lengths()(list(ds.nodes.text))).all()
    assert ds.report["read"] == {"pairs": 8}
    assert ds.report["kept"] == {"sentences": 13, "pairs that entail one way": 2, "pairs that entail both ways": 3,
                                 "edges": 6}
    assert ds.report["dropped or changed"] == {
        "pair that does not entail": 2, "pair that entails one way and contradicts the other": 1,
        "repeated edge, kept in the later split": 2}
    assert ds.report["encoder"] == "lengths" and ds.report["split"] == "official"


def test_a_pair_whose_judgements_exclude_each_other_is_neither_positive_nor_negative(tmp_path):
    ds = load_sick(small_sick(tmp_path), encoder=Lengths(), quiet=True)
    ids = ds.nodes.id.to_numpy()
    assert [(ids[s], ids[t]) for s, t in ds.known] == [("a man eats", "a person eats")]


@pytest.mark.parametrize("form", ["crlf", "gz", "zip", "folder", "order", "mark"])
def test_the_form_of_the_file_changes_nothing(tmp_path, form):
    first = load_sick(small_sick(tmp_path), encoder=Lengths(), quiet=True)
    path = small_sick(tmp_path, "\r\n" if form == "crlf" else "\n", ROWS[::-1] if form == "order" else ROWS)
    if form == "gz":
        (tmp_path/"SICK.txt.gz").write_bytes(gzip.compress(path.read_bytes(), mtime=0))
        path = tmp_path/"SICK.txt.gz"
    if form == "zip":
        with zipfile.ZipFile(tmp_path/"SICK.zip", "w") as z:
            z.writestr("__MACOSX/._SICK.txt", b"\x00")
            z.writestr("SICK/SICK.txt", path.read_bytes())
        path = tmp_path/"SICK.zip"
    if form == "folder":
        path = tmp_path
    if form == "mark":
        path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    second = load_sick(path, encoder=Lengths(), quiet=True)
    assert first.nodes.equals(second.nodes) and (first.features == second.features).all()
    assert all((first.edges[k] == second.edges[k]).all() for k in first.edges)


def test_semeval_files_leave_the_reverse_open(tmp_path):
    header = "pair_ID sentence_A sentence_B relatedness_score entailment_judgment".split()
    for name, rows in {"SICK_train.txt": [["1", "a", "b", "1", "ENTAILMENT"], ["2", "c", "d", "1", "NEUTRAL"]],
                       "SICK_trial.txt": [["3", "e", "f", "1", "ENTAILMENT"]],
                       "SICK_test_annotated.txt": [["4", "g", "h", "1", "ENTAILMENT"], ["5", "g", "i", "1",
                                                                                       "CONTRADICTION"]]}.items():
        write(tmp_path/name, [header, *rows], "\r\n" if "test" in name else "\n")
    ds = load_sick(tmp_path, encoder=Lengths(), quiet=True)
    assert [edges(ds, k) for k in ds.edges] == [{("a", "b")}, {("e", "f")}, {("g", "h")}]
    assert not any(ds.one_way(k).any() for k in ds.edges) and len(ds.positives) == 6 # the reverses are set aside
    assert ds.report["kept"]["pairs of which only one way was judged"] == 3
    with pytest.raises(ValueError, match=r"one part of the SemEval-2014 release: pass the folder"):
        load_sick(tmp_path/"SICK_train.txt", encoder=Lengths())
    (tmp_path/"SICK_trial.txt").unlink()
    with pytest.raises(FileNotFoundError, match=r"holds neither SICK.txt nor SICK_trial.txt"):
        load_sick(tmp_path, encoder=Lengths())


def change(row, column, value):
    rows = [list(HEADER), *sick_rows()]
    rows[row][HEADER.index(column)] = value
    return rows


@pytest.mark.parametrize("rows, says", [
    (change(3, "entailment_AB", "A_entail_B"), r"line 4: entailment_AB is 'A_entail_B', expected one of A_entails_B, "),
    (change(1, "entailment_BA", ""), r"line 2: entailment_BA is '', expected one of B_entails_A"),
    (change(2, "SemEval_set", "DEV"), r"line 3: SemEval_set is 'DEV', expected one of TRAIN, TRIAL, TEST"),
    (change(5, "sentence_B", "  "), r"line 6: sentence_B is empty"),
    (change(0, "entailment_BA", "BA"), r"no column entailment_BA; its header is \['pair_ID'"),
    ([HEADER, *sick_rows()[:2], sick_rows()[2][:-1]], r"line 4: 7 fields separated by tabs, expected 8 as in the h"),
    ([HEADER, [*sick_rows()[0], "more"]], r"line 2: 9 fields separated by tabs, expected 8"),
    ([HEADER], r"has 0 rows below its header"),
    ([], r"no column sentence_A"),
])
def test_a_fault_in_sick_names_file_and_line(tmp_path, rows, says):
    with pytest.raises(ValueError, match=r"SICK.txt.*" + says):
        read_sick(write(tmp_path/"SICK.txt", rows))


def test_damaged_files_are_named(tmp_path):
    path = small_sick(tmp_path)
    cut = tmp_path/"cut.txt.gz"
    cut.write_bytes(gzip.compress(path.read_bytes() * 50, mtime=0)[:-20])
    with pytest.raises(ValueError, match=r"cut.txt.gz is damaged or cut off"):
        read_sick(cut)
    (tmp_path/"latin.txt").write_bytes(path.read_bytes().replace(b"a lad", b"a gar\xe7on"))
    with pytest.raises(ValueError, match=r"latin.txt is not UTF-8 text: byte 0xe7"):
        read_sick(tmp_path/"latin.txt")
    (tmp_path/"bad.zip").write_bytes(b"PK\x03\x04 no more")
    with pytest.raises(ValueError, match=r"bad.zip is damaged or cut off"):
        read_sick(tmp_path/"bad.zip")
    with zipfile.ZipFile(tmp_path/"other.zip", "w") as z:
        z.writestr("readme.txt", "nothing")
    with pytest.raises(ValueError, match=r"other.zip holds no SICK.txt; it holds readme.txt"):
        read_sick(tmp_path/"other.zip")
    with pytest.raises(FileNotFoundError, match="no file .*nowhere.txt"):
        read_sick(tmp_path/"nowhere.txt")


def test_a_split_over_nodes_tests_no_node_that_was_trained_on(tmp_path):
    rows = [(f"a man number {i}", f"a person number {i}", "entails", "neutral", "TRAIN") for i in range(60)]
    for split in ("edge", "node"):
        ds = load_sick(small_sick(tmp_path, rows=rows), split=split, encoder=Lengths(), quiet=True)
        assert sum(map(len, ds.edges.values())) + len(ds.known) == 60 and ds.report["split"] == split
        if split == "node":
            assert not set(ds.edges["train"].ravel()) & set(ds.edges["test"].ravel())
    with pytest.raises(ValueError, match="split = 'random'"):
        load_sick(small_sick(tmp_path, rows=rows), split="random", encoder=Lengths(), quiet=True)


def test_sick_has_the_published_counts(real):
    file = real("sick")
    ds = load_sick(encoder=lambda texts: Lengths()(texts), quiet=True)
    assert ds.report["read"] == {"pairs": 9840}
    assert ds.report["kept"] == {"sentences": 6076, "pairs that entail one way": 1513,
                                 "pairs that entail both ways": 1300, "edges": 4066}
    assert ds.report["dropped or changed"]["pair that entails one way and contradicts the other"] == 8
    assert ds.report["licence"].startswith("CC BY-NC-SA") and ds.report["source"].startswith("SICK")
    assert [len(e) for e in ds.edges.values()] == [1842, 223, 2001]
    pairs = read_sick(file)
    assert pairs.split.value_counts().to_dict() == {"train": 4439, "valid": 495, "test": 4906}
    assert pairs.groupby(["ab", "ba"]).size().to_dict() == {
        ("neutral", "neutral"): 4992, ("entails", "neutral"): 1513, ("contradicts", "contradicts"): 1424,
        ("entails", "entails"): 1300, ("contradicts", "neutral"): 327, ("neutral", "contradicts"): 276,
        ("entails", "contradicts"): 8}


def test_the_semeval_release_agrees_with_the_whole(real):
    whole, release = read_sick(real("sick")), read_sick(real("sick-semeval")) # its test file has Windows' line ends
    assert release.split.value_counts().to_dict() == {"train": 4500, "valid": 500, "test": 4927}
    both = whole.merge(release.drop_duplicates(["a", "b", "split"]), on=["a", "b", "split"])
    assert len(both) == 9840
    entails = both.ab_x == "entails"
    assert (both.ab_y[entails] == "entails").all() and (both.ab_y[~entails] != "entails").all()


# SNLI

def snli_rows(part, count=12):
    labels = ["entailment", "neutral", "contradiction", "-"]
    return [dict(sentence1=f"{part} premise {i // 4} is long", sentence2=f"{part} guess {i}", gold_label=labels[i % 4],
                 captionID=f"{part}{i // 4}") for i in range(count)]


def small_snli(tmp_path, parts=("dev", "test"), compressed=False, count=100):
    folder = tmp_path/"snli"
    folder.mkdir(exist_ok=True)
    for part in parts:
        text = "".join(json.dumps(r) + "\n" for r in snli_rows(part, count)).encode()
        path = folder/f"snli_1.0_{part}.jsonl{'.gz' if compressed else ''}"
        path.write_bytes(gzip.compress(text, mtime=0) if compressed else text)
    return folder


def test_snli_comes_out_as_counted_by_hand(tmp_path):
    ds = load_snli(path=small_snli(tmp_path, ("train", "dev", "test")), encoder=Lengths(), quiet=True)
    assert ds.name == "snli" and ds.report["variant"] == "official"
    for split, part in dict(train="train", valid="dev", test="test").items():
        assert edges(ds, split) == {(f"{part} premise {i} is long", f"{part} guess {4 * i}") for i in range(25)}
    assert ds.report["read"] == {f"pairs of {k}": 100 for k in ("train", "dev", "test")}
    assert ds.report["dropped or changed"] == {**{f"no consensus (-) in {k}": 25 for k in ("train", "dev", "test")},
                                               "neutral or contradiction": 150}
    assert set(ds.nodes.id[ds.pool]) == {f"{k} guess {i}" for k in ("train", "dev", "test") for i in range(100)
                                         if i % 4 < 3}
    assert ds.num_nodes == 3 * (25 + 75)


@pytest.mark.parametrize("compressed", [False, True])
def test_dev_as_train_is_asked_for_by_name_and_says_so(tmp_path, compressed):
    folder = small_snli(tmp_path, compressed=compressed)
    ds = load_snli("dev-as-train", path=folder, encoder=Lengths(), quiet=True)
    assert ds.name == "snli/dev-as-train" and ds.report["variant"] == "dev-as-train"
    assert [len(e) for e in ds.edges.values()] == [23, 2, 25] # a tenth of the premises is held out
    premises = {k: set(e[:, 0]) for k, e in ds.edges.items()}
    assert not premises["train"] & premises["valid"]
    assert all("test" in s for s, _ in edges(ds, "test")) and all("dev" in s for s, _ in edges(ds, "train"))
    other = load_snli("dev-as-train", path=folder, seed=1, encoder=Lengths(), quiet=True)
    assert edges(other, "valid") != edges(ds, "valid") and edges(other, "test") == edges(ds, "test")
    for variant in SNLI_VARIANTS[::2]:
        with pytest.raises((FetchError, FileNotFoundError), match="holds neither snli_1.0_train"):
            load_snli(variant, path=folder, encoder=Lengths())


def test_without_train_the_default_variant_names_itself_and_the_file_to_get(tmp_path):
    with pytest.raises(FetchError) as e:
        load_snli(path=small_snli(tmp_path), encoder=Lengths())
    for word in ("variant='official'", "snli_1.0_train.jsonl", "https://nlp.stanford.edu/projects/snli/snli_1.0.zip",
                 "path='snli_1.0.zip'", "variant='dev-as-train'"):
        assert word in str(e.value)


def test_the_official_archive_is_read_member_by_member(tmp_path):
    folder = small_snli(tmp_path, ("train", "dev", "test"))
    with zipfile.ZipFile(tmp_path/"snli_1.0.zip", "w", zipfile.ZIP_DEFLATED) as z:
        z.writestr("../evil.txt", "never unpacked")
        for path in folder.iterdir():
            z.writestr(f"__MACOSX/snli_1.0/._{path.name}", b"\x00\x01")
            z.write(path, f"snli_1.0/{path.name}")
    before = set(tmp_path.rglob("*"))
    ds = load_snli(path=tmp_path/"snli_1.0.zip", encoder=lambda texts: Lengths()(texts), quiet=True)
    first = load_snli(path=folder, encoder=Lengths(), quiet=True)
    assert all((ds.edges[k] == first.edges[k]).all() for k in ds.edges) and ds.nodes.equals(first.nodes)
    assert {p for p in tmp_path.rglob("*") if "cache" not in p.parts} == {p for p in before if "cache" not in p.parts}


def test_train_sample_is_named_as_such(tmp_path):
    folder = small_snli(tmp_path)
    (folder/"snli_1.0_train_first1024.jsonl").write_text("".join(json.dumps(r) + "\n" for r in snli_rows("train", 40)))
    table = [["sentence1", "sentence2", "gold_label"]] + [[r["sentence1"], r["sentence2"], r["gold_label"]]
             for r in snli_rows("train", 4) + snli_rows("more", 40)]
    write(folder/"kaushik2020_original_train.tsv", table)
    ds = load_snli("train-sample", path=folder, encoder=Lengths(), quiet=True)
    assert ds.name == "snli/train-sample" and [len(e) for e in ds.edges.values()] == [20, 25, 25]
    assert ds.report["dropped or changed"]["repeated edge, kept in the later split"] == 1


def test_a_limit_reads_only_so_many_rows(tmp_path):
    ds = load_snli("dev-as-train", path=small_snli(tmp_path), limit=40, encoder=Lengths(), quiet=True)
    assert ds.report["read"] == {"pairs of dev": 40, "pairs of test": 40}
    assert sum(map(len, ds.edges.values())) == 20


def test_the_order_of_rows_changes_nothing(tmp_path):
    folder = small_snli(tmp_path)
    first = load_snli("dev-as-train", path=folder, encoder=Lengths(), quiet=True)
    for path in folder.iterdir():
        path.write_text("".join(reversed(path.read_text().splitlines(keepends=True))))
    second = load_snli("dev-as-train", path=folder, encoder=Lengths(), quiet=True)
    assert first.nodes.equals(second.nodes) and all((first.edges[k] == second.edges[k]).all() for k in first.edges)


GOOD = json.dumps(snli_rows("dev", 1)[0])


@pytest.mark.parametrize("lines, says", [
    ([GOOD, '{"sentence1": "a", "sentence2": "b"}'], r"line 2: no field 'gold_label', expected sentence1, sentence2"),
    ([GOOD, GOOD.replace("entailment", "entails")], r"line 2: gold_label is 'entails', expected one of entailment, "),
    ([GOOD, GOOD[:30]], r"line 2 is no JSON object"),
    (["[1, 2]"], r"line 1 is no JSON object"),
    ([GOOD, GOOD.replace('"dev guess 0"', "null")], r"line 2: sentence1, sentence2, gold_label must be texts"),
    ([GOOD, GOOD.replace("dev guess 0", " ")], r"line 2: sentence2 is empty"),
    ([], r"has 0 rows"),
])
def test_a_fault_in_snli_names_file_and_line(tmp_path, lines, says):
    path = tmp_path/"snli_1.0_dev.jsonl"
    path.write_text("\n".join(lines))
    with pytest.raises(ValueError, match=r"snli_1.0_dev.jsonl.*" + says):
        read_snli(path)


def test_a_table_of_snli_with_another_header_is_refused(tmp_path):
    path = write(tmp_path/"train.tsv", [["premise", "hypothesis", "gold_label"], ["a", "b", "neutral"]])
    with pytest.raises(ValueError, match=r"train.tsv: no column sentence1, sentence2; its header is \['premise'"):
        read_snli(path)
    cut = tmp_path/"snli_1.0_dev.jsonl.gz"
    cut.write_bytes(gzip.compress(f"{GOOD}\n".encode() * 999, mtime=0)[:-12])
    with pytest.raises(ValueError, match=r"snli_1.0_dev.jsonl.gz is damaged or cut off"):
        read_snli(cut)


def test_unknown_variants_are_refused():
    with pytest.raises(ValueError, match="variant = 'dev', expected one of official, dev-as-train, train-sample"):
        load_snli("dev")


def test_snli_has_the_published_counts(real):
    folder = real("snli")
    counts = {k: read_snli(folder/f"snli_1.0_{k}.jsonl").label.value_counts().to_dict() for k in ("dev", "test")}
    assert counts == dict(dev=dict(entailment=3329, contradiction=3278, neutral=3235) | {"-": 158},
                          test=dict(entailment=3368, contradiction=3237, neutral=3219) | {"-": 176})
    ds = load_snli("dev-as-train", encoder=lambda texts: Lengths()(texts), quiet=True)
    dropped = ds.report["dropped or changed"]
    assert (dropped["no consensus (-) in dev"], dropped["no consensus (-) in test"]) == (158, 176)
    assert ds.num_nodes == 25742 and len(ds.pool) == 19111
    assert [len(e) for e in ds.edges.values()] == [3001, 322, 3368] and ds.report["licence"] == "CC BY-SA 4.0"


def test_the_sample_of_train_has_the_published_counts(real):
    first, other = read_snli(real("snli-train-1024")), read_snli(real("snli-kaushik2020"))
    assert first.label.value_counts().to_dict() == dict(entailment=343, contradiction=341, neutral=338) | {"-": 2}
    assert other.label.value_counts().to_dict() == dict(entailment=562, neutral=554, contradiction=550)
    assert len(first.merge(other, on=["source", "target"])) == 3
