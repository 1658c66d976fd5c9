"The fair search: as many trials for each head, on axes without an end, proved on further seeds"
import json
import shutil
from functools import cache
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from zlib import crc32

import pandas as pd
import pytest

from rolebregman.baselines import HEADS, make_head
from rolebregman.heads import INPUTS
from rolebregman.study import SCALES, SEARCH, Store, Task, runner, trials
from rolebregman.study.trials import (
    HEAD_AXES,
    SCORE,
    TRAIN_AXES,
    Axis,
    Trial,
    axis_value,
    fair_search,
    fair_settings,
    final_trials,
    next_trials,
    run_fair_search,
    useful_axes,
)
from rolebregman.training import TrainConfig

RESULTS = Path(__file__).resolve().parents[2] / "results"


def climb(value, axes, budget):
    scores = {}
    while new := next_trials(scores, axes, budget):
        assert not set(new) & set(scores), "no trial twice"
        scores |= {trial: value(trial) for trial in new}
    return scores


@pytest.mark.parametrize("name, steps, expected", [
    ("lr", range(-4, 5), [1e-5, 3e-5, 1e-4, 3e-4, 1e-3, 3e-3, 0.01, 0.03, 0.1]),
    ("margin", range(-2, 4), [0.04, 0.2, 1.0, 5.0, 25.0, 125.0]),
    ("direction_weight", range(-2, 3), [0.1, 0.3, 1.0, 3.0, 10.0]),
    ("weight_decay", range(-1, 3), [0.001, 0.01, 0.1, 1.0])])
def test_ladders_have_the_values_that_people_use(name, steps, expected):
    assert [axis_value(TRAIN_AXES[name], step) for step in steps] == pytest.approx(expected, rel=1e-12)


def test_a_whole_number_stays_one_and_positive():
    assert [axis_value(HEAD_AXES["rank"], step, 16) for step in (-9, -1, 0, 3)] == [1, 8, 16, 128]


@pytest.mark.parametrize("peak", product((-3, 0, 4), (-1, 2)))
def test_a_single_peak_is_found_wherever_it_is_and_no_axis_ends(peak):
    def value(trial):
        steps = dict(trial.steps)
        return -abs(steps.get("lr", 0) - peak[0]) - abs(steps.get("margin", 0) - peak[1]) - (trial.inputs != "scale")
    scores = climb(value, ["lr", "margin"], 100)
    best = max(scores, key=scores.get)
    assert best.inputs == "scale" and (dict(best.steps).get("lr", 0), dict(best.steps).get("margin", 0)) == peak
    assert {best.moved(axis, by) for axis in ("lr", "margin") for by in (-1, 1)} <= set(scores), "all neighbours tried"


@pytest.mark.parametrize("budget", [1, 4, 5, 8, 13])
def test_no_more_trials_than_the_budget_and_the_inputs_first(budget):
    scores = climb(lambda trial: crc32(str(trial).encode()) % 97, ["lr", "margin", "rank"], budget)
    assert len(scores) == budget and [trial.inputs for trial in scores][:4] == list(INPUTS)[:budget]


def test_a_search_goes_on_where_it_was_stopped():
    value = lambda trial: len(str(trial)) % 7  # noqa: E731
    whole = list(climb(value, ["lr", "margin"], 12))
    for stopped in range(5, 12):
        scores = {trial: value(trial) for trial in whole[:stopped]}
        assert next_trials(scores, ["lr", "margin"], 12)[0] == whole[stopped]


@pytest.mark.parametrize("head", HEADS)
def test_every_axis_of_a_head_changes_it_and_none_is_left_out(head):
    axes = useful_axes(head, 24)
    assert set(TRAIN_AXES) - {"direction_weight"} <= set(axes), "every head of the registry has something to train"
    assert ("direction_weight" in axes) != make_head(head, 24).symmetric
    base = fair_settings(head, Trial("standard"), 24)
    for axis, by in product(axes, (-1, 1)):
        settings = fair_settings(head, Trial("standard").moved(axis, by), 24)
        made = make_head(head, 24, **settings["options"])
        TrainConfig(**settings["train"])
        assert settings != base and made.inputs == "standard"
        if axes[axis].place == "options": assert made.config != make_head(head, 24).config
    margin = fair_settings(head, Trial("raw").moved("margin", 1), 24)["train"]
    assert margin["margin"] == margin["direction_margin"] == 5.0


def test_no_head_has_fewer_trials_than_ours():
    "A landscape in which every step is better asks for the whole budget"
    found = {head: len(climb(lambda trial: sum(step for _, step in trial.steps), list(useful_axes(head, 24)), 24))
             for head in HEADS}
    assert set(found.values()) == {24}


