"The data of the interactive page: it holds what the head holds, and says what is wrong with what it gets"
import base64
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from rolebregman.baselines import HEADS, make_head
from rolebregman.cli.app import app
from rolebregman.datasets import FetchError, WordVectors, cache_dir, toy_tree
from rolebregman.heads import BregmanHead
from rolebregman.interpretability import explorer

OURS = [name for name, entry in HEADS.items() if entry.head is BregmanHead]


def floats(text):
    return np.frombuffer(base64.b64decode(text), "<f4").astype(float)


def recursion(data, i, j):
    "D(x_i, y_j) from the file alone, by the definition: phi(u) - phi(v) - <grad phi(v), u - v>"
    u, v = (role[k] for role, k in zip(explorer.rounded_roles(data), (i, j)))
    out = floats(data["output"])

    def phi(u):
        z = None
        for layer in data["layers"]:
            skip, offset, step = (None if part is None else torch.tensor(floats(part)) for part in layer)
            a = skip.reshape(len(offset), -1) @ u + offset + (0 if z is None else step.reshape(len(offset), -1) @ z)
            z = (a + (a * a + 4).sqrt()) / 2
        return z @ torch.tensor(out) + data["strong_convexity"] / 2 * (u @ u)

    u, v = torch.tensor(u), torch.tensor(v, requires_grad=True)
    value = phi(v)
    (gradient,) = torch.autograd.grad(value, v)
    return (phi(u) - value - gradient @ (u - v)).item()


@pytest.mark.parametrize("name", OURS)
def test_the_file_holds_the_head(name, tmp_path):
    ds = toy_tree(depth=3, branching=2, dim=6)
    head = make_head(name, 6, hidden=(9, 7, 5)).fit_standardizer(ds.features)
    with torch.no_grad():
        for weight in head.parameters():
            weight.add_(0.2 * torch.randn_like(weight))
    path = explorer.write_explorer_data(explorer.explorer_data(head, ds), tmp_path)
    script = path.read_text(encoding="utf-8")
    data = json.loads(script.removeprefix("globalThis.explorerData = ").removesuffix(";\n"))
    assert data["words"] == ds.nodes["id"].tolist()
    pairs = sorted([i, j] for i, row in enumerate(data["pairs"]) for j in row)
    assert pairs == sorted(ds.positives.tolist())
    rounded = explorer.rounded_roles(data)
    exact, x = head.double(), torch.tensor(ds.features, dtype=torch.float64)
    with torch.no_grad(): roles = exact.encode_source(x).numpy(), exact.encode_target(x).numpy()
    half = (np.max(roles, axis=(0, 1)) - np.min(roles, axis=(0, 1))) / 510
    for some, role in zip(rounded, roles):
        assert (abs(some - role) <= 1.001 * half + 1e-6).all(), "a number is within half a step of the head's"
    for i, j in ((0, 1), (1, 0), (3, 9), (2, 2)):
        expected = exact.potential.divergence(*(torch.tensor(role[k]) for role, k in zip(rounded, (i, j)))).item()
        assert recursion(data, i, j) == pytest.approx(expected, rel=1e-5, abs=1e-6)
    assert [p.name for p in tmp_path.iterdir()] == [explorer.EXPLORER_FILE], "no half-written file is left"


def test_heads_that_the_page_cannot_compute():
    ds = toy_tree(depth=2, branching=2, dim=4)
    with pytest.raises(ValueError, match="found MLP"):
        explorer.explorer_data(make_head("mlp", 4), ds)
    with pytest.raises(ValueError, match="with softplus"):
        explorer.explorer_data(BregmanHead(4, activation="softplus"), ds)
    head = BregmanHead(4)
    head.maps["target"].start.data[0, 0] = float("nan")
    with pytest.raises(ValueError, match="not finite"):
        explorer.explorer_data(head, ds)


