"""HyperLex and WordNet: their published counts, where a mirror holds them; every rule and fault on small files."""
import gzip
import hashlib
import os
import subprocess
import sys

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rolebregman.datasets import (
    WordVectors,
    basic_pairs,
    fetch,
    graded_correlation,
    load_hyperlex,
    load_wordnet,
    read_hyperlex,
    read_wordnet,
    split_cones,
    transitive_closure,
)

mirror = pytest.mark.skipif(not os.environ.get("ROLEBREGMAN_MIRROR"), reason="ROLEBREGMAN_MIRROR is not set")


def vectors(words):
    words = list(dict.fromkeys(words))
    return WordVectors(words, np.random.default_rng(0).normal(size=(len(words), 4)).astype(np.float32), "made up")


def in_words(ds, edges):
    return {(ds.id(s), ds.id(t)) for s, t in edges}


# HyperLex, small

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


# HyperLex, real

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


# Closure

_graphs = st.integers(2, 9).flatmap(lambda n: st.tuples(st.just(n), st.lists(
    st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)), min_size=1, max_size=20)))


@settings(max_examples=150, deadline=None)
@given(_graphs)
def test_closure_is_that_of_networkx_with_cycles_too(graph):
    n, pairs = graph
    found, cyclic = transitive_closure(np.array(pairs), n)
    whole = nx.transitive_closure(nx.DiGraph(pairs), reflexive=False)
    assert {tuple(p) for p in found.tolist()} == {(a, b) for a, b in whole.edges if a != b}
    assert set(cyclic.tolist()) == {a for a, b in whole.edges if a == b}


@settings(max_examples=150, deadline=None)
@given(_graphs)
def test_basic_pairs_are_the_transitive_reduction(graph):
    n, pairs = graph
    pairs = [(min(p), max(p)) for p in pairs if p[0] != p[1]]
    if not pairs:
        return
    closure, _ = transitive_closure(np.array(pairs), n)
    basic = closure[basic_pairs(closure, n)]
    assert {tuple(p) for p in basic.tolist()} == set(nx.transitive_reduction(nx.DiGraph(pairs)).edges)


def test_the_protocol_of_cones():
    n = 12
    closure, _ = transitive_closure(np.array([(i, i + 1) for i in range(n - 1)]), n)
    shares = {s: split_cones(closure, n, s, seed=1) for s in (0, 0.1, 0.25, 0.5, 0.9)}
    for share, (parts, rest) in shares.items():
        everything = np.concatenate([*parts.values(), rest])
        assert sorted(map(tuple, everything)) == sorted(map(tuple, closure))
        assert {(i, i + 1) for i in range(n - 1)} <= set(map(tuple, parts["train"].tolist()))
        assert len(parts["train"]) == n - 1 + min(int(55 * share + 0.5), 49)
        assert len(parts["valid"]) == len(parts["test"]) == 3 # 5 % of 55
    train = [set(map(tuple, parts["train"].tolist())) for parts, _ in shares.values()]
    assert all(a <= b for a, b in zip(train, train[1:], strict=False))
    assert all((parts["test"] == shares[0][0]["test"]).all() for parts, _ in shares.values())
    with pytest.raises(ValueError, match="non_basic = 0.95, expected a share from 0 to 0.9"):
        split_cones(closure, n, 0.95)
    with pytest.raises(ValueError, match="0 non-basic pairs are too few"):
        split_cones(np.array([(0, 1)]), 2)


# WordNet, small

LICENCE = "  1 This software and database is being provided to you\n  2 \n"
TREE = [("01", ["entity"], []), ("02", ["animal", "beast"], ["@ 01"]), ("03", ["hot_dog", "dog"], ["@ 02"]),
        ("04", ["Cat-o'-nine"], ["@ 02", "~ 05"]), ("05", ["Felix"], ["@i 04"]), ("06", ["zzz", "qqq"], ["@ 03"]),
        ("07", ["poodle"], ["@ 06", "@ 03"])]
KNOWN = vectors("entity animal beast dog cat nine o felix poodle".split())


def wndb(tmp_path, synsets=TREE, name="data.noun", head=LICENCE, change=lambda text: text.encode()):
    lines = []
    for offset, lemmas, pointers in synsets:
        words = " ".join(f"{w} 0" for w in lemmas)
        ends = "".join(" {} {:>08} n 0000".format(*p.split()) for p in pointers)
        lines.append(f"{offset:>08} 05 n {len(lemmas):02x} {words} {len(pointers):03d}{ends} | a; \"so | on\"  \n")
    (tmp_path/name).write_bytes(change(head + "".join(lines)))
    return tmp_path/name


def test_synsets_and_pointers_are_read(tmp_path):
    synsets, pointers, dropped = read_wordnet(wndb(tmp_path))
    assert synsets["id"].tolist() == [f"{i:08d}" for i in range(1, 8)]
    assert synsets["lemmas"][2] == ["hot_dog", "dog"] and synsets["gloss"][0] == 'a; "so | on"'
    assert pointers.values.tolist() == [[1, 0, False], [2, 1, False], [3, 1, False], [4, 3, True], [5, 2, False],
                                        [6, 5, False], [6, 2, False]]
    assert dropped == {}
    many = [("01", [f"w{i}" for i in range(28)], []), ("02", ["x"], ["@ 01"])] # counts of words are hexadecimal
    assert len(read_wordnet(wndb(tmp_path, many))[0]["lemmas"][0]) == 28


