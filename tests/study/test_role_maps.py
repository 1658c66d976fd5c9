"Role maps over what the paper leaves open: equal settings, differences paired by seed, and sentences that follow"
from pathlib import Path

import pandas as pd
import pytest

from rolebregman.study import (
    INPUT_CHOICES,
    KEY,
    OPEN_CHOICES,
    SCALES,
    SEARCH,
    Store,
    claim_findings,
    paper_claim,
    role_map_figure,
    role_map_findings,
    role_map_outcomes,
    role_map_rows,
    role_map_table,
    role_map_tasks,
    run_grid,
    run_role_maps,
    runner,
)

results = Path(__file__).resolve().parents[2] / "results"
FAST = dict(batch_size=64, lr=1e-2, epochs=1)


def test_heads_of_a_choice_differ_in_nothing_but_their_maps():
    tasks = role_map_tasks("toy", 1)
    assert {task.variant for task in tasks} == set(OPEN_CHOICES) and len({task.key for task in tasks}) == len(tasks)
    for choice in OPEN_CHOICES:
        some = [task for task in tasks if task.variant == choice]
        plain = [task for task in some if task.head == "icnn_bregman"]
        assert len(some) == 3 if choice in INPUT_CHOICES else len(some) in (1, 2)
        for task in some:
            assert task.train == some[0].train and task.options["inputs"] == some[0].options["inputs"]
            if plain: assert set(task.options) - set(plain[0].options) <= {"maps"}


def test_as_stated_is_the_default_training_on_raw_inputs():
    some = role_map_tasks("toy", 1)
    task = next(t for t in some if t.variant == "as stated" and t.head == "role_bregman" and "maps" not in t.options)
    assert task.train == {} and task.options == dict(inputs="raw")
    training = task.training
    assert (training.loss, training.negatives, training.direction_weight) == ("margin", 1, 1.0)


def test_rows_say_what_they_were(tmp_path):
    tasks = [task for task in role_map_tasks("toy", 1, "quick", FAST) if task.variant in ("as stated", "width 32")]
    store = Store(tmp_path / "rows.csv", SEARCH, outcomes=True)
    run_grid(tasks, store, progress=False)
    rows = role_map_rows(store.path)
    assert sorted(zip(rows["choice"], rows["maps"])) == [
        ("as stated", "affine"), ("as stated", "linear"), ("as stated", "plain"), ("width 32", "linear")]
    table = role_map_table(rows).set_index("choice")
    assert table.loc["width 32", "plain"] == table.loc["as stated", "plain"].iloc[0]
    over_pairs = role_map_table(rows, outcomes=role_map_outcomes(rows, store.path)).set_index("choice")
    assert over_pairs["difference"].tolist() == pytest.approx(table["difference"].tolist(), abs=1e-12)
    assert (over_pairs["low"] <= over_pairs["high"]).all() and over_pairs["p_holm"].between(0, 1).all()
    assert over_pairs["p_holm"].min() < 0.05 and set(over_pairs["verdict"]) == {"open"}, "one seed is never clear"
    figure = role_map_figure(role_map_table(rows))
    assert [ax.get_title() for ax in figure.axes if ax.get_title()] == ["toy"]


def made(differences):
    "Rows in which linear maps are better than the plain head by so much, choice by choice, over three seeds"
    return pd.DataFrame([("sick", choice, seed, maps, 0.5 + seed / 100 + difference * (maps != "plain"))
                         for choice, difference in differences.items() for seed in range(3)
                         for maps in ("plain", "linear")],
                        columns=["dataset", "choice", "seed", "maps", "direction_accuracy"])


@pytest.mark.parametrize("difference, ahead, behind", [(0.1, 1, 0), (-0.1, 0, 1), (0.0, 0, 0)])
def test_sentences_say_ahead_and_behind(difference, ahead, behind):
    sentence, = role_map_findings(role_map_table(made({"as stated": difference})))
    assert f"ahead of the plain head in direction accuracy on {ahead} of 1 datasets" in sentence
    assert f"behind on {behind}; {difference:+.3f} on average" in sentence


def test_the_paper_is_inside_or_outside_of_what_its_choices_give():
    theirs = paper_claim()["sick"]
    assert theirs == pytest.approx(0.0805) and paper_claim()["hyperlex/lexical"] == paper_claim()["hyperlex/random"]
    inside, = claim_findings(role_map_table(made({"as stated": theirs - 0.1, "unit length": theirs + 0.1})))
    outside, = claim_findings(role_map_table(made({"as stated": theirs + 0.1, "unit length": theirs + 0.2})))
    assert ", inside of what its open choices give" in inside and ", outside of" in outside
    assert "(as stated, linear maps)" in inside and "(unit length, linear maps)" in inside


def test_a_dataset_that_there_is_not_is_said_before_anything_is_fitted(tmp_path):
    with pytest.raises(ValueError, match="unknown dataset gone"): run_role_maps(["gone"], out=tmp_path)
    assert not list(tmp_path.iterdir())


def test_one_seed_is_never_called_clear():
    rows = made({"as stated": 0.1}).query("seed == 0")
    sentence, = role_map_findings(role_map_table(rows))
    assert "above the plain head's on 1 of 1 datasets (one seed, so no interval)" in sentence
    assert "ahead" not in sentence


def test_of_a_fit_that_was_made_anew_on_a_revised_dataset_the_latest_counts(tmp_path, monkeypatch):
    store, task = Store(tmp_path / "rows.csv", SEARCH), role_map_tasks("toy", 1)[0]
    for revisions, value in (({}, 0.1), (dict(toy=dict(candidates=2)), 0.7)):
        monkeypatch.setattr(runner, "REVISIONS", revisions)
        row = dict(zip(KEY, task.key)) | dict(settings=task.settings, error="", direction_accuracy=value)
        store.append(row)
    assert len(store.rows()) == 2 and role_map_rows(store.path)["direction_accuracy"].tolist() == [0.7]


def test_the_committed_rows_are_those_of_todays_plan_each_with_its_outcomes():
    "Five seeds of each kind of inputs, and one of all other choices"
    rows = Store(results / "role_maps.csv", SEARCH, outcomes=True)
    plan = [task for name in SCALES["paper"].datasets for task in role_map_tasks(name, 5)]
    assert rows.keys(failed=False) == {task.key for task in plan if task.variant in INPUT_CHOICES or task.seed == 0}
