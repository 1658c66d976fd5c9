"The heads that come with the package: their cards are their rows, their files are those of the rows, made again alike"
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from rolebregman.common import sha256
from rolebregman.datasets import Taxonomy, taxonomy
from rolebregman.heads import head_folder, load_head
from rolebregman.study import (
    SHIPPED,
    SHIPPED_COLUMNS,
    ShippedTask,
    Store,
    run_shipped,
    shipped,
    shipped_card,
    shipped_row,
    write_shipped,
)
from rolebregman.study.store import COLUMNS

results = Path(__file__).resolve().parents[2] / "results"


@pytest.fixture(scope="module")
def rows(): return Store(results / "shipped.csv", [*COLUMNS, *SHIPPED_COLUMNS]).rows()


@pytest.mark.parametrize("name", SHIPPED)
def test_a_card_is_made_from_the_rows(name, rows):
    card = (head_folder(name) / "README.md").read_text()
    assert card == shipped_card(name, rows)
    own = rows[(rows["dataset"] == name) & (rows["seed"] == 0)].iloc[0]
    line = next(line for line in card.splitlines() if "mean reciprocal rank" in line)
    assert line.split("|")[2].strip() == f"{own['all_mrr']:.3f}"
    mean = rows.loc[rows["dataset"] == name, "all_mrr"]
    assert line.split("|")[3].strip() == f"{mean.mean():.3f} ± {mean.std(ddof=1):.3f}"


@pytest.mark.parametrize("name", SHIPPED)
def test_the_folder_is_that_of_the_row_of_seed_0(name, rows):
    folder, recipe = head_folder(name), SHIPPED[name]
    own = rows[(rows["dataset"] == name) & (rows["seed"] == 0)].iloc[0]
    head, report = load_head(name), json.loads((folder / "report.json").read_text())
    assert own["config"] == ShippedTask(name, recipe.head, 0, "full", recipe.train, recipe.options).config
    assert own["parameters"] == sum(p.numel() for p in head.parameters())
    assert head.decision.threshold == own["threshold"]
    assert report["pairs"] == {part: own[f"{part}_pairs"] for part in ("train", "valid", "test")}
    assert report["files"] == {file: sha256(folder / file) for file in ("model.safetensors", "config.json")}


def test_nothing_of_the_data_is_in_a_folder():
    for name in SHIPPED:
        assert {path.name for path in head_folder(name).iterdir()} == {
            "README.md", "config.json", "model.safetensors", "report.json"}


def grown(quiet=True):
    rng = np.random.default_rng(0)
    pairs = np.stack([np.arange(1, 600), [rng.integers(max(1, child // 3)) for child in range(1, 600)]], 1)
    return Taxonomy("grown", np.array([f"i{i}" for i in range(600)], object),
                    np.array([f"t{i}" for i in range(600)], object), pairs, {})


def test_the_same_command_makes_the_same_bytes(tmp_path, monkeypatch):
    "On a small taxonomy of its own"
    vectors = np.random.default_rng(1).normal(size=(600, 16)).astype(np.float32)
    monkeypatch.setitem(taxonomy.TAXONOMIES, "grown", grown)
    monkeypatch.setattr(taxonomy, "encode_texts", lambda texts, *_, **__: vectors)
    recipe = shipped.Recipe("grown", "things", ("t1", "t0"), "nobody", train=dict(epochs=2, hard_share=0.5))
    monkeypatch.setitem(SHIPPED, "grown", recipe)
    for place in "one", "two":
        rows = run_shipped(["grown"], 2, tmp_path / place, tmp_path / place / "heads")
        assert rows["seed"].tolist() == [0, 1]
    files = {path.name: path for path in (tmp_path / "one" / "heads" / "grown").iterdir()}
    assert set(files) == {"README.md", "config.json", "model.safetensors", "report.json"}
    for name, path in files.items():
        assert path.read_bytes() == (tmp_path / "two" / "heads" / "grown" / name).read_bytes(), name
    task = ShippedTask("grown", recipe.head, 0, "full", recipe.train, recipe.options)
    head, row = shipped_row(task)
    write_shipped(head, task, row, tmp_path / "three")
    assert (tmp_path / "three" / "model.safetensors").read_bytes() == files["model.safetensors"].read_bytes()
    text = pd.read_csv(tmp_path / "one" / "shipped.csv")
    assert run_shipped(["grown"], 2, tmp_path / "one", tmp_path / "one" / "heads")["seconds"].tolist() == text[
        "seconds"].tolist(), "there is nothing left to do"
