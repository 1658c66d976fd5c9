"The user's own pairs, from any kind of file"
import os
import subprocess
import sys

import networkx as nx
import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from joblib import Parallel, delayed

from rolebregman.datasets import Items, from_pairs, list_ids, pair_blocks, relative_to, require_items, toy_tree


class Lengths:
    name, version = "lengths", "1"
    def __call__(self, texts):
        return np.array([[len(t), sum(map(ord, t)), 1] for t in texts], dtype=np.float32)


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("ROLEBREGMAN_CACHE", str(tmp_path/"cache"))


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
    assert ds.report["read"] == {"rows": 16, "source column": "child", "target column": "parent",
                                 "used columns": "child (source), parent (target)"}
    assert ds.report["kept"] == {"nodes": 12, "pairs": 12, "pairs in both directions": 2}
    assert sum((~ds.one_way(k)).sum() for k in ds.edges) == 2


def test_odd_vectors_are_named_with_their_row():
    odd = VECTORS.copy()
    odd[3], odd[7], odd[9] = 0, odd[2], odd[2]
    report = from_pairs(PAIRS, odd, ids=WORDS).report
    assert report["vectors"]["zero vectors"] == "1, the first in row 3 (id w03)"
    assert report["vectors"]["vectors equal to an earlier one"] == "2, the first in row 7 (id w07)"
    odd[5, 2] = np.nan
    with pytest.raises(ValueError, match="features of pairs: row 5, column 2 is nan"):
        from_pairs(PAIRS, odd, ids=WORDS)


