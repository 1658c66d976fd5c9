"""HyperLex: its published counts, where a mirror holds it; every rule and fault on small files."""
import os

import numpy as np
import pandas as pd
import pytest

from rolebregman.datasets import (
    DirectedDataset,
    WordVectors,
    fetch,
    graded_correlation,
    load_hyperlex,
    read_hyperlex,
    with_disjoint_validation,
)

mirror = pytest.mark.skipif(not os.environ.get("ROLEBREGMAN_MIRROR"), reason="ROLEBREGMAN_MIRROR is not set")


def vectors(words):
    words = list(dict.fromkeys(words))
    return WordVectors(words, np.random.default_rng(0).normal(size=(len(words), 4)).astype(np.float32), "made up")


def in_words(ds, edges):
    return {(ds.id(s), ds.id(t)) for s, t in edges}


# Small

HEADER = "WORD1 WORD2 POS TYPE AVG_SCORE AVG_SCORE_0_10 STD SCORES.."
ROWS = ["dog animal N hyp-1 5.5 9.17 0.5 6 5 6 5 6 5 6", "animal dog N r-hyp-1 1.0 1.67 0.5 1 1 1 1 1 1 1 2",
        "plant oak N r-hyp-2 2.0 3.33 1.0 2 2 2 2 2 2 2", "cat animal N hyp-1 3.0 5.0 1.0 3 3 3 3 3 3 3",
        "run move V hyp-1 5.0 8.33 1.0 5 5 5 5 5 5 5", "dog cat N cohyp 0.5 0.83 0.5 0 1 0 1 0 1 0",
        "galosh shoe N hyp-1 6.0 10.0 0.0 6 6 6 6 6 6 6", "run stop V ant 0.2 0.33 0.4 0 0 0 0 1 0 0"]
WORDS = vectors("dog animal plant oak cat run move stop shoe".split()) # and no galosh


def hyperlex_folder(root, rows=ROWS, random=((0, 3, 4, 5), (2,), (1, 6, 7)), lexical=((0, 1, 5), (3,), (4,)), end="\n"):
    def put(name, some):
        path = root/name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(end.join([HEADER, *some, ""]).encode())
    put("hyperlex-all.txt", rows)
    for split, parts in dict(random=random, lexical=lexical).items():
        for part, which in zip(("training", "dev", "test"), parts, strict=True):
            put(f"splits/{split}/hyperlex_{part}_all_{split}.txt", [rows[i] for i in which])
    return root


def small_hyperlex(tmp_path, split="random", **options):
    return load_hyperlex(split, path=hyperlex_folder(tmp_path), vectors=WORDS, **options)


def test_rows_of_any_length_are_read(tmp_path):
    table = read_hyperlex(hyperlex_folder(tmp_path)/"hyperlex-all.txt")
    assert table.columns.tolist() == ["word1", "word2", "pos", "type", "score", "std", "ratings"]
    assert table.iloc[1].tolist() == ["animal", "dog", "N", "r-hyp-1", 1.0, 0.5, 8]
    again = read_hyperlex(hyperlex_folder(tmp_path/"crlf", end="\r\n")/"hyperlex-all.txt")
    assert table.equals(again)


def test_of_ones_own_word_vectors_the_report_says_how_words_were_found(tmp_path):
    assert small_hyperlex(tmp_path).report["words found"] == {
        "as written": 9, "in lower case": 0, "by their parts": 0, "not there": 1}


def test_edges_run_from_special_to_general_and_stand_in_one_part(tmp_path):
    ds = small_hyperlex(tmp_path)
    # dog -> animal stands in training and, turned round, in the test: the test keeps it
    assert in_words(ds, ds.edges["test"]) == {("dog", "animal")}
    assert in_words(ds, ds.edges["valid"]) == {("oak", "plant")}
    assert in_words(ds, ds.edges["train"]) == {("cat", "animal"), ("run", "move")}
    assert ds.one_way("test").all()
    assert ds.report["dropped or changed"] == {"word without a vector": 1, "pair of such a word": 1,
                                               "turned pair that stands the right way, too": 1,
                                               "edge of two parts, kept in the later one": 1}


def test_a_word_without_a_vector_is_dropped_and_never_filled_in(tmp_path):
    ds = small_hyperlex(tmp_path)
    assert "galosh" not in set(ds.nodes["id"]) and "shoe" in set(ds.nodes["id"])
    for word, vector in zip(ds.nodes["id"], ds.features, strict=True):
        assert (vector == WORDS[word]).all()


