"Tversky's contrast without its parts, a divergence with features, and the rows that say what each is worth"
from pathlib import Path

import pandas as pd
import pytest
import torch
from torch.nn import functional as F

from rolebregman.baselines import HEADS, make_head
from rolebregman.study import (
    FEATURE_SEEDS,
    FEATURE_VARIANTS,
    SEARCH,
    FeatureTask,
    Store,
    feature_differences,
    feature_figure,
    feature_findings,
    feature_rows,
    feature_tasks,
    keep_settings,
    run_features,
)

FAST = dict(train=dict(epochs=1, batch_size=64), options=dict(inputs="scale"))


def made(head, variant, seed=3):
    "A head as a variant has it, moved from where it starts"
    task = next(t for t in feature_tasks(["toy"], [seed], "none.json", "quick")
                if (t.head, t.variant) == (head, variant))
    found = task.make(8).double()
    with torch.no_grad():
        for weight in found.parameters(): weight.add_(0.2 * torch.randn_like(weight))
    return found


def by_hand(variant, u, v, weights):
    "The contrast of each pair, feature by feature"
    a, b, c = F.softplus(weights).tolist()
    power, common = 2 if "squares" in variant else 1, 0 if "nothing" in variant else c
    total = torch.zeros(len(u), dtype=u.dtype)
    for i in range(len(u)):
        for s, t in zip(u[i], v[i]):
            total[i] += a * max(s - t, 0) ** power + b * max(t - s, 0) ** power - common * min(s, t)
    return total / u.shape[1]


@pytest.mark.parametrize("variant", ["nothing in common", "squares", "squares, nothing in common"])
def test_parts_of_the_contrast_by_hand(variant):
    head, (x, y) = made("tversky", variant), torch.randn(2, 4, 8, dtype=torch.float64)
    u, v = (some.detach() for some in (head.encode_source(x), head.encode_target(y)))
    torch.testing.assert_close(head(x, y).detach(), by_hand(variant, u, v, head.weights))


@pytest.mark.parametrize("variant", FEATURE_VARIANTS["directed_bregman"])
def test_a_divergence_with_features_stays_one(variant):
    head, x = made("directed_bregman", variant), torch.randn(50, 8, dtype=torch.float64)
    distances = head.pairwise(x, x)
    assert (distances >= 0).all()
    torch.testing.assert_close(distances, head.pairwise(x, x, exact=False), atol=1e-10, rtol=1e-9)
    both = [head._seen(head.standardized(x), side)[:, 8:] for side in ("source", "target")]
    assert (variant == "features of each role") == (not torch.equal(*both))
    assert bool((both[0] < 0).any()) == (variant == "features of any sign")
    assert both[0].shape[1] == (64 if "features" in variant else 0)


def test_the_variant_with_features_is_the_head_of_the_registry():
    options = HEADS["directed_bregman"].config | FEATURE_VARIANTS["directed_bregman"]["features"]
    assert HEADS["feature_bregman"].config == options
    ours, large = (sum(p.numel() for p in make_head(*how, 50, **more).parameters()) for how, more in (
        (("feature_bregman",), {}), (("directed_bregman",), FEATURE_VARIANTS["directed_bregman"]["as large without"])))
    assert 0.9 * ours < large < 1.1 * ours, "with vectors of WordNet's width, and more with wider ones"


def test_every_variant_has_the_settings_of_its_head_and_a_hash_of_its_own(tmp_path):
    keep_settings(tmp_path / "chosen.json", "toy", dict.fromkeys(FEATURE_VARIANTS, FAST))
    tasks = feature_tasks(["toy"], (100, 101), tmp_path / "chosen.json", "quick")
    assert len({task.key for task in tasks}) == len(tasks) == 2 * sum(map(len, FEATURE_VARIANTS.values()))
    assert all(task.train == FAST["train"] and task.options["inputs"] == "scale" and task.split == "valid"
               and task.make(8).inputs == "scale" for task in tasks)
    plain = FeatureTask("toy", "tversky", 0, variant="squares")
    assert all(torch.equal(a, b) for a, b in zip(plain.make(8).state_dict().values(),
                                                 make_like(plain).state_dict().values()))


def make_like(task):
    torch.manual_seed(task.seed)
    return make_head(task.head, 8)


def made_up(**values):
    "Rows by variant, a value for each seed"
    return pd.DataFrame([dict(dataset="toy", head="tversky", variant=name.replace("_", " "), seed=seed, mrr=value,
                              ranking_accuracy=1 - value, direction_accuracy=0.5)
                         for name, some in values.items() for seed, value in enumerate(some)])


def test_differences_by_hand():
    rows = made_up(as_it_is=[0.1, 0.2, 0.3], squares=[0.2, 0.4, 0.3], linear_map=[0.0, 0.1, 0.1])
    found = feature_differences(rows).set_index(["variant", "metric"])
    squares, linear = found.loc[("squares", "mrr")], found.loc[("linear map", "ranking_accuracy")]
    assert [squares[name] for name in ("difference", "least", "most")] == pytest.approx([0.1, 0, 0.2])
    assert linear["difference"] == pytest.approx(0.4 / 3) and linear["agree"] and not squares["agree"]
    assert found["seeds"].eq(3).all() and not found.loc[("squares", "direction_accuracy"), "agree"]
    said = feature_findings(feature_differences(rows))
    assert said == ["`tversky`, linear map: toy ranking +0.133*, direction +0.000, MRR -0.133*.",
                    "`tversky`, squares: toy ranking -0.100, direction +0.000, MRR +0.100."]
    ranking, _, mrr = feature_figure(feature_differences(rows)).axes
    assert [text.get_text() for text in ranking.get_yticklabels()] == ["tversky: squares", "tversky: linear map"]
    assert mrr.lines[0].get_xdata().tolist() == pytest.approx([-0.4 / 3, 0.1])


def test_run_and_again(tmp_path):
    keep_settings(tmp_path / "chosen.json", "toy", dict.fromkeys(FEATURE_VARIANTS, FAST))
    how = dict(datasets=["toy"], seeds=1, jobs=1, out=tmp_path, chosen=tmp_path / "chosen.json", scale="quick")
    rows = run_features(**how)
    assert len(rows) == sum(map(len, FEATURE_VARIANTS.values())) and set(rows["error"]) == {""}
    assert set(rows["seed"]) == {FEATURE_SEEDS[0]} and len(feature_rows(tmp_path / "features.csv")) == len(rows)
    before = (tmp_path / "features.csv").read_bytes()
    run_features(**how)
    assert (tmp_path / "features.csv").read_bytes() == before
    with pytest.raises(ValueError, match="unknown dataset gone"): run_features(**how | dict(datasets=["gone"]))


def test_committed_rows_are_those_of_the_plan():
    results = Path(__file__).resolve().parents[2] / "results"
    there = Store(results / "features.csv", SEARCH).keys(failed=False)
    plan = {task.key for task in feature_tasks(["wordnet"], chosen=results / "chosen.json")}
    assert plan <= there and len(there) == len(feature_rows(results / "features.csv"))
