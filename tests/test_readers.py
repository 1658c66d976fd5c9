"""Files with every fault that a stranger's file may have: counted where the meaning is clear, else named."""
import gzip
import sys

import numpy as np
import pandas as pd
import pytest

from rolebregman.readers import read_pairs, read_table, read_texts, read_vectors


def pairs_of(edges):
    return list(edges.itertuples(index=False, name=None))


# Tables of pairs

def test_ids_stay_as_they_are_written(tmp_path):
    path = tmp_path/"p.csv"
    path.write_text('source,target,note\nNA,null,x\n007,"a, b",x\n 1.0 ,nan,x\n')
    found, _, _ = read_pairs(path)
    assert pairs_of(found) == [("NA", "null", 0), ("007", "a, b", 1), ("1.0", "nan", 2)]


@pytest.mark.parametrize("name, sep", [("p.csv", ","), ("p.tsv", "\t"), ("p.tab", "\t"), ("p.csv.gz", ",")])
def test_every_format_gives_the_same_pairs(tmp_path, name, sep):
    text = sep.join(["child", "parent"]) + "\n" + sep.join(["dog", "animal"]) + "\n"
    (tmp_path/name).write_bytes(gzip.compress(text.encode()) if name.endswith("gz") else text.encode())
    found, read, dropped = read_pairs(tmp_path/name)
    assert pairs_of(found) == [("dog", "animal", 0)] and dropped == {}
    assert read == {"rows": 1, "source column": "child", "target column": "parent"}


def test_parquet_gives_the_same_pairs(tmp_path):
    pytest.importorskip("pyarrow")
    pd.DataFrame(dict(child=[1], parent=[2])).to_parquet(tmp_path/"p.parquet")
    assert pairs_of(read_pairs(tmp_path/"p.parquet")[0]) == [("1", "2", 0)]


def test_parquet_without_its_package_names_what_to_install(tmp_path, monkeypatch):
    (tmp_path/"p.parquet").write_bytes(b"PAR1")
    for name in ("pyarrow", "fastparquet"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ImportError, match="p.parquet: to read Parquet, pip install pyarrow"):
        read_pairs(tmp_path/"p.parquet")


@pytest.mark.parametrize("columns", [("Source", "Target"), ("Hyponym", "hypernym"), (" head", "tail "), ("from", "to")])
def test_usual_names_are_guessed_in_any_case(columns):
    table = pd.DataFrame([["x", "p", "q"]], columns=["to_keep", *columns])
    assert pairs_of(read_pairs(table)[0]) == [("p", "q", 0)]


def test_given_columns_win_over_guesses():
    table = pd.DataFrame(dict(source=["a"], target=["b"], mine=["c"]))
    assert pairs_of(read_pairs(table, source="mine")[0]) == [("c", "b", 0)]
    assert pairs_of(read_pairs(table, target="source", source="target")[0]) == [("b", "a", 0)]


def test_repeated_pairs_and_self_pairs_are_counted_and_both_directions_stay():
    table = pd.DataFrame([("a", "b"), ("b", "a"), ("a", "b"), ("c", "c")], columns=["source", "target"])
    found, _, dropped = read_pairs(table)
    assert pairs_of(found) == [("a", "b", 0), ("b", "a", 1)]
    assert dropped == {"repeated pair": 1, "self-pair": 1}


def test_labels_choose_the_pairs_that_hold():
    table = pd.DataFrame(dict(source=list("abc"), target=list("xyz"), label=[1, 0, 1], score=[0.2, 5.5, 4]))
    assert list(read_pairs(table)[0].source) == ["a", "c"]
    assert list(read_pairs(table, label="score", min_label=4)[0].source) == ["b", "c"]
    assert read_pairs(table.astype(str))[2] == {"does not hold by its label": 1}


def test_numbers_held_as_floats_stay_whole_ids():
    found, _, _ = read_pairs(pd.DataFrame(dict(source=[1.0, 3.0], target=[2, 4])))
    assert pairs_of(found) == [("1", "2", 0), ("3", "4", 1)]


GOOD = dict(source=["a", "b"], target=["c", "d"])


@pytest.mark.parametrize("table, options, says", [
    (dict(GOOD, source=["a", ""]), {}, r"pairs, row 1 \(the first is 0\): column 'source' is empty, 1 such"),
    (dict(GOOD, target=[None, "d"]), {}, r"row 0 .*: column 'target' is empty"),
    (dict(GOOD, target=[np.nan, 2.0]), {}, r"row 0 .*: column 'target' is empty"),
    (dict(x=["a"], y=["b"]), {}, r"among the columns \['x', 'y'\]; pass source= and target="),
    (GOOD, dict(source="src"), r"has no column 'src' \(source=\); its columns are \['source', 'target'\]"),
    (GOOD, dict(label="strength"), r"has no column 'strength' \(label=\)"),
    (dict(GOOD, label=["1", "yes"]), {}, r"row 1 .*: label 'yes' is no number"),
    (dict(GOOD, label=[1, np.inf]), {}, r"row 1 .*: label .*inf.* is no number"),
    (dict(GOOD, label=[1, 0.7]), {}, r"row 1 .*: label 0.7 is neither 0 nor 1; say with min_label="),
    (dict(GOOD, label=[0, 0]), {}, r"no pair is left; dropped \{'does not hold by its label': 2"),
    (dict(source=["a"], target=["a"]), {}, r"no pair is left; dropped .*'self-pair': 1"),
    (dict(source=[], target=[]), {}, r"pairs has 0 rows"),
])
def test_a_table_that_cannot_be_meant_is_named(table, options, says):
    with pytest.raises(ValueError, match=says):
        read_pairs(pd.DataFrame(table), **options)


