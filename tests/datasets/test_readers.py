"""Files with every fault that a stranger's file may have: counted where the meaning is clear, else named."""
import gzip
import sys

import numpy as np
import pandas as pd
import pytest

from rolebregman.datasets import faults_named, read_pairs, read_scores, read_table, read_texts, read_vectors


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
    with pytest.raises(ImportError, match=r"p.parquet: to read Parquet, pip install rolebregman\[parquet\]"):
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


def test_columns_that_are_not_used_are_said():
    table = pd.DataFrame(dict(strength=[1, 2], source=list("ab"), target=list("xy"), note="z"))
    assert read_pairs(table)[1]["columns not used"] == "strength, note"
    assert read_pairs(table, label="strength", min_label=0)[1]["columns not used"] == "note"
    assert "columns not used" not in read_pairs(table[["source", "target"]])[1]


def test_two_columns_of_one_name_are_refused():
    table = pd.DataFrame([["a", "b", "c"]], columns=["source", "target", "source"])
    with pytest.raises(ValueError, match="expected each name once; rename one"):
        read_pairs(table)


def test_scores_are_those_of_all_pairs():
    table = pd.DataFrame(dict(source=list("abac"), target=list("xyxc"), s=["5", "0.5", "4", "1"]))
    assert pairs_of(read_scores(table, label="s")) == [("a", "x", 5.0, 0), ("b", "y", 0.5, 1)]
    with pytest.raises(ValueError, match=r"row 1 .*: label 'much' is no number"):
        read_scores(table.assign(s=["1", "much", "2", "3"]), label="s")


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
    (GOOD, dict(source="source", target="source"), r"column 'source' cannot be both source= and target="),
    (dict(source=list("aba"), target=list("xyx"), label=[1, 1, 0]), {},
     r"'a' -> 'x' holds in row 0 and does not in row 2 .*, 2 such rows; drop one"),
    (dict(source=list("aa"), target=list("xx"), s=[0.2, 5]), dict(label="s", min_label=1), r"holds in row 1 and"),
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
    ("g.csv", "source,target\na,b\n".encode("utf-16"), r"g.csv is not UTF-8 text: byte 0xff"),
    ("h.csv", b"source,target\na,b\nc\n", r"h.csv, row 1 \(the first is 0\): column 'target' is empty"),
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
    (tmp_path/"d.bin").write_text("1 2 3")
    (tmp_path/"e.npy").write_bytes(b"")
    for name, says in (("a.npy", "cannot be read"), ("b.npz", "is damaged or cut off|cannot be read"),
                       ("c.npz", r"expected exactly one \(n, d\) matrix"), ("d.bin", "is none of .npy, .npz"),
                       ("e.npy", "is damaged or cut off")):
        with pytest.raises(ValueError, match=f"{name}.*({says})"):
            read_vectors(tmp_path/name)
    with pytest.raises(ValueError, match=r"shape \(3,\), expected \(n, d\)"):
        read_vectors(np.ones(3))


def test_vectors_come_from_parquet_with_their_ids(tmp_path):
    pytest.importorskip("pyarrow")
    matrix = np.arange(6, dtype=np.float32).reshape(3, 2)
    plain = pd.DataFrame(matrix, columns=["v0", "v1"])
    forms = dict(plain=(plain, ["0", "1", "2"]), column=(plain.assign(id=[5, 6, 7]), ["5", "6", "7"]),
                 text=(plain.assign(word=list("xyz")), list("xyz")), index=(plain.set_axis(list("xyz")), list("xyz")),
                 lists=(pd.DataFrame(dict(id=list("xyz"), vector=list(matrix))), list("xyz")))
    for name, (frame, ids) in forms.items():
        frame.to_parquet(tmp_path/f"{name}.parquet")
        for embeddings in (frame, tmp_path/f"{name}.parquet"):
            vectors, found = read_vectors(embeddings)
            assert (vectors == matrix).all() and found == ids and np.issubdtype(vectors.dtype, np.floating)


@pytest.mark.parametrize("content", [b"", b"PAR1", b"child,parent\n", b"PAR1" + bytes(99) + b"PAR1"])
def test_a_damaged_parquet_file_is_named(tmp_path, content):
    pytest.importorskip("pyarrow")
    (tmp_path/"p.parquet").write_bytes(content)
    for read in (read_pairs, read_vectors):
        with pytest.raises(ValueError, match="p.parquet is damaged, cut off or no Parquet file"):
            read(tmp_path/"p.parquet")


