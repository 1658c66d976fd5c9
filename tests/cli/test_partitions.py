"""Pairs in parts: the distances of one process, part by part, and no part twice."""
import json

import numpy as np
import pandas as pd
import pytest
from command_line import run

from rolebregman.cli.partitions import parts_of


@pytest.fixture
def parts(project, tmp_path):
    "The pairs of the project as a table in three parts, one of them deeper, and files that are none"
    pairs = pd.read_csv(project / "pairs.csv")
    (tmp_path / "pairs" / "kind=b").mkdir(parents=True)
    for name, some in {"a-0": pairs[:50], "a-1": pairs[50:51], "kind=b/c": pairs[51:]}.items():
        some.to_parquet(tmp_path / "pairs" / f"{name}.parquet")
    pairs.to_parquet(tmp_path / "pairs" / "_temporary.parquet")
    (tmp_path / "pairs" / "_SUCCESS").touch()
    return tmp_path / "pairs"


def table(folder, names=("a-0", "a-1", "kind=b/c")):
    found = pd.concat([pd.read_parquet(folder / f"{name}.parquet", partitioning=None) for name in names])
    return found.reset_index(drop=True)


def in_one(project, pairs="pairs.csv"):
    lines = run(f"score head {pairs} --json", project).stdout.splitlines()
    return pd.DataFrame([json.loads(line) for line in lines])


def test_parts_without_a_row_are_left_out_and_said(project, parts, tmp_path):
    pd.read_parquet(parts / "a-0.parquet")[:0].to_parquet(parts / "a-2.parquet")
    done = run(f"score head {parts} --out {tmp_path}/out", project)
    assert "parts without a row, left out: 1, the first a-2.parquet" in done.stderr
    assert len(table(tmp_path / "out")) == len(in_one(project)) and not (tmp_path / "out" / "a-2.parquet").exists()
    for name in ("a-0", "a-1", "kind=b/c"): (parts / f"{name}.parquet").unlink()
    assert "no part has a row" in run(f"score head {parts} --out {tmp_path}/none", project, 1).stderr


def test_parts_have_the_distances_of_one_file_bit_for_bit(project, parts, tmp_path):
    run(f"score head {parts} --out {tmp_path}/out", project)
    found, whole = table(tmp_path / "out"), in_one(project)
    assert list(found) == list(whole) and found[["source", "target"]].equals(whole[["source", "target"]])
    for name in ("distance", "reverse_distance", "gap"):
        assert found[name].dtype == np.float32 and np.array_equal(found[name], whole[name].astype(np.float32)), name


def test_what_is_there_is_kept_and_what_is_missing_is_made(project, parts, tmp_path):
    out = tmp_path / "out"
    run(f"score head {parts} --out {out}", project)
    before = {path.name: path.stat().st_mtime_ns for path in out.rglob("*.parquet")}
    (out / "a-1.parquet").unlink()
    said = run(f"score head {parts} --out {out}", project).stderr
    assert "parts: 3; already there: 2" in said and "pairs scored: 1," in said
    after = {path.name: path.stat().st_mtime_ns for path in out.rglob("*.parquet")}
    assert {name for name in before if before[name] != after[name]} == {"a-1.parquet"}
    pd.read_parquet(parts / "a-1.parquet").iloc[::-1].rename(columns=str.upper).to_parquet(parts / "a-1.parquet")
    said = run(f"score head {parts} --out {out}", project, 1).stderr
    assert "a-1.parquet is not of this head and" in said and "name another folder with --out" in said


@pytest.mark.parametrize("other", ["--source parent --target child", "--vectors {}/vectors_b.csv"])
def test_distances_that_were_asked_otherwise_are_not_taken_for_those_of_now(project, parts, tmp_path, other):
    "Of other vectors, or the other way round: what lies there would be told as the answer"
    vectors = pd.read_csv(project / "vectors.csv")
    vectors.assign(name=vectors["name"].to_numpy()[::-1]).to_csv(tmp_path / "vectors_b.csv", index=False)
    out = tmp_path / "out"
    run(f"score head {parts} --out {out}", project)
    before = table(out)
    said = run(f"score head {parts} --out {out} {other.format(tmp_path)}", project, 1).stderr
    assert "a-0.parquet was asked otherwise (other vectors, columns or options): name another folder" in said
    assert table(out).equals(before)
    assert "already there: 3" in run(f"score head {parts} --out {out}", project).stderr
    fresh = run(f"score head {parts} --out {tmp_path}/fresh {other.format(tmp_path)}", project)
    assert "already there: 0" in fresh.stderr and not table(tmp_path / "fresh").equals(before)


