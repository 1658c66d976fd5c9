"""OGBL-Citation2, on a small one in exactly its layout: read safely, made up at any size, as a dataset."""
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from rolebregman.datasets import FetchError, cache_dir, load_ogb, ogb_files, write_synthetic_ogb


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("ROLEBREGMAN_CACHE", str(tmp_path/"cache"))


class Bomb:
    def __reduce__(self): return pytest.fail, ("code of a data file was run",)


def write_ogb(root, papers=200, dim=6, negatives=20, protocol=2, as_tensor=False, seed=0):
    "A small ogbl-citation2: each paper cites two earlier ones; of the last 40 one more for valid, one for test"
    rng, folder = np.random.default_rng(seed), root/"ogbl_citation2"
    (folder/"raw").mkdir(parents=True)
    (folder/"split"/"time").mkdir(parents=True)
    features = rng.normal(size=(papers, dim)).round(6)
    for name, table in {"node-feat": features, "node_year": 1990 + np.arange(papers)[:, None] // 10,
                        "num-node-list": [[papers]], "num-edge-list": [[7]], "edge": [[0, 1]]}.items():
        pd.DataFrame(table).to_csv(folder/"raw"/f"{name}.csv.gz", header=False, index=False)
    ends = np.array([np.r_[i, rng.choice(i, 4, replace=False)] for i in range(10, papers)])
    late = ends[-40:]
    parts = dict(train=np.concatenate([ends[:, [0, 1]], ends[:, [0, 2]]]), valid=late[:, [0, 3]], test=late[:, [0, 4]])
    for part, edges in parts.items():
        held = dict(source_node=edges[:, 0].copy(), target_node=edges[:, 1].copy())
        if part != "train":
            held["target_node_neg"] = rng.integers(0, papers, (len(edges), negatives))
        if as_tensor:
            held = {k: torch.from_numpy(v) for k, v in held.items()}
        torch.save(held, folder/"split"/"time"/f"{part}.pt", pickle_protocol=protocol)
    return folder, features.astype(np.float32), parts