def test_the_start_and_the_best_third_are_proved():
    scores = {Trial(inputs): i for i, inputs in enumerate(("raw", "unit", "scale", "standard"))} | {
        Trial("raw").moved("lr", step): 10 + step for step in range(1, 6)}
    assert final_trials(scores) == [Trial("standard"), *(Trial("raw").moved("lr", step) for step in (5, 4, 3))]


@pytest.fixture
def made_up(monkeypatch):
    "Validation scores without training: unit inputs alone are best by luck on the first seed, `scale` is better on all"
    seen = []

    def run(tasks, store, **how):
        seen.extend(tasks)
        lucky = [task.seed == 100 and (task.train, task.options) == ({}, dict(inputs="unit")) for task in tasks]
        return pd.DataFrame({name: [0.9 if luck else 0.8 if task.options["inputs"] == "scale" else 0.5
                                    for luck, task in zip(lucky, tasks)] for name in SCORE})
    monkeypatch.setattr(trials, "run_grid", run)
    return seen


def test_luck_on_the_first_seed_does_not_choose(made_up, tmp_path):
    table = fair_search("toy", tmp_path / "rows.csv", tmp_path / "chosen.json", ["mlp"], budget=9, scale="quick")
    kept = json.loads((tmp_path / "chosen.json").read_text())["toy"]["mlp"]
    assert kept["options"]["inputs"] == "scale" and table["score"][0] == pytest.approx(kept["score"]) == 0.8
    assert kept["start"] == pytest.approx(0.5) and table["trials"][0] == 9
    assert {task.seed for task in made_up} == {100, 101, 102} and {task.split for task in made_up} == {"valid"}


def test_other_datasets_stay_in_the_file_and_failures_choose_nothing(tmp_path, monkeypatch):
    chosen = tmp_path / "chosen.json"
    chosen.write_text(json.dumps(dict(other=dict(mlp=dict(train={}, options={})))))
    how = dict(heads=["order"], budget=4, seeds=(100,), scale="quick", progress=False)
    fair_search("toy", tmp_path / "rows.csv", chosen, train=dict(epochs=1), **how)
    kept = json.loads(chosen.read_text())
    assert set(kept) == {"other", "toy"} and set(kept["toy"]) == {"order"}
    assert len(Store(tmp_path / "rows.csv", SEARCH).rows()) == 4
    with pytest.raises(ValueError, match="every trial of order on toy failed, so nothing is chosen"):
        fair_search("toy", tmp_path / "bad.csv", chosen, train=dict(epochs=1, lr=1e30), **how)
    assert json.loads(chosen.read_text()) == kept


def test_the_command_searches_one_dataset_after_the_other(made_up, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(trials, "DATASETS", dict(toy=None))
    run_fair_search(["toy"], ["mlp"], 6, 1, tmp_path)
    assert capsys.readouterr().out.startswith("toy\n") and (tmp_path / "chosen.json").exists()
    with pytest.raises(ValueError, match="expected some of: toy"): run_fair_search(["gone"], out=tmp_path)
    assert all(isinstance(axis, Axis) for axis in (TRAIN_AXES | HEAD_AXES).values())


@pytest.mark.parametrize("dataset", SCALES["paper"].datasets)
def test_the_committed_search_is_that_of_the_plan_and_chooses_what_was_chosen(dataset, tmp_path, monkeypatch):
    "Every head had as many trials; nothing is left to fit, and the choice of each follows from the rows"
    shutil.copy(RESULTS / "trials.csv", tmp_path)
    rows = Store(tmp_path / "trials.csv", SEARCH).rows()
    first = rows[(rows["dataset"] == dataset) & (rows["seed"] == 100)]
    heads, budget = list(dict.fromkeys(first["head"])), first.groupby("head").size().min()
    width = first.loc[first["head"] == "mahalanobis", "parameters"].max() ** 0.5  # whose square it has
    monkeypatch.setattr(Task, "open", lambda *_, **__: SimpleNamespace(dim=round(width)))
    for name in "make_head", "useful_axes", "widened":  # each is asked the same for every trial of a head
        monkeypatch.setattr(trials, name, cache(getattr(trials, name)))
    monkeypatch.setattr(runner, "finished", lambda _, tasks, *__: pytest.fail(f"{len(tasks)} rows are not there"))
    table = fair_search(dataset, tmp_path / "trials.csv", tmp_path / "chosen.json", heads, budget, progress=False)
    assert len(heads) >= 22 and set(table["trials"]) == {budget} and budget >= 8
    again, there = (json.loads((path / "chosen.json").read_text())[dataset] for path in (tmp_path, RESULTS))
    for head in heads:
        assert [again[head][name] for name in ("train", "options")] == [
            there[head][name] for name in ("train", "options")], head
        assert again[head]["score"] == pytest.approx(there[head]["score"], abs=1e-12)
