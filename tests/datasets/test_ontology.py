"""Ontologies: every fault of an OBO file is counted or named; the Gene Ontology has its published counts."""
import gzip

import numpy as np
import pytest

from rolebregman.datasets import load_dataset, load_obo, read_obo

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
    (tmp_path/"z.obo.gz").write_bytes(gzip.compress(plain.read_bytes(), mtime=0))
    expected = read_obo(plain)
    for name in ("w.obo", "z.obo.gz"):
        terms, edges, _ = read_obo(tmp_path/name)
        assert terms.equals(expected[0]) and edges.equals(expected[1]) and terms.attrs["release"] == "v1"


@pytest.mark.parametrize("name, content, says", [
    ("a.obo", HEAD.encode() + b"\n[Term]\nid: A:1\nname: caf\xe9 au lait\n", r"a.obo is not UTF-8 text: byte 0xe9"),
    ("b.obo.gz", gzip.compress(HEAD.encode() * 99, mtime=0)[:-12], r"b.obo.gz is damaged or cut off"),
    ("c.obo.gz", HEAD.encode(), r"c.obo.gz is damaged or cut off"),
    ("d.obo", HEAD.encode() + b"\n[Term]\nname: organ\n", r"d.obo is not valid OBO: line 6: \[Term\] without an id"),
    ("e.obo", HEAD.encode() + b"\n[Term]\nid: A:1\nname: x\nrelationship: part_of\n", r"e.obo is not valid OBO"),
    ("f.obo", b"child,parent\na,b\n", r"f.obo is not valid OBO: line 1: 'child,parent', expected a"),
    ("g.obo", b"", r"g.obo holds no live \[Term\] with a name"),
])
def test_a_damaged_ontology_is_named(tmp_path, name, content, says):
    (tmp_path/name).write_bytes(content)
    with pytest.raises(ValueError, match=says):
        read_obo(tmp_path/name)


# The Gene Ontology, on a small file and on the real one

def small_go(tmp_path, order=1):
    stanzas = []
    for i in range(1, 13):
        lines = [f"id: GO:{i:03d}", f"name: term {i}", "namespace: cellular_component", f'def: "What {i} is." []']
        lines += [f"is_a: GO:{i // 2:03d}"] if i > 1 else []
        lines += ["relationship: part_of GO:001"] if i in (2, 9) else [] # of 2 an is_a too
        stanzas.append("\n".join(lines))
    stanzas += ["id: GO:100\nname: elsewhere\nnamespace: molecular_function\nrelationship: part_of GO:001",
                "id: GO:101\nname: no definition\nnamespace: molecular_function\nis_a: GO:100\nis_a: GO:999",
                "id: GO:102\nname: old\nnamespace: cellular_component\nis_obsolete: true"]
    path = tmp_path/f"go{order}.obo"
    head = "format-version: 1.2\nontology: go\ndata-version: v9\n"
    path.write_text(head + "".join(f"\n[Term]\n{s}\n" for s in stanzas[::order]))
    return path


class Lengths:
    name, version = "lengths", "1"
    def __call__(self, texts):
        return np.array([[len(t), sum(map(ord, t)), 1] for t in texts], dtype=np.float32)


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch, request):
    if "real_go" not in request.fixturenames:
        monkeypatch.setenv("ROLEBREGMAN_CACHE", str(tmp_path/"cache"))


