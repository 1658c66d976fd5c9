"""OBO files: what the guide allows is read, what is odd is counted, what cannot be read is named, with their lines."""
import bz2
import gzip
import lzma
import tracemalloc
from pathlib import Path

import numpy as np
import obonet
import pytest

from rolebregman.datasets import cut_value, load_obo, local_file, parse_obo, read_obo, unescape

HEAD = "format-version: 1.4\ndefault-namespace: body\n"  # lines 1 and 2
ORGAN = "\n[Term]\nid: A:1\nname: organ\n"  # lines 3 to 6
EYE = "\n[Term]\nid: A:2\nname: eye\n"  # lines 7 to 10
IS_A = [("A:2", "A:1", "is_a")]
PART_OF = [("A:2", "A:1", "part_of")]


def read(tmp_path, text, name="small.obo", **options):
    (tmp_path/name).write_text(text, encoding="utf-8")
    terms, edges, counts = read_obo(tmp_path/name, **options)
    return list(terms.id), list(edges.itertuples(index=False, name=None)), counts


# What the guide allows is read without a word

@pytest.mark.parametrize("line, edges", [
    ("is_a: A:1! organ", IS_A),
    ("is_a: A:1!", IS_A),
    ("is_a: A:1 ! organ {a=\"b\"}", IS_A),
    ('is_a: A:1{q="v"}', IS_A),
    ('is_a: A:1{q="v"}! organ', IS_A),
    ('is_a: A:1 {q="in {braces} and !"} ! organ', IS_A),
    ('is_a: A:1 {q="an escaped \\" and }"}', IS_A),
    ('is_a: A:1 {q="v"} {r="w", s="x"} ! organ', IS_A),
    ('is_a: A:1{q="v"}{r="w"}', IS_A),
    ("is_a:A:1", IS_A),
    ("is_a:    A:1   ", IS_A),
    (r"is_a: A\:1", IS_A),
    ("is_a: \\\nA:1", IS_A),
    ("! a comment\nis_a: A:1", IS_A),
    ("! ends in a backslash \\\nis_a: A:1", IS_A),
    ("comment: see ! C:\\\nis_a: A:1", IS_A),
    ('def: "goes ! on \\\nhere" [] ! end\nis_a: A:1', IS_A),
    ("relationship: part_of A:1! organ", PART_OF),
    ('relationship: part_of A:1{q="v"}', PART_OF),
    ("relationship:    part_of A:1", PART_OF),
    ("is_obsolete: false ! still there\nis_a: A:1", IS_A),
    ('is_obsolete: false {since="2020"}\nis_a: A:1', IS_A),
])
def test_what_the_guide_allows_is_read_and_nothing_is_odd(tmp_path, line, edges):
    assert read(tmp_path, HEAD + ORGAN + EYE + line + "\n") == (["A:1", "A:2"], edges, {})


@pytest.mark.parametrize("header", ["[Term] ! a comment", "[Term]! no", '[Term] {q="v"}', "[Term]  ", "[ Term ]"])
def test_what_stands_behind_the_kind_of_a_stanza_is_no_matter(tmp_path, header):
    found = read(tmp_path, HEAD + ORGAN + EYE.replace("[Term]", header) + "is_a: A:1\n")
    assert found[:2] == (["A:1", "A:2"], IS_A) and set(found[2]) <= {"[Term] in other letters (first in line 8)"}


@pytest.mark.parametrize("written, meant", [
    (r"2\,4-D \{sic\}", "2,4-D {sic}"), (r"wow\! ! comment", "wow!"), (r"a\nb\tc\Wd", "a\nb\tc d"),
    ('eye {q="v"} ! c', "eye"), ("poly{3}ol", "poly{3}ol"), ("Yahoo! inc", "Yahoo! inc"),
    ("2,4-D {sic}", "2,4-D {sic}"), ("2,4-D {sic} {so} ! c", "2,4-D {sic} {so}"),
    ('5" tube ! c', '5" tube'), ("on \\\nand on", "on and on"), (r"ends in \\", "ends in \\"), ("eye {} ! c", "eye"),
])
def test_names_are_what_is_meant(tmp_path, written, meant):
    (tmp_path/"small.obo").write_text(f"{HEAD}\n[Term]\nid: A:1\nname: {written}\n")
    assert read_obo(tmp_path/"small.obo")[0].name[0] == meant