@pytest.mark.parametrize("as_tensor", [False, True])
def test_ogb_is_read_from_its_layout_as_it_was_written(tmp_path, as_tensor):
    folder, features, parts = write_ogb(tmp_path, as_tensor=as_tensor)
    for root in (tmp_path, folder):
        ds = load_ogb(root=root, quiet=True)
        assert ds.name == "ogbl-citation2" and isinstance(ds.features, np.memmap) and (ds.features == features).all()
        for k, edges in parts.items():
            wanted = edges[np.lexsort((edges[:, 1], edges[:, 0]))] if k == "train" else edges
            assert ds.edges[k].tolist() == wanted.tolist()
        held = torch.load(folder/"split"/"time"/"test.pt", weights_only=False)["target_node_neg"] # ours: no risk
        assert isinstance(ds.negatives["test"], np.memmap) and (ds.negatives["test"] == np.asarray(held)).all()
        assert ds.nodes.year.tolist() == [1990 + i // 10 for i in range(200)] and ds.report["official negatives"] == 20


def test_ogb_is_prepared_once_and_anew_when_a_file_changes(tmp_path):
    folder, features, _ = write_ogb(tmp_path)
    load_ogb(root=tmp_path, quiet=True)
    made = {p: p.stat().st_mtime_ns for p in (cache_dir()/"ogb").rglob("*.npy")}
    load_ogb(root=tmp_path, quiet=True)
    assert {p: p.stat().st_mtime_ns for p in (cache_dir()/"ogb").rglob("*.npy")} == made
    assert not list((cache_dir()/"ogb").glob(".part*"))
    pd.DataFrame(features + 1).to_csv(folder/"raw"/"node-feat.csv.gz", header=False, index=False)
    assert np.allclose(load_ogb(root=tmp_path, quiet=True).features, features + 1)


def test_features_are_read_in_blocks(tmp_path, monkeypatch):
    _, features, _ = write_ogb(tmp_path)
    monkeypatch.setattr(ogb_files._write_features, "__defaults__", (7,))
    assert (load_ogb(root=tmp_path, quiet=True).features == features).all()
    spoil(tmp_path/"ogbl_citation2", "raw/node-feat.csv.gz", "more")
    with pytest.raises(ValueError, match="does not fit num-node-list.csv.gz"):
        load_ogb(root=tmp_path, quiet=True)


def test_ogbs_zip_is_read_member_by_member(tmp_path):
    (tmp_path/"made").mkdir()
    folder, features, _ = write_ogb(tmp_path/"made")
    archive = tmp_path/"citation-v2.zip"
    with zipfile.ZipFile(archive, "w") as z:
        z.writestr("../evil.txt", "never unpacked")
        for file in (p for p in folder.rglob("*") if p.is_file()):
            z.write(file, f"citation-v2/{file.relative_to(folder)}")
    assert (load_ogb(root=archive, quiet=True).features == features).all()
    assert not (tmp_path.parent/"evil.txt").exists() and not (tmp_path/"ogbl_citation2"/"raw"/"edge.csv.gz").exists()
    archive.write_bytes(archive.read_bytes()[:500])
    (tmp_path/"ogbl_citation2"/"raw"/"node-feat.csv.gz").unlink()
    with pytest.raises(ValueError, match="citation-v2.zip is damaged or cut off"):
        load_ogb(root=archive, quiet=True)


def test_self_and_repeated_citations_of_train_are_dropped_and_counted(tmp_path):
    folder, _, parts = write_ogb(tmp_path)
    train = np.concatenate([parts["train"], parts["train"][:3], [[5, 5]], parts["test"][:2]])
    torch.save(dict(source_node=train[:, 0].copy(), target_node=train[:, 1].copy()), folder/"split"/"time"/"train.pt")
    ds = load_ogb(root=tmp_path, quiet=True)
    assert ds.report["dropped or changed"] == {"self-citation in train": 1, "repeated citation in train": 3,
                                               "citation in train that valid or test asks for": 2}
    assert len(ds.edges["train"]) == len(parts["train"])


def test_a_limit_keeps_the_official_negatives(tmp_path):
    write_ogb(tmp_path)
    ds = load_ogb(root=tmp_path, quiet=True).limit(50)
    assert len(ds.edges["train"]) == 50 and len(ds.negatives["test"]) == len(ds.edges["test"]) == 40
    some, whole = load_ogb(root=tmp_path, quiet=True).limit(50, valid=7), load_ogb(root=tmp_path, quiet=True)
    row = {tuple(e): others.tolist() for e, others in zip(whole.edges["valid"].tolist(), whole.negatives["valid"])}
    assert len(some.negatives["valid"]) == 7 and [row[tuple(e)] for e in some.edges["valid"].tolist()] == (
        some.negatives["valid"].tolist())


def spoil(folder, file, how):
    path = folder/file
    if how == "cut":
        path.write_bytes(path.read_bytes()[:-40])
    elif how == "words":
        pd.DataFrame([["three", 1], ["four", 2]]).to_csv(path, header=False, index=False)
    elif how == "lines":
        lines = pd.read_csv(path, header=None)
        lines[:-1].to_csv(path, header=False, index=False)
    elif how == "more":
        lines = pd.read_csv(path, header=None)
        pd.concat([lines, lines]).to_csv(path, header=False, index=False)
    else:
        torch.save(how, path)


PAIR = dict(source_node=np.array([3]), target_node=np.array([1]))
NEGATIVE = dict(target_node_neg=np.array([[1, 2]]))


@pytest.mark.parametrize("file, how, says", [
    ("split/time/train.pt", Bomb(), r"train.pt cannot be read as a dictionary of plain arrays, or is cut off; it"),
    ("split/time/test.pt", {**PAIR, "target_node_neg": np.array([[Bomb()]], dtype=object)}, r"test.pt cannot be read"),
    ("split/time/valid.pt", "cut", r"valid.pt cannot be read as a dictionary of plain arrays, or is cut off"),
    ("split/time/test.pt", PAIR, r"test.pt holds \['source_node', 'target_node'\], expected .*target_node_neg"),
    ("split/time/train.pt", [1, 2], r"train.pt holds list, expected source_node, target_node"),
    ("split/time/train.pt", dict(source_node=torch.zeros(3), target_node=torch.zeros(3)),
     r"source_node has shape \(3,\) and dtype float32"),
    ("split/time/train.pt", dict(source_node=np.arange(3), target_node=np.arange(2)), r"target_node has shape \(2,\)"),
    ("split/time/test.pt", {**PAIR, "target_node_neg": np.array([1])}, r"target_node_neg has shape \(1,\)"),
    ("split/time/test.pt", {**PAIR, "target_node_neg": np.array([[1, 200]])},
     r"test.pt points to paper 200: there are only 0 to 199"),
    ("split/time/train.pt", dict(source_node=np.array([-1]), target_node=np.array([1])), r"points to paper -1"),
    ("raw/node-feat.csv.gz", "cut", r"node-feat.csv.gz is damaged or cut off"),
    ("raw/node-feat.csv.gz", "lines", r"node-feat.csv.gz does not fit num-node-list.csv.gz: it has not 200 rows"),
    ("raw/node-feat.csv.gz", "more", r"node-feat.csv.gz does not fit num-node-list.csv.gz: it has not 200 rows"),
    ("raw/node_year.csv.gz", "lines", r"node_year.csv.gz has 199 rows, expected 200"),
    ("raw/node-feat.csv.gz", "words", r"node-feat.csv.gz is no table of numbers \(could not convert string to float"),
])
def test_a_fault_in_ogbs_files_names_the_file(tmp_path, file, how, says):
    folder, *_ = write_ogb(tmp_path)
    spoil(folder, file, how)
    with pytest.raises(ValueError, match=says):
        load_ogb(root=tmp_path, quiet=True)
    assert not [p for p in (cache_dir()/"ogb").iterdir() if p.is_dir()] # nothing half made is left


def test_what_is_missing_is_said(tmp_path):
    with pytest.raises(FetchError, match=r"Download http://snap.stanford.edu/.*citation-v2.zip .*pass root="):
        load_ogb(root=tmp_path, quiet=True)
    folder, *_ = write_ogb(tmp_path)
    (folder/"split"/"time"/"valid.pt").unlink()
    with pytest.raises(FetchError, match=r"is not whole: no split/time/valid.pt"):
        load_ogb(root=tmp_path, quiet=True)


@pytest.mark.parametrize("name, says", [
    ("ogbl-citation", r"withdrawn by OGB .*negatives were skewed.* Use ogbl-citation2"),
    ("ogbl-collab", r"no OGB dataset 'ogbl-collab': choose ogbl-citation2"),
])
def test_other_names_are_refused_with_the_reason(name, says):
    with pytest.raises(ValueError, match=says):
        load_ogb(name)


def test_ogb_is_where_we_say_it_is():
    ogb = pytest.importorskip("ogb.linkproppred.dataset", reason="ogb is not installed: pip install rolebregman[graph]")
    table = pd.read_csv(Path(ogb.__file__).with_name("master.csv"), index_col=0, keep_default_na=False)
    master = table["ogbl-citation2"]
    assert master["url"] == ogb_files.OGB_ADDRESS and master["split"] == "time" and master["eval metric"] == "mrr"
    assert master["additional node files"] == "node_year" and master["add_inverse_edge"] == master["binary"] == "False"


# A made-up benchmark of any size

def made(tmp_path, seed=0, **sizes):
    sizes = dict(papers=3000, citations=30_000, held=150, negatives=100, dim=16) | sizes
    write_synthetic_ogb(tmp_path/f"{seed}", seed=seed, quiet=True, **sizes)
    return load_ogb(root=tmp_path/f"{seed}", quiet=True)


def test_a_made_up_benchmark_is_what_it_says(tmp_path):
    ds = made(tmp_path)
    assert {k: len(v) for k, v in ds.edges.items()} == dict(train=29_700, valid=150, test=150)
    assert ds.features.shape == (3000, 16) and "dropped or changed" in ds.report and not ds.report["dropped or changed"]
    assert "write_synthetic_ogb" in ds.report["source"] and "Open Graph Benchmark" not in ds.report["source"]
    edges = np.concatenate(list(ds.edges.values()))
    assert len(np.unique(edges, axis=0)) == 30_000, "no reference twice, in one part or in two"
    assert (edges[:, 0] > edges[:, 1]).all() and (np.diff(ds.nodes.year) >= 0).all(), "older papers only"
    for part in "valid", "test":
        source, negative = ds.edges[part][:, 0], ds.negatives[part]
        assert source.tolist() == list(range(2850, 3000)), "one of each of the newest papers"
        assert (negative != source[:, None]).all()
        assert not np.isin(source[:, None] * 3000 + negative, edges @ [3000, 1]).any(), "no reference is a negative"
        assert 0.9 < len(np.unique(negative)) / (3000 * (1 - np.exp(-5))) < 1.1, "all papers are drawn alike"


def test_a_made_up_benchmark_depends_on_its_seed_alone(tmp_path):
    first, other = made(tmp_path/"a"), made(tmp_path/"a", seed=1)
    again = made(tmp_path/"b")
    assert first.report["sha256"] == again.report["sha256"], "byte for byte"
    assert (first.features == again.features).all() and (first.negatives["test"] == again.negatives["test"]).all()
    assert all((first.edges[k] == again.edges[k]).all() for k in first.edges)
    assert (first.edges["test"][:, 1] != other.edges["test"][:, 1]).mean() > 0.9
    assert (first.features != other.features).mean() > 0.9


def test_only_a_source_that_is_turned_is_near_its_targets(tmp_path):
    "What is planted: the next field's centre is this one's, with the coordinates moved on by a quarter"
    ds = made(tmp_path, dim=32, noise=0.5)
    x, (s, t) = np.array(ds.features), ds.edges["test"].T
    def mrr(sources):
        near = ((sources - x[t]) ** 2).sum(1)
        far = ((sources[:, None] - x[ds.negatives["test"]]) ** 2).sum(2)
        return (1 / (1 + (far < near[:, None]).sum(1))).mean()
    chance = np.mean(1 / np.arange(1, 102))
    assert mrr(np.roll(x[s], 8, axis=1)) > 8 * chance and mrr(x[s]) < 2 * chance
    assert mrr(np.roll(x[s], -8, axis=1)) < 2 * chance, "it has a direction"


@pytest.mark.parametrize("sizes, says", [
    (dict(papers=100, citations=9000, held=5), "100 papers are too few for 9,000 citations, 3 or more by each of the"),
    (dict(dim=6), "dim = 6"), (dict(held=3000), "held = 3,000"), (dict(held=0), "held = 0"),
    (dict(negatives=0), "negatives = 0")])
def test_a_benchmark_that_cannot_be_made_is_refused(tmp_path, sizes, says):
    with pytest.raises(ValueError, match=says): made(tmp_path, **sizes)
    assert not list(tmp_path.rglob("*.gz"))


def test_a_made_up_benchmark_is_never_written_over_another(tmp_path):
    made(tmp_path)
    with pytest.raises(FileExistsError, match="is there already; remove it first"): made(tmp_path)
