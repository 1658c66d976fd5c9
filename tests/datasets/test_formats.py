"""The list of formats, and what is said of a file that is not on it"""
import json
import re
from pathlib import Path
from zipfile import ZipFile

import networkx as nx
import pytest
import zstandard

from rolebregman.datasets import FORMATS, OTHERS, TABLES, VECTOR_FILES, WORDS, format_table, kinds_of, refusal
from rolebregman.datasets.formats import Format
from rolebregman.datasets.readers import header_of, kind_inside, open_zstd, text_format
from rolebregman.datasets.whole_tables import edges_of

ROOT = Path(__file__).parents[2]


def test_the_list_is_what_the_readers_read():
    assert set(kinds_of("pairs")) == {*TABLES, "zip"}
    assert set(VECTOR_FILES) == set(kinds_of("vectors")) > set(WORDS)
    assert len({some.kind for some in FORMATS}) == len(FORMATS) and all(some.library for some in FORMATS)


@pytest.mark.parametrize("use", ["pairs", "vectors"])
def test_every_suffix_is_in_the_guide(use):
    "As its page shows it: an output that is older than the list would lack one"
    cells = json.loads((ROOT/"nbs"/"guides"/"own_pairs.ipynb").read_text(encoding="utf-8"))["cells"]
    cell, = (cell for cell in cells if f'format_table("{use}")' in "".join(cell["source"]))
    page = re.sub("<[^>]*>", " ", "".join(cell["outputs"][0]["data"]["text/html"]))
    shown = " ".join(page.split())
    for some in FORMATS:
        if getattr(some, use): assert re.search(rf"\.{some.kind}\b", shown), some.kind
    for row in format_table(use).itertuples(index=False):
        for text in row: assert " ".join(text.split()) in shown


def test_what_is_not_read_is_not_told_to_be_read():
    for kind, (_, *ways) in OTHERS.items():
        for use, line in zip(("pairs", "vectors"), ways, strict=True):
            assert not (line and kind in kinds_of(use))
            said = refusal("x/y", kind, use)
            assert line.replace("(path", "('x/y'") in said and (" in Python: " in said) == bool(line)


def test_the_parts_that_readers_share(tmp_path):
    assert all(isinstance(some, Format) for some in FORMATS)
    (tmp_path / "a.zst").write_bytes(zstandard.compress(b"one two"))
    with open_zstd(tmp_path / "a.zst") as stream: assert stream.read() == b"one two"
    (tmp_path / "a.tsv").write_text("child\tparent\n1\t2\n")
    assert list(header_of(tmp_path / "a.tsv")) == ["child", "parent"] and text_format("a.tsv", "tsv")["sep"] == "\t"
    with pytest.raises(ValueError, match="a.csv: sep = 'ab', expected one character"): text_format("a.csv", "csv", "ab")
    assert edges_of(nx.DiGraph([("a", "b")]), "g").to_numpy().tolist() == [["a", "b"]]
    with ZipFile(tmp_path / "b.zip", "w") as packed: packed.writestr("b.csv", "x")
    assert (kind_inside(tmp_path / "b.zip"), kind_inside("a.tsv.gz")) == ("csv", "tsv")
    with pytest.raises(TypeError, match="g: a Graph has no direction"): edges_of(nx.Graph([("a", "b")]), "g")