@pytest.mark.parametrize("name, content, says", [
    ("a.csv", b"source,target\n", r"a.csv has 0 rows below its header \['source', 'target'\]"),
    ("b.csv", b"", r"b.csv: No columns to parse"),
    ("c.csv", b"source,target\na,b\nc,d,e\n", r"c.csv: .*Expected 2 fields in line 3, saw 3"),
    ("d.csv", b"source,target\na,caf\xe9\n", r"d.csv is not UTF-8 text: byte 0xe9"),
    ("e.csv.gz", gzip.compress(b"source,target\n" + b"a,b\n" * 999)[:-9], r"e.csv.gz is damaged or cut off"),
    ("f.xlsx", b"PK", r"f.xlsx: expected .csv, .tsv, .tab or .parquet"),
])
def test_a_damaged_table_is_named(tmp_path, name, content, says):
    (tmp_path/name).write_bytes(content)
    with pytest.raises(ValueError, match=says):
        read_pairs(tmp_path/name)


def test_a_missing_table_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="no file .*p.csv"):
        read_table(tmp_path/"p.csv")


# Vectors and texts

def test_vectors_come_from_arrays_frames_and_files(tmp_path):
    matrix = np.arange(6, dtype=np.float32).reshape(3, 2)
    np.save(tmp_path/"v.npy", matrix)
    np.savez(tmp_path/"v.npz", anything=matrix, ids=np.array([7, 8, 9]))
    assert read_vectors(matrix)[0] is matrix
    mapped, ids = read_vectors(tmp_path/"v.npy")
    assert isinstance(mapped, np.memmap) and (mapped == matrix).all() and ids is None
    loaded, ids = read_vectors(str(tmp_path/"v.npz"))
    assert (loaded == matrix).all() and ids == ["7", "8", "9"]
    framed, ids = read_vectors(pd.DataFrame(matrix, index=["x", "y", "z"]))
    assert (framed == matrix).all() and ids == ["x", "y", "z"]


def test_objects_are_refused_and_never_unpickled(tmp_path):
    class Runs:
        def __reduce__(self):
            return (open, (str(tmp_path/"it-ran"), "w"))
    np.save(tmp_path/"v.npy", np.array([[Runs()]], dtype=object), allow_pickle=True)
    np.savez(tmp_path/"v.npz", vectors=np.array([[Runs()]], dtype=object), allow_pickle=True)
    for name in ("v.npy", "v.npz"):
        with pytest.raises(ValueError, match=f"{name} cannot be read as NumPy arrays of numbers"):
            read_vectors(tmp_path/name)
    assert not (tmp_path/"it-ran").exists()


def test_damaged_vector_files_are_named(tmp_path):
    np.save(tmp_path/"a.npy", np.ones((100, 4)))
    (tmp_path/"a.npy").write_bytes((tmp_path/"a.npy").read_bytes()[:500])
    np.savez(tmp_path/"b.npz", v=np.ones((100, 4)))
    (tmp_path/"b.npz").write_bytes((tmp_path/"b.npz").read_bytes()[:500])
    np.savez(tmp_path/"c.npz", v=np.ones((2, 2)), w=np.ones((3, 3)))
    (tmp_path/"d.txt").write_text("1 2 3")
    (tmp_path/"e.npy").write_bytes(b"")
    for name, says in (("a.npy", "cannot be read"), ("b.npz", "is damaged or cut off|cannot be read"),
                       ("c.npz", r"expected exactly one \(n, d\) matrix"), ("d.txt", "is neither .npy nor .npz"),
                       ("e.npy", "is damaged or cut off")):
        with pytest.raises(ValueError, match=f"{name}.*({says})"):
            read_vectors(tmp_path/name)
    with pytest.raises(ValueError, match=r"shape \(3,\), expected \(n, d\)"):
        read_vectors(np.ones(3))


@pytest.mark.parametrize("texts, says", [
    ({"a": "x", "b": " "}, "texts: the text of id 'b' is empty or no text"),
    ({"a": float("nan")}, "the text of id 'a' is empty or no text"),
    (pd.DataFrame(dict(id=["a"], name=["b"])), r"columns \['id', 'name'\], expected id and text"),
    (pd.DataFrame(dict(id=[1, 1], text=["b", "c"])), "id '1' stands more than once"),
])
def test_texts_that_cannot_be_meant_are_named(texts, says):
    with pytest.raises(ValueError, match=says):
        read_texts(texts)
