"A head in a folder or a repository, and a card that says what the rows say"
import os

import numpy as np
import pandas as pd
import pytest
import torch
from huggingface_hub import ModelCard
from safetensors.torch import load_file, save_file

from rolebregman.baselines import make_head
from rolebregman.heads import load_head
from rolebregman.integrations import HubHead, model_card

DIM = 8


@pytest.mark.parametrize("name", ["directed_bregman", "mlp", "cosine"])
def test_a_head_goes_to_a_folder_and_comes_back(tmp_path, name):
    head, X = make_head(name, dim=DIM), torch.randn(5, DIM)
    HubHead(head, model_card(head, {"mrr": 0.5})).save_pretrained(tmp_path)
    again = HubHead.from_pretrained(tmp_path)
    with torch.no_grad():
        assert torch.equal(again(X, X.flip(0)), head(X, X.flip(0)))
        assert torch.equal(load_head(tmp_path)(X, X.flip(0)), head(X, X.flip(0)))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["README.md", "config.json", "model.safetensors"]
    assert again.card.data.eval_results[0].metric_value == 0.5


def test_a_card_that_was_given_is_the_card():
    card = model_card(head := make_head("directed_bregman", dim=DIM), {"mrr": 0.5})
    assert HubHead(head, card).generate_model_card() is card
    assert "rolebregman" in str(HubHead(head).generate_model_card()), "a bare one, from the library's name"


def test_what_is_pushed_is_what_is_saved(monkeypatch):
    import huggingface_hub.hub_mixin as mixin
    pushed = {}

    class Api:
        def __init__(self, token=None): pass
        def create_repo(self, repo_id, **how): return type("Url", (), {"repo_id": repo_id})
        def upload_folder(self, folder_path, repo_id, **how):
            pushed.update(repo=repo_id, files=sorted(os.listdir(folder_path)))
            return "url"

    monkeypatch.setattr(mixin, "HfApi", Api)
    assert HubHead(make_head("directed_bregman", dim=DIM)).push_to_hub("me/hypernyms") == "url"
    assert pushed == dict(repo="me/hypernyms", files=["README.md", "config.json", "model.safetensors"])


def test_a_repository_is_read_from_its_snapshot(tmp_path, monkeypatch):
    head, asked = make_head("directed_bregman", dim=DIM), {}
    HubHead(head).save_pretrained(tmp_path)
    download = lambda name, **how: asked.update(name=name, **how) or tmp_path
    monkeypatch.setattr("rolebregman.integrations.hub.snapshot_download", download)
    again = HubHead.from_pretrained("me/hypernyms", revision="v1", local_files_only=True)
    assert asked["name"] == "me/hypernyms" and asked["revision"] == "v1" and asked["local_files_only"]
    assert "*" not in "".join(asked["allow_patterns"])
    assert all(torch.equal(a, b) for a, b in zip(again.head.state_dict().values(), head.state_dict().values()))


def test_a_folder_without_a_head_is_said(tmp_path):
    with pytest.raises(FileNotFoundError, match="not a folder written by save_pretrained"):
        HubHead.from_pretrained(tmp_path)
    with pytest.raises(FileNotFoundError, match="is no folder, and cannot name a repository"):
        HubHead.from_pretrained(tmp_path / "nowhere")
    with pytest.raises(TypeError, match="expected a DistanceHead"):
        HubHead(torch.nn.Linear(2, 2))


def test_a_card_says_what_the_rows_say(toy):
    rows = pd.DataFrame([dict(dataset="go", head="mlp", seed=s, scale="quick", ranking_accuracy=r, mrr=0.25,
                              versions="torch 2", commit="abc", error=e)
                         for s, r, e in ((0, 0.5, ""), (1, 0.7, np.nan), (2, 0.1, "it failed"))])
    text = model_card(make_head("directed_bregman", dim=DIM), rows, toy, encoder="all-minilm").text
    for part in ("ranking accuracy | 0.600 ± 0.141", "among the sampled candidates | 0.250", "seeds [0, 1]", "torch 2",
                 "scale `quick`", "Dataset: go", "all-minilm", "## Limits", "train 291 pairs"):
        assert part in text
    assert "area under" not in text
    with pytest.raises(ValueError, match="a card is of one dataset, found go, sick"):
        model_card(make_head("directed_bregman", dim=DIM), pd.concat([rows, rows.assign(dataset="sick")]))
    with pytest.raises(ValueError, match="found 0 rows"):
        model_card(make_head("directed_bregman", dim=DIM), rows[rows["seed"] == 2])


@pytest.mark.parametrize("word", ["a\n# Heading\nb", "<script>alert(1)</script>", "![x](http://a.b/c)", "`code` | cell",
                                  "a\r\n---\nlicense: mit", "\x1b[2J"])
def test_a_name_is_one_line_of_a_card_and_nothing_else(word):
    head = make_head("euclidean", dim=4)
    usual = dict(dataset="d", scale="s", commit="c", versions="v", seed=0, mrr=0.5)
    named = dict(dataset=word, scale=word, commit=word, versions=word)
    card = model_card(head, [usual | named], encoder=word, name=word)
    plain = model_card(head, [usual], encoder="e", name="n")
    text = card.text
    assert len(text.splitlines()) == len(plain.text.splitlines()) and str(card.data.license) == "apache-2.0"
    assert not any(odd in text for odd in ("<script", "![x]", "](http", "\x1b", "`code`", "| cell"))
    assert ModelCard(str(card)).data.license == "apache-2.0"


def test_a_card_of_other_weights_is_noticed(tmp_path):
    "In saving and in loading: of an earlier training, or left by another head; a right one and one by hand are silent"
    head = make_head("directed_bregman", dim=DIM)
    card = model_card(head, {"mrr": 0.5})
    HubHead(head, card).save_pretrained(tmp_path / "right")
    assert HubHead.from_pretrained(tmp_path / "right").card.data.to_dict() == card.data.to_dict()
    with torch.no_grad():
        next(head.parameters()).add_(1)
    with pytest.warns(UserWarning, match="other weights than this head's"):
        HubHead(head, card).save_pretrained(tmp_path / "trained")
    with pytest.warns(UserWarning, match="other weights than this head's"):
        HubHead(head, model_card(head, {"mrr": 0.6})).save_pretrained(tmp_path / "right")  # keeps its README.md
    for name in "trained", "right":
        with pytest.warns(UserWarning, match=r"README\.md was written for other weights"):
            HubHead.from_pretrained(tmp_path / name)
    (tmp_path / "right" / "README.md").write_text("# By hand\n")
    HubHead.from_pretrained(tmp_path / "right")


def test_a_head_is_put_where_it_is_wanted_and_read_whole(tmp_path):
    head = make_head("directed_bregman", dim=DIM)
    HubHead(head, model_card(head, {"mrr": 0.5})).save_pretrained(tmp_path)
    for strict in True, False:
        found = HubHead.from_pretrained(tmp_path, map_location="meta", strict=strict).head
        assert {value.device.type for value in found.state_dict().values()} == {"meta"}
    weights = load_file(tmp_path / "model.safetensors")
    save_file(dict(list(weights.items())[1:]), tmp_path / "model.safetensors")
    for strict in True, False:
        with pytest.raises(ValueError, match="is cut off"): HubHead.from_pretrained(tmp_path, strict=strict)
