"Tables that hold vectors: which columns are coordinates, which are ids, and every cell that is no number"
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest

from rolebregman.datasets import read_vectors, vector_tables


@pytest.mark.parametrize("kind", ["Float64", "Float32", "double[pyarrow]", "float[pyarrow]", "decimal", "object"])
def test_columns_that_are_none_of_numpys_are_numbers(kind):
    pytest.importorskip("pyarrow")
    x = pd.Series([Decimal("0.5"), Decimal("1.5")]) if kind == "decimal" else pd.Series([0.5, 1.5]).astype(kind)
    frame = pd.DataFrame(dict(word=["a", "b"], x=x, y=[2.0, 3.0]))
    vectors, ids = read_vectors(frame)
    assert vectors.tolist() == [[0.5, 2], [1.5, 3]] and ids == ["a", "b"] and vectors.dtype.kind == "f"


def test_columns_that_are_left_out_are_told(tmp_path):
    frame = pd.DataFrame(dict(id=["a", "b"], x=[0.5, 1.5], pos=["noun", "verb"], day=pd.Timestamp("2020-01-01")))
    for name, write in dict(v=None, parquet=frame.to_parquet, csv=frame.to_csv).items():
        path = tmp_path/f"v.{name}"
        if write: write(path, index=False)
        vectors, ids = read_vectors(path if write else frame, report=(said := {}))
        assert vectors.tolist() == [[0.5], [1.5]] and ids == ["a", "b"]
        assert said == {"coordinates": "x", "columns not used": "pos, day"}
    (tmp_path/"v.csv").write_text("node,x,pos,y\n7,0.5,noun,1\n9,1.5,verb,inf\n")  # read with care
    assert read_vectors(tmp_path/"v.csv", id_column="node", report=(said := {}))[1] == ["7", "9"]
    assert said == {"coordinates": "x to y", "columns not used": "pos"}
    assert read_vectors(frame[["x"]].set_axis(list("ab")), report=(said := {}))[1] == ["a", "b"]
    assert said == {"coordinates": "x"}


def written(table, path, index=False):
    "A table in a file of the kind that its name says"
    if path.suffix in (".csv", ".tsv"): table.to_csv(path, sep="\t" if path.suffix == ".tsv" else ",", index=index)
    elif path.suffix == ".xlsx": table.to_excel(path, index=index)
    elif path.suffix == ".parquet": (table.reset_index(names="Unnamed: 0") if index else table).to_parquet(path)
    else: table.to_json(path, orient="records", lines=True)
    return path


VECTORS = pd.DataFrame(np.random.default_rng(0).normal(size=(7, 3)), columns=["x0", "x1", "x2"])
KINDS = ["csv", "tsv", "xlsx", "parquet", "jsonl"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["id", "ID", "Id "])
def test_a_column_called_id_holds_the_ids_in_every_format(tmp_path, kind, name):
    "Whole numbers, beside a column of words: in some formats they were a coordinate, and the words the ids"
    table = VECTORS.assign(word=list("abcdefg"))
    table.insert(0, name, range(1000, 1007))
    vectors, ids = read_vectors(written(table, tmp_path/f"v.{kind}"), report=(said := {}))
    assert np.allclose(vectors, VECTORS) and ids == [str(i) for i in range(1000, 1007)]
    assert said["columns not used"] == "word" and said["coordinates"] == "x0 to x2"


@pytest.mark.parametrize("kind", KINDS[:4])
def test_an_index_that_was_saved_is_no_coordinate(tmp_path, kind):
    "One that counts the rows is left out, one of a table that was shuffled or cut is refused; ids by that name are ids"
    table = VECTORS.assign(id=list("abcdefg"))
    vectors, ids = read_vectors(written(table, tmp_path/f"v.{kind}", index=True))
    assert np.allclose(vectors, VECTORS) and ids == list("abcdefg")
    for some in (table.iloc[::-1], table[2:]):
        with pytest.raises(ValueError, match=r"'Unnamed: 0' has no name .* save it without \(index=False\)"):
            read_vectors(written(some, tmp_path/f"v.{kind}", index=True))
    by_id = VECTORS.set_axis(list("abcdefg"))
    assert read_vectors(written(by_id, tmp_path/f"v.{kind}", index=True))[1] == list("abcdefg")


