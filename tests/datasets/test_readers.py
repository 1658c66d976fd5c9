"""Files with every fault that a stranger's file may have: counted where the meaning is clear, else named."""
import gzip
import sys

import numpy as np
import pandas as pd
import pytest

from rolebregman.datasets import (
    as_ids,
    faults_named,
    kind_of,
    pairs_of_table,
    pick_columns,
    read_pairs,
    read_scores,
    read_table,
    read_texts,
    table_blocks,
)


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
    with pytest.raises(ValueError, match="a.gz is damaged or cut off"), faults_named("a.gz"): raise EOFError("end")
    with pytest.raises(KeyError), faults_named("a.txt"): {}["passes"]
