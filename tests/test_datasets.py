"""Datasets: what they promise about vectors, edges and splits, for GO and for the user's own pairs."""
import copy
import pickle

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rolebregman.datasets import DirectedDataset, Report, from_pairs, load_dataset, split_edges, toy_tree
from rolebregman.sources import FetchError, fetch


def dataset(**changes):
    "Five nodes on a line, edges from each to the one before"
    fields = dict(name="line", features=np.eye(5, dtype=np.float32), nodes=pd.DataFrame(dict(id=list("abcde"))),
                  edges=dict(train=np.array([(1, 0), (2, 1)]), valid=np.array([(3, 2)]), test=np.array([(4, 3)])))
    return DirectedDataset(**(fields | changes))


def edges(**changes):
    return dataset().edges | {k: np.array(v) for k, v in changes.items()}


# What a dataset refuses

NAN, INF = np.eye(5, dtype=np.float32), np.eye(5, dtype=np.float32)
NAN[3, 1], INF[4, 0] = np.nan, -np.inf


@pytest.mark.parametrize("changes, error, says", [
    (dict(features=NAN), ValueError, r"features of line: row 3, column 1 is nan"),
    (dict(features=INF), ValueError, r"features of line: row 4, column 0 is -inf"),
    (dict(features=np.full((5, 2), 1e300)), ValueError, r"row 0, column 0 is inf"), # too large for float32
    (dict(features=np.eye(5, dtype=int)), TypeError, r"dtype int64, expected floats"),
    (dict(features=np.ones(5)), ValueError, r"shape \(5,\), expected \(n, d\)"),
    (dict(features=np.ones((5, 0))), ValueError, r"shape \(5, 0\)"),
    (dict(features=np.ones((4, 2))), ValueError, r"nodes: 5 rows, but features has 4"),
    (dict(nodes=pd.DataFrame(dict(name=list("abcde")))), ValueError, r"nodes: columns \['name'\], expected a .* 'id'"),
    (dict(nodes=pd.DataFrame(dict(id=list("abcda")))), ValueError, r"id 'a' stands more than once"),
    (dict(edges=dict(train=[(1, 0)])), ValueError, r"keys \['train'\], expected train, valid and test"),
    (dict(edges=edges(valid=[(5, 0)])), ValueError, r"edges\['valid'\]\[0\] = \(5, 0\): there are only rows 0 to 4"),
    (dict(edges=edges(test=[(4, 3), (0, -1)])), ValueError, r"edges\['test'\]\[1\] = \(0, -1\)"),
    (dict(edges=edges(test=[(2, 2)])), ValueError, r"edges\['test'\]\[0\]: c is related to itself"),
    (dict(edges=edges(test=[(1.0, 0.0)])), TypeError, r"edges\['test'\]: dtype float64, expected integers"),
    (dict(edges=edges(test=[1, 0])), ValueError, r"edges\['test'\]: shape \(2,\), expected \(m, 2\)"),
    (dict(edges=edges(test=[(2, 1)])), ValueError, r"c -> b stands more than once; an edge belongs to one split"),
    (dict(edges=edges(train=np.empty((0, 2), int))), ValueError, r"edges\['train'\] is empty"),
    (dict(pool=[]), ValueError, r"pool: shape \(0,\)"),
    (dict(pool=[0, 5]), ValueError, r"pool: holds rows 0 to 5, there are only rows 0 to 4"),
    (dict(pool=[[0, 1]]), ValueError, r"pool: shape \(1, 2\)"),
    (dict(known=[(0, 9)]), ValueError, r"known\[0\] = \(0, 9\)"),
])
def test_a_fault_names_field_row_and_id(changes, error, says):
    with pytest.raises(error, match=says):
        dataset(**changes)


def test_float32_features_are_never_copied(tmp_path):
    array = np.eye(5, dtype=np.float32)
    assert dataset(features=array).features is array
    np.save(tmp_path/"v.npy", array)
    mapped = dataset(features=np.load(tmp_path/"v.npy", mmap_mode="r")).features
    assert isinstance(mapped, np.memmap)
    assert dataset(features=array.astype(np.float64)).features.dtype == np.float32