@pytest.mark.parametrize("kind", KINDS)
def test_whole_numbers_before_a_column_of_words_are_asked_about(tmp_path, kind):
    table = VECTORS.assign(word=list("abcdefg"))
    table.insert(0, "key", range(1000, 1007))
    with pytest.raises(ValueError, match="is column 'key' a coordinate, or the ids?"):
        read_vectors(written(table, tmp_path/f"v.{kind}"))
    assert read_vectors(written(table, tmp_path/f"v.{kind}"), id_column="key")[1] == [str(i) for i in range(1000, 1007)]
    counts = (VECTORS * 10).round().astype(int).assign(word=list("abcdefg"))  # of which the first repeats itself
    assert read_vectors(written(counts, tmp_path/f"v.{kind}"))[1] == list("abcdefg")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("cell", ["", "-0.37 ", "n/a", "1,5"])
def test_a_coordinate_with_a_cell_that_is_no_number_is_refused_in_every_format(tmp_path, kind, cell):
    "It vanished where its other cells are typed: the head then had a dimension less, and nothing was said"
    table = VECTORS.assign(id=list("abcdefg")).astype({"x1": object})
    table.loc[4, "x1"] = cell
    frame = table if kind == "parquet" else written(table, tmp_path/f"v.{kind}")  # which cannot hold such a column
    if kind in ("csv", "tsv") and cell == "-0.37 ":
        assert read_vectors(frame)[0][4, 1] == np.float32(-0.37)  # without types it is one
    else:
        with pytest.raises(ValueError, match=r"row 4 .*'x1'"): read_vectors(frame)


def read_or_say(read):
    try:
        return read()
    except ValueError as e:
        return str(e)


def test_a_table_that_is_parsed_at_once_is_what_the_careful_way_reads(tmp_path):
    rng, path = np.random.default_rng(0), tmp_path/"v.csv"
    frame = pd.DataFrame(rng.standard_normal((300, 5)) * 10.0 ** rng.integers(-20, 20, (300, 5)))
    words = frame.set_axis([f"w{i}" if i % 3 else str(1900 + i) for i in range(300)])
    for some in (frame, words, words.reset_index(names="word"), words.reset_index(names="ID").assign(pos="noun"),
                 frame.assign(empty=0), words.assign(empty=0), frame.round(3).reset_index(names="id")):
        for index in (True, False):
            if not index and some.columns.dtype == int and some is words: continue
            some.to_csv(path, index=index)
            careful = read_or_say(lambda: vector_tables.vectors_of_frame(
                vector_tables._numbers_of_text(path, None), str(path)))
            found = read_or_say(lambda: read_vectors(path))
            assert type(found) is type(careful)
            if isinstance(found, str): assert found == careful
            else:
                assert found[1] == careful[1] and found[0].dtype == careful[0].dtype
                np.testing.assert_array_equal(found[0], careful[0])


@pytest.mark.parametrize("cell", ["", "nan", "True", "1,5", "x", "1e", "0x10", "1_000"])
def test_a_cell_that_is_no_number_is_named_wherever_it_is(tmp_path, cell):
    for row in (0, 99, 100, 150):
        rows = [f"w{i},{i + 0.5},{i + 0.25}" for i in range(160)]
        rows[row] = f'w{row},{row + 0.5},"{cell}"'
        (tmp_path/"v.csv").write_text("\n".join(["word,x,y", *rows]))
        with pytest.raises(ValueError, match=rf"v.csv, row {row} \(the first is 0\): column 'y' holds '{cell}'"):
            read_vectors(tmp_path/"v.csv")


@pytest.mark.parametrize("frame, says", [
    (dict(word=["a"], text=["b"], v=[1.0]), r"columns \['word', 'text', 'v'\], expected vectors as columns"),
    (dict(word=["a"]), r"expected vectors as columns of numbers or as one column of lists"),
    (dict(id=["a", "b"], v=[[1.0], [1.0, 2.0]]), r"embeddings, row 1 \(the first is 0\): a vector of 2 numbers"),
    (dict(id=["a", "b"], v=[[1.0], None]), r"row 1 .*: None in place of a vector"),
    (dict(id=["a", "b"], v=[None, [1.0]]), r"row 0 .*: None in place of a vector"),
    (dict(id=["a"], v=[["x"]]), "embeddings: column 'v' holds lists, but not of numbers"),
    (dict(id=["a", None], v=[1.0, 2.0]), r"embeddings, row 1 \(the first is 0\): the id is empty"),
    (dict(id=["a"], v=[1.0], w=[[1.0]]), r"expected vectors as columns of numbers or as one"),
])
def test_a_table_that_holds_no_vectors_is_named(frame, says):
    with pytest.raises(ValueError, match=says):
        read_vectors(pd.DataFrame(frame))


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
    refused("id,x,x\na,1,2\n", "two columns 'x'")
    refused("id,x\na,1,2\n", "more fields than")
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