def test_a_parquet_file_that_is_cut_off_or_empty_is_named(tmp_path):
    pytest.importorskip("pyarrow")
    table = pd.DataFrame(dict(source=[str(i) for i in range(999)], target="x"))
    table.to_parquet(tmp_path/"p.parquet")
    (tmp_path/"p.parquet").write_bytes((tmp_path/"p.parquet").read_bytes()[:-40])
    with pytest.raises(ValueError, match="p.parquet is damaged, cut off"):
        read_pairs(tmp_path/"p.parquet")
    table[:0].to_parquet(tmp_path/"q.parquet")
    with pytest.raises(ValueError, match=r"q.parquet has 0 rows; its columns are \['source', 'target'\]"):
        read_pairs(tmp_path/"q.parquet")


@pytest.mark.parametrize("name", ["w.txt", "w.vec", "w.txt.gz"])
def test_word_vectors_are_looked_up_and_never_made_up(tmp_path, name):
    text = b"ice 1 0 0\ncream 0 1 0\n. . . 0 0 1\nrose 0 0 2\n"
    (tmp_path/name).write_bytes(gzip.compress(text) if name.endswith("gz") else text)
    vectors, ids = read_vectors(tmp_path/name, ["Rose", "ice cream", "ice age", "tulip"])
    assert ids == ["Rose", "ice cream"] and vectors.tolist() == [[0, 0, 2], [0.5, 0.5, 0]]


@pytest.mark.parametrize("frame, says", [
    (dict(word=["a"], text=["b"], v=[1.0]), r"columns \['word', 'text', 'v'\], expected vectors as columns"),
    (dict(word=["a"]), r"expected vectors as columns of numbers or as one column of lists"),
    (dict(id=["a", "b"], v=[[1.0], [1.0, 2.0]]), r"embeddings, row 1 \(the first is 0\): a vector of 2 numbers"),
    (dict(id=["a", "b"], v=[[1.0], None]), r"row 1 .*: a vector of 0 numbers, expected 1"),
    (dict(id=["a", None], v=[1.0, 2.0]), r"embeddings, row 1 \(the first is 0\): the id is empty"),
    (dict(id=["a"], v=[1.0], w=[[1.0]]), r"expected vectors as columns of numbers or as one"),
])
def test_a_table_that_holds_no_vectors_is_named(frame, says):
    with pytest.raises(ValueError, match=says):
        read_vectors(pd.DataFrame(frame))


def test_what_is_no_file_of_vectors_says_where_it_belongs(tmp_path):
    with pytest.raises(FileNotFoundError, match="no file all-minilm-l6-v2; the name of an encoder is passed as"):
        read_vectors("all-minilm-l6-v2")
    with pytest.raises(TypeError, match="embeddings is a function; pass it as encoder="):
        read_vectors(len)


@pytest.mark.parametrize("texts, says", [
    ({"a": "x", "b": " "}, "texts: the text of id 'b' is empty or no text"),
    ({"a": float("nan")}, "the text of id 'a' is empty or no text"),
    (pd.DataFrame(dict(id=["a"], name=["b"])), r"columns \['id', 'name'\], expected id and text"),
    (pd.DataFrame(dict(id=[1, 1], text=["b", "c"])), "id '1' stands more than once"),
])
def test_texts_that_cannot_be_meant_are_named(texts, says):
    with pytest.raises(ValueError, match=says):
        read_texts(texts)


def test_rows_with_one_field_more_than_the_header_are_refused(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("source,target\n" + "".join(f"a{i},b{i},{i}\n" for i in range(5)))
    with pytest.raises(ValueError, match="a.csv: its rows have more fields than its header"): read_pairs(path)


def test_a_quote_in_a_tsv_is_a_character(tmp_path):
    path = tmp_path / "q.tsv"
    rows = [("one", "two"), ('"Hi, said a man', "a man speaks"), ("three", "four"), ('"Ho" he said', "a man spoke")]
    path.write_text("source\ttarget\n" + "".join(f"{s}\t{t}\n" for s, t in rows))
    found = read_pairs(path)[0]
    assert list(zip(found["source"], found["target"], strict=True)) == rows


@pytest.mark.parametrize("name, sep", [("v.csv", ","), ("v.tsv", "\t"), ("v.tab", "\t"), ("v.csv.gz", ","),
                                       ("dots.in.v.CSV", ",")])
def test_vectors_come_from_tables_of_text_with_their_ids(tmp_path, name, sep):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.standard_normal((5, 3)).astype(np.float32), columns=["a", "b", "c"])
    frame.insert(0, "word", ["07", "nan", "None", "a b", "é"])  # ids stay as they are written
    frame.to_csv(tmp_path / name, index=False, sep=sep)
    for given in ({}, dict(id_column="word")):
        vectors, ids = read_vectors(tmp_path / name, **given)
        assert vectors.dtype == np.float32 and ids == list(frame["word"])
        np.testing.assert_array_equal(vectors, frame[["a", "b", "c"]])


