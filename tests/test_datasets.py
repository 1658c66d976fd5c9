"""Datasets by name, and the user's own pairs."""
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rolebregman.datasets import from_pairs, load_dataset


class Lengths:
    name, version = "lengths", "1"
    def __call__(self, texts):
        return np.array([[len(t), sum(map(ord, t)), 1] for t in texts], dtype=np.float32)


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("ROLEBREGMAN_CACHE", str(tmp_path/"cache"))


def test_an_unknown_dataset_lists_the_known_ones():
    with pytest.raises(ValueError, match="no dataset 'gene': choose from go, toy, or see from_pairs"):
        load_dataset("gene")


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
    with pytest.raises(ValueError, match="'hub' is related to every other candidate of the pool of 13, so it can have no"):
        from_pairs(full, vectors, ids=[*WORDS, "hub"])
    more = np.concatenate([vectors, vectors[:1] + 1])
    assert from_pairs(full, more, ids=[*WORDS, "hub", "other"]).num_nodes == 14