# animal > mammal > dog, cat, cow; animal > bird > owl; entity is the root; China is a country, and no ware is there
DATA = """\
  1 the licence
001 03 n 01 entity 0 000 | root
002 03 n 02 animal 0 fauna 0 001 @ 001 n 0000 | living
003 03 n 01 mammal 0 001 @ 002 n 0000 | warm
004 03 n 02 dog 0 hot_dog 0 001 @ 003 n 0000 | barks
005 03 n 01 cat 0 001 @ 003 n 0000 | purrs
006 03 n 01 China 0 001 @i 001 n 0000 | a country
007 03 n 01 run 0 001 @ 002 n 0000 | an act
008 03 n 01 yak 0 001 @ 003 n 0000 | never met in text
009 03 n 01 bird 0 001 @ 002 n 0000 | flies
010 03 n 01 owl 0 001 @ 009 n 0000 | wakes
011 03 n 01 cow 0 001 @ 003 n 0000 | lows
"""
SENSES = """\
animal%1:03:00:: 002 1 9
bird%1:05:00:: 009 1 0
cat%1:05:00:: 005 1 3
china%1:15:00:: 006 1 5
cow%1:05:00:: 011 1 1
dog%1:05:00:: 004 1 7
dog%1:18:00:: 003 2 1
entity%1:03:00:: 001 1 20
fauna%1:03:00:: 002 1 0
hot_dog%1:05:00:: 004 1 6
mammal%1:05:00:: 003 1 0
owl%1:05:00:: 010 1 1
run%1:04:00:: 007 1 2
run%2:38:00:: 099 1 30
yak%1:05:00:: 008 1 0
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "data.noun").write_text(DATA, encoding="utf-8")
    (tmp_path / "index.sense").write_text(SENSES, encoding="utf-8")
    return tmp_path


def vectors(words):
    return WordVectors(words, np.random.default_rng(0).normal(size=(len(words), 3)).astype(np.float32))


ALL = ["animal", "bird", "cat", "china", "cow", "dog", "entity", "fauna", "mammal", "owl", "run", "yak"]


def pairs_of(ds):
    ids = ds.nodes["id"]
    return sorted((ids[a], ids[b]) for a, b in ds.positives)


def test_nouns_by_hand(folder):
    ds = explorer.load_nouns(path=folder, vectors=vectors(ALL), quiet=True)
    # by use; bird and mammal are there only to name what others are; run is a verb, yak unseen, fauna a second name
    assert ds.nodes["id"].tolist() == ["animal", "dog", "cat", "cow", "owl", "bird", "mammal"]
    assert pairs_of(ds) == [
        ("bird", "animal"), ("cat", "animal"), ("cat", "mammal"), ("cow", "animal"), ("cow", "mammal"),
        ("dog", "animal"), ("dog", "mammal"), ("mammal", "animal"), ("owl", "animal"), ("owl", "bird")]
    np.testing.assert_array_equal(ds.features[1], vectors(ALL)["dog"])


def test_fewer_nouns_and_nouns_without_a_vector(folder):
    ds = explorer.load_nouns(nouns=3, path=folder, vectors=vectors(ALL), quiet=True)
    assert ds.nodes["id"].tolist() == ["animal", "dog", "cat", "mammal"], "the three most frequent, and what they are"
    ds = explorer.load_nouns(path=folder, vectors=vectors([w for w in ALL if w != "mammal"]), quiet=True)
    assert [y for x, y in pairs_of(ds) if x == "dog"] == ["animal"], "the way up leads on past a synset without a word"
    with pytest.raises(ValueError, match="no noun with a vector"):
        explorer.load_nouns(path=folder, vectors=vectors(["china"]), quiet=True)


def test_a_cycle_of_hypernyms_ends(folder):
    text = DATA.replace("001 @ 001 n 0000 | living", "001 @ 003 n 0000 | living")
    (folder / "data.noun").write_text(text, encoding="utf-8")
    ds = explorer.load_nouns(path=folder, vectors=vectors(ALL), quiet=True)
    assert ("animal", "mammal") in pairs_of(ds) and ("mammal", "animal") in pairs_of(ds)


@pytest.mark.parametrize("text", ["dog 004 1 7\n", "dog%1:05:00:: 004 first 7\n", "dog%1:05:00:: 004 1 7 8 9\n", ""])
def test_another_file_of_senses(folder, text):
    (folder / "index.sense").write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match="index.sense"):
        explorer.read_senses(folder / "index.sense")


def test_fitting_is_repeatable_and_leaves_the_random_state():
    ds = toy_tree(depth=3, branching=3, dim=8)
    state = torch.get_rng_state()
    heads = [explorer.fit_nouns(ds, epochs=2) for _ in range(2)]
    assert torch.equal(torch.get_rng_state(), state)
    first, again = (explorer.explorer_data(head, ds) for head in heads)
    assert first == again and first["width"] == 8 + 16


@pytest.fixture
def fits(monkeypatch, own_cache, folder):
    "`explorer.explorer_folder` on the small files; the list counts how often it trains"
    runs, load = [], explorer.load_nouns

    def fit_nouns(ds):
        runs.append(ds)
        return make_head("directed_bregman", ds.dim, proj_dim=3, hidden=(4,))

    monkeypatch.setattr(explorer, "load_nouns", lambda quiet: load(path=folder, vectors=vectors(ALL), quiet=True))
    monkeypatch.setattr(explorer, "fit_nouns", fit_nouns)
    return runs


def test_trained_once_for_the_same_code(fits, monkeypatch, tmp_path):
    for _ in range(2):
        assert explorer.publish_explorer(tmp_path / "site", quiet=True) == ""
    assert len(fits) == 1
    copy, kept = tmp_path / "site" / explorer.EXPLORER_FILE, cache_dir() / "explorer" / explorer.EXPLORER_FILE
    assert copy.read_bytes() == kept.read_bytes()
    monkeypatch.setattr(explorer, "_made_from", lambda: "another code")
    explorer.publish_explorer(tmp_path / "site", quiet=True)
    assert len(fits) == 2


def test_without_data_the_file_says_why(own_cache, monkeypatch, tmp_path, capsys):
    def nothing(quiet): raise FetchError("wordnet (WordNet 3.0, nouns) could not be had.\nTried:\n  all")

    monkeypatch.setattr(explorer, "load_nouns", nothing)
    assert explorer.publish_explorer(tmp_path, quiet=True) == "wordnet (WordNet 3.0, nouns) could not be had."
    assert json.loads((tmp_path / explorer.EXPLORER_FILE).read_text().split("=", 1)[1].strip(" ;\n")) == {
        "missing": "wordnet (WordNet 3.0, nouns) could not be had."}
    run = CliRunner().invoke(app, ["explorer", "--out", str(tmp_path)])
    assert run.exit_code == 1 and "could not be had. The page says so" in run.stderr


def test_the_code_that_makes_the_head_is_in_the_mark():
    "A changed line of any of it makes the head anew"
    library = Path(explorer.__file__).parents[1]
    for name in explorer._CODE: assert (library / name).is_dir() or (library / f"{name}.py").is_file()
