"What the version before the house was rebuilt has saved (`saved/README.md`) loads, and gives the same to the last bit"
import json
import shutil
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from typer.testing import CliRunner

from rolebregman import TargetIndex, load_head
from rolebregman.cli.app import app

saved = Path(__file__).parent / "saved"
expected = np.load(saved / "expected.npz")
X, Y = np.load(saved / "x.npy"), np.load(saved / "y.npy")


@pytest.mark.parametrize("name", sorted(path.name for path in (saved / "heads").iterdir()))
def test_heads(name, tmp_path):
    head = load_head(saved / "heads" / name)
    with torch.no_grad():
        assert np.array_equal(head(torch.tensor(X), torch.tensor(Y[:len(X)])).numpy(), expected[name])
    again = load_head(head.save_pretrained(tmp_path))
    assert type(again) is type(head) and again.config == head.config
    about = json.loads((tmp_path / "config.json").read_text())
    assert about["module"] in ("rolebregman.heads", "rolebregman.baselines"), "of the face, which outlives its rooms"


def test_index(tmp_path):
    folder = shutil.copytree(saved / "index", tmp_path / "index")
    distances, rows = TargetIndex.load(folder).search(X, k=3)
    assert np.array_equal(distances, expected["index_distances"]) and np.array_equal(rows, expected["index_rows"])


def test_encoder():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from rolebregman.integrations import DirectedEncoder
        model = DirectedEncoder(str(saved / "encoder"), device="cpu")
        words = ["poodle", "dog", "animal", "oak", "tree", "plant", "rose", "cat"]
        found = model.similarity(model.encode_query(words[:3]), model.encode_document(words[3:]))
    assert np.array_equal(found.detach().numpy(), expected["encoder"])


def test_folder_of_the_command(tmp_path):
    folder = shutil.copytree(saved / "fit", tmp_path / "fit")
    run = CliRunner().invoke(app, ["evaluate", str(folder / "head"), "--json"])
    before, now = json.loads((folder / "evaluate.json").read_text()), json.loads(run.stdout)
    assert run.exit_code == 0 and {name: now[name] for name in before} == before  # a metric more is free to come
    out = folder / "again.csv"
    run = CliRunner().invoke(app, ["score", str(folder / "head"), str(folder / "pairs.csv"), "--out", str(out)])
    assert run.exit_code == 0
    pd.testing.assert_frame_equal(pd.read_csv(out), pd.read_csv(folder / "score.csv"), check_exact=True)
