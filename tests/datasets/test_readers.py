"""Files with every fault that a stranger's file may have: counted where the meaning is clear, else named."""
import bz2
import gzip
import io
import lzma
import re
import sys
import zipfile

import networkx as nx
import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse
import torch
import zstandard
from pairs_in_tables import ROWS, TABLE, pairs_of

from rolebregman.datasets import (
    as_ids,
    faults_named,
    kind_of,
    open_zstd,
    pair_blocks,
    pairs_of_table,
    parse_obo,
    pick_columns,
    read_citation_npz,
    read_pairs,
    read_scores,
    read_table,
    read_texts,
    read_vectors,
    read_word_vectors,
    table_blocks,
    unpacked_size,
    vectors_of_text,
)

# Tables of pairs

def test_ids_stay_as_they_are_written(tmp_path):
    path = tmp_path/"p.csv"
    path.write_text('source,target,note\nNA,null,x\n007,"a, b",x\n 1.0 ,nan,x\n')
    found, _, _ = read_pairs(path)
    assert pairs_of(found) == [("NA", "null", 0), ("007", "a, b", 1), ("1.0", "nan", 2)]


@pytest.mark.parametrize("name, sep", [("p.csv", ","), ("p.tsv", "\t"), ("p.tab", "\t"), ("p.csv.gz", ",")])
def test_every_format_gives_the_same_pairs(tmp_path, name, sep):
    text = sep.join(["child", "parent"]) + "\n" + sep.join(["dog", "animal"]) + "\n"
    (tmp_path/name).write_bytes(gzip.compress(text.encode(), mtime=0) if name.endswith("gz") else text.encode())
    found, read, dropped = read_pairs(tmp_path/name)
    assert pairs_of(found) == [("dog", "animal", 0)] and dropped == {}
    assert read == {"rows": 1, "source column": "child", "target column": "parent",
                    "used columns": "child (source), parent (target)"}


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
    assert read_pairs(table.astype(str))[2] == {"labelled as not holding": 1}


def test_columns_that_are_not_used_are_said():
    table = pd.DataFrame(dict(strength=[1, 2], source=list("ab"), target=list("xy"), note="z"))
    assert read_pairs(table)[1]["unused columns"] == "strength, note"
    assert read_pairs(table, label="strength", min_label=0)[1]["unused columns"] == "note"
    assert "unused columns" not in read_pairs(table[["source", "target"]])[1]


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
    (dict(GOOD, label=["1", "maybe"]), {}, r"row 1 .*: label 'maybe' is no number and no word that says"),
    (dict(GOOD, label=["1", "yes"]), dict(min_label=1), r"row 1 .*: label 'yes' is no number; labels are numbers"),
    (dict(GOOD, label=[1, np.inf]), {}, r"row 1 .*: label .*inf.* is no number"),
    (dict(GOOD, label=[1, 0.7]), {}, r"row 1 .*: label 0.7 is neither 0 nor 1; say with min_label="),
    (dict(GOOD, label=[0, 0]), {}, r"no pair is left; dropped \{'labelled as not holding': 2"),
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
    ("e.csv.gz", gzip.compress(b"source,target\n" + b"a,b\n" * 999, mtime=0)[:-9], r"e.csv.gz is damaged or cut off"),
    ("g.csv", "source,target\na,b\n".encode("utf-16"), r"g.csv is not UTF-8 text: byte 0xff"),
    ("h.csv", b"source,target\na,b\nc\n", r"h.csv, row 1 \(the first is 0\): column 'target' is empty"),
    ("f.docx", b"PK", r"f.docx: expected pairs in a file with one of .csv, .tsv, .tab, .parquet"),
    ("i.feather", b"ARROW1", r"i.feather is damaged, cut off or no Feather file"),
    ("j.jsonl", b'{"source": "a", "target": "b"}\n{"source": "a"\n', r"j.jsonl, line 2: expected one JSON object"),
    ("k.jsonl", b'{"source": "a", "target": "b", "source": "c"}\n', r"k.jsonl, line 1: .*a name stands twice"),
    ("l.ndjson", b'["a", "b"]\n', r"l.ndjson, line 1: expected one JSON object a line \(found list\)"),
    ("m.csv.bz2", b"source,target\n", r"m.csv.bz2 is damaged or cut off"),
    ("n.csv.xz", b"source,target\n", r"n.csv.xz is damaged or cut off"),
    ("o.csv.zip", b"source,target\n", r"o.csv.zip is damaged or cut off"),
])
def test_a_damaged_table_is_named(tmp_path, name, content, says):
    (tmp_path/name).write_bytes(content)
    with pytest.raises(ValueError, match=says):
        read_pairs(tmp_path/name)


