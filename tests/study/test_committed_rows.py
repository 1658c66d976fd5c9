"Rows in results/ that no other test holds against the plan that today's code makes: the same keys, the same hashes"
import shutil
from pathlib import Path

import pandas as pd
import pytest

from rolebregman.study import (
    CITATION_COLUMNS,
    FORM_JUDGES,
    GRID,
    NEIGHBOUR_FORMS,
    SCALES,
    SEARCH,
    CitationTask,
    Store,
    Task,
    chosen_settings,
    citation_tasks,
    joint_training,
    run_joint,
    trial_settings,
)

results = Path(__file__).resolve().parents[2] / "results"
CHOSEN = results / "chosen.json"
BEFORE = results / "archive" / "chosen.json"  # of the search before the fair one
FITTED = list(dict.fromkeys(pd.read_csv(results / "archive" / "main.csv")["head"]))  # a head more has come since
pytestmark = pytest.mark.usefixtures("first_revision")


def keys_of(name, columns):
    return Store(results / f"{name}.csv", columns).keys(failed=False)


def test_search_before_the_fair_one():
    "Every head had twelve trials, the grid first, and what was chosen is one of them"
    keys = keys_of("archive/search", SEARCH)
    fits = [(name, head) for name in SCALES["paper"].datasets for head in FITTED]
    first = {Task(name, head, 100, "paper", split="valid", **settings).key for head in FITTED for trial in GRID
             for settings in [trial_settings(head, trial, 64)] for name in SCALES["paper"].datasets}
    chosen = {Task(name, head, 100, "paper", split="valid", **chosen_settings(BEFORE, name, head)).key
              for name, head in fits}
    assert first | chosen <= keys and len(keys) == 12 * len(fits)


def test_citations():
    names = pd.read_csv(results / "citation.csv")["dataset"].unique().tolist()
    assert keys_of("citation", CITATION_COLUMNS) == {task.key for task in citation_tasks(CHOSEN, names, FITTED)}


def test_search_on_citations():
    trials = {CitationTask("cora", head, 100, "paper", split="valid", **trial_settings(head, trial, 1433)).key
              for head in FITTED for trial in GRID}
    forms = citation_tasks(CHOSEN, [f"cora{form}" for form in ("", *NEIGHBOUR_FORMS)], FORM_JUDGES,
                           range(100, 103), "valid")
    assert keys_of("citation_search", CITATION_COLUMNS) == trials | {task.key for task in forms}


@pytest.mark.parametrize("name, how", [
    ("joint", {}), ("joint_search", dict(seeds=(100,), edges=(1000, 400, 10), epochs=2, split="valid"))])
def test_joint_training_has_nothing_left_to_do(name, how, tmp_path, monkeypatch):
    copy = Path(shutil.copy(results / f"{name}.csv", tmp_path))
    monkeypatch.setattr(joint_training, "open_dataset", lambda *_, **__: pytest.fail("a row is not there"))
    rates = [dict(encoder_lr=2e-4, head_lr=2e-4)] if name == "joint" else [
        dict(zip(("encoder_lr", "head_lr"), map(float, config.split()[-4:-2])))
        for config in pd.read_csv(copy)["config"].unique()]
    for each in rates: run_joint(copy, **how, **each)
    assert copy.read_bytes() == (results / f"{name}.csv").read_bytes()