def test_qualifiers_and_escapes_come_apart():
    assert cut_value('A:1{q="v"}! organ') == ("A:1", '{q="v"}') and cut_value("A:1 {q") == ("A:1", None)
    assert cut_value("a! b {c} ! d", is_id=False) == ("a! b {c}", "")
    assert unescape(r"\"a\"\\") == '"a"\\'


# What is odd is read all the same, and counted by kind with its first line

@pytest.mark.parametrize("tail, edges, kind", [
    ("\nis_a: A:1\n", IS_A, "blank line inside a stanza (first in line 12)"),
    ("\n! a comment block\n! of two lines\n\nis_a: A:1\n", IS_A, "blank line inside a stanza (first in line 15)"),
    ("   \t\nis_a: A:1\n", IS_A, "blank line inside a stanza (first in line 12)"),
    ("  is_a: A:1\n", IS_A, "line that begins with a space (first in line 11)"),
    ("is_a : A:1\n", IS_A, "space before the colon of a tag (first in line 11)"),
    ("Is_A: A:1\n", IS_A, "tag in other letters (first in line 11)"),
    ("isa: A:1\n", [], "tag that OBO does not know, not read (first in line 11)"),
    ("is_a: A:1 organ\n", IS_A, "text behind a target without a ! (first in line 11)"),
    ('is_a: A:1 {q="v"\n', IS_A, "qualifiers whose braces do not close (first in line 11)"),
    ("is_a: ! organ\n", [], "tag without a value (first in line 11)"),
    ("def: What sees.\nis_a: A:1\n", IS_A, "def that is not in quotes, left out (first in line 11)"),
    ('def: "What sees.\nis_a: A:1\n', IS_A, "def that is not in quotes, left out (first in line 11)"),
    ("comment: here \\\nis_a: A:1\n", [], "line that goes on in one that looks like another tag (first in line 11)"),
    ("is_a: A:1\n\n[Term]\nid: A:3 iris\n", IS_A, "id with a space in it, kept (first in line 14)"),
    ("name: Eye\nis_a: A:1\n", IS_A, "name a second time in a term, the last taken (first in line 11)"),
    ("is_a: A:1\nis_a: A:1\n", IS_A, "edge given twice"),
    ("relationship: part_of  A:1\n", PART_OF, "more than a space between relation and target (first in line 11)"),
    ("relationship: part_of\tA:1\n", PART_OF, "more than a space between relation and target (first in line 11)"),
    ("relationship:\tpart_of \t A:1\n", PART_OF, "more than a space between relation and target (first in line 11)"),
    ('relationship: part_of A:1 {gci_filler="B:1"}\n', PART_OF,
     "edge that holds only with its gci_ qualifiers, taken as any other (first in line 11)"),
    ("is_a: A:1\n[Typedef]\nid: near\n", IS_A, "stanza without a blank line before it (first in line 12)"),
    ("is_a: A:1\n\n[Annotation]\nsubject: A:1\n", IS_A, "[Annotation], not read (first in line 13)"),
    ("is_a: A:1\n\n[Instance]\nid: A:7\n", IS_A, "[Instance], not read (first in line 13)"),
    ("is_a: A:1\n\n[Formula]\nid: A:7\n", IS_A, "stanza of no kind that OBO knows, not read (first in line 13)"),
    ("is_a: A:1\n\n[Typedef]\nname: near\n", IS_A, "[Typedef] without an id, not read (first in line 13)"),
    ("\n[TERM]\nid: A:2\nis_a: A:1\n", IS_A, "[Term] in other letters (first in line 12)"),
    ("\n[Term]\nid: A:2\nis_a: A:1\n", IS_A, "term with another stanza, joined (first in line 12)"),
])
def test_what_is_odd_is_read_and_counted_with_its_first_line(tmp_path, tail, edges, kind):
    ids, found, counts = read(tmp_path, HEAD + ORGAN + EYE + tail)
    assert (ids, found) == (["A:1", "A:2"], edges) and counts[kind] == 1


def test_a_third_of_the_terms_with_a_blank_line_loses_no_edge(tmp_path):
    stanzas = [f"\n[Term]\nid: A:{i}\nname: a{i}\n" + "\n" * (i % 3 == 0) + f"is_a: A:{i // 2}\n" for i in range(2, 41)]
    _, edges, counts = read(tmp_path, HEAD + ORGAN + "".join(stanzas))
    assert len(edges) == 39 and counts == {"blank line inside a stanza (first in line 17)": 13}