def test_a_small_ontology_comes_out_as_counted_by_hand(tmp_path):
    ds = load_dataset("go", path=small_go(tmp_path), encoder=Lengths(), quiet=True)
    assert ds.name == "go/cellular_component" and list(ds.nodes.id) == [f"GO:{i:03d}" for i in range(1, 13)]
    assert ds.nodes.text[0] == "term 1. What 1 is."
    pairs = {(i - 1, i // 2 - 1) for i in range(2, 13)} | {(8, 0)}
    assert {tuple(p) for p in ds.positives.tolist()} == pairs
    assert (ds.features == Lengths()(list(ds.nodes.text))).all()
    assert ds.report["read"] == {"terms": 15}
    assert ds.report["kept"] == {"terms": 12, "edges": 12, "is_a": 11, "part_of": 2}
    assert ds.report["dropped or changed"] == {
        "obsolete term": 1, "dangling target": 1, "term of another namespace": 2, "edge of another namespace": 1,
        "edge between namespaces": 1, "edge repeated in another relation": 1}
    assert ds.report["cycles"] == "none" and ds.report["release"] == "v9" and ds.report["encoder"] == "lengths"


def test_the_order_of_terms_in_the_file_changes_neither_rows_nor_splits(tmp_path):
    a, b = (load_dataset("go", path=small_go(tmp_path, order), encoder=Lengths(), quiet=True) for order in (1, -1))
    assert a.nodes.equals(b.nodes) and (a.features == b.features).all()
    assert all((a.edges[k] == b.edges[k]).all() for k in a.edges)


def test_namespaces_and_relations_are_options(tmp_path):
    path = small_go(tmp_path)
    load_dataset("go", path=path, encoder=Lengths(), quiet=True) # leaves nothing behind for the next
    everything = load_dataset("go", namespace="all", path=path, encoder=Lengths(), quiet=True)
    assert everything.report["dropped or changed"] == {"obsolete term": 1, "dangling target": 1,
                                                       "edge repeated in another relation": 1}
    assert everything.num_nodes == 14 and len(everything.positives) == 14
    assert everything.report["text"] == "name and definition; 2 terms have no definition"
    assert len(load_dataset("go", relations=["is_a"], path=path, encoder=Lengths(), quiet=True).positives) == 11


def test_a_cycle_is_reported_and_kept(tmp_path):
    path = small_go(tmp_path)
    path.write_text(path.read_text().replace("id: GO:001\n", "id: GO:001\nis_a: GO:005\n"))
    ds = load_dataset("go", path=path, encoder=Lengths(), quiet=True)
    assert ds.report["cycles"] == "GO:001 -> GO:005 -> GO:002 -> GO:001" and len(ds.positives) == 13


def test_another_release_is_fetched_by_its_date_and_must_say_so(tmp_path, monkeypatch):
    text = small_go(tmp_path).read_text().replace("data-version: v9", "data-version: releases/2030-01-02")
    monkeypatch.setenv("ROLEBREGMAN_MIRROR", str(tmp_path))
    for date in ("2030-01-02", "2030-01-03"):
        (tmp_path/"go"/date).mkdir(parents=True)
        (tmp_path/"go"/date/"go-basic.obo.gz").write_bytes(gzip.compress(text.encode(), mtime=0))
    ds = load_dataset("go", release="2030-01-02", encoder=Lengths(), quiet=True)
    assert ds.num_nodes == 12 and ds.report["source"] == "Gene Ontology, release 2030-01-02"
    assert ds.report["release"] == "releases/2030-01-02" and ds.report["licence"] == "CC BY 4.0"
    with pytest.raises(ValueError, match="says that it is releases/2030-01-02, expected releases/2030-01-03; del"):
        load_dataset("go", release="2030-01-03", encoder=Lengths(), quiet=True)
    with pytest.raises(ValueError, match="release = 'latest', expected a date such as '2021-12-15'"):
        load_dataset("go", release="latest")


@pytest.mark.parametrize("options, says", [
    (dict(namespace="cell"), r"namespace = 'cell', expected one of \['cellular_component', 'molecular_f.* or 'all'"),
    (dict(relations=["is_a", "partof"]), r"has no edge of \['partof'\]"),
    (dict(split="random"), r"split = 'random', expected 'edge' or 'node'"),
    (dict(split="node", namespace="molecular_function"), r"too few to split by node"),
    (dict(namespace="molecular_function"), r"\w.*: \d+ edges are too few to split .* Give more pairs$"),
])
def test_options_that_there_are_not_are_refused(tmp_path, options, says):
    with pytest.raises(ValueError, match=says):
        load_dataset("go", path=small_go(tmp_path), encoder=Lengths(), quiet=True, **options)


# Any other ontology, in the styles of those that are used most

CHEBI = """format-version: 1.2
data-version: 225
default-namespace: chebi_ontology
ontology: chebi

""" + "\n".join(rf"""[Term]
id: CHEBI:{i}
name: {i}\,4\-bis\{{poly\}}ol {{source="ChEBI {{new}}"}}
subset: 3_STAR
def: "With \"quotes\", {{braces}} and ! marks." [PMID:1 "a [title]"] ! hidden
property_value: http://purl.obolibrary.org/obo/chebi/charge "0" xsd:string
is_a: CHEBI:{max(i // 2, 1)} ! parent
relationship: has_role CHEBI:1 ! root
""" for i in range(1, 21)) + "\n[Typedef]\nid: has_role\nname: has role\nis_cyclic: false\n"

HPO = """format-version: 1.4
data-version: hp/releases/2023-10-09
default-namespace: human_phenotype
ontology: hp.obo

""" + "\n".join(f"""[Term]
id: HP:{i:07}
name: Abnormality {i}
alt_id: HP:9{i:06}
synonym: "Odd {i}" EXACT layperson []
is_a: HP:9{max(i // 2, 1):06} {{xref="ORCID:0000-0001-1", source="x"}} {{}} ! Abnormality
""" for i in range(1, 21)) + "\n[Term]\nid: HP:0000099\nname: obsolete one\nis_obsolete: True\n"

UBERON = """format-version: 1.2
data-version: uberon/releases/2023-10-27
ontology: uberon/uberon-basic
treat-xrefs-as-equivalent: GO

""" + "\n".join(f"""[Term]
id: UBERON:{i:07}
name: part {i}
namespace: {"uberon" if i < 17 else "cl"}
is_a: UBERON:0000001 {{source="FMA", source="http://example.org/{{x}}"}} ! part
intersection_of: part_of UBERON:{max(i // 2, 1):07}
relationship: part_of UBERON:{max(i // 2, 1):07} {{gci_relation="part_of", gci_filler="NCBITaxon:9606"}} ! part
relationship: RO:0002202 UBERON:{max(i - 1, 1):07} ! part
""" for i in range(1, 21)) + """
[Typedef]
id: part_of
name: part of
xref: BFO:0000050

[Typedef]
id: RO:0002202
name: develops from
"""

MONDO = "ontology: mondo\n\n" + "".join(f"""[Term]
id: MONDO:{i:07}
name: disease {i % 19}

xref: DOID:{i} {{source="MONDO:equivalentTo", source="ICD {{9}}"}}
is_a: MONDO:{max(i // 2, 1):07}! disease
relationship: BFO:0000050\tMONDO:0000001 ! disease
""" for i in range(1, 21))

GCI = "edge that holds only with its gci_ qualifiers, taken as any other"


@pytest.mark.parametrize("text, options, read, kept, others, dropped, first", [
    (CHEBI, {}, 20, {"is_a": 19}, {"has_role": 20}, {"self-edge": 1}, "1,4-bis{poly}ol"),
    (CHEBI, dict(relations=["has_role"], definitions=True), 20, {"has_role": 19}, {"is_a": 20}, {"self-edge": 1},
     '1,4-bis{poly}ol. With "quotes", {braces} and ! marks.'),
    (HPO, {}, 21, {"is_a": 19}, "none",
     {"obsolete term": 1, "self-edge": 1, "alt_id resolved": 19,
      "is_obsolete with another word than true or false (first in line 149)": 1}, "Abnormality 1"),
    (UBERON, dict(relations="part_of"), 20, {"part_of": 19}, {"is_a": 20, "develops_from": 20},
     {"self-edge": 1, GCI + " (first in line 12)": 20}, "part 1"),
    (UBERON, dict(relations=["BFO:0000050", "develops from"], namespace="uberon"), 20,
     {"BFO:0000050": 15, "develops from": 15}, {"is_a": 20}, None, "part 1"),
    (MONDO, dict(relations=("is_a", "part_of"), definitions=True), 20, {"is_a": 19, "part_of": 19}, "none",
     {"self-edge": 2, "edge repeated in another relation": 2, "blank line inside a stanza (first in line 7)": 20,
      "stanza without a blank line before it (first in line 10)": 19, "relation BFO:0000050 read as part_of (first in "
      "line 9)": 20, "more than a space between relation and target (first in line 9)": 20}, "disease 1"),
], ids=["chebi", "chebi-roles", "hpo", "uberon", "uberon-inside", "mondo"])
def test_an_ontology_in_the_style_of(tmp_path, text, options, read, kept, others, dropped, first):
    (tmp_path/"my.obo").write_text(text)
    ds = load_obo(tmp_path/"my.obo", **options, encoder=Lengths(), quiet=True)
    report = ds.report
    assert report["read"] == {"terms": read} and report["relations not taken"] == others
    assert {k: n for k, n in report["kept"].items() if k not in ("terms", "edges")} == kept
    assert ds.nodes.text[0] == first and report["kept"]["edges"] == len(ds.positives)
    assert dropped is None or report["dropped or changed"] == dropped
    assert ds.name == "my" + (f"/{options['namespace']}" if "namespace" in options else "")


def test_what_an_ontology_has_is_said_where_something_else_is_asked_for(tmp_path):
    (tmp_path/"my.obo.gz").write_bytes(gzip.compress(UBERON.encode(), mtime=0))
    for wrong, says in [
            (dict(relations="regulates"), r"has no edge of \['regulates'\] between .*= that it has: is_a \(20\), "
             r"part_of \(20\), develops_from \(20\)"),
            (dict(namespace="cell"), r"namespace = 'cell', expected one of \['cl', 'uberon'\] or 'all'"),
            (dict(split="random"), "split = 'random', expected 'edge' or 'node'")]:
        with pytest.raises(ValueError, match=says):
            load_obo(tmp_path/"my.obo.gz", encoder=Lengths(), quiet=True, **wrong)
    ds = load_obo(tmp_path/"my.obo.gz", encoder=Lengths(), quiet=True)
    assert ds.report["definitions not read"] == {"intersection_of": 20}
    assert ds.report["namespaces"] == {"uberon": 16, "cl": 4} and ds.report["release"] == "uberon/releases/2023-10-27"
    assert ds.name == "my" and ds.report["text"] == "name; 0 terms share theirs with another"
    (tmp_path/"my.obo").write_text(MONDO)
    ds = load_obo(tmp_path/"my.obo", encoder=Lengths(), quiet=True)
    assert ds.report["namespaces"] == "none" and ds.report["text"] == "name; 2 terms share theirs with another"
    with pytest.raises(ValueError, match=r"namespace = 'mondo', expected one of \[\] or 'all'"):
        load_obo(tmp_path/"my.obo", namespace="mondo", encoder=Lengths(), quiet=True)


def test_guesses_about_terms_are_counted(tmp_path):
    _, edges, counts = read_obo(obo(tmp_path, ORGAN, EYE + "\nalt_id: A:9\nis_a: A:7", "id: A:3\nname: iris\nis_a: A:9",
                                    "id: A:7\nname: old\nis_obsolete: true\nreplaced_by: A:1\nreplaced_by: A:3"))
    assert pairs_of(edges) == [("A:2", "A:1", "is_a"), ("A:3", "A:2", "is_a")]
    assert counts == {"obsolete term": 1, "alt_id resolved": 1, "obsolete target replaced by the first of several": 1,
                      "alt_id of several terms, the last by id taken (first in line 12)": 1}


def test_the_gene_ontology_has_the_published_counts(real_go):
    whole = load_dataset("go", namespace="all", encoder=lambda texts: Lengths()(texts), quiet=True)
    kept = whole.report["kept"]
    assert (kept["terms"], kept["is_a"], kept["part_of"]) == (43789, 70759, 7066)
    assert whole.report["dropped or changed"] == {"obsolete term": 3472} and whole.report["cycles"] == "none"
    assert whole.report["text"] == "name and definition; 0 terms have no definition"
    spaces = whole.nodes.namespace
    assert spaces.value_counts().to_dict() == {"biological_process": 28429, "molecular_function": 11177,
                                               "cellular_component": 4183}
    s, t = whole.positives.T
    assert (spaces.to_numpy()[s] == spaces.to_numpy()[t]).all() # no edge crosses namespaces
    roots = set(range(whole.num_nodes)) - set(s.tolist())
    assert set(whole.nodes.name[sorted(roots)]) == set(spaces)
    names = whole.nodes.set_index("id").name
    assert names["GO:0005886"] == "plasma membrane"
    ids = whole.nodes.id.to_numpy()
    assert {(ids[a], ids[b]) for a, b in whole.positives[s == np.flatnonzero(ids == "GO:0005886")[0]]} == {
        ("GO:0005886", "GO:0016020"), ("GO:0005886", "GO:0071944")} # is_a membrane, part_of cell periphery


def test_no_test_node_is_in_training_where_the_split_is_over_nodes(real_go):
    ds = load_dataset("go", split="node", encoder=lambda texts: Lengths()(texts), quiet=True)
    nodes = {k: set(e.ravel().tolist()) for k, e in ds.edges.items()}
    assert not nodes["train"] & nodes["test"] and not nodes["train"] & nodes["valid"]
    assert len(ds.positives) == 6813 # what stands between the parts is still no negative
    assert ds.report["dropped or changed"]["edge between two parts of the nodes"] == len(ds.known)