def test_a_dataset_survives_copies_and_pickles():
    ds = toy_tree(depth=3)
    for other in (pickle.loads(pickle.dumps(ds)), copy.deepcopy(ds)):
        assert (other.features == ds.features).all() and other.report == ds.report
        assert (other.positives == ds.positives).all() and repr(other) == repr(ds)


# What it tells

def test_positives_are_all_edges_and_known_pairs_once():
    ds = dataset(known=np.array([(0, 4), (1, 0)]))
    assert ds.positives.tolist() == [[0, 4], [1, 0], [2, 1], [3, 2], [4, 3]]
    assert ds.positives.dtype == np.int64


def test_one_way_is_false_where_the_reverse_is_a_positive_of_any_split():
    ds = dataset(edges=edges(test=[(4, 3), (0, 1), (2, 3), (0, 4)]), known=[(4, 0)])
    assert ds.one_way("test").tolist() == [True, False, False, False]
    assert ds.one_way("train").tolist() == [False, True]


@given(st.sets(st.tuples(st.integers(0, 6), st.integers(0, 6)).filter(lambda e: e[0] != e[1]), min_size=5))
def test_one_way_agrees_with_its_definition(pairs):
    ds = dataset(features=np.eye(7, dtype=np.float32), nodes=pd.DataFrame(dict(id=range(7))),
                 edges=split_edges(np.array(sorted(pairs))))
    for split, some in ds.edges.items():
        assert ds.one_way(split).tolist() == [(t, s) not in pairs for s, t in some.tolist()]
    assert {tuple(p) for p in ds.positives.tolist()} == pairs


def test_a_limit_keeps_a_nested_choice_of_training_edges_and_forgets_no_positive():
    ds = toy_tree()
    small, large = ds.limit(20), ds.limit(100)
    assert [len(e) for e in small.edges.values()] == [20, 36, 36]
    kept = [{tuple(e) for e in d.edges["train"].tolist()} for d in (small, large, ds)]
    assert kept[0] < kept[1] < kept[2]
    assert (small.positives == ds.positives).all() and (small.limit(5).positives == ds.positives).all()
    assert small.report["training edges used"] == "20 of 291" and "training edges used" not in ds.report
    assert ds.limit(291) is ds and ds.limit(10**9) is ds
    assert (ds.limit(20, seed=1).edges["train"] != small.edges["train"]).any()
    with pytest.raises(ValueError, match="train = 0, expected at least 1"):
        ds.limit(0)


def test_examples_are_edges_in_words():
    ds = toy_tree(depth=3)
    words = ds.examples(4, split="test")
    texts = ds.nodes.text.to_numpy()
    there = {(texts[s], texts[t]) for s, t in ds.edges["test"]}
    assert len(words) == 4 and set(words.itertuples(index=False, name=None)) <= there


def test_a_report_prints_every_entry_in_both_forms():
    report = Report(kept=dict(terms=4183), source="<GO>", share=0.5)
    assert repr(report).splitlines() == ["kept: terms  4,183", "source       <GO>", "share        0.5"]
    assert "<td>4,183</td>" in report._repr_html_() and "&lt;GO&gt;" in report._repr_html_()


# Splits

unique_edges = st.sets(st.tuples(st.integers(0, 20), st.integers(21, 40)), min_size=5, max_size=120)


@given(unique_edges, st.integers(0, 100))
def test_a_split_is_a_partition_of_the_right_sizes(pairs, seed):
    parts = split_edges(np.array(list(pairs)), seed)
    together = [tuple(e) for part in parts.values() for e in part.tolist()]
    assert len(together) == len(pairs) and set(together) == pairs
    tenth = int(len(pairs) * 0.1 + 0.5)
    assert [len(e) for e in parts.values()] == [len(pairs) - 2 * tenth, tenth, tenth]


@settings(max_examples=30)
@given(unique_edges, st.integers(0, 100), st.randoms())
def test_a_split_depends_on_the_seed_and_not_on_the_order(pairs, seed, random):
    pairs = sorted(pairs)
    first = split_edges(np.array(pairs), seed)
    random.shuffle(pairs)
    second = split_edges(np.array(pairs), seed)
    assert all((first[k] == second[k]).all() for k in first)
    many = np.array([(s, t) for s in range(9) for t in range(9, 18)])
    assert (split_edges(many, seed)["test"] != split_edges(many, seed + 1)["test"]).any()


