"Pairs read once, items encoded once, text as pandas writes it: nothing of it changes a distance"
import string
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
import torch

from rolebregman.baselines import HEADS, make_head
from rolebregman.cli import scoring
from rolebregman.cli.scoring import PairFile, Scorer
from rolebregman.datasets import pair_blocks
from rolebregman.evaluation import score_edges

LETTERS = string.ascii_letters + string.digits + " ,;'\"\n\r\t=@-+é日%{}"


def as_read(blocks):
    return pd.concat([block.astype(dict(source="str", target="str")) for block in blocks], ignore_index=True)


@pytest.mark.parametrize("text", [
    "source,target\na,b\nb,c\n", "source,target\n1,2\n3,1\n", "source,target\n01,2\n3,01\n", "source,target\n1,a\n",
    "target,source,more\na , b,1\n", 'source,target\n"a,1",b\n', "source;target\na,b;c\n", "source,target\r\na,b\r\n",
    "source,target\n1.0,1e3\nNA,null\n", "source,target\n-1,5\n"])
def test_pairs_are_those_of_pair_blocks_however_they_are_read(text, tmp_path, monkeypatch):
    (path := tmp_path / "p.csv").write_text(text, newline="")
    how = dict(sep=";") if ";" in text else {}
    wanted = as_read(pair_blocks(path, **how))
    for at_once in (scoring.AT_ONCE, 0):
        monkeypatch.setattr(scoring, "AT_ONCE", at_once)
        pairs = PairFile(path, rows=1, **how)
        assert (pairs.coded is None) == (not at_once)
        for _ in range(2): pd.testing.assert_frame_equal(as_read(pairs), wanted)
        ids, total = pairs.items()
        assert total == len(wanted) and sorted(ids) == sorted({*wanted["source"], *wanted["target"]})


@pytest.mark.parametrize("text, said", [
    ("source,target\n", "0 rows"), ("source,target\na,b,c\n", "more fields"), ("source,target\na,b\n ,b\n", "row 1"),
    ("a,b\n1,2\n", "cannot tell"), ("", "No columns")])
def test_what_is_refused_is_refused_as_by_pair_blocks(text, said, tmp_path):
    (path := tmp_path / "p.csv").write_text(text)
    with pytest.raises(ValueError, match=said) as careful: list(pair_blocks(path))
    with pytest.raises(ValueError) as ours: list(PairFile(path))  # noqa: PT011  its text is compared
    assert str(ours.value) == str(careful.value)


@pytest.mark.parametrize("name", sorted(HEADS))
def test_distances_are_bit_for_bit_those_of_evaluation_and_to_rounding_in_any_blocks(name):
    rng = np.random.default_rng(0)
    torch.manual_seed(0)
    items = rng.standard_normal((70, 6), dtype=np.float32)
    items[50:] = items[:20]  # equal vectors tie
    head, index = make_head(name, dim=6).fit_standardizer(items), pd.Index([f"i{i}" for i in range(70)])
    with torch.no_grad():
        for weight in head.parameters(): weight.add_(0.05 * torch.randn_like(weight))
    edges = rng.integers(0, 70, (401, 2))
    pairs = pd.DataFrame(index.to_numpy()[edges], columns=["source", "target"])
    forward, reverse, _ = score_edges(head, items, edges, edges[:, :0])
    seen = index[np.unique(edges)]
    for scorer in (Scorer(head, items, index), Scorer(head, items, index, ids=seen)):
        found = scorer(pairs)
        assert np.array_equal(found["distance"], forward) and np.array_equal(found["reverse_distance"], reverse)
        assert np.array_equal(found["gap"], (forward - reverse).numpy())
        found = pd.concat([scorer(pairs[start:start + 100]) for start in range(0, 401, 100)])
        np.testing.assert_allclose(found["distance"], forward, rtol=1e-6, atol=1e-6)
        np.testing.assert_allclose(found["reverse_distance"], reverse, rtol=1e-6, atol=1e-6)


def test_a_distance_that_is_not_finite_is_named():
    head, items = make_head("euclidean", dim=2), np.float32([[0, 1], [np.inf, 1]])
    pairs = pd.DataFrame(dict(source=["a"], target=["b"]))
    with pytest.raises(ValueError, match="the distance of 'a' and 'b' is not finite"):
        Scorer(head, items, pd.Index(["a", "b"]))(pairs)


def test_a_head_is_loaded_and_asked_without_what_only_evaluation_and_the_compiler_need(project):
    run = ("import sys\nfrom rolebregman.cli.app import app\n"
           "for line in sys.argv[1:]: app(line.split(), standalone_mode=False)\n"
           "assert not (found := {'torch._dynamo', 'sympy', 'sklearn', 'scipy.stats'} & set(sys.modules)), found")
    lines = "score head pairs.csv --out scores.csv", "search head n00040"
    done = subprocess.run([sys.executable, "-c", run, *lines], cwd=project, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