def test_every_scored_pair_stays_for_graded_evaluation(tmp_path):
    ds = small_hyperlex(tmp_path, min_score=3, pos="N")
    assert len(ds.graded) == 7
    graded = ds.graded.set_index([ds.nodes["id"].to_numpy()[ds.graded[c]] for c in ("source", "target")])
    assert graded.loc[("animal", "dog"), "score"] == 1 and graded.loc[("animal", "dog"), "random"] == "test"
    assert graded.loc[("run", "stop"), ["split", "random", "lexical"]].tolist() == ["", "test", ""]
    rho = graded_correlation(ds, -ds.graded["score"])
    assert [rho["all"], rho["nouns"]] == pytest.approx([1, 1]) and np.isnan(rho["verbs"]) # there are two verbs
    assert graded_correlation(ds, np.zeros(7))["all"] == 0
    with pytest.raises(ValueError, match=r"shape \(3,\), expected \(7,\)"):
        graded_correlation(ds, np.zeros(3))
    with pytest.raises(ValueError, match="row 2 is not finite"):
        graded_correlation(ds, [0, 0, np.nan, 0, 0, 0, 0])


def test_an_edge_has_the_score_of_its_own_direction(tmp_path):
    ds = small_hyperlex(tmp_path, "lexical", min_score=2.5)
    assert in_words(ds, ds.known) == {("oak", "plant")} # scored only as "a plant is an oak"; and in no part, anyway
    assert in_words(ds, ds.edges["train"]) == {("dog", "animal")} # 5.5, though "an animal is a dog" has 1.0
    assert ds.report["dropped or changed"]["edge of a turned pair only, without a score"] == 1


def test_what_an_option_leaves_out_is_never_a_negative(tmp_path):
    hyperlex_folder(tmp_path, random=((0, 4, 5), (2,), (3, 6, 7)))
    whole = load_hyperlex(path=tmp_path, vectors=WORDS)
    nouns = load_hyperlex(path=tmp_path, vectors=WORDS, pos="N")
    assert in_words(nouns, nouns.known) == {("run", "move")}
    assert (nouns.positives == whole.positives).all()
    assert set(nouns.nodes["id"][nouns.pool]) == {"dog", "animal", "plant", "oak", "cat"}
    assert set(whole.nodes["id"]) - set(whole.nodes["id"][whole.pool]) == {"shoe"} # its only pair was that of galosh
    assert nouns.nodes.set_index("id")["pos"].to_dict()["run"] == "V"


def test_the_seeded_split_keeps_turned_pairs_together_and_ignores_the_order_of_rows(tmp_path):
    rows = [f"a{i} b{i} N hyp-1 5.0 8.3 1.0 5 5 5 5 5 5 5" for i in range(40)]
    rows += [f"b{i} a{i} N r-hyp-1 1.0 1.7 1.0 1 1 1 1 1 1 1" for i in range(20)]
    words = vectors([f"{c}{i}" for c in "ab" for i in range(40)])
    found = []
    for name, some in (("x", rows), ("y", rows[::-1])):
        hyperlex_folder(tmp_path/name, some, random=((0,), (1,), (2,)), lexical=((0,), (1,), (2,)))
        ds = load_hyperlex("seeded", seed=3, path=tmp_path/name, vectors=words)
        assert [len(e) for e in ds.edges.values()] == [32, 4, 4]
        assert "edge of two parts, kept in the later one" not in ds.report["dropped or changed"]
        found.append({k: in_words(ds, e) for k, e in ds.edges.items()})
    assert found[0] == found[1]
    assert load_hyperlex("seeded", seed=4, path=tmp_path/"x", vectors=words).edges["test"].tolist() != \
        ds.edges["test"].tolist()


@pytest.mark.parametrize("row, says", [
    ("dog animal N hyp-1 5.5", r"line 10: 5 fields, expected two words, POS, TYPE"),
    ("dog animal X hyp-1 5.5 9.2 0.5 6", r"line 10: POS 'X' and TYPE 'hyp-1', expected N or V"),
    ("dog animal N hyper 5.5 9.2 0.5 6", r"line 10: POS 'N' and TYPE 'hyper'"),
    ("dog animal N hyp-1 high 9.2 0.5 6", r"line 10: could not convert string to float: 'high'"),
    ("dog animal N hyp-1 9.2 5.5 0.5 6", r"line 10: score 9.2, expected 0 to 6"),
    ("dog animal N hyp-1 5.5 9.2 0.5 6", r"the pair \('dog', 'animal'\) stands more than once"),
])
def test_a_bad_row_is_named(tmp_path, row, says):
    path = hyperlex_folder(tmp_path, [*ROWS, row])/"hyperlex-all.txt"
    with pytest.raises(ValueError, match="hyperlex-all.txt.*" + says):
        read_hyperlex(path)


