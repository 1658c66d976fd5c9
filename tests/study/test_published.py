"""Figures beside those of others: average precision, direction and F1 by other code; what is left out of training."""
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.metrics import average_precision_score, f1_score

from rolebregman.baselines import make_head
from rolebregman.datasets import HYPERNYMY_SETS, WordVectors, toy_tree
from rolebregman.study import (
    COLUMNS,
    PUBLISHED,
    Store,
    beside_others,
    best_f1,
    corrupted_pairs,
    others_figures,
    published,
    published_tasks,
)
from rolebregman.study.published import Cones, Detection, detection_metrics, run_published

results = Path(__file__).resolve().parents[2] / "results"


@pytest.fixture
def words():
    chance = np.random.default_rng(0)
    names = [f"w{i}" for i in range(40)]
    vectors = WordVectors(names, chance.normal(size=(40, 6)).astype(np.float32), "made up")
    pairs = chance.choice([*names, "unknown"], size=(300, 2))
    rows = pd.DataFrame(dict(word1=pairs[:, 0], word2=pairs[:, 1], holds=chance.random(300) < 0.3,
                             part=chance.choice(["valid", "test"], size=300)))
    return rows, vectors


def test_of_a_set_every_figure_is_what_a_loop_over_its_rows_gives(words):
    rows, vectors = words
    torch.manual_seed(0)
    head = make_head("role_bregman", 6, init="independent").double().eval()
    found, place = detection_metrics(rows, head, vectors), dict(zip(vectors.words, vectors.vectors))

    def distance(a, b):
        with torch.no_grad():
            return head(*(torch.tensor(place[word], dtype=torch.float64)[None] for word in (a, b))).item()

    pairs = [(a, b, holds, part) for a, b, holds, part in rows.itertuples(index=False)]
    there = {(a, b): -distance(a, b) for a, b, *_ in pairs if a in place and b in place}
    low = min(there.values())
    test = [(holds, there.get((a, b), low), (a, b) in there) for a, b, holds, part in pairs if part == "test"]
    labels, scores, known = map(np.array, zip(*test))
    assert found["ap"] == pytest.approx(average_precision_score(labels, scores))
    assert found["ap_covered"] == pytest.approx(average_precision_score(labels[known], scores[known]))
    true = {(a, b) for a, b, holds, part in pairs if holds and part == "test" and (a, b) in there and a != b}
    itself = {(a, b) for a, b, holds, part in pairs if holds and part == "test" and (a, b) in there and a == b}
    won = sum(there[pair] > -distance(*pair[::-1]) for pair in true) + 0.5 * len(itself)
    assert found["pair_direction"] == pytest.approx(won / (len(true) + len(itself)))
    assert found["covered"] == pytest.approx(known.mean()) and 0 < known.mean() < 1


def test_f1_is_that_of_the_threshold_that_is_best_on_validation():
    chance = np.random.default_rng(1)
    valid, test = ((chance.gamma(2, size=50), chance.gamma(3, size=60)) for _ in range(2))
    labels = np.repeat([1, 0], [50, 60])
    most = max(np.concatenate(valid), key=lambda t: f1_score(labels, np.concatenate(valid) <= t))
    assert best_f1(valid, test) == pytest.approx(f1_score(labels, np.concatenate(test) <= most))


def test_a_corrupted_pair_keeps_one_end_and_never_holds():
    ds = toy_tree(depth=4, branching=3, dim=4)
    edges, found = ds.edges["test"], corrupted_pairs(ds, "test").numpy()
    assert found.shape == (len(edges), 10, 2)
    assert (found[:, :5, 0] == edges[:, :1]).all() and (found[:, 5:, 1] == edges[:, 1:]).all()
    holding = {tuple(pair) for pair in ds.holding.tolist()}
    assert not any(tuple(pair) in holding or pair[0] == pair[1] for pair in found.reshape(-1, 2).tolist())
    assert (corrupted_pairs(ds, "test").numpy() == found).all()


def test_no_word_that_is_asked_for_is_seen_in_training(monkeypatch):
    tree = toy_tree(depth=5, branching=3, dim=4)
    tree.nodes["text"] = [f"w{i}" for i in range(tree.num_nodes)]
    asked = pd.DataFrame(dict(word1=[f"w{i}" for i in range(100, 150)], word2="w0"))
    monkeypatch.setattr(published, "load_dataset", lambda *_, **__: tree)
    monkeypatch.setattr(published, "_set", lambda name: (asked, None))
    ds, gone = Detection("leds", "mlp", 0, "paper").open(), np.arange(100, 150)
    for edges in (*ds.edges.values(), ds.pool): assert len(edges) and not np.isin(edges, gone).any()
    assert tree.holding.tolist() == ds.holding.tolist()


def test_the_table_has_our_means_and_the_figures_of_the_same_questions():
    rows = pd.DataFrame(dict(dataset=["leds", "leds", "eval"], head="mlp", ap=[0.2, 0.4, 0.5], f1=np.nan, error=""))
    table = beside_others(rows)
    assert table.loc["mlp"].tolist() == pytest.approx([0.3, 0.5]) and list(table) == ["leds", "eval"]
    others = others_figures().set_index(["question", "method"])["value"]
    assert table.loc["cosine of word counts (Roller et al. 2018)", "eval"] == others["eval", "cosine of word counts"]


def test_every_fit_of_the_plan_is_another_one():
    tasks = published_tasks(2, chosen="nowhere.json")
    assert len({task.key for task in tasks}) == len(tasks) == 2 * (3 * 8 + 4 * 7)


def test_a_fit_is_measured_on_the_set_that_it_is_named_after(words, monkeypatch):
    rows, vectors = words
    monkeypatch.setattr(published, "_set", lambda name: (rows, vectors))
    head = make_head("role_bregman", 6)
    assert Detection("leds", "role_bregman", 0, "paper").measure(head, None) == detection_metrics(rows, head, vectors)


def test_by_the_protocol_of_cones_a_head_that_knows_the_tree_is_right(monkeypatch):
    "A distance of 0 for what holds and 1 for the rest, by a table: F1 is 1; turned round, no pair is found"
    ds = toy_tree(depth=4, branching=3, dim=4)
    holding = {tuple(pair) for pair in ds.holding.tolist()}

    def known(head, features, lists):
        return [torch.tensor([head * ((a, b) not in holding) for a, b in zip(*map(torch.Tensor.tolist, pair))])
                for pair in lists]

    monkeypatch.setattr(published, "score_lists", known)
    task = Cones("cones/10", "order", 0, "paper")
    assert task.measure(1.0, ds) == dict(f1=1.0) and task.measure(-1.0, ds)["f1"] < 0.2


def test_nothing_is_fitted_that_is_there(tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(published, "run_grid", lambda tasks, store, jobs, retry: asked.append((len(tasks), store.path)))
    run_published(1, 2, tmp_path)
    assert asked == [(3 * 8 + 4 * 7, tmp_path / "published.csv")]


def test_the_committed_rows_are_of_todays_plan():
    store = Store(results / "published.csv", [*COLUMNS, *PUBLISHED])
    seeds = store.rows()["seed"].nunique()
    assert store.keys(failed=False) == {task.key for task in published_tasks(seeds, results / "chosen.json")}
    assert set(HYPERNYMY_SETS) <= set(store.rows()["dataset"])