def test_pairs_that_were_left_out_are_asked_for_again(project, parts, tmp_path):
    "A part that leaves pairs out is no answer where none may lack a vector; a whole one is an answer to both"
    pairs = pd.read_csv(project / "pairs.csv")
    pairs[:3].assign(child="nobody").to_parquet(parts / "a-1.parquet")
    run(f"score head {parts} --out {tmp_path}/out --missing drop", project)
    assert "already there: 3" in run(f"score head {parts} --out {tmp_path}/out --missing drop", project).stderr
    said = run(f"score head {parts} --out {tmp_path}/out", project, 1).stderr
    assert "a-1.parquet leaves out 3 pairs without a vector, as --missing drop asks for: name another folder" in said


def test_two_workers_of_a_dask_cluster_give_the_same(project, parts, tmp_path):
    distributed = pytest.importorskip("distributed")
    own = dict(n_workers=2, threads_per_worker=1, host="127.0.0.1", dashboard_address=None)
    with distributed.LocalCluster(**own) as cluster:
        by = f"--backend dask --address {cluster.scheduler_address}"
        run(f"score head {parts} --out {tmp_path}/by {by}", project)
        searched = run(f"search head n00040 n00013 -k 5 --shards 3 {by}", project).stdout
    run(f"score head {parts} --out {tmp_path}/alone", project)
    assert table(tmp_path / "by").equals(table(tmp_path / "alone"))
    assert searched == run("search head n00040 n00013 -k 5", project).stdout


def test_two_workers_of_a_ray_cluster_give_the_same(project, parts, tmp_path):
    pytest.importorskip("ray", reason="ray is not installed here: pip install 'rolebregman[scale]'")
    by = "--backend ray --jobs 2"
    run(f"score head {parts} --out {tmp_path}/by {by}", project)
    run(f"score head {parts} --out {tmp_path}/alone", project)
    assert table(tmp_path / "by").equals(table(tmp_path / "alone"))
    searched = run(f"search head n00040 n00013 -k 5 --shards 3 {by}", project).stdout
    assert searched == run("search head n00040 n00013 -k 5", project).stdout


def test_a_pattern_names_parts_and_its_files_keep_their_places(parts):
    assert list(parts_of(parts / "a-*.parquet")) == ["a-0.parquet", "a-1.parquet"]
    assert list(parts_of(parts)) == ["a-0.parquet", "a-1.parquet", "kind=b/c.parquet"]
    assert list(parts_of(parts / "*" / "*.parquet")) == ["c.parquet"]
    assert parts_of(parts / "a-0.parquet") == {}


def test_faults_are_named(project, parts, tmp_path):
    (tmp_path / "empty").mkdir()
    for line, status, said in (
            (f"score head {parts}", 2, "name one with --out"),
            (f"score head {tmp_path}/empty --out {tmp_path}/x", 2, "there is no .parquet file in this folder"),
            (f"score head {tmp_path}/no*.parquet --out {tmp_path}/x", 2, "there is no file of such a name"),
            ("score head pairs.csv --backend dask", 2, "--backend is for a folder of Parquet files"),
            (f"score head {parts} --out {tmp_path}/x --address 127.0.0.1:9", 1, "goes with the back-end dask or ray"),
            (f"score head {parts} --out {tmp_path}/x --backend threads", 2, "'threads' is not one of")):
        assert said in run(line, project, status).stderr.replace("\n", " "), line
    odd = pd.read_parquet(parts / "a-1.parquet").assign(child="spam")
    odd.to_parquet(parts / "a-1.parquet")
    said = run(f"score head {parts} --out {tmp_path}/x", project, 1).stderr
    assert "a-1.parquet" in said and "'spam'" in said
    assert "1 dropped" in run(f"score head {parts} --out {tmp_path}/x --missing drop", project).stderr
