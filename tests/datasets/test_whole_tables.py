"Tables that are read whole: JSON, Excel, graphs and columns, with what is damaged in them"
import gzip
import sys

import networkx as nx
import openpyxl
import pandas as pd
import pytest
from pairs_in_tables import ROWS, TABLE, pairs_of

from rolebregman.datasets import read_pairs, read_table


def test_lines_of_json_keep_large_ids_and_labels(tmp_path):
    (tmp_path/"p.jsonl").write_text('{"source": 9007199254740993, "target": "a", "label": true}\n\n'
                                    '{"source": 9007199254740992, "target": "a", "label": false}\n')
    assert pairs_of(read_pairs(tmp_path/"p.jsonl")[0]) == [("9007199254740993", "a", 0)]


def test_excel_gives_the_same_pairs(tmp_path):
    TABLE.to_excel(tmp_path/"p.xlsx", index=False)
    assert [pair[:2] for pair in pairs_of(read_pairs(tmp_path/"p.xlsx")[0])] == ROWS
    book = openpyxl.Workbook()  # as people fill it in: whole numbers, a label that is a truth, an empty sheet
    for row in (["Child", "parent ", "label"], [7, "dog", True], [12, "007", False]): book.active.append(row)
    book.create_sheet("empty")
    book.save(tmp_path/"n.xlsx")
    assert pairs_of(read_pairs(tmp_path/"n.xlsx")[0]) == [("7", "dog", 0)]
    with pd.ExcelWriter(tmp_path/"q.xlsx") as both:
        for sheet in "ab": TABLE.to_excel(both, sheet_name=sheet, index=False)
    with pytest.raises(ValueError, match=r"q.xlsx has the sheets \['a', 'b'\]"): read_pairs(tmp_path/"q.xlsx")


def test_excel_without_its_package_names_what_to_install(tmp_path, monkeypatch):
    TABLE.to_excel(tmp_path/"p.xlsx", index=False)
    monkeypatch.setitem(sys.modules, "openpyxl", None)
    with pytest.raises(ImportError, match="p.xlsx: to read Excel, pip install openpyxl"): read_pairs(tmp_path/"p.xlsx")


def test_graphs_orc_and_lists_of_objects_give_the_same_pairs(tmp_path):
    graph = nx.DiGraph(ROWS)
    nx.write_graphml(graph, tmp_path/"p.graphml")
    nx.write_gexf(graph, tmp_path/"p.gexf")
    nx.write_pajek(graph, tmp_path/"p.net")
    nx.write_gml(graph, tmp_path/"p.gml")
    TABLE.to_orc(tmp_path/"p.orc")
    TABLE.to_json(tmp_path/"p.json", orient="records")
    (tmp_path/"p.graphml.gz").write_bytes(gzip.compress((tmp_path/"p.graphml").read_bytes()))
    for kind in ("graphml", "gexf", "net", "gml", "orc", "json", "graphml.gz"):
        assert {pair[:2] for pair in pairs_of(read_pairs(tmp_path/f"p.{kind}")[0])} == set(ROWS), kind
    for kind, write in (("graphml", nx.write_graphml), ("gml", nx.write_gml), ("net", nx.write_pajek)):
        write(nx.Graph(ROWS), tmp_path/f"u.{kind}")
        with pytest.raises(ValueError, match=f"u.{kind}: its edges have no direction; save them as directed"):
            read_pairs(tmp_path/f"u.{kind}")
        (tmp_path/f"u.{kind}").write_text("<a")
        with pytest.raises(ValueError, match=f"u.{kind} "): read_pairs(tmp_path/f"u.{kind}")


@pytest.mark.parametrize("name, text", [("p.json", "["), ("p.jsonl", "["), ("p.json", '{"a":'), ("p.jsonl", '{"a":')])
def test_json_that_is_nested_too_deep_is_named(name, text, tmp_path):
    (tmp_path / name).write_text(text * 100_000)
    with pytest.raises(ValueError, match=name): read_table(tmp_path / name)
