"""Citation graphs: on small hand-written files everywhere, on the real ones where they can be had."""
import io
import os
import pickle
import tarfile
from pathlib import Path

import numpy as np
import pytest

from rolebregman.datasets import (
    CITATIONS,
    CitationGraph,
    FetchError,
    bag_of_words,
    citations,
    load_citation,
    read_citation_npz,
    read_linqs,
)

pytestmark = pytest.mark.usefixtures("own_cache")


def cites(ds, split=None):
    ids = ds.nodes.id.to_numpy()
    return {(ids[s], ids[t]) for s, t in (ds.positives if split is None else ds.edges[split])}


# The publishers' own files

def content(papers):
    return [[f"p{i:02}", *("1" if (i + j) % 3 else "0" for j in range(5)), ("Theory", "Agents")[i % 2]]
            for i in range(papers)]


CONTENT = content(20)
CITES = [[f"p{i // 2:02}", f"p{i:02}"] for i in range(1, 20)] + [["p03", "p01"]] # cited, citing; the last is mutual
ODD = [["p04", "p04"], ["p00", "p99"], ["xx", "p01"]] # itself; two papers without words


def linqs(folder, content=CONTENT, cited=CITES + ODD, name="cora"):
    folder.mkdir(exist_ok=True)
    for part, lines in dict(content=content, cites=cited).items():
        (folder/f"{name}.{part}").write_text("".join("\t".join(fields) + "\n" for fields in lines))
    return folder


def test_edges_run_from_citing_to_cited_and_odd_ones_are_counted(tmp_path):
    ds = load_citation("cora", linqs(tmp_path/"cora"), quiet=True)
    assert cites(ds) == {(citing, cited) for cited, citing in CITES}
    assert ds.report["read"] == {"papers": 20, "citations": 23}
    assert ds.report["kept"] == {"papers": 20, "edges": 20, "edges in both directions": 2}
    assert ds.report["dropped or changed"] == {"citation of a paper without words": 2, "self-citation": 1}
    assert ds.features.shape == (20, 5) and ds.features.dtype == np.float32
    assert ds.features[3].tolist() == [float(b) for b in CONTENT[3][1:-1]]
    assert ds.nodes.text[0] == "p00 (Theory)" and ds.nodes.words[0] == 3
    mutual = [tuple(sorted(e)) for k in ds.edges for e in ds.edges[k][~ds.one_way(k)].tolist()]
    assert mutual == [(1, 3), (1, 3)]


def test_the_archive_is_read_member_by_member(tmp_path):
    folder, archive = linqs(tmp_path/"cora"), tmp_path/"cora.tgz"
    with tarfile.open(archive, "w:gz") as t:
        evil = tarfile.TarInfo("../evil.txt")
        t.addfile(evil, io.BytesIO())
        for file in folder.iterdir():
            t.add(file, f"cora/{file.name}")
    ds, first = (load_citation("cora", p, quiet=True) for p in (archive, folder))
    assert ds.nodes.equals(first.nodes) and all((ds.edges[k] == first.edges[k]).all() for k in ds.edges)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["cora", "cora.tgz"]
    archive.write_bytes(archive.read_bytes()[:-40])
    with pytest.raises(ValueError, match="cora.tgz is damaged or cut off"):
        load_citation("cora", archive)
    with tarfile.open(archive, "w:gz") as t:
        t.add(folder/"cora.cites", "cora/cora.cites")
    with pytest.raises(ValueError, match="holds no cora.content; it holds cora.cites"):
        load_citation("cora", archive)


@pytest.mark.parametrize("split", ["edge", "node"])
def test_the_order_of_lines_changes_nothing(tmp_path, split):
    papers, cited = content(99), [[f"p{i // k:02}", f"p{i:02}"] for i in range(1, 99) for k in (2, 3)]
    first = load_citation("cora", linqs(tmp_path/"a", papers, cited), split=split, quiet=True)
    second = load_citation("cora", linqs(tmp_path/"b", papers[::-1], cited[::-1]), split=split, quiet=True)
    assert first.nodes.equals(second.nodes) and (first.features == second.features).all()
    assert all((first.edges[k] == second.edges[k]).all() for k in first.edges)
    if split == "node":
        assert not set(first.edges["train"].ravel()) & set(first.edges["test"].ravel())
        assert len(first.positives) == len({tuple(c) for c in cited}) # those between two parts are known


@pytest.mark.parametrize("content, cited, says", [
    ([*CONTENT[:3], CONTENT[3][:-2]], CITES, r"cora.content, line 4: 5 fields, expected 7 as before"),
    ([["p00", "Theory"]], CITES, r"cora.content, line 1: 2 fields, expected paper, words and class"),
    ([*CONTENT[:2], [*CONTENT[2][:3], "2", *CONTENT[2][4:]]], CITES, r"cora.content, line 3: word '2', expected 0"),
    ([*CONTENT, CONTENT[7]], CITES, r"cora.content: paper p07 stands more than once"),
    ([], CITES, r"cora.content is empty"),
    (CONTENT, [*CITES, ["p00"]], r"cora.cites, line 21: 1 fields, expected cited and citing"),
    (CONTENT, CITES[:3], r"3 edges are too few to split"),
])
def test_a_fault_in_the_publishers_files_names_file_and_line(tmp_path, content, cited, says):
    with pytest.raises(ValueError, match=says):
        load_citation("cora", linqs(tmp_path/"cora", content, cited))