@pytest.mark.parametrize("count, fractions, says", [
    (4, (0.8, 0.1, 0.1), "4 edges are too few to split .*: the valid part would have 0"),
    (2, (0.2, 0.4, 0.4), "2 edges are too few"),
    (9, (0.8, 0.1), "expected three shares that sum to 1"),
    (9, (0.8, 0.1, 0.2), "expected three shares that sum to 1"),
    (9, (0, 0.5, 0.5), "that of train above 0"),
    (9, (1.2, -0.1, -0.1), "expected three shares"),
])
def test_a_split_that_cannot_be_is_refused(count, fractions, says):
    with pytest.raises(ValueError, match=says):
        split_edges(np.array([(i, i + 1) for i in range(count)]), 0, fractions)


def test_a_part_with_no_share_may_be_empty():
    parts = split_edges(np.array([(i, i + 1) for i in range(10)]), 0, (0.9, 0, 0.1))
    assert [len(e) for e in parts.values()] == [9, 0, 1]


# The toy tree

@pytest.mark.parametrize("depth, branching, nodes", [(1, 9, 10), (3, 3, 40), (5, 2, 63), (2, 4, 21)])
def test_the_toy_is_a_tree_from_child_to_parent(depth, branching, nodes):
    ds = load_dataset("toy", depth=depth, branching=branching, dim=8)
    assert ds.num_nodes == nodes and ds.dim == 8 and len(ds.positives) == nodes - 1
    child, parent = ds.positives.T
    assert sorted(child) == list(range(1, nodes)) # one parent each, none for the root
    depths, texts = ds.nodes.depth.to_numpy(), ds.nodes.text.to_numpy()
    assert (depths[child] == depths[parent] + 1).all() and depths.max() == depth
    assert all(texts[c].rpartition(".")[0] == texts[p] for c, p in ds.positives)


@pytest.mark.parametrize("seed", range(5))
def test_direction_in_the_toy_can_be_learned(seed):
    "The mean step of the training edges tells child from parent in every test edge"
    ds = toy_tree(seed=seed)
    x = ds.features
    step = np.mean(x[ds.edges["train"][:, 0]] - x[ds.edges["train"][:, 1]], axis=0)
    assert ((x[ds.edges["test"][:, 0]] - x[ds.edges["test"][:, 1]]) @ step > 0).all()


def test_the_toy_depends_on_its_seed_alone():
    assert (toy_tree(seed=3).features == toy_tree(seed=3).features).all()
    assert (toy_tree(seed=3).features != toy_tree(seed=4).features).any()


# The Gene Ontology, on a small file and on the real one

def small_go(tmp_path, order=1):
    stanzas = []
    for i in range(1, 13):
        lines = [f"id: GO:{i:03d}", f"name: term {i}", "namespace: cellular_component", f'def: "What {i} is." []']
        lines += [f"is_a: GO:{i // 2:03d}"] if i > 1 else []
        lines += ["relationship: part_of GO:001"] if i in (2, 9) else [] # of 2 an is_a too
        stanzas.append("\n".join(lines))
    stanzas += ["id: GO:100\nname: elsewhere\nnamespace: molecular_function\nrelationship: part_of GO:001",
                "id: GO:101\nname: no definition\nnamespace: molecular_function\nis_a: GO:100\nis_a: GO:999",
                "id: GO:102\nname: old\nnamespace: cellular_component\nis_obsolete: true"]
    path = tmp_path/f"go{order}.obo"
    head = "format-version: 1.2\nontology: go\ndata-version: v9\n"
    path.write_text(head + "".join(f"\n[Term]\n{s}\n" for s in stanzas[::order]))
    return path


class Lengths:
    name, version = "lengths", "1"
    def __call__(self, texts):
        return np.array([[len(t), sum(map(ord, t)), 1] for t in texts], dtype=np.float32)


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch, request):
    if "real_go" not in request.fixturenames:
        monkeypatch.setenv("ROLEBREGMAN_CACHE", str(tmp_path/"cache"))


