"Heads by name: a path wins, a name follows, and what is neither is told what there is"
import numpy as np
import pytest

from rolebregman.baselines import make_head
from rolebregman.heads import Decision, DistanceHead, head_folder, load_head, shipped, shipped_heads

NAMES = ["go-minilm", "wordnet-minilm"]


def test_the_package_has_two_heads():
    assert shipped_heads() == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_a_head_of_the_package_is_whole_small_and_decides(name):
    head, folder = load_head(name), head_folder(name)
    assert isinstance(head, DistanceHead) and head.dim == 384 and isinstance(head.decision, Decision)
    assert sum(path.stat().st_size for path in folder.iterdir()) < 1.2e6
    X, Y = np.random.default_rng(0).normal(size=(2, 20, 384)).astype(np.float32)
    found = head.decide(X, Y)
    assert found.shape == (20, 3) and found.equal(head.decide(Y, X)[:, [1, 0, 2]])


def test_a_path_that_is_there_wins(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    make_head("mlp", dim=3).save_pretrained("wordnet-minilm")
    assert load_head("wordnet-minilm").dim == 3
    assert head_folder(tmp_path) == tmp_path


@pytest.mark.parametrize("name", ["wordnet", "../shipped/wordnet-minilm", "nowhere/else"])
def test_what_is_neither_is_told_what_there_is(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FileNotFoundError, match="is not a folder written by.*go-minilm, wordnet-minilm"):
        load_head(name)


def test_a_package_without_heads_says_so(monkeypatch, tmp_path):
    monkeypatch.setattr(shipped, "_SHIPPED", tmp_path)
    with pytest.raises(FileNotFoundError, match="there is none here"): head_folder("wordnet-minilm")