@pytest.mark.parametrize("word, gone", [("true", True), ("True", True), ("TRUE ! old", True), ('true {by="x"}', True),
                                        ("1", True), ("yes", True), ("false", False), ("False", False), ("no", False)])
def test_obsolete_is_what_says_so_in_any_letters(tmp_path, word, gone):
    ids, edges, counts = read(tmp_path, HEAD + ORGAN + EYE + f"is_obsolete: {word}\nis_a: A:1\n")
    assert (ids, edges) == ((["A:1"], []) if gone else (["A:1", "A:2"], IS_A))
    assert counts.get("obsolete term", 0) == gone
    odd = "is_obsolete with another word than true or false (first in line 11)"
    assert (odd in counts) == (word.split()[0] not in ("true", "false"))


def test_stanzas_of_one_term_are_joined(tmp_path):
    (tmp_path/"a.obo").write_text(HEAD + ORGAN + EYE + 'alt_id: A:8\n\n[Term]\nid: A:2\nalt_id: A:9\ndef: "Sees." []\n')
    term = parse_obo(tmp_path/"a.obo").terms["A:2"]
    assert (term.name, term.definition, term.alt_ids, term.line) == ("eye", "Sees.", ["A:8", "A:9"], 8)


# What cannot be read names its line

@pytest.mark.parametrize("tail, says", [
    ("\n[Term]\nname: organ\n", r"line 12: \[Term\] without an id, expected a line such as `id: A:1`"),
    ("\n[Term]\n\n[Term]\nid: A:3\n", r"line 12: \[Term\] without an id"),
    ("id: A:3\n", r"line 11: a second id in the \[Term\] of line 8"),
    ("relationship: part_of\n", r"line 11: relationship: 'part_of', expected a relation and a target"),
    ("relationship: part_of ! A:1\n", r"line 11: relationship: 'part_of', expected a relation and a target"),
    ("is_obsolete: perhaps\n", r"line 11: is_obsolete: 'perhaps', expected true or false"),
    ("is_a A:1\n", r"line 11: 'is_a A:1', expected a tag, a colon and a value"),
    ("{: A:1\n", r"line 11: '{: A:1', expected a tag"),
    ("\n[Term\nid: A:3\n", r"line 12: '\[Term', expected the kind of a stanza in brackets"),
    ("\n[Term] id: A:3\n", r"line 12: '\[Term\] id: A:3', expected the kind of a stanza in brackets"),
    ("x" * 10**6, r"line 11: 'x{80}\.\.\.', expected a tag"),
])
def test_what_cannot_be_read_names_its_line(tmp_path, tail, says):
    with pytest.raises(ValueError, match=r"small\.obo is not valid OBO: " + says):
        read(tmp_path, HEAD + ORGAN + EYE + tail)


def test_a_line_that_is_not_utf_8_is_named(tmp_path):
    (tmp_path/"a.obo").write_bytes((HEAD + ORGAN).encode() + b"comment: \xe9\n")
    with pytest.raises(ValueError, match=r"a\.obo is not UTF-8 text: byte 0xe9 in line 7 .*; save it as UTF-8"):
        parse_obo(tmp_path/"a.obo")


@pytest.mark.parametrize("name, pack", [("a.obo.gz", gzip.compress), ("a.obo.bz2", bz2.compress),
                                        ("a.OBO.XZ", lzma.compress)])
def test_compressed_files_are_read_and_named_where_they_are_cut(tmp_path, name, pack):
    whole = pack((HEAD + ORGAN).encode())
    (tmp_path/name).write_bytes(whole)
    assert list(parse_obo(tmp_path/name).terms) == ["A:1"]
    for damaged in (whole[:-9], HEAD.encode()):
        (tmp_path/name).write_bytes(damaged)
        with pytest.raises(ValueError, match="is damaged or cut off"):
            parse_obo(tmp_path/name)


@pytest.mark.parametrize("reader", [read_obo, parse_obo, load_obo, local_file])
@pytest.mark.parametrize("address", ["http://localhost:1/hp.obo", Path("https://localhost:1/hp.obo.gz"),
                                     "ftp://localhost:1/hp.obo", "s3://bucket/hp.obo"])
def test_an_address_is_refused_and_the_network_left_alone(reader, address):
    with pytest.raises(ValueError, match="is an address, expected a file; download it"):
        reader(address)


