"Vectors and their ids, from every kind of array, table and file, with every fault that it may have"
import gzip

import numpy as np
import pandas as pd
import pytest

from rolebregman.datasets import from_pairs, read_ids, read_pairs, read_vectors


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
                       ("c.npz", r"expected exactly one \(n, d\) matrix"),
                       ("d.bin", "expected vectors in a file with one of .npy, .npz, .*load it and pass"),
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


def test_the_report_says_how_words_were_found(tmp_path):
    (tmp_path/"w.vec").write_text("6 2\nUS 1 0\nus 0 1\nNew_York 1 1\nnew 2 0\nyork 0 2\nFrance 3 3\n")
    pairs = pd.DataFrame([("US", "New_York"), ("France", "US"), ("us", "NEW"), ("New York", "us"), ("Peru", "US")],
                         columns=["source", "target"])
    ds = from_pairs(pairs, tmp_path/"w.vec", missing="drop", split="edge", fractions=(0.5, 0.25, 0.25))
    assert dict(zip(ds.nodes["id"], ds.features.tolist(), strict=True)) == {
        "US": [1, 0], "New_York": [1, 1], "France": [3, 3], "us": [0, 1], "NEW": [2, 0], "New York": [1, 1]}
    assert ds.report["vectors"] == {"as written": 4, "in lower case": 1, "by their parts": 1, "not there": 1}
    (tmp_path/"w.txt").write_text("a 1 0\nb 0 1\na 5 5\n")
    read_vectors(tmp_path/"w.txt", ["a"], report=(said := {}))
    assert said == {"as written": 1, "in lower case": 0, "by their parts": 0, "not there": 0, "repeated word": 1}


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


def test_ids_come_one_on_each_line_or_in_a_column(tmp_path):
    (tmp_path/"ids.txt").write_text("a b\nNA\n\n")
    (tmp_path/"ids.tsv").write_text("id\tword\n1\towl\n2\tdog\n")
    assert read_ids(tmp_path/"ids.txt") == ["a b", "NA"]
    assert read_ids(tmp_path/"ids.tsv") == ["1", "2"] and read_ids(tmp_path/"ids.tsv", "word") == ["owl", "dog"]
    with pytest.raises(ValueError, match="ids.tsv has no column 'name'; its columns are .* Name one with id_column="):
        read_ids(tmp_path/"ids.tsv", "name")
