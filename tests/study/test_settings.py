"""The settings that were chosen: what is kept stays, and a head gets as wide as is said."""
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from rolebregman.baselines import HEADS, make_head
from rolebregman.study import OURS, SCALES, first_on_validation, keep_settings, widened

RESULTS = Path(__file__).resolve().parents[2] / "results"


@pytest.mark.parametrize("head", HEADS)
def test_twice_the_width_is_more_parameters_for_heads_that_have_one(head):
    heads = [make_head(head, 32, **widened(head, 32, times)) for times in (0.5, 1, 2)]
    half, same, double = (sum(weight.numel() for weight in made.parameters()) for made in heads)
    assert half < same < double if widened(head, 32, 2) else half == same == double


def test_settings_of_other_heads_and_datasets_stay(tmp_path):
    path = tmp_path / "new" / "chosen.json"
    for dataset, head, lr in (("a", "mlp", 1), ("a", "order", 2), ("b", "mlp", 3), ("a", "mlp", 4)):
        keep_settings(path, dataset, {head: dict(train=dict(lr=lr), options={})})
    kept = json.loads(path.read_text())
    lrs = {(d, h): settings["train"]["lr"] for d, heads in kept.items() for h, settings in heads.items()}
    assert lrs == {("a", "mlp"): 4, ("a", "order"): 2, ("b", "mlp"): 3}


def test_what_several_writers_keep_is_all_kept(tmp_path):
    def write(writer):
        for i in range(25): keep_settings(tmp_path / "chosen.json", f"data{i % 3}", {f"head{writer}-{i}": dict(lr=i)})

    with ThreadPoolExecutor(4) as pool: list(pool.map(write, range(4)))
    kept = json.loads((tmp_path / "chosen.json").read_text())
    assert {head for heads in kept.values() for head in heads} == {f"head{w}-{i}" for w in range(4) for i in range(25)}


def test_the_first_on_validation_by_hand_among_heads_that_were_searched_everywhere(tmp_path):
    path = tmp_path / "chosen.json"
    for dataset, scores in (("a", dict(mlp=0.5, order=0.7, cosine=0.9)), ("b", dict(mlp=0.9, order=0.3)),
                            ("c", dict(mlp=0.0, order=1.0))):
        keep_settings(path, dataset, {head: dict(train={}, options={}, score=score) for head, score in scores.items()})
    found = first_on_validation(path, ["a", "b"])
    assert found.index.tolist() == ["mlp", "order"] and found.tolist() == pytest.approx([0.7, 0.5])


def test_the_head_that_is_put_forward_is_the_first_on_validation():
    found = first_on_validation(RESULTS / "chosen.json", SCALES["paper"].datasets)
    assert found.index[0] == OURS and len(found) == len(HEADS)