def test_bad_files_and_options_are_named(tmp_path):
    folder = hyperlex_folder(tmp_path)
    for options, says in ((dict(split="official"), "split = 'official', expected one of"), (dict(pos="n"), "pos = 'n'"),
                          (dict(min_score=-1), "min_score = -1, expected 0 to 6")):
        with pytest.raises(ValueError, match=says):
            load_hyperlex(path=folder, vectors=WORDS, **options)
    (folder/"splits/random/hyperlex_dev_all_random.txt").write_text(f"{HEADER}\n{ROWS[0]}\n")
    with pytest.raises(ValueError, match=r"test_all_random.*|dev_all_random.txt: pair 0 .* in another part, too"):
        load_hyperlex(path=folder, vectors=WORDS)
    (folder/"hyperlex-all.txt").write_bytes(b"dog \xff N hyp-1 5.5 9.2 0.5 6\n")
    with pytest.raises(ValueError, match="line 1: byte 0xff is not UTF-8"):
        load_hyperlex(path=folder, vectors=WORDS)
    (folder/"hyperlex-all.txt").write_text(HEADER)
    with pytest.raises(ValueError, match="holds no pairs"):
        load_hyperlex(path=folder, vectors=WORDS)


# Real

@mirror
def test_hyperlex_has_its_published_counts():
    table = read_hyperlex(fetch("hyperlex", quiet=True)/"hyperlex-all.txt")
    assert len(table) == 2616 and table["pos"].value_counts().to_dict() == dict(N=2163, V=453)
    assert (table["ratings"].min() + 7, table["ratings"].max() + 7) == (14, 21) # fields of a row
    kind = table["type"]
    assert kind.str.startswith("hyp").sum() == 1205 and kind.str.startswith("r-hyp").sum() == 296
    pairs = set(zip(table["word1"], table["word2"], strict=True))
    assert sum((b, a) in pairs for a, b in pairs) == 2 * 303


@mirror
@pytest.mark.parametrize("split, rows, edges", [("random", (1831, 130, 655), (779, 71, 358)),
                                                ("lexical", (1133, 85, 269), (553, 50, 119))])
def test_the_official_splits_of_hyperlex(split, rows, edges):
    ds = load_hyperlex(split, quiet=True)
    counts = ds.graded[split].value_counts()
    assert sum(counts[p] for p in ds.edges) == sum(rows) - 1 # the pair of galosh
    assert tuple(len(e) for e in ds.edges.values()) == edges
    assert len(ds.graded) == 2615 and ds.num_nodes == 2230 and len(ds.positives) == 1208
    assert all(ds.one_way(p).all() for p in ds.edges)
    words = [set(ds.edges[p].ravel().tolist()) for p in ("train", "test")]
    assert bool(words[0] & words[1]) == (split == "random")
    assert list(graded_correlation(ds, -ds.graded["score"]).values()) == pytest.approx([1] * 5)
    assert (ds.features == load_hyperlex(split, quiet=True).features).all()


@mirror
def test_hyperlex_by_part_of_speech_and_score():
    nouns, verbs = (load_hyperlex("seeded", pos=p, quiet=True) for p in "NV")
    assert sum(len(e) for d in (nouns, verbs) for e in d.edges.values()) == 1208
    assert len(nouns.graded) == len(verbs.graded) == 2615 and len(nouns.positives) == 1208
    sure = load_hyperlex(min_score=5, quiet=True)
    kept = np.concatenate(list(sure.edges.values()))
    scores = sure.graded.set_index(["source", "target"])["score"]
    assert 0 < len(kept) < 1208 and scores.loc[[tuple(e) for e in kept.tolist()]].min() >= 5


# Validation that shares no node with training

def forest(groups, seed=0, valid=4):
    "Paths of so many edges each; the first edges are for validation, and two more for the test"
    edges, start = [], 0
    for size in groups:
        edges += [(start + i, start + i + 1) for i in range(size)]
        start += size + 1
    edges = np.random.default_rng(1).permutation(np.array(edges))
    parts = dict(train=edges[valid:], valid=edges[:valid], test=np.array([(start, start + 1), (start + 1, start + 2)]))
    return DirectedDataset("forest", np.eye(start + 3), pd.DataFrame(dict(id=range(start + 3))), parts, seed=seed)


@pytest.mark.parametrize("seed", range(5))
def test_whole_groups_are_held_out_and_no_pair_is_lost(seed):
    before = forest((9, 3, 2, 2, 1, 1), seed)
    after = with_disjoint_validation(before)
    train, valid = after.edges["train"], after.edges["valid"]
    assert not np.isin(valid, train).any() and 0 < len(valid) <= 4
    both = lambda edges: sorted(map(tuple, [*edges["train"].tolist(), *edges["valid"].tolist()]))  # noqa: E731
    assert both(after.edges) == both(before.edges) and (after.edges["test"] == before.edges["test"]).all()
    assert set(range(10)) <= set(train.ravel().tolist()), "the largest group stays in training"
    again = with_disjoint_validation(before)
    assert (again.edges["valid"] == valid).all() and after.report["validation"] == "shares no node with training"


def test_one_group_cannot_be_parted():
    with pytest.raises(ValueError, match="forest: its training and validation edges all hang together"):
        with_disjoint_validation(forest((12,)))
