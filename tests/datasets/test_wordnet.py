"""WordNet: its published counts, where a mirror holds it; closure, splits, every rule and fault on small files."""
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
    load_wordnet,
    read_wordnet,
    split_cones,
    transitive_closure,
)

mirror = pytest.mark.skipif(not os.environ.get("ROLEBREGMAN_MIRROR"), reason="ROLEBREGMAN_MIRROR is not set")


def vectors(words):
    words = list(dict.fromkeys(words))
    return WordVectors(words, np.random.default_rng(0).normal(size=(len(words), 4)).astype(np.float32), "made up")


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


# Small

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


@pytest.mark.parametrize("change", [lambda text: gzip.compress(text.encode(), mtime=0),
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
    (lambda text: gzip.compress(text.encode() * 50, mtime=0)[:-20], "is damaged or cut off after line"),
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


# Real

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
    code = ("import hashlib, re; from pathlib import Path; from rolebregman.datasets.wordnet import load_wordnet; "
            "ds = load_wordnet(closure=True, instances=True, quiet=True); "
            "print(hashlib.sha256(ds.edges['test'].tobytes()).hexdigest(), "
            "re.search(r'VmHWM:\\s+(\\d+)', Path('/proc/self/status').read_text())[1])")
    seen, peak = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True,
                                env=os.environ | dict(PYTHONHASHSEED="7")).stdout.split()
    here = load_wordnet(closure=True, instances=True, quiet=True)
    assert seen == hashlib.sha256(here.edges["test"].tobytes()).hexdigest()
    assert int(peak) < 1.5e6 # kB