def test_a_file_that_is_not_there_is_named(tmp_path):
    for reader in (read_obo, load_obo):
        with pytest.raises(FileNotFoundError, match=r"no file .*hp\.obo"):
            reader(tmp_path/"hp.obo")


@pytest.mark.parametrize("line", [
    'def: "' + "x" * 500_000 + '" []', 'def: "' + r"\a" * 250_000 + '" []', 'def: "' + "x" * 500_000,
    "name: " + ' {"a"}' * 80_000, "is_a: " + ' {"' * 150_000, "xref: " + "\\" * 500_001,
    "comment: " + "!" * 500_000,
])
def test_a_long_line_takes_memory_in_proportion(tmp_path, line):
    (tmp_path/"a.obo").write_text(HEAD + ORGAN + line + "\n")
    tracemalloc.start()
    parse_obo(tmp_path/"a.obo")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 25 * len(line)  # obonet: 100 and more


# Relations by any of their names

TYPEDEFS = """
[Typedef]
id: BFO:0000050
name: part of
xref: OBO_REL:part_of

[Typedef]
id: RO:0002202
name: develops from
xref: TAO:1 {q="v"} ! elsewhere

[Typedef]
id: near
name: close to
xref: RO:1

[Typedef]
id: RO:2
name: touches
xref: RO:9

[Typedef]
id: RO:3
name: touches
xref: RO:9
"""


@pytest.mark.parametrize("written, asked, found", [
    ("BFO:0000050", "part_of", True), ("part_of", "BFO:0000050", True), ("OBO_REL:part_of", "part_of", True),
    ("http://purl.obolibrary.org/obo/BFO_0000050", "part_of", True), ("obo:BFO_0000050", "part_of", True),
    ("BFO:0000051", "has_part", True), ("BFO:0000051", "part_of", False),
    ("RO:0002202", "develops_from", True), ("develops_from", "RO:0002202", True), ("TAO:1", "develops_from", True),
    ("near", "close_to", True), ("RO:1", "near", True), ("close_to", "RO:1", True),
    ("RO:2", "RO:2", True), ("RO:2", "RO:3", False), ("RO:2", "touches", False), ("RO:9", "RO:2", False),
])
@pytest.mark.parametrize("typedefs", ["before", "behind"])
def test_a_relation_is_known_by_its_id_its_name_and_its_cross_references(tmp_path, written, asked, found, typedefs):
    terms = ORGAN + EYE + f"relationship: {written} A:1\n"
    text = HEAD + (TYPEDEFS + terms if typedefs == "before" else terms + TYPEDEFS)
    assert read(tmp_path, text, relations=[asked])[1] == ([("A:2", "A:1", asked)] if found else [])


def test_part_of_by_its_id_needs_no_typedef_and_is_counted(tmp_path):
    _, edges, counts = read(tmp_path, HEAD + ORGAN + EYE + "relationship: BFO:0000050 A:1\n")
    assert edges == PART_OF and counts == {"relation BFO:0000050 read as part_of (first in line 11)": 1}


def test_an_id_of_its_own_is_not_taken_for_its_cross_reference(tmp_path):
    typedefs = "\n[Typedef]\nid: part_of\nxref: BFO:0000050\n\n[Typedef]\nid: overlaps\nxref: BFO:0000050\n"
    _, edges, _ = read(tmp_path, HEAD + ORGAN + EYE + "relationship: overlaps A:1\n" + typedefs)
    assert edges == []
    with pytest.raises(ValueError, match="'part_of' and 'BFO:0000050' are the same relation; name it once"):
        read(tmp_path, HEAD + ORGAN + EYE + typedefs, relations=["part_of", "BFO:0000050"])


# The layout of a file says nothing

def decorated(stanza, rng):
    "A stanza with what the guide allows thrown in"
    lines = []
    for line in stanza.splitlines():
        lines += ["! " + "\\" * rng.integers(3)] * rng.integers(2) + [""] * rng.integers(2) * (line[0] != "[")
        tag, _, value = line.partition(": ")
        if value and tag != "def" and rng.integers(2):
            line = f"{tag}:{' ' * rng.integers(4)}{value}" + rng.choice(
                ["", ' {a="}{"}', ' {a="b"} {c="d!"}']) + rng.choice(["", " ! said {so}", "   "])
        if value and rng.integers(2):
            line = line.replace(": ", ": \\\n", 1)
        lines.append(line)
    return "\n".join(lines) + "\n" * rng.integers(1, 3)


