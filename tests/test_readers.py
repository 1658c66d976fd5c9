"""Files with every fault that a stranger's file may have: counted where the meaning is clear, else named."""
import gzip
import sys

import numpy as np
import pandas as pd
import pytest

from rolebregman.readers import find_cycles, read_obo, read_pairs, read_table, read_texts, read_vectors

HEAD = "format-version: 1.2\ndata-version: v1\ndefault-namespace: body\nontology: small\n"


def obo(tmp_path, *terms, name="small.obo"):
    path = tmp_path/name
    path.write_text(HEAD + "".join(f"\n[Term]\n{t}\n" for t in terms), encoding="utf-8")
    return path


ORGAN = "id: A:1\nname: organ\nalt_id: A:8\nalt_id: A:9"
EYE = 'id: A:2\nname: eye\ndef: "What sees." [x:1]'


def pairs_of(edges):
    return list(edges.itertuples(index=False, name=None))


# OBO

def test_terms_and_edges_are_read(tmp_path):
    path = obo(tmp_path, EYE + "\nis_a: A:1 {a=\"b\"} ! organ\nrelationship: part_of A:1", ORGAN)
    terms, edges, counts = read_obo(path)
    assert terms.to_dict("list") == dict(id=["A:1", "A:2"], name=["organ", "eye"], definition=["", "What sees."],
                                         namespace=["body", "body"])
    assert pairs_of(edges) == [("A:2", "A:1", "is_a"), ("A:2", "A:1", "part_of")]
    assert counts == {} and terms.attrs["release"] == "v1"


def test_only_the_relations_asked_for_are_read(tmp_path):
    path = obo(tmp_path, ORGAN, EYE + "\nrelationship: regulates A:1\nrelationship: part_of A:1\nis_a: A:1")
    assert pairs_of(read_obo(path, ["regulates"])[1]) == [("A:2", "A:1", "regulates")]


@pytest.mark.parametrize("target, more, edge, count", [
    ("A:9", [], "A:1", "alt_id resolved"),
    ("A:7", [], None, "dangling target"),
    ("A:2", [], None, "self-edge"),
    ("A:7", ["id: A:7\nname: old\nis_obsolete: true"], None, "obsolete target"),
    ("A:7", ["id: A:7\nname: old\nis_obsolete: true\nreplaced_by: A:1"], "A:1", "obsolete target replaced"),
    ("A:7", ["id: A:7\nname: old\nis_obsolete: true\nreplaced_by: A:8"], "A:1", "obsolete target replaced"),
    ("A:7", ["id: A:7\nname: older\nis_obsolete: true\nreplaced_by: A:6",
             "id: A:6\nname: old\nis_obsolete: true\nreplaced_by: A:1"], "A:1", "obsolete target replaced"),
    ("A:7", ["id: A:7\nname: old\nis_obsolete: true\nreplaced_by: A:6"], None, "obsolete target"), # by nothing
    ("A:7", ["id: A:7\nname: old\nis_obsolete: true\nreplaced_by: A:6",
             "id: A:6\nname: old\nis_obsolete: true\nreplaced_by: A:7"], None, "obsolete target"), # in a circle
    ("A:7", ["id: A:7\nis_a: A:1"], None, "target without a name"),
])
def test_a_target_that_is_no_live_term_is_resolved_or_dropped_and_counted(tmp_path, target, more, edge, count):
    terms, edges, counts = read_obo(obo(tmp_path, ORGAN, EYE + f"\nis_a: {target}", *more))
    assert pairs_of(edges) == ([("A:2", edge, "is_a")] if edge else [])
    assert counts.pop(count) == 1
    assert set(counts) <= {"obsolete term", "term without a name"}
    assert list(terms.id) == ["A:1", "A:2"]


def test_obsolete_and_nameless_terms_go_with_their_edges(tmp_path):
    _, edges, counts = read_obo(obo(tmp_path, ORGAN, EYE, "id: A:3\nis_a: A:1", "id: A:4\nname:  \nis_a: A:1",
                                    "id: A:5\nname: old\nis_obsolete: true\nis_a: A:1"))
    assert counts == {"obsolete term": 1, "term without a name": 2} and not len(edges)


def test_the_order_of_terms_in_the_file_changes_nothing(tmp_path):
    stanzas = [ORGAN, EYE + "\nis_a: A:9\nis_a: A:77", "id: A:3\nname: iris\nrelationship: part_of A:2\nis_a: A:1"]
    first = read_obo(obo(tmp_path, *stanzas))
    second = read_obo(obo(tmp_path, *stanzas[::-1], name="turned.obo"))
    assert first[0].equals(second[0]) and first[1].equals(second[1]) and first[2] == second[2]


def test_escapes_quotes_and_comments_are_undone(tmp_path):
    definition = r'def: "Said \"to see\", twice.\nAnd \\." [a:1, b:2] ! no'
    terms, _, _ = read_obo(obo(tmp_path, "id: A:1\n" + r"name: 2\,4-D \{sic\}" + "\n" + definition))
    assert terms.name[0] == "2,4-D {sic}"
    assert terms.definition[0] == 'Said "to see", twice.\nAnd \\.'


def test_gzip_and_windows_files_read_alike(tmp_path):
    plain = obo(tmp_path, ORGAN, EYE + "\nis_a: A:1")
    (tmp_path/"w.obo").write_bytes(b"\xef\xbb\xbf" + plain.read_bytes().replace(b"\n", b"\r\n"))
    (tmp_path/"z.obo.gz").write_bytes(gzip.compress(plain.read_bytes()))
    expected = read_obo(plain)
    for name in ("w.obo", "z.obo.gz"):
        terms, edges, _ = read_obo(tmp_path/name)
        assert terms.equals(expected[0]) and edges.equals(expected[1]) and terms.attrs["release"] == "v1"


@pytest.mark.parametrize("name, content, says", [
    ("a.obo", HEAD.encode() + b"\n[Term]\nid: A:1\nname: caf\xe9 au lait\n", r"a.obo is not UTF-8 text: byte 0xe9"),
    ("b.obo.gz", gzip.compress(HEAD.encode() * 99)[:-12], r"b.obo.gz is damaged or cut off"),
    ("c.obo.gz", HEAD.encode(), r"c.obo.gz is damaged or cut off"),
    ("d.obo", HEAD.encode() + b"\n[Term]\nname: organ\n", r"d.obo is not valid OBO: a term has no 'id'"),
    ("e.obo", HEAD.encode() + b"\n[Term]\nid: A:1\nname: x\nrelationship: part_of\n", r"e.obo is not valid OBO"),
    ("f.obo", b"child,parent\na,b\n", r"f.obo is not valid OBO: Tag-value pair"),
    ("g.obo", b"", r"g.obo holds no live \[Term\] with a name"),
])
def test_a_damaged_ontology_is_named(tmp_path, name, content, says):
    (tmp_path/name).write_bytes(content)
    with pytest.raises(ValueError, match=says):
        read_obo(tmp_path/name)


@pytest.mark.parametrize("edges, cycles", [
    ([], []), (["ab", "bc", "ac"], []), (["ab", "ba"], ["a -> b -> a"]),
    (["ab", "bc", "ca", "xy", "yx", "cx"], ["a -> b -> c -> a", "x -> y -> x"]),
])
def test_cycles_are_told_one_for_each_group(edges, cycles):
    assert find_cycles([e[0] for e in edges], [e[1] for e in edges]) == cycles


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
