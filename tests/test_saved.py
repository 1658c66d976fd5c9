"What the version before the house was rebuilt has saved (`saved/README.md`) loads to the last bit, and gives the same"
import json
import shutil
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import load_file
from typer.testing import CliRunner

from rolebregman import TargetIndex, load_head
from rolebregman.cli.app import app

saved = Path(__file__).parent / "saved"
expected = np.load(saved / "expected.npz")
X, Y = np.load(saved / "x.npy"), np.load(saved / "y.npy")
ROUNDING = 4 * torch.finfo(torch.float32).eps  # of the largest: processors sum in orders of their own


def close(found, kept):
    np.testing.assert_allclose(found, kept, rtol=0, atol=ROUNDING * np.abs(kept).max())


def same_weights(module, file):
    "What is loaded is what the file holds, to the last bit"
    loaded, kept = module.state_dict(), load_file(file)
    assert loaded.keys() == kept.keys()
    assert all(loaded[name].dtype == kept[name].dtype and loaded[name].equal(kept[name]) for name in kept)


@pytest.mark.parametrize("name", sorted(path.name for path in (saved / "heads").iterdir()))
def test_heads(name, tmp_path):
    head = load_head(saved / "heads" / name)
    same_weights(head, saved / "heads" / name / "model.safetensors")
    with torch.no_grad(): close(head(torch.tensor(X), torch.tensor(Y[:len(X)])).numpy(), expected[name])
    again = load_head(head.save_pretrained(tmp_path))
    same_weights(again, saved / "heads" / name / "model.safetensors")
    assert type(again) is type(head) and again.config == head.config
    about = json.loads((tmp_path / "config.json").read_text())
    assert about["module"] in ("rolebregman.heads", "rolebregman.baselines"), "of the face, which outlives its rooms"


def test_index(tmp_path):
    folder = shutil.copytree(saved / "index", tmp_path / "index")
    index = TargetIndex.load(folder)
    same_weights(index.head, next(folder.glob("head-*")) / "model.safetensors")
    for part in ("ids", "items", "rows", "centre"):
        assert np.array_equal(np.asarray(getattr(index, part)), np.load(next(folder.glob(f"{part}-*")))), part
    distances, rows = index.search(X, k=3)
    close(distances, expected["index_distances"])
    assert np.array_equal(rows, expected["index_rows"])


def test_encoder():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from rolebregman.integrations import DirectedEncoder
        model = DirectedEncoder(str(saved / "encoder"), device="cpu")
        same_weights(model[1], saved / "encoder" / "1_Dense" / "model.safetensors")
        same_weights(model[2].head, saved / "encoder" / "2_RoleHead" / "model.safetensors")
        words = ["poodle", "dog", "animal", "oak", "tree", "plant", "rose", "cat"]
        found = model.similarity(model.encode_query(words[:3]), model.encode_document(words[3:]))
    close(found.detach().numpy(), expected["encoder"])


def test_folder_of_the_command(tmp_path):
    folder = shutil.copytree(saved / "fit", tmp_path / "fit")
    run = CliRunner().invoke(app, ["evaluate", str(folder / "head"), "--json"])
    before, now = json.loads((folder / "evaluate.json").read_text()), json.loads(run.stdout)
    assert run.exit_code == 0 and now["gap_mean"] == pytest.approx(before.pop("gap_mean"), abs=ROUNDING)
    assert {name: now[name] for name in before} == before  # a metric more is free to come
    out = folder / "again.csv"
    run = CliRunner().invoke(app, ["score", str(folder / "head"), str(folder / "pairs.csv"), "--out", str(out)])
    assert run.exit_code == 0
    pd.testing.assert_frame_equal(pd.read_csv(out), pd.read_csv(folder / "score.csv"), rtol=0, atol=ROUNDING)