@pytest.mark.parametrize("seed", range(20))
def test_comments_blank_lines_qualifiers_and_continued_lines_change_nothing(tmp_path, seed):
    rng = np.random.default_rng(seed)
    stanzas = [f'[Term]\nid: A:{i}\nname: part {i}\\, so\ndef: "The \\"{i}\\" ! {{b}}." [x:1]\nalt_id: A:{i}00\n'
               f"is_a: A:{rng.integers(1, 30)}00\nrelationship: part_of A:{rng.integers(1, 30)}" for i in range(1, 30)]
    stanzas += ["[Term]\nid: A:99\nname: old\nis_obsolete: true"]
    (tmp_path/"a.obo").write_text(HEAD + "\n" + "\n\n".join(stanzas) + "\n")
    (tmp_path/"b.obo").write_text(HEAD + "\n" + "".join(decorated(s, rng) for s in stanzas))
    a, b = read_obo(tmp_path/"a.obo"), read_obo(tmp_path/"b.obo")
    assert a[0].equals(b[0]) and a[1].equals(b[1])
    assert a[2] == {k: n for k, n in b[2].items() if "(first in" not in k}


# Another reader, on the Gene Ontology

def test_the_gene_ontology_is_read_as_obonet_reads_it(real_go):
    graph, found = obonet.read_obo(str(real_go), ignore_obsolete=False), parse_obo(real_go)
    assert found.odd == {} and found.header["data-version"] == "releases/2021-12-15"
    assert set(found.terms) == set(graph) and len(found.terms) == 47261
    for i, term in found.terms.items():
        other = graph.nodes[i]
        assert term.name == unescape(other["name"]) and term.namespace == other["namespace"]
        assert term.obsolete == (other.get("is_obsolete") == "true")
        assert term.alt_ids == other.get("alt_id", []) and term.replaced_by == other.get("replaced_by", [])
        assert term.definition in unescape(other["def"])
        assert sorted(e[:2] for e in term.edges) == sorted((k, t) for _, t, k in graph.out_edges(i, keys=True))


@pytest.mark.parametrize("lines", ['def: "' + "x" * 2_000_000 + '" []\n', "name: " + "y" * 1_100_000 + "\n",
                                   'def: "a\\\n' + ("x" * 1000 + "\\\n") * 1200 + '" []\n', "! " + "z" * 3_000_000])
def test_a_line_that_is_too_long_is_named_before_it_is_read_to_its_end(tmp_path, lines):
    (tmp_path / "long.obo").write_text("[Term]\nid: A:1\n" + lines)
    with pytest.raises(ValueError, match="line 3: a line of more than 1,048,576 characters .* cut it") as error:
        parse_obo(tmp_path / "long.obo")
    assert len(str(error.value)) < 400


def test_a_line_of_half_a_million_characters_is_read(tmp_path):
    (tmp_path / "long.obo").write_text('[Term]\nid: A:1\nname: a\ndef: "' + "x" * 500_000 + '" []\n')
    assert len(parse_obo(tmp_path / "long.obo").terms["A:1"].definition) == 500_000


@pytest.mark.parametrize("longer", [0, 1])
def test_a_line_may_have_as_many_characters_as_the_limit_says(tmp_path, monkeypatch, longer):
    monkeypatch.setattr("rolebregman.datasets.obo.LONGEST_LINE", 40)
    line = "name: " + "x" * (33 + longer) + "\n"  # its end counts as well
    try: read(tmp_path, f"[Term]\nid: A:1\n{line}")
    except ValueError as error: assert longer and "line 3" in str(error) and "more than 40 characters" in str(error)
    else: assert not longer


@pytest.mark.parametrize("marks", range(1, 6))
def test_a_line_goes_on_behind_an_odd_number_of_backslashes(tmp_path, marks):
    "What it goes on in is then no tag of its own, and the term not obsolete"
    ids = read(tmp_path, f"{HEAD}{ORGAN}\n[Term]\nid: A:2\nname: end{marks * chr(92)}\nis_obsolete: true\n")[0]
    assert ids == ["A:1"] + ["A:2"] * (marks % 2)


@pytest.mark.parametrize("name", ["what! now", "poly{3}ol", "wow! {x}y"])
def test_a_mark_inside_a_name_is_kept_and_counted(tmp_path, name):
    assert read(tmp_path, f"{HEAD}\n[Term]\nid: A:1\nname: {name}\n")[2] == {
        "! or { inside a name, kept (first in line 6)": 1}