@pytest.mark.parametrize("options, says", [
    (dict(embeddings=VECTORS), r"row 0 .*: source 'w01' has no vector; without ids= the pairs must hold row num"),
    (dict(embeddings=VECTORS[:11], ids=WORDS[:11]), r"pairs, row 10 .*: source 'w11' has no vector. 1 such ids"),
    (dict(embeddings=VECTORS, ids=WORDS[:11]), r"ids: 11 of them for 12 vectors"),
    (dict(embeddings=VECTORS, ids=WORDS[:11] + ["w01"]), r"ids: 'w01' stands more than once"),
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
    with pytest.raises(ValueError, match="'hub' is related to every other candidate of the pool of 13, so it"):
        from_pairs(full, vectors, ids=[*WORDS, "hub"])
    more = np.concatenate([vectors, vectors[:1] + 1])
    assert from_pairs(full, more, ids=[*WORDS, "hub", "other"]).num_nodes == 14


def test_words_come_from_a_file_of_word_vectors_and_missing_ones_are_named_or_dropped(tmp_path):
    covered = [w for w in WORDS if w != "w05"]
    lines = [f"{w} {' '.join(map(str, v))}" for w, v in zip(WORDS, VECTORS, strict=True) if w in covered]
    (tmp_path/"glove.txt").write_text("\n".join([*lines, "unused 1 2 3 4"]) + "\n")
    with pytest.raises(ValueError, match=r"row 4 .*: source 'w05' has no vector. 1 such ids: .* with missing='drop'"):
        from_pairs(PAIRS, tmp_path/"glove.txt")
    ds = from_pairs(PAIRS, tmp_path/"glove.txt", missing="drop")
    assert ds.report["dropped"] == {"pair of an id without a vector": 3}
    assert related(ds) == {p for p in EXPECTED if "w05" not in p} and set(ds.nodes.id) == set(covered)
    assert np.allclose(ds.features, VECTORS[[WORDS.index(i) for i in ds.nodes.id]])
    with pytest.raises(ValueError, match="no pair is left; dropped .*'pair of an id without a vector': 11"):
        from_pairs(PAIRS, VECTORS, ids=[f"x{i}" for i in range(12)], missing="drop")
    with pytest.raises(ValueError, match="missing = 'skip', expected 'raise' or 'drop'"):
        from_pairs(PAIRS, VECTORS, ids=WORDS, missing="skip")


def test_missing_texts_may_be_dropped_too():
    texts = {w: f"the word {w}" for w in WORDS if w != "w11"}
    ds = from_pairs(PAIRS, texts=texts, encoder=Lengths(), missing="drop", quiet=True)
    assert ds.report["dropped"] == {"pair of an id without a text in texts=": 1} and "w11" not in set(ds.nodes.id)


def test_everything_may_be_parquet(tmp_path):
    pytest.importorskip("pyarrow")
    PAIRS.to_parquet(tmp_path/"p.parquet")
    pd.DataFrame(dict(id=WORDS, vector=list(VECTORS))).to_parquet(tmp_path/"v.parquet")
    pd.DataFrame(dict(id=WORDS, text=[f"the word {w}" for w in WORDS])).to_parquet(tmp_path/"t.parquet")
    ds = from_pairs(tmp_path/"p.parquet", tmp_path/"v.parquet", texts=tmp_path/"t.parquet")
    assert related(ds) == EXPECTED and (ds.features == VECTORS).all() and ds.nodes.text[3] == "the word w03"
    assert all((ds.edges[k] == e).all() for k, e in from_pairs(PAIRS, VECTORS, ids=WORDS).edges.items())


def test_strengths_of_all_pairs_are_kept_for_graded_evaluation():
    weak = pd.DataFrame([("w01", "w02"), ("w02", "w03"), ("w03", "w04")], columns=PAIRS.columns)
    table = pd.concat([PAIRS.assign(strength=5.5), weak.assign(strength=0.5)], ignore_index=True)
    ds = from_pairs(table, VECTORS, ids=WORDS, label="strength", min_label=4)
    assert related(ds) == EXPECTED and ds.report["dropped"] == {} and ds.report["kept"]["labelled as not holding"] == 3
    assert len(ds.graded) == 14 and (ds.graded["score"] < 4).sum() == 3
    for part, edges in ds.edges.items():
        strong = ds.graded[(ds.graded["split"] == part) & (ds.graded["score"] > 4)]
        assert {tuple(e) for e in strong[["source", "target"]].to_numpy()} == {tuple(e) for e in edges}
    again = from_pairs(table[::-1], VECTORS, ids=WORDS, label="strength", min_label=4).graded
    assert set(map(tuple, again.to_numpy())) == set(map(tuple, ds.graded.to_numpy())) # whatever the order of rows
    assert from_pairs(PAIRS, VECTORS, ids=WORDS).graded is None
    with pytest.raises(ValueError, match="target 'w99' has no vector"): # of a weak pair, too
        from_pairs(pd.concat([table, pd.DataFrame([("w01", "w99", 0.1)], columns=table.columns)]), VECTORS, ids=WORDS,
                   label="strength", min_label=4)


def test_a_split_over_nodes_is_an_option():
    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.integers(0, 60, (400, 2)), columns=["source", "target"])
    vectors = rng.normal(size=(60, 3)).astype(np.float32)
    ds = from_pairs(table, vectors, split="node")
    nodes = {k: set(e.ravel().tolist()) for k, e in ds.edges.items()}
    assert not nodes["train"] & nodes["test"] and not nodes["valid"] & nodes["test"]
    assert ds.report["dropped"]["pair between two parts of the nodes"] == len(ds.known) > 0
    again = from_pairs(table[::-1], vectors, split="node")
    assert all((ds.edges[k] == again.edges[k]).all() for k in ds.edges)
    with pytest.raises(ValueError, match="split = 'random', expected 'edge' or 'node'"):
        from_pairs(table, vectors, split="random")
    with pytest.raises(ValueError, match="11 edges are too few to split by node"):
        from_pairs(PAIRS, VECTORS, ids=WORDS, split="node")


def test_the_pool_of_candidates_may_be_the_targets_or_a_list():
    ds = from_pairs(PAIRS, VECTORS, ids=WORDS, pool="targets")
    assert {ds.id(i) for i in ds.pool} == {t for _, t in EXPECTED}
    some = from_pairs(PAIRS, VECTORS, ids=WORDS, pool=["w00", "w07", "w08"])
    assert [some.id(i) for i in some.pool] == ["w00", "w07", "w08"]
    with pytest.raises(ValueError, match="pool: 'w99' is no id of a node, 1 such"):
        from_pairs(PAIRS, VECTORS, ids=WORDS, pool=["w00", "w99"])
    with pytest.raises(ValueError, match="pool = 'sources', expected 'targets', a list of ids, or None"):
        from_pairs(PAIRS, VECTORS, ids=WORDS, pool="sources")


def test_a_pool_in_which_every_node_is_a_positive_of_a_source_is_refused():
    with pytest.raises(ValueError, match="pairs: 'w01' is related to every other candidate of the pool of 1, so it can "
                                         r"have no negative \(1 such sources\)"):
        from_pairs(PAIRS, VECTORS, ids=WORDS, pool=["w00"]) # w01 -> w00 is the only pair with that target


@pytest.mark.parametrize("pairs, options, says", [
    (pd.DataFrame(dict(source=["w00"], target=["w00"])), {}, r"no pair is left; dropped \{'self-pair': 1\}"), # one node
    (PAIRS[:1], {}, r"1 edges are too few to split"),
    (PAIRS[:4], {}, r"a DataFrame: 4 edges are too few to split .*: the valid part would have 0. Give more pairs"),
    (PAIRS[:0], {}, r"pairs has 0 rows"),
    (PAIRS.assign(label="maybe"), {}, r"row 0 .*: label 'maybe' is no number"),
    (PAIRS.assign(label=0.7), {}, r"row 0 .*: label 0.7 is neither 0 nor 1; say with min_label="),
])
def test_tables_that_make_no_dataset_are_named(pairs, options, says):
    with pytest.raises(ValueError, match=says):
        from_pairs(pairs, VECTORS, ids=WORDS, **options)


def test_a_matrix_of_one_row_makes_no_dataset():
    with pytest.raises(ValueError, match="row 0 .*: source '1' has no vector; without ids= the pairs must hold"):
        from_pairs(pd.DataFrame(dict(source=[1], target=[0])), np.ones((1, 3), np.float32))


def test_splits_do_not_depend_on_the_number_of_workers():
    found = Parallel(n_jobs=2)(delayed(split_of)(seed) for seed in range(4))
    assert found == [split_of(seed) for seed in range(4)]


def split_of(seed):
    "The edges of a split, as text, made in whatever process this runs"
    ds = from_pairs(PAIRS, VECTORS, ids=WORDS, seed=seed)
    tree = toy_tree(depth=3, seed=seed)
    return [{k: e.tolist() for k, e in d.edges.items()} for d in (ds, tree)]


# Ids, parts and labels

@pytest.mark.parametrize("ids", [
    {w: i for i, w in reversed([*enumerate(WORDS)])}, np.array(WORDS), np.array(WORDS, "S"), tuple(WORDS),
    pd.Series(WORDS, range(5, 17)), pd.Index(WORDS), pd.DataFrame(dict(id=WORDS)),
    pd.DataFrame(dict(note="x", ID=WORDS)),
    dict.fromkeys(WORDS).keys()])
def test_ids_are_those_of_the_rows_whatever_they_come_as(ids):
    ds = from_pairs(PAIRS, VECTORS, ids=ids)
    assert list(ds.nodes["id"]) == WORDS and related(ds) == EXPECTED


@pytest.mark.parametrize("ids, says", [
    (set(WORDS), "ids: a set has no order"), (frozenset(WORDS), "ids: a frozenset has no order"),
    (dict(enumerate(WORDS)), "ids: a mapping gives each id its row"), (dict.fromkeys(WORDS, 0), "each once"),
    ({w: i + 1 for i, w in enumerate(WORDS)}, "one of 0 to 11"),
    ([*WORDS[:5], None, *WORDS[6:]], "ids: row 5 .* no id"),
    (np.array(WORDS).reshape(6, 2), r"ids: shape \(6, 2\), expected \(n,\)"),
    (np.ma.masked_equal(np.arange(12), 4), "ids: row 4 is masked"), ([2.0**53] * 12, "ids: row 0 .*several whole"),
    (pd.DataFrame(dict(a=WORDS, b=WORDS)), r"ids: columns \['a', 'b'\], expected one, or a column id")])
def test_ids_without_an_order_or_a_meaning_are_refused(ids, says):
    with pytest.raises((TypeError, ValueError), match=says): from_pairs(PAIRS, VECTORS, ids=ids)


def test_columns_of_arrow_are_ids():
    pa = pytest.importorskip("pyarrow")
    for ids in (pa.array(WORDS), pa.chunked_array([WORDS]), pa.table(dict(id=WORDS))): assert list_ids(ids) == WORDS
    for odd in (7, "ids.txt", b"w00"):
        with pytest.raises(TypeError, match="ids: expected a list with an id for each row"): list_ids(odd)


def test_numbers_are_ids_whatever_holds_them():
    pairs = pd.DataFrame(dict(source=range(1, 12), target=[i // 2 for i in range(1, 12)]))
    for ids in (torch.arange(12), np.arange(12.0), list(range(12)), [float(i) for i in range(12)]):
        assert list_ids(ids) == [str(i) for i in range(12)]
        assert from_pairs(pairs, VECTORS, ids=ids).num_nodes == 12
    for edges in (nx.from_pandas_edgelist(pairs, create_using=nx.DiGraph), torch.tensor(pairs.to_numpy().T)):
        assert sorted(map(tuple, from_pairs(edges, VECTORS).positives.tolist())) == [(i, i // 2) for i in range(1, 12)]
    assert from_pairs(edges, VECTORS).report["source"] == "a torch Tensor"


def test_a_pool_may_be_a_set_and_of_any_type():
    for pool in ({"w00", "w07", "w08"}, np.array(["w08", "w00", "w07"], "S"), [b"w00", b"w07", b"w08"]):
        ds = from_pairs(PAIRS, VECTORS, ids=WORDS, pool=pool)
        assert [ds.id(i) for i in ds.pool] == ["w00", "w07", "w08"]


PART = ["train", "test", "train", "validation", "Train", "TEST", "train", "dev", "train", "train", "test"]


def test_a_column_of_parts_is_the_split(tmp_path):
    PAIRS.assign(Fold=PART).to_csv(tmp_path/"p.csv", index=False)
    ds = from_pairs(tmp_path/"p.csv", VECTORS, ids=WORDS, split_column="fold", seed=3)
    wanted = {part: {pair for pair, own in zip(PAIRS.itertuples(index=False, name=None), PART, strict=True)
                     if own.lower().startswith(names)} for part, names in
              dict(train="train", valid=("val", "dev"), test="test").items()}
    assert {part: related(ds, part) for part in ds.edges} == wanted and not len(ds.known)
    assert ds.report["read"]["parts"] == "train 6, test 3, valid 2" and "split column not used" not in ds.report["read"]
    again = from_pairs(PAIRS.assign(Fold=PART)[::-1], VECTORS, ids=WORDS, split_column="Fold")
    assert all((ds.edges[part] == again.edges[part]).all() for part in ds.edges)
    left = from_pairs(tmp_path/"p.csv", VECTORS, ids=WORDS)
    assert left.report["read"]["split column not used"].startswith("Fold (train, test, validation, Train, TEST, dev)")


def test_a_split_of_training_pairs_alone_has_no_other_part():
    ds = from_pairs(PAIRS.assign(split="train"), VECTORS, ids=WORDS, split_column="split")
    assert [len(ds.edges[part]) for part in ("train", "valid", "test")] == [11, 0, 0]
    for more in (dict(split="node"), dict(fractions=(0.5, 0.25, 0.25))):
        with pytest.raises(ValueError, match="split_column = 'split' says the parts: leave split= and fractions= out"):
            from_pairs(PAIRS.assign(split="train"), VECTORS, ids=WORDS, split_column="split", **more)


def test_pairs_labelled_as_not_holding_are_kept_as_such():
    false = [("w00", "w05", 0), ("w00", "w06", 0), ("w00", "w06", 0), ("w00", "new", 0), ("w03", "w03", 0)]
    table = pd.concat([PAIRS.assign(Label=1), pd.DataFrame(false, columns=["child", "parent", "Label"])])
    ds, plain = from_pairs(table, VECTORS, ids=WORDS), from_pairs(PAIRS, VECTORS, ids=WORDS)
    assert related(ds) == EXPECTED and all((ds.edges[part] == plain.edges[part]).all() for part in ds.edges)
    denied = ds.graded[ds.graded["score"] == 0]
    named = [(ds.id(s), ds.id(t)) for s, t in denied[["source", "target"]].to_numpy()]
    assert named == [("w00", "w05"), ("w00", "w06")]
    assert ds.report["kept"] == {"nodes": 12, "pairs": 11, "labelled as not holding": 2}
    assert ds.report["dropped"] == {"labelled as not holding, but repeated, of itself or of an id without a vector": 3}
    assert from_pairs(PAIRS.assign(Label="yes"), VECTORS, ids=WORDS).graded is None


def test_a_false_pair_keeps_the_part_that_the_table_gives_it():
    false = [("w00", "w05", "test", 0), ("w00", "w06", "train", 0)]
    true = PAIRS.assign(split=PART, label=1)
    table = pd.concat([true, pd.DataFrame(false, columns=true.columns)])
    ds = from_pairs(table, VECTORS, ids=WORDS, split_column="split")
    assert list(ds.graded["split"][ds.graded["score"] == 0]) == ["test", "train"]
    for part, edges in ds.edges.items():
        own = ds.graded[(ds.graded["split"] == part) & (ds.graded["score"] == 1)]
        assert {tuple(e) for e in own[["source", "target"]].to_numpy()} == {tuple(e) for e in edges}


def test_one_relation_of_a_table_makes_a_dataset():
    back = PAIRS[::-1].set_axis(["parent", "child"], axis=1)
    more = pd.concat([PAIRS.assign(relation="is_a"), back.assign(relation="has")])
    with pytest.raises(ValueError, match="'is_a' .*'has'|'has' .*'is_a'"): from_pairs(more, VECTORS, ids=WORDS)
    ds = from_pairs(more, VECTORS, ids=WORDS, relation="is_a")
    assert related(ds) == EXPECTED and ds.report["dropped"] == {"of another relation": 11}


# Larger than memory

LARGE = """
import resource, sys
import numpy as np, pandas as pd, torch
from rolebregman.baselines import make_head
from rolebregman.datasets import from_pairs
from rolebregman.evaluation import evaluate
from rolebregman.training import TrainConfig, fit
torch.set_num_threads(1)
size, dtype = int(sys.argv[2]), np.load(sys.argv[1], mmap_mode="r").dtype
rng = np.random.default_rng(0)
pairs = pd.DataFrame(rng.choice(80_000, (400, 2), replace=False), columns=["source", "target"])
head = make_head("role_bregman", dim=2048, proj_dim=8)
small = rng.normal(size=(2000, 2048)).astype(np.float32)
warm = from_pairs(pairs[:40] % 2000, embeddings=small) # imports what comes late
fit(head, warm, TrainConfig(epochs=1), progress=False), evaluate(head, warm)
limited = sys.platform == "linux"
if limited: # the file may be mapped once, but there is no room for a copy of it
    status = dict(line.split(":") for line in open("/proc/self/status").read().splitlines())
    room = int(status["VmSize"].split()[0]) * 1024 + size + 384 * 2**20
    resource.setrlimit(resource.RLIMIT_AS, (room, room))
ds = from_pairs(pairs, embeddings=sys.argv[1])
if limited:
    try: np.empty(ds.features.shape, np.float32)
    except MemoryError: pass
    else: raise SystemExit("the limit does not limit")
assert isinstance(ds.features, np.memmap) and ds.features.dtype == dtype
fit(head, ds.limit(300), TrainConfig(epochs=1), progress=False)
print(evaluate(head, ds, candidates="all")["mrr"], evaluate(head, ds)["ranking_accuracy"])
"""


def test_a_file_larger_than_the_memory_that_is_left_is_loaded_trained_on_and_ranked(tmp_path):
    "A copy as float32 takes 625 MiB. There are 384 to spare; blocks, and what the allocator keeps, take half"
    rows = np.random.default_rng(0).normal(size=(1000, 2048)).astype(np.float16)
    file = np.lib.format.open_memmap(tmp_path/"vectors.npy", "w+", np.float16, (80_000, 2048))
    for start in range(0, 80_000, 1000):
        file[start:start + 1000] = rows + np.float32(start / 1e5)
    file.flush()
    size = file.nbytes
    del file
    done = subprocess.run([sys.executable, "-c", LARGE, str(tmp_path/"vectors.npy"), str(size)], capture_output=True,
                          text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stderr[-2000:]
    assert all(0 < float(value) <= 1 for value in done.stdout.split())


def test_a_hole_in_a_mapped_file_is_found_and_named(tmp_path):
    vectors = np.zeros((70_000, 64), np.float16)
    vectors[:, 0] = np.arange(70_000) % 1000
    vectors[69_000, 5] = np.inf
    np.save(tmp_path/"vectors.npy", vectors)
    with pytest.raises(ValueError, match="row 69000, column 5 is inf"):
        from_pairs(pd.DataFrame(dict(source=range(20), target=range(20, 40))), embeddings=tmp_path/"vectors.npy")


def test_ids_in_a_column_of_numbers_are_not_taken_for_a_coordinate():
    pairs = pd.DataFrame(dict(source=range(100, 120), target=range(120, 140)))
    table = pd.DataFrame(np.random.default_rng(0).normal(size=(40, 3)), columns=list("xyz"))
    table["node"] = range(100, 140)
    with pytest.raises(ValueError, match="is column 'node' a coordinate, or the ids.* Pass id_column='node'"):
        from_pairs(pairs, embeddings=table)
    ds = from_pairs(pairs, embeddings=table, id_column="node")
    assert ds.dim == 3 and ds.nodes["id"].tolist() == [str(i) for i in range(100, 140)]
    assert from_pairs(pairs - 100, embeddings=table.astype({"node": float})).dim == 4
    for wrong in dict(embeddings=table, id_column="nodes"), dict(embeddings=table.to_numpy(), id_column="node"):
        with pytest.raises(ValueError, match="id_column = 'node"): from_pairs(pairs, **wrong)


@pytest.mark.parametrize("text", ["source,target,source\n1,2,3\n", "source,target,x,x\n1,2,3,4\n"])
def test_a_file_with_two_columns_of_one_name_is_refused(tmp_path, text):
    (tmp_path/"pairs.csv").write_text(text)
    with pytest.raises(ValueError, match="pairs.csv has two columns '(source|x)'.* rename one"):
        from_pairs(tmp_path/"pairs.csv", embeddings=np.eye(9, dtype=np.float32))


# Items

def test_files_of_vectors_and_ids_give_what_arrays_and_lists_give(tmp_path):
    np.save(tmp_path/"v.npy", VECTORS)
    (tmp_path/"ids.txt").write_text("\n".join(WORDS) + "\n")
    wanted = from_pairs(PAIRS, VECTORS, ids=WORDS)
    for vectors, ids in ((tmp_path/"v.npy", tmp_path/"ids.txt"), (VECTORS, WORDS), (str(tmp_path/"v.npy"), WORDS)):
        items = Items(vectors, ids)
        ds = from_pairs(PAIRS, items.vectors, ids=items.ids)
        assert all((ds.edges[part] == edges).all() for part, edges in wanted.edges.items())
        vectors, ids, lacking = items.load([])
        assert (vectors == VECTORS).all() and list(ids) == WORDS and lacking == "vector"


@pytest.mark.parametrize("what, says", [("nan", "v.npy: features: row 3, column 1 is nan"),
                                        ("short", "ids.txt: ids: 11 of them for 12 vectors")])
def test_a_fault_of_a_file_names_it_and_one_of_an_array_does_not(tmp_path, what, says):
    vectors, ids = VECTORS.copy(), WORDS[:11] if what == "short" else WORDS
    if what == "nan": vectors[3, 1] = np.nan
    np.save(tmp_path/"v.npy", vectors)
    (tmp_path/"ids.txt").write_text("\n".join(ids))
    with pytest.raises(ValueError, match=says): from_pairs(PAIRS, tmp_path/"v.npy", ids=tmp_path/"ids.txt")
    with pytest.raises(ValueError, match=r"^(features of pairs|ids): "): from_pairs(PAIRS, vectors, ids=ids)


def test_a_record_of_items_is_seen_from_its_folder(tmp_path):
    items = Items(tmp_path/"v.npy", tmp_path/"ids.csv", id_column="word")
    record = items.record(tmp_path/"runs"/"head")
    assert record["vectors"] == "../../v.npy" == relative_to(tmp_path/"v.npy", tmp_path/"runs"/"head")
    assert list(record) == ["vectors", "ids", "texts", "id_column", "encoder", "member"]
    assert Items.recorded(record, tmp_path/"runs"/"head") == items
    for wrong in ("x", {}, dict(record, spam=1)):
        with pytest.raises((KeyError, TypeError)): Items.recorded(wrong, tmp_path)


def test_a_width_that_does_not_fit_names_the_file():
    Items("v.npy").check_width(np.zeros((2, 3)), 3)
    with pytest.raises(ValueError, match="v.npy: vectors of 3 numbers, but the head takes 4"):
        Items("v.npy").check_width(np.zeros((2, 3)), 4)


@pytest.mark.parametrize("items, open_ended", [
    (Items("words.txt.npy"), False), (Items("glove.txt"), True), (Items(texts="t.csv"), False), (Items(), True),
    (Items(VECTORS, WORDS), False)])
def test_only_pairs_tell_the_items_of_word_vectors_and_of_an_encoder(items, open_ended):
    assert items.open_ended is open_ended


def test_blocks_of_pairs_are_the_rows_as_they_stand(tmp_path):
    table = pd.concat([PAIRS, PAIRS[:3]])
    table.to_csv(tmp_path/"p.csv", index=False)
    whole = pd.concat(pair_blocks(tmp_path/"p.csv", rows=4), ignore_index=True)
    assert whole["row"].tolist() == list(range(14)) and list(whole["source"]) == list(table["child"])
    with pytest.raises(ValueError, match=r"mine.csv, row 1 \(the first is 0\): source 'w02' has no vector. 10 such"):
        require_items(whole[:11], ["w00", "w01"], "vector", "mine.csv")


def test_items_made_from_texts_are_those_that_have_one():
    texts = {w: f"the word {w}" for w in WORDS}
    features, ids, lacking = Items(texts=texts, encoder=Lengths()).load(["w03", "w01", "unknown"])
    assert list(ids) == ["w01", "w03"] and lacking == "text in texts="
    assert (features == Lengths()([texts["w01"], texts["w03"]])).all()
    with pytest.raises(ValueError, match="has no text for 'unknown', nor for any other item that is asked for"):
        Items(texts=texts, encoder=Lengths()).load(["unknown"])


def test_items_say_whether_ids_say_what_is_read(tmp_path):
    for vectors, asked in ((None, True), (VECTORS, False), (tmp_path/"v.npy", False), (tmp_path/"v.vec", True),
                           (str(tmp_path/"v.safetensors"), False), (tmp_path/"v.zip", True)):
        assert Items(vectors).asked_for is asked


@pytest.mark.parametrize("seed", [-1, 1.5, "0"])
def test_a_seed_that_is_none_is_named(seed):
    with pytest.raises(ValueError, match="seed = .*, expected a whole number from 0"):
        from_pairs([("a", "b"), ("b", "c")], np.eye(3), ids=["a", "b", "c"], seed=seed)


@pytest.mark.parametrize("kind", ["csv", "parquet", "npy", "frame"])
def test_that_ids_are_the_numbers_of_the_rows_is_said(tmp_path, kind):
    vectors = np.random.default_rng(0).normal(size=(12, 3))
    table, path = pd.DataFrame(vectors, columns=["x0", "x1", "x2"]), tmp_path / f"v.{kind}"
    if kind == "npy": np.save(path, vectors)
    elif kind == "csv": table.to_csv(path, index=False)
    elif kind == "parquet": table.to_parquet(path)
    ds = from_pairs(pd.DataFrame(dict(source=range(11), target=range(1, 12))), table if kind == "frame" else path)
    assert ds.report["vectors"]["ids"] == "the numbers of the rows, from 0"
    if kind != "npy": assert ds.report["vectors"]["coordinates"] == "x0 to x2"