@pytest.mark.parametrize("change", [lambda text: gzip.compress(text.encode()),
                                    lambda text: text.replace("\n", "\r\n").encode()])
def test_packing_and_line_ends_make_no_difference(tmp_path, change):
    plain, other = read_wordnet(wndb(tmp_path)), read_wordnet(wndb(tmp_path, name="other", change=change))
    assert all(a.equals(b) for a, b in zip(plain[:2], other[:2], strict=True))


def small_wordnet(tmp_path, synsets=TREE, **options):
    return load_wordnet(path=wndb(tmp_path, synsets), vectors=KNOWN, **options)


def many(cycle=False):
    "A chain long enough to be split, with a cycle at its end"
    return [(f"{i:02d}", ["dog"], [f"@ {i - 1:02d}"] if i > 1 else ["@ 03"] if cycle else []) for i in range(1, 21)]


def test_a_synset_has_the_vector_of_its_first_covered_lemma(tmp_path):
    synsets = TREE + [(f"{i}", ["poodle"], ["@ 07"]) for i in range(10, 30)]
    ds = small_wordnet(tmp_path, synsets)
    node = ds.nodes.set_index("id")
    row = {i: n for n, i in enumerate(ds.nodes["id"])}
    assert node.loc["00000003", ["text", "lemma"]].tolist() == ["hot dog", "dog"]
    assert np.allclose(ds.features[row["00000004"]], np.mean([KNOWN[w] for w in ("cat", "o", "nine")], axis=0))
    assert "00000006" not in row and "00000005" not in row # not covered; an instance
    assert ds.report["dropped or changed"] == {"instance hypernym pointer": 1, "synset without a vector": 1,
                                               "synset in no pair": 1, "pair of a synset without a vector": 2}
    assert node["depth"].to_dict()["00000007"] == 3
    assert (np.abs(ds.features).sum(1) > 0).all()


def test_the_closure_leads_through_what_is_dropped(tmp_path):
    synsets = [("01", ["entity"], []), ("02", ["zzz"], ["@ 01"])]
    synsets += [(f"{i}", ["poodle"], ["@ 02"]) for i in range(10, 30)]
    ds = small_wordnet(tmp_path, synsets, closure=True)
    assert len(ds.positives) == 20 and set(ds.positives[:, 1].tolist()) == {0}


def test_word_vectors_may_come_from_a_file(tmp_path):
    path = tmp_path/"vectors.txt"
    path.write_text("".join(f"{w} {' '.join(map(repr, v.tolist()))}\n" for w, v in
                            zip(KNOWN.words, KNOWN.vectors, strict=True)) + "unwanted 1 2 3 4\n")
    one, other = (load_wordnet(path=wndb(tmp_path, many()), vectors=v) for v in (KNOWN, path))
    assert (one.features == other.features).all() and other.report["vectors"] == "vectors.txt"


def test_instances_come_by_option(tmp_path):
    synsets = TREE + [(f"{i}", ["poodle"], ["@i 07"]) for i in range(10, 30)]
    ds = small_wordnet(tmp_path, synsets, instances=True)
    assert len(ds.positives) == 4 + 21 and "instance hypernym pointer" not in ds.report["dropped or changed"]


@pytest.mark.parametrize("options", [dict(), dict(closure=True), dict(split="cones", non_basic=.5)])
def test_a_cycle_ends_and_is_reported(tmp_path, options):
    ds = small_wordnet(tmp_path, many(cycle=True), **options)
    assert ds.report["cycles"] == "dog 00000001 -> dog 00000003 -> dog 00000002 -> dog 00000001"
    pairs = {tuple(p) for p in ds.positives.tolist()}
    assert {(0, 2), (2, 1), (1, 0)} <= pairs
    if options.get("closure"): # within the cycle it goes both ways
        assert sum(len(e) - ds.one_way(p).sum() for p, e in ds.edges.items()) == 6
    if options: # 17 nodes reach all below and the cycle of three
        assert len(pairs) == 17 * 16 // 2 + 17 * 3 + 6
    if "split" in options:
        assert {(0, 2), (2, 1), (1, 0)} <= {tuple(p) for p in ds.edges["train"].tolist()}
    assert small_wordnet(tmp_path, many(), **options).report["cycles"] == "none"


def test_pointers_that_lead_nowhere_are_counted(tmp_path):
    synsets = [("01", ["entity"], ["@ 99"]), ("02", ["dog"], ["@ 02", "@ 01", "@i 01"])]
    _, pointers, dropped = read_wordnet(wndb(tmp_path, synsets))
    assert pointers.values.tolist() == [[1, 0, False]]
    assert dropped == {"dangling pointer": 1, "pointer to itself": 1, "repeated pointer": 1}