def test_files_that_are_not_utf8_or_not_there_are_named(tmp_path):
    folder = linqs(tmp_path/"cora")
    (folder/"cora.cites").write_bytes(b"p\xe901\tp02\n")
    with pytest.raises(ValueError, match=r"cora is not UTF-8 text: byte 0xe9"):
        read_linqs(folder, "cora")
    for path in (tmp_path/"nowhere", tmp_path/"nowhere.npz"):
        with pytest.raises(FileNotFoundError, match="no file .*nowhere"):
            load_citation("cora", path)


# Arrays

def arrays(**changes):
    words = np.array([[b == "1" for b in row[1:-1]] for row in CONTENT], np.float32)
    rows = {row[0]: i for i, row in enumerate(CONTENT)}
    edges = np.array([(rows[citing], rows[cited]) for cited, citing in CITES], np.int32)
    data, (at, indices) = words[words > 0], np.nonzero(words)
    fields = dict(edge_index=edges.T, x_data=data, x_indices=indices, x_indptr=np.r_[0, np.cumsum(np.bincount(at))],
                  x_shape=np.array(words.shape), y=np.arange(20) % 2, class_names=np.array(["Theory", "x/Agents"]),
                  node_names=np.array(list(rows)))
    return {k: v for k, v in (fields | changes).items() if v is not None}


def npz(tmp_path, **changes):
    np.savez(tmp_path/"cora.npz", **arrays(**changes))
    return tmp_path/"cora.npz"


def test_arrays_and_the_publishers_files_give_the_same_dataset(tmp_path):
    first, second = (load_citation("cora", p, quiet=True) for p in (linqs(tmp_path/"cora"), npz(tmp_path)))
    assert first.nodes.equals(second.nodes) and (first.features == second.features).all()
    assert all((first.edges[k] == second.edges[k]).all() for k in first.edges)


def test_words_with_names_describe_a_paper(tmp_path):
    data = np.arange(arrays()["x_data"].size, dtype=np.float32) + 1
    ds = load_citation("cora", npz(tmp_path, x_data=data, feature_names=np.array(list("abcde"))), quiet=True)
    assert ds.nodes.text[0] == "p00 (Theory): e, c, b"


def test_the_arrays_of_graph2gauss_are_read_without_their_pickled_names(tmp_path):
    whole = arrays()
    s, t = whole["edge_index"][:, np.lexsort(whole["edge_index"][::-1])]
    indptr = np.r_[0, np.cumsum(np.bincount(s, minlength=20))]
    adjacency = dict(adj_data=np.ones(len(s)), adj_indices=t, adj_indptr=indptr,
                     adj_shape=np.array([20, 20]), labels=whole["y"], idx_to_node=np.array({0: "p00"}, dtype=object))
    words = {f"attr_{k}": whole[f"x_{k}"] for k in ("data", "indices", "indptr", "shape")}
    np.savez(tmp_path/"cora_ml.npz", **adjacency, **words)
    graph = read_citation_npz(tmp_path/"cora_ml.npz")
    assert {tuple(e) for e in graph.edges.tolist()} == {tuple(e) for e in whole["edge_index"].T.tolist()}
    assert graph.ids[:2] == ["00", "01"] and graph.topics[:2] == ["0", "1"]


class Bomb:
    def __reduce__(self): return pytest.fail, ("code of a data file was run",)


@pytest.mark.parametrize("changes, says", [
    (dict(x_data=np.array([Bomb()], dtype=object)), r"array 'x_data' cannot be read without running code .* refused"),
    (dict(node_names=np.array([Bomb()] * 20, dtype=object)), r"array 'node_names' cannot be read without running code"),
    (dict(edge_index=None, x_indptr=None), r"holds no array 'x_indptr'; it holds x_data"),
    (dict(edge_index=None), r"holds no array 'adj_data'"),
    (dict(edge_index=np.array([[1, 20], [0, 1]])), r"edge_index of shape \(2, 2\) does not point into the 20 papers"),
    (dict(edge_index=np.array([[1, -1], [0, 1]])), r"does not point into the 20 papers"),
    (dict(edge_index=np.arange(9).reshape(3, 3)), r"edge_index of shape \(3, 3\)"),
    (dict(y=np.zeros(19, int)), r"19 classes, expected 20"),
    (dict(node_names=np.array(["a"])), r"1 names, expected 20"),
    (dict(feature_names=np.array(["a"])), r"1 words, expected 5"),
    (dict(x_indices=np.full(arrays()["x_indices"].shape, 9)), r"its sparse arrays do not fit together"),
    (dict(x_indptr=np.arange(3)), r"its sparse arrays do not fit together"),
])
def test_a_fault_in_the_arrays_names_file_and_array(tmp_path, changes, says):
    with pytest.raises(ValueError, match=r"cora.npz" + ".*" + says):
        read_citation_npz(npz(tmp_path, **changes))