def test_a_small_ontology_comes_out_as_counted_by_hand(tmp_path):
    ds = load_dataset("go", path=small_go(tmp_path), encoder=Lengths(), quiet=True)
    assert ds.name == "go/cellular_component" and list(ds.nodes.id) == [f"GO:{i:03d}" for i in range(1, 13)]
    assert ds.nodes.text[0] == "term 1. What 1 is."
    pairs = {(i - 1, i // 2 - 1) for i in range(2, 13)} | {(8, 0)}
    assert {tuple(p) for p in ds.positives.tolist()} == pairs
    assert (ds.features == Lengths()(list(ds.nodes.text))).all()
    assert ds.report["read"] == {"terms": 15}
    assert ds.report["kept"] == {"terms": 12, "edges": 12, "is_a": 11, "part_of": 2}
    assert ds.report["dropped or changed"] == {
        "obsolete term": 1, "dangling target": 1, "term of another namespace": 2, "edge of another namespace": 1,
        "edge between namespaces": 1, "edge repeated in another relation": 1}
    assert ds.report["cycles"] == "none" and ds.report["release"] == "v9" and ds.report["encoder"] == "lengths"


def test_the_order_of_terms_in_the_file_changes_neither_rows_nor_splits(tmp_path):
    a, b = (load_dataset("go", path=small_go(tmp_path, order), encoder=Lengths(), quiet=True) for order in (1, -1))
    assert a.nodes.equals(b.nodes) and (a.features == b.features).all()
    assert all((a.edges[k] == b.edges[k]).all() for k in a.edges)


def test_namespaces_and_relations_are_options(tmp_path):
    path = small_go(tmp_path)
    load_dataset("go", path=path, encoder=Lengths(), quiet=True) # leaves nothing behind for the next
    everything = load_dataset("go", namespace="all", path=path, encoder=Lengths(), quiet=True)
    assert everything.report["dropped or changed"] == {"obsolete term": 1, "dangling target": 1,
                                                       "edge repeated in another relation": 1}
    assert everything.num_nodes == 14 and len(everything.positives) == 14
    assert everything.report["text"] == "name and definition; 2 terms have no definition"
    assert len(load_dataset("go", relations=["is_a"], path=path, encoder=Lengths(), quiet=True).positives) == 11


def test_a_cycle_is_reported_and_kept(tmp_path):
    path = small_go(tmp_path)
    path.write_text(path.read_text().replace("id: GO:001\n", "id: GO:001\nis_a: GO:005\n"))
    ds = load_dataset("go", path=path, encoder=Lengths(), quiet=True)
    assert ds.report["cycles"] == "GO:001 -> GO:005 -> GO:002 -> GO:001" and len(ds.positives) == 13


@pytest.mark.parametrize("options, says", [
    (dict(namespace="cell"), r"namespace = 'cell', expected one of \['cellular_component', 'molecular_f.* or 'all'"),
    (dict(relations=["is_a", "partof"]), r"has no edge of \['partof'\]"),
    (dict(split="random"), r"split = 'random', expected 'edge'"),
    (dict(namespace="molecular_function"), r"edges are too few to split"),
])
def test_options_that_there_are_not_are_refused(tmp_path, options, says):
    with pytest.raises(ValueError, match=says):
        load_dataset("go", path=small_go(tmp_path), encoder=Lengths(), quiet=True, **options)


def test_an_unknown_dataset_lists_the_known_ones():
    with pytest.raises(ValueError, match="no dataset 'gene': choose from go, toy, or see from_pairs"):
        load_dataset("gene")


@pytest.fixture(scope="module")
def real_go():
    try:
        return fetch("go-basic.obo", quiet=True)
    except FetchError as e:
        pytest.skip(f"the Gene Ontology cannot be had here: {str(e).splitlines()[0]}")


def test_the_gene_ontology_has_the_published_counts(real_go):
    whole = load_dataset("go", namespace="all", encoder=lambda texts: Lengths()(texts), quiet=True)
    kept = whole.report["kept"]
    assert (kept["terms"], kept["is_a"], kept["part_of"]) == (43789, 70759, 7066)
    assert whole.report["dropped or changed"] == {"obsolete term": 3472} and whole.report["cycles"] == "none"
    assert whole.report["text"] == "name and definition; 0 terms have no definition"
    spaces = whole.nodes.namespace
    assert spaces.value_counts().to_dict() == {"biological_process": 28429, "molecular_function": 11177,
                                               "cellular_component": 4183}
    s, t = whole.positives.T
    assert (spaces.to_numpy()[s] == spaces.to_numpy()[t]).all() # no edge crosses namespaces
    roots = set(range(whole.num_nodes)) - set(s.tolist())
    assert set(whole.nodes.name[sorted(roots)]) == set(spaces)
    names = whole.nodes.set_index("id").name
    assert names["GO:0005886"] == "plasma membrane"
    ids = whole.nodes.id.to_numpy()
    assert {(ids[a], ids[b]) for a, b in whole.positives[s == np.flatnonzero(ids == "GO:0005886")[0]]} == {
        ("GO:0005886", "GO:0016020"), ("GO:0005886", "GO:0071944")} # is_a membrane, part_of cell periphery


# The user's own pairs

WORDS = [f"w{i:02d}" for i in range(12)]
PAIRS = pd.DataFrame([(WORDS[i], WORDS[i // 2]) for i in range(1, 12)], columns=["child", "parent"])
VECTORS = np.random.default_rng(0).normal(size=(12, 4)).astype(np.float32)


def related(ds, split=None):
    ids = ds.nodes.id.to_numpy()
    some = ds.positives if split is None else ds.edges[split]
    return {(ids[s], ids[t]) for s, t in some}


EXPECTED = set(PAIRS.itertuples(index=False, name=None))


def test_every_way_to_give_vectors_gives_the_same_dataset(tmp_path):
    np.save(tmp_path/"v.npy", VECTORS)
    np.savez(tmp_path/"v.npz", vectors=VECTORS, ids=np.array(WORDS))
    PAIRS.to_csv(tmp_path/"p.csv", index=False)
    PAIRS.to_csv(tmp_path/"p.tsv", index=False, sep="\t")
    for pairs in (PAIRS, tmp_path/"p.csv", str(tmp_path/"p.tsv")):
        for options in (dict(embeddings=VECTORS, ids=WORDS), dict(embeddings=tmp_path/"v.npy", ids=WORDS),
                        dict(embeddings=tmp_path/"v.npz"), dict(embeddings=pd.DataFrame(VECTORS, index=WORDS))):
            ds = from_pairs(pairs, **options)
            assert related(ds) == EXPECTED and (ds.features == VECTORS).all() and list(ds.nodes.id) == WORDS
            assert (ds.edges["test"] == from_pairs(PAIRS, VECTORS, ids=WORDS).edges["test"]).all()


def test_row_numbers_need_no_ids():
    rows = pd.DataFrame(dict(source=range(1, 12), target=[i // 2 for i in range(1, 12)]))
    ds = from_pairs(rows, VECTORS)
    assert sorted(map(tuple, ds.positives.tolist())) == [(i, i // 2) for i in range(1, 12)]
    assert ds.features is VECTORS


def test_a_file_of_vectors_stays_on_disk(tmp_path):
    np.save(tmp_path/"v.npy", VECTORS)
    assert isinstance(from_pairs(PAIRS, tmp_path/"v.npy", ids=WORDS).features, np.memmap)


def test_without_vectors_the_texts_are_encoded(tmp_path):
    ds = from_pairs(PAIRS, encoder=Lengths(), quiet=True)
    assert list(ds.nodes.text) == WORDS and (ds.features == Lengths()(WORDS)).all()
    texts = {w: f"the word {w}" for w in WORDS + ["not used"]}
    pd.DataFrame(dict(id=texts.keys(), text=texts.values())).to_csv(tmp_path/"t.csv", index=False)
    for form in (texts, pd.Series(texts), pd.DataFrame(texts.items(), columns=["id", "text"]), tmp_path/"t.csv"):
        ds = from_pairs(PAIRS, texts=form, encoder=Lengths(), quiet=True)
        assert list(ds.nodes.text) == [texts[w] for w in WORDS]
        assert (ds.features == Lengths()(list(ds.nodes.text))).all()


@settings(max_examples=20)
@given(st.randoms(), st.integers(0, 50))
def test_neither_the_order_of_pairs_nor_of_vectors_changes_the_split(random, seed):
    first = from_pairs(PAIRS, VECTORS, ids=WORDS, seed=seed)
    rows, places = list(range(len(PAIRS))), list(range(12))
    random.shuffle(rows)
    random.shuffle(places)
    second = from_pairs(PAIRS.iloc[rows], VECTORS[places], ids=[WORDS[i] for i in places], seed=seed)
    assert all(related(first, k) == related(second, k) for k in first.edges)
    assert related(first.limit(4), "train") == related(second.limit(4), "train")


def test_repeated_self_and_mutual_pairs_are_counted():
    more = pd.concat([PAIRS, PAIRS[:3], pd.DataFrame([("w00", "w01"), ("w05", "w05")], columns=PAIRS.columns)])
    ds = from_pairs(more, VECTORS, ids=WORDS)
    assert ds.report["dropped"] == {"self-pair": 1, "repeated pair": 3}
    assert ds.report["read"] == {"rows": 16, "source column": "child", "target column": "parent"}
    assert ds.report["kept"] == {"nodes": 12, "pairs": 12, "pairs in both directions": 2}
    assert sum((~ds.one_way(k)).sum() for k in ds.edges) == 2


def test_odd_vectors_are_named_with_their_row():
    odd = VECTORS.copy()
    odd[3], odd[7], odd[9] = 0, odd[2], odd[2]
    report = from_pairs(PAIRS, odd, ids=WORDS).report
    assert report["zero vectors"] == "1, the first in row 3 (id w03)"
    assert report["vectors equal to an earlier one"] == "2, the first in row 7 (id w07)"
    odd[5, 2] = np.nan
    with pytest.raises(ValueError, match="features of pairs: row 5, column 2 is nan"):
        from_pairs(PAIRS, odd, ids=WORDS)


@pytest.mark.parametrize("options, says", [
    (dict(embeddings=VECTORS), r"row 0 .*: source 'w01' has no vector; without ids= the pairs must hold row num"),
    (dict(embeddings=VECTORS[:11], ids=WORDS[:11]), r"pairs, row 10 .*: source 'w11' has no vector. 1 such ids"),
    (dict(embeddings=VECTORS, ids=WORDS[:11]), r"ids: 11 of them for 12 vectors"),
    (dict(embeddings=VECTORS, ids=WORDS[:11] + ["w01"]), r"source 'w11' has no vector"),
    (dict(embeddings=np.concatenate([VECTORS, VECTORS]), ids=WORDS + WORDS), r"ids: 'w00' stands more than once"),
    (dict(embeddings=VECTORS.astype(int), ids=WORDS), r"dtype int64, expected floats"),
    (dict(texts={"w01": "one"}, encoder=Lengths()), r"pairs, row 0 .*: target 'w00' has no text in texts="),
    (dict(embeddings=VECTORS, ids=WORDS, source="kid"), r"no column 'kid'"),
    (dict(embeddings=VECTORS, ids=WORDS, fractions=(0.98, 0.01, 0.01)), r"11 edges are too few to split"),
])
def test_pairs_that_do_not_fit_are_named(options, says):
    with pytest.raises((ValueError, TypeError), match=says):
        from_pairs(PAIRS, quiet=True, **options)


def test_the_file_is_named_where_an_id_has_no_vector(tmp_path):
    PAIRS.to_csv(tmp_path/"mine.csv", index=False)
    with pytest.raises(ValueError, match=r"mine.csv, row 10 .*: source 'w11' has no vector"):
        from_pairs(tmp_path/"mine.csv", VECTORS[:11], ids=WORDS[:11])


def test_a_source_that_can_have_no_negative_is_named():
    full = pd.DataFrame([("hub", w) for w in WORDS] + [(w, "w00") for w in WORDS[1:]], columns=["source", "target"])
    vectors = np.random.default_rng(1).normal(size=(13, 3)).astype(np.float32)
    with pytest.raises(ValueError, match="'hub' is related to every other node, so it can have no negative"):
        from_pairs(full, vectors, ids=[*WORDS, "hub"])
    more = np.concatenate([vectors, vectors[:1] + 1])
    assert from_pairs(full, more, ids=[*WORDS, "hub", "other"]).num_nodes == 14