def test_a_missing_table_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="no file .*p.csv"):
        read_table(tmp_path/"p.csv")


# Texts, and tables of text

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


@pytest.mark.parametrize("name, kind", [("a.CSV", "csv"), ("a.csv.gz", "csv"), ("v.csv.npy", "npy"),
                                        ("folder.csv/ids.tsv", "tsv")])
def test_the_kind_of_a_file_is_its_last_suffix(name, kind):
    assert kind_of(name) == kind


@pytest.mark.parametrize("rows", [1, 2, 5])
def test_blocks_of_a_table_are_the_table(tmp_path, rows):
    table = pd.DataFrame(dict(child=list("abcde"), parent=list("bcdef")))
    table.to_csv(tmp_path/"t.csv", index=False)
    blocks = list(table_blocks(tmp_path/"t.csv", rows))
    assert [len(block) for block in blocks] == [rows] * (5 // rows) + [5 % rows] * (5 % rows > 0)
    pd.testing.assert_frame_equal(pd.concat(blocks), read_table(tmp_path/"t.csv"))
    found = [pairs_of_table(block, *pick_columns(block, None, None, "t.csv"), "t.csv", start)
             for block, start in zip(blocks, range(0, 5, rows))]
    assert pd.concat(found)["row"].tolist() == list(range(5)) and as_ids(blocks[0]["child"])[0] == "a"


def test_faults_of_a_file_carry_its_name():
    with pytest.raises(ValueError, match="a.txt is not UTF-8 text: byte 0xff"), faults_named("a.txt"): b"\xff".decode()
    for text, own in (("\ufeffa,b".encode("utf-16-le"), "'utf-16', whose mark"), (b"caf\xe9", "'latin-1', or what")):
        with pytest.raises(ValueError, match=f"pass encoding={own}.*; any other save as UTF-8"), faults_named("a.csv"):
            text.decode()
    with pytest.raises(ValueError, match="a.gz is damaged or cut off"), faults_named("a.gz"): raise EOFError("end")
    with pytest.raises(KeyError), faults_named("a.txt"): {}["passes"]


# What a table may come as

def zipped(path, members):
    with zipfile.ZipFile(path, "w") as box:
        for name, text in members.items(): box.writestr(name, text)
    return path


@pytest.mark.parametrize("name", ["p.csv.gz", "p.csv.bz2", "p.csv.xz", "p.csv.zip", "p.tsv.bz2", "p.tab.xz"])
def test_a_packed_table_gives_the_same_pairs(tmp_path, name):
    TABLE.to_csv(tmp_path/name, index=False, sep="," if ".csv" in name else "\t")
    assert [pair[:2] for pair in pairs_of(read_pairs(tmp_path/name)[0])] == ROWS
    assert [len(block) for block in table_blocks(tmp_path/name, 2)] == [2, 1]


def test_a_table_packed_as_zst_gives_the_same_pairs(tmp_path):
    (tmp_path/"p.csv.zst").write_bytes(zstandard.compress(TABLE.to_csv(index=False).encode()))
    assert [pair[:2] for pair in pairs_of(read_pairs(tmp_path/"p.csv.zst")[0])] == ROWS
    assert open_zstd(tmp_path/"p.csv.zst").read() == TABLE.to_csv(index=False).encode()
    (tmp_path/"q.csv.zst").write_bytes(b"source,target\na,b\n")
    with pytest.raises(ValueError, match="q.csv.zst is damaged or cut off"): read_pairs(tmp_path/"q.csv.zst")


def test_a_zip_holds_one_table_whatever_a_mac_adds(tmp_path):
    text = TABLE.to_csv(index=False, sep="\t")
    path = zipped(tmp_path/"any.zip", {"folder/p.tsv": text, "__MACOSX/folder/._p.tsv": "x"})
    assert [pair[:2] for pair in pairs_of(read_pairs(path)[0])] == ROWS
    with pytest.raises(ValueError, match=r"two.zip holds 2 files \['a.csv', 'b.csv'\], expected one"):
        read_pairs(zipped(tmp_path/"two.zip", {"a.csv": text, "b.csv": text}))
    with pytest.raises(ValueError, match="odd.zip: expected pairs in a file with one of .csv"):
        read_pairs(zipped(tmp_path/"odd.zip", {"a.md": text}))


@pytest.mark.parametrize("name", ["p.parquet", "p.feather", "p.jsonl", "p.ndjson", "p.jsonl.gz", "p.parquet.zip"])
def test_columns_and_lines_give_the_same_pairs(tmp_path, name):
    if "json" not in name: pytest.importorskip("pyarrow")
    kind, write = kind_of(name), tmp_path/name.removesuffix(".zip")
    if kind == "parquet": TABLE.to_parquet(write)
    elif kind == "feather": TABLE.to_feather(write)
    else: TABLE.to_json(write, orient="records", lines=True)
    if name.endswith("zip"): zipped(tmp_path/name, {write.name: write.read_bytes()})
    assert [pair[:2] for pair in pairs_of(read_pairs(tmp_path/name)[0])] == ROWS


@pytest.mark.parametrize("name, says", [
    ("p.db", r"a database of SQLite; in Python: pd.read_sql\('select"),
    ("p.h5", "a file of HDF5; in Python: pd.read_hdf"),
    ("p.edges", "where its first line names the columns, call it .csv or .tsv, else, in Python: pd.read_csv"),
    ("p.pt", "a file of PyTorch, which holds no pairs; expected pairs in a file with one of .csv"),
    ("p.docx", "p.docx: expected pairs in a file with one of .csv, .*read it with pandas and pass the DataFrame")])
def test_what_is_not_read_is_named_with_the_way_to_convert_it(tmp_path, name, says):
    (tmp_path/name).write_bytes(b"x")
    with pytest.raises(ValueError, match=says): read_pairs(tmp_path/name)


@pytest.mark.parametrize("name, sep, word", [
    ("p.csv", ";", "semicolons"), ("p.csv", "|", "pipes"), ("p.csv", "\t", "tabs"), ("p.tsv", ",", "commas"),
    ("p.tab", ";", "semicolons")])
def test_another_separator_is_noticed_and_may_be_said(tmp_path, name, sep, word):
    more = [*ROWS, ("a,b", "c\td") if sep in ";|" else ("a;b", "c|d")]
    pd.DataFrame(more, columns=["child", "parent"]).to_csv(tmp_path/name, index=False, sep=sep)
    for read in (read_pairs, lambda path: list(pair_blocks(path))):
        with pytest.raises(ValueError, match=re.escape(f"its header has {word}: of a file of pairs pass sep={sep!r}")):
            read(tmp_path/name)
    assert [pair[:2] for pair in pairs_of(read_pairs(tmp_path/name, sep=sep)[0])] == more
    assert pairs_of(pd.concat(pair_blocks(tmp_path/name, sep=sep)))[3][:2] == more[3]


def test_an_encoding_may_be_said(tmp_path):
    (tmp_path/"p.csv").write_text("source,target\ncafé,x\n", encoding="latin-1")
    assert pairs_of(read_pairs(tmp_path/"p.csv", encoding="latin-1")[0]) == [("café", "x", 0)]
    (tmp_path/"q.tsv").write_text("source\ttarget\ncafé\tx\n", encoding="utf-16")
    assert pairs_of(read_pairs(tmp_path/"q.tsv", encoding="utf-16", sep="\\t")[0]) == [("café", "x", 0)]
    with pytest.raises(ValueError, match="encoding = 'utf-99' is not known"):
        read_pairs(tmp_path/"p.csv", encoding="utf-99")
    with pytest.raises(ValueError, match="p.csv is not of the encoding"):
        read_pairs(tmp_path/"p.csv", encoding="utf-16")
    with pytest.raises(ValueError, match="sep = '::', expected one character"): read_pairs(tmp_path/"p.csv", sep="::")
    with pytest.raises(ValueError, match="pairs: only a file has a sep="): read_pairs(TABLE, sep=";")


@pytest.mark.parametrize("given", [
    nx.DiGraph(ROWS), nx.MultiDiGraph(ROWS), pl.from_pandas(TABLE), pl.from_pandas(TABLE).lazy(), np.array(ROWS)])
def test_tables_of_other_libraries_are_taken(given):
    assert {pair[:2] for pair in pairs_of(read_pairs(given)[0])} == set(ROWS)


def test_attributes_of_edges_are_columns():
    graph = nx.DiGraph([("a", "b", {"Label": "yes", "weight": 2}), ("b", "c", {"Label": "no", "weight": 1})])
    found, read, _ = read_pairs(graph)
    assert pairs_of(found) == [("a", "b", 0)] and read["unused columns"] == "weight"
    graph.edges["b", "c"].update(relation="is_a")
    graph.edges["a", "b"].update(relation="has")
    with pytest.raises(ValueError, match="column 'relation' has several relations"): read_pairs(graph)


def test_arrow_tables_are_taken():
    pa = pytest.importorskip("pyarrow")
    assert [pair[:2] for pair in pairs_of(read_pairs(pa.Table.from_pandas(TABLE))[0])] == ROWS


def test_the_numbers_of_a_datasets_labels_are_its_names():
    "In GLUE and SNLI 0 is the number of entailment"
    datasets = pytest.importorskip("datasets")
    features = datasets.Features(dict(premise=datasets.Value("string"), hypothesis=datasets.Value("string"),
                                      label=datasets.ClassLabel(names=["entailment", "not_entailment"])))
    data = datasets.Dataset.from_dict(dict(premise=["a", "b"], hypothesis=["c", "d"], label=[0, 1]), features=features)
    assert pairs_of(read_pairs(data)[0]) == [("a", "c", 0)]
    with pytest.raises(ValueError, match="row 1 .*label '-1' is no number|label -1 is neither"):
        read_pairs(data.map(lambda row: dict(label=-1 if row["premise"] == "b" else 0)))
    with pytest.raises(TypeError, match=r"found DatasetDict; it has \['train'\]"):
        read_pairs(datasets.DatasetDict(train=data))


@pytest.mark.parametrize("as_given", [np.asarray, torch.tensor, lambda m: np.array(m, np.int32)])
def test_an_edge_index_is_taken(as_given):
    edges = [[1, 2, 3, 4], [0, 0, 1, 1]]
    found = [pair[:2] for pair in pairs_of(read_pairs(as_given(edges))[0])]
    assert found == [("1", "0"), ("2", "0"), ("3", "1"), ("4", "1")]


@pytest.mark.parametrize("given, says", [
    (nx.Graph(ROWS), "a Graph has no direction; pass a networkx DiGraph"),
    (scipy.sparse.eye_array(3).tocsr(), r"found csr_array; of an adjacency .* np.stack\(pairs.nonzero\(\)\)"),
    (np.eye(2, dtype=int), r"array of shape \(2, 2\) int64, expected .* m other than 2"),
    (np.zeros((2, 3)), r"array of shape \(2, 3\) float64, expected integers"),
    (np.ma.masked_equal([[1, 2, 3], [4, 5, 6]], 5), "1 fields are masked"),
    (nx.DiGraph([("a", "b", {"target": 1})]), "Rename the attribute of the edges"),
    ({"train": TABLE}, r"found dict; it has \['train'\]: pass one of them"),
    (None, "found NoneType"),
])
def test_what_is_no_table_of_pairs_is_named(given, says):
    with pytest.raises((TypeError, ValueError), match=says): read_pairs(given)


# Ids

@pytest.mark.parametrize("dtype", [
    "Float64", "Int64", "float32", "double[pyarrow]", "int64[pyarrow]", "category", object])
def test_whole_ids_are_the_same_in_any_column(dtype):
    if "pyarrow" in str(dtype): pytest.importorskip("pyarrow")
    for last in (12, 2**24 - 1): assert list(as_ids(pd.Series([7, last], dtype=dtype))) == ["7", str(last)]


@pytest.mark.parametrize("values, dtype, row", [
    ([1, 2**53, 2**53 + 1], float, 1), ([1e20], float, 0), ([1, 2**60], "Float64", 1), ([3, 2**24], "float32", 1),
    (["a", 1e17], object, 1), ([1, -2.0**53], float, 1), ([4.5, 2.0**53], float, 1)])
def test_floats_that_stand_for_several_whole_numbers_are_no_ids(values, dtype, row):
    with pytest.raises(ValueError, match=rf"ids: row {row} \(the first is 0\).* stands for several whole numbers"):
        as_ids(pd.Series(values, dtype=dtype))
    with pytest.raises(ValueError, match=rf"pairs, column 'source': row {row} "):
        read_pairs(pd.DataFrame(dict(source=pd.Series(values, dtype=dtype), target="x")))


def test_bytes_are_text_and_lists_are_no_ids():
    assert list(as_ids(pd.Series([b"dog", "caf\u00e9".encode(), " x "]))) == ["dog", "caf\u00e9", "x"]
    with pytest.raises(ValueError, match="row 1 .*can't decode"): as_ids(pd.Series([b"dog", b"\xff"]))
    for odd in (["a"], {"a": 1}, np.array([1])):
        with pytest.raises(ValueError, match="row 1 .*expected an id"): as_ids(pd.Series(["a", odd]))


@pytest.mark.parametrize("columns", [("ID", "Text"), (" id", "text "), ("text", "Id")])
def test_columns_of_texts_are_found_in_any_case(columns):
    table = pd.DataFrame({name: ["a"] if name.strip().lower() == "id" else ["an a"] for name in columns})
    assert read_texts(table).to_dict() == {"a": "an a"}
    with pytest.raises(ValueError, match="columns 'ID' and 'id' could each be id"):
        read_texts(pd.DataFrame(dict(ID=["a"], id=["a"], text=["x"])))


# ---- what unpacks to more than there is room for

MANY = b"source,target\n" + b"a,b\n" * 500_000  # two megabytes
NUMBERS = b"id,x0,x1\n" + b"".join(b"n%d,1.5,2.5\n" % i for i in range(200_000))


def one_packed(name, content):
    box = io.BytesIO()
    with zipfile.ZipFile(box, "w", zipfile.ZIP_DEFLATED) as z: z.writestr(name, content)
    return box.getvalue()


def arrays(**named):
    box = io.BytesIO()
    np.savez_compressed(box, **named)
    return box.getvalue()


BOMBS = {"p.csv.gz": (read_table, lambda: gzip.compress(MANY)), "p.csv.bz2": (read_table, lambda: bz2.compress(MANY)),
    "p.csv.xz": (read_table, lambda: lzma.compress(MANY)), "p.csv.zip": (read_table, lambda: one_packed("p.csv", MANY)),
    "p.json.gz": (read_table, lambda: gzip.compress(b'[{"a": 1}' + b" " * 2_000_000 + b"]")),
    "p.xlsx": (read_table, lambda: one_packed("xl/workbook.xml", MANY)),
    "v.csv.gz": (vectors_of_text, lambda: gzip.compress(NUMBERS)),
    "v.npz": (read_vectors, lambda: arrays(v=np.zeros((1000, 1000), np.float32))),
    "v.vec.gz": (read_word_vectors, lambda: gzip.compress(b"word 0.5 1.5\n" * 300_000)),
    "v.zip": (read_word_vectors, lambda: one_packed("v.txt", b"word 0.5 1.5\n" * 300_000)),
    "o.obo.gz": (parse_obo, lambda: gzip.compress(b"! a comment\n" * 300_000)),
    "g.npz": (read_citation_npz, lambda: arrays(x_data=np.zeros(1_000_000, np.float32)))}


@pytest.mark.parametrize("name", BOMBS)
def test_what_unpacks_beyond_the_limit_is_refused(name, tmp_path, monkeypatch):
    read, content = BOMBS[name]
    (tmp_path / name).write_bytes(content())
    assert (tmp_path / name).stat().st_size < 1_500_000
    monkeypatch.setenv("ROLEBREGMAN_MAX_GIB", "0.0015")
    with pytest.raises(ValueError, match="unpacks to more than 0.0015 GiB; if you trust it, unpack it, or set ROLEB"):
        read(tmp_path / name)


@pytest.mark.parametrize("limit", ["inf", "1", ""])
def test_the_limit_can_be_lifted(limit, tmp_path, monkeypatch):
    monkeypatch.setenv("ROLEBREGMAN_MAX_GIB", limit)
    (tmp_path / "p.csv.gz").write_bytes(gzip.compress(MANY))
    assert len(read_table(tmp_path / "p.csv.gz")) == 500_000


def test_what_is_not_packed_has_no_limit(tmp_path, monkeypatch):
    monkeypatch.setenv("ROLEBREGMAN_MAX_GIB", "0.00001")
    (tmp_path / "p.csv").write_bytes(MANY[:40_002])
    np.savez(tmp_path / "v.npz", v=np.ones((1000, 100), np.float32))
    assert len(read_table(tmp_path / "p.csv")) == 9_997 and read_vectors(tmp_path / "v.npz")[0].shape == (1000, 100)


def test_what_stands_in_an_archive_as_it_is_does_not_count():
    box = io.BytesIO(one_packed("a", MANY))
    with zipfile.ZipFile(box, "a", zipfile.ZIP_STORED) as z: z.writestr("b", MANY)
    assert unpacked_size(box) == len(MANY)


def test_a_shape_that_an_archive_does_not_hold_is_damage(tmp_path):
    "A header of a few bytes asks for a petabyte"
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, dict(descr="<f4", fortran_order=False, shape=(10**9, 10**6)))
    (tmp_path / "v.npz").write_bytes(one_packed("v.npy", header.getvalue() + b"12345678"))
    with pytest.raises(ValueError, match="v.npz cannot be read as NumPy arrays"): read_vectors(tmp_path / "v.npz")