def test_a_damaged_npz_is_named(tmp_path):
    path = npz(tmp_path)
    path.write_bytes(path.read_bytes()[:300])
    with pytest.raises(ValueError, match=r"cora.npz is damaged or cut off"):
        read_citation_npz(path)
    path.write_bytes(pickle.dumps(Bomb()))
    with pytest.raises(ValueError, match=r"cora.npz is no archive of NumPy arrays"):
        read_citation_npz(path)


def test_words_are_reduced_the_same_for_every_seed_of_the_split(tmp_path):
    path = npz(tmp_path)
    a, b = (load_citation("cora", path, dim=3, seed=s, quiet=True) for s in (0, 1))
    assert (a.features == b.features).all() and a.features.shape == (20, 3) and a.features.dtype == np.float32
    assert (a.edges["test"] != b.edges["test"]).any()
    whole = load_citation("cora", path, quiet=True).features
    u, s, _ = np.linalg.svd(whole, full_matrices=False)
    assert np.allclose(np.abs(a.features), np.abs(u[:, :3] * s[:3]), atol=1e-4)
    for dim in (0, 5, 99):
        with pytest.raises(ValueError, match=f"dim = {dim}: 20 papers with 5 words allow 1 to 4"):
            bag_of_words(read_citation_npz(path).words, dim)


def test_unknown_graphs_and_what_cannot_be_had(monkeypatch):
    with pytest.raises(ValueError, match="no citation graph 'pubmed': choose from cora, citeseer, cora_ml, or see"):
        load_citation("pubmed")
    def nothing(name, quiet): raise FetchError(f"{name} could not be had")
    monkeypatch.setattr(citations, "fetch", nothing)
    with pytest.raises(FetchError, match="(?s)cora_ml.npz could not.*cora_ml-graph2gauss could not.*pass as path="):
        load_citation("cora_ml")


def test_the_publishers_files_stand_in_where_the_arrays_cannot_be_had(tmp_path, monkeypatch):
    linqs(tmp_path/"cora")
    def only_web(name, quiet):
        if name.endswith(".npz"):
            raise FetchError("not here")
        return tmp_path/name
    monkeypatch.setattr(citations, "fetch", only_web)
    ds = load_citation("cora", quiet=True)
    assert ds.report["source"] == "Cora, citations and words" and len(ds.positives) == 20


# The real files

@pytest.mark.parametrize("name, papers, read, loops, mutual, words, topics, degrees", [
    ("cora", 2708, 5429, 0, 302, 1433, 7, (5, 166)),
    ("citeseer", 3312, 4715, 124, 234 - 124, 3703, 6, None),
    ("cora_ml", 2995, 8416, 0, 516, 2879, 7, (72, 246)),
])
def test_the_graphs_have_the_published_counts(real, name, papers, read, loops, mutual, words, topics, degrees):
    real(f"{name}.npz")
    ds = load_citation(name, quiet=True)
    assert ds.report["read"] == {"papers": papers, "citations": read} and ds.features.shape == (papers, words)
    assert ds.report["kept"] == {"papers": papers, "edges": read - loops, "edges in both directions": mutual}
    assert ds.report.get("dropped or changed", {}) == ({"self-citation": loops} if loops else {})
    assert ds.nodes.topic.nunique() == topics and (ds.nodes.words > 0).all()
    assert sum((~ds.one_way(k)).sum() for k in ds.edges) == mutual
    if degrees:
        assert tuple(np.bincount(ds.positives[:, i]).max() for i in (0, 1)) == degrees


def test_cora_cites_lists_cited_then_citing(real):
    mirror = os.environ.get("ROLEBREGMAN_MIRROR")
    if not mirror:
        pytest.skip("ROLEBREGMAN_MIRROR is not set: no cora.cites to compare with")
    real("cora.npz")
    lines = [line.split() for line in Path(mirror, "citation", "cora.cites").read_text().splitlines()]
    ds = load_citation("cora", quiet=True)
    assert len(lines) == 5429 and cites(ds) == {(citing, cited) for cited, citing in lines}


def test_every_graph_is_known():
    assert list(CITATIONS) == ["cora", "citeseer", "cora_ml"]


def test_a_citation_graph_is_as_in_its_files(tmp_path):
    (tmp_path / "tiny.content").write_text("a\t1\t0\tmath\nb\t0\t1\tart\n")
    (tmp_path / "tiny.cites").write_text("a\tb\n")  # cited, citing
    graph = read_linqs(tmp_path, "tiny")
    assert isinstance(graph, CitationGraph) and graph.edges.tolist() == [[1, 0]]
    assert graph.words.toarray().tolist() == [[1, 0], [0, 1]] and graph.topics == ["math", "art"]