def test_a_table_of_text_that_holds_no_vectors_is_named(tmp_path):
    def refused(text, says, **given):
        path = tmp_path / "v.csv"
        path.write_text(text)
        with pytest.raises(ValueError, match=f"v.csv.*{says}"): read_vectors(path, **given)
    refused("", "")
    refused("id,x\na,1\nb,\n", r"row 1 \(the first is 0\): column 'x' holds '', expected a number")
    refused("id,x\na,1\nb,1e\n", r"row 1 \(the first is 0\): column 'x' holds '1e'")
    refused("id,x\na,1\n,2\n", r"row 1 \(the first is 0\): the id is empty")
    refused("a,0.5,1\nb,0.2,2\n", "expected the names of the columns")
    refused("x,word\n1.5,07\n2,b\n", r"column 'word' holds 'b', expected a number; .* with id_column=")
    refused("id,x\na,1\n", "no column 'word'", id_column="word")
    refused("x,y\n1,2.5\n2,3.5\n", "is column 'x' a coordinate, or the ids")
    refused(",node,x\n0,7,0.5\n1,3,1.5\n", "is column 'node' a coordinate, or the ids")  # written with its index
    refused(",Unnamed: 0,node,x\n0,0,7,0.5\n1,1,3,1.5\n", "is column 'node' a coordinate")  # written twice
    refused("node,x\n11,0.5\n11,1.5\n", "is column 'node' a coordinate, or the ids")  # repeated
    refused("node,x\n26.0,0.5\n27.0,1.5\n", "is column 'node' a coordinate")
    refused("node,x\n123456789012345678901,0.5\n2,1.5\n", "is column 'node' a coordinate")
    refused("key,x,y\n007,0.1,2\n008,3,4\n", "is column 'key' a coordinate")
    refused("x,y\n0.5,1\nn/a,2\n1.5,2\n", r"row 1 \(the first is 0\): column 'x' holds 'n/a'")
    refused("cat,1,2,3\ndog,4,5,6\n", "expected the names of the columns")  # its only header is an item
    refused("id;x\na;1\n", "semicolons, expected commas")
    refused("word\na\n", r"columns \['word'\], none of numbers")


def test_a_table_of_text_may_hold_more_than_ids_and_coordinates(tmp_path):
    def read(text):
        (tmp_path / "v.csv").write_text(text)
        vectors, ids = read_vectors(tmp_path / "v.csv")
        return vectors.tolist(), ids
    assert read("ID,x,pos\n7,1.5,noun\n3,2,verb\n") == ([[1.5], [2.0]], ["7", "3"])
    assert read(",word,x\n0,a,1.5\n1,b,2\n") == ([[1.5], [2.0]], ["a", "b"])
    assert read(",0,1\na,1.5,2\nb,3,4\n") == ([[1.5, 2.0], [3.0, 4.0]], ["a", "b"])  # DataFrame.to_csv
    assert read(",0,1\n0,1.5,2.5\n1,3,4\n") == ([[1.5, 2.5], [3.0, 4.0]], ["0", "1"])
    assert read("x,y\n1,2\n2,3\n") == ([[1.0, 2.0], [2.0, 3.0]], ["0", "1"])  # whole numbers all


def test_faults_of_a_file_carry_its_name():
    with pytest.raises(ValueError, match="a.txt is not UTF-8 text: byte 0xff"), faults_named("a.txt"): b"\xff".decode()
    with pytest.raises(ValueError, match="a.gz is damaged or cut off"), faults_named("a.gz"): raise EOFError("end")
    with pytest.raises(KeyError), faults_named("a.txt"): {}["passes"]