@pytest.mark.parametrize("line, says", [
    ("00000009 05 n 02 dog 0 001 @ 00000001 n 0000 | cut", "line 10 .*no synset of wndb's format, or cut off"),
    ("00000009 05 n 01 dog 0 002 @ 00000001 n 0000 | too few pointers", "line 10"),
    ("00000009 05 v 01 run 0 000 | a verb", "line 10"),
    ("dog animal", "line 10"), ("00000009 05 n 00 000 | no word", "line 10"),
    ("00000007 05 n 01 dog 0 000 | again", "synset 00000007 stands more than once"),
])
def test_a_bad_synset_is_named(tmp_path, line, says):
    path = wndb(tmp_path, change=lambda text: (text + line + "\n").encode())
    with pytest.raises(ValueError, match="data.noun.*" + says):
        read_wordnet(path)


@pytest.mark.parametrize("change, says", [
    (lambda text: gzip.compress(text.encode() * 50)[:-20], "is damaged or cut off after line"),
    (lambda text: text.encode() + b"\xe9t\xe9", "line 10: byte 0xe9 is not UTF-8"),
    (lambda text: LICENCE.encode(), "holds no synsets"),
    (lambda text: text[:-60].encode(), "line 9 .*cut off"),
])
def test_a_damaged_file_is_named(tmp_path, change, says):
    with pytest.raises(ValueError, match="data.noun.*" + says):
        read_wordnet(wndb(tmp_path, change=change))


def test_options_that_do_not_go_are_refused(tmp_path):
    for options, says in ((dict(split="closure"), "split = 'closure', expected 'edge', 'node' or 'cones'"),
                          (dict(non_basic=.1), "non_basic = 0.1 goes with split='cones'"),
                          (dict(split="cones", non_basic=2), "non_basic = 2, expected a share"),
                          (dict(dim=10, split="edge"), "dim = 10, expected 50, 100, 200 or 300")):
        with pytest.raises(ValueError, match=says):
            load_wordnet(path=wndb(tmp_path, many()), vectors=None if "dim" in options else KNOWN, **options)


# WordNet, real

@pytest.fixture(scope="module")
def wordnet():
    if not os.environ.get("ROLEBREGMAN_MIRROR"):
        pytest.skip("ROLEBREGMAN_MIRROR is not set")
    return read_wordnet(fetch("wordnet", quiet=True)/"data.noun")


def test_wordnet_has_its_published_counts(wordnet):
    synsets, pointers, dropped = wordnet
    assert len(synsets) == 82_115 and dropped == {}
    assert pointers["instance"].value_counts().to_dict() == {False: 75_850, True: 8_577}
    closure, cyclic = transitive_closure(pointers[["source", "target"]].to_numpy(), len(synsets))
    assert len(closure) == 743_241 and not len(cyclic)


def test_the_cones_protocol_has_the_counts_of_its_paper(wordnet):
    synsets, pointers, _ = wordnet
    closure, _ = transitive_closure(pointers[["source", "target"]].to_numpy(), len(synsets))
    closure = closure[(closure != 0).all(1)] # without the root, entity
    assert len(closure) == 661_127 and len(np.unique(closure)) == 82_114
    assert basic_pairs(closure, len(synsets)).sum() == 84_363


@mirror
@pytest.mark.parametrize("options, synsets, pairs", [
    (dict(), 62_603, 63_556), (dict(instances=True), 70_136, 71_948),
    (dict(closure=True, instances=True), 71_612, 648_348), (dict(dim=100), 62_380, 63_331),
    (dict(split="node"), 62_603, 63_556),
    (dict(split="cones", non_basic=.1, instances=True), 71_611, None)])
def test_wordnet_under_glove(options, synsets, pairs):
    ds = load_wordnet(**options, quiet=True)
    assert ds.num_nodes == (synsets or ds.num_nodes) and len(ds.positives) == (pairs or len(ds.positives))
    assert ds.features.any(1).all() and all(ds.one_way(p).all() for p in ds.edges)
    assert ds.report["dropped or changed"]["synset without a vector"] == (10_744 if ds.dim == 100 else 10_503)
    if options.get("split") == "node":
        nodes = [set(e.ravel().tolist()) for e in ds.edges.values()]
        assert not (nodes[0] & nodes[1] or nodes[0] & nodes[2] or nodes[1] & nodes[2])


@mirror
def test_wordnet_needs_little_memory_and_the_splits_do_not_depend_on_the_process():
    # VmHWM, since the figure of getrusage is handed down from the process that started this one
    code = ("import hashlib, re; from pathlib import Path; from rolebregman.datasets.lexical import load_wordnet; "
            "ds = load_wordnet(closure=True, instances=True, quiet=True); "
            "print(hashlib.sha256(ds.edges['test'].tobytes()).hexdigest(), "
            "re.search(r'VmHWM:\\s+(\\d+)', Path('/proc/self/status').read_text())[1])")
    seen, peak = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True,
                                env=os.environ | dict(PYTHONHASHSEED="7")).stdout.split()
    here = load_wordnet(closure=True, instances=True, quiet=True)
    assert seen == hashlib.sha256(here.edges["test"].tobytes()).hexdigest()
    assert int(peak) < 1.5e6 # kB
