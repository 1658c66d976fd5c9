"Several relations beside PyKEEN's models: ranks by hand, the best epoch, equal trials, and the rows that are there"
import json
from pathlib import Path

import pandas as pd
import pytest
import torch

from rolebregman.study import (
    RELATION_COLUMNS,
    RELATION_GRAPHS,
    RELATION_MODELS,
    RELATION_RATES,
    RelationFit,
    Store,
    chosen_rates,
    fit_relations,
    make_relation_model,
    relation_findings,
    relation_graph,
    relation_ranks,
    relation_table,
    relations,
    run_relations,
    train_relations,
)

results = Path(__file__).resolve().parents[2] / "results"
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def nations():
    pytest.importorskip("pykeen", reason="pykeen is not installed here: pip install 'rolebregman[kg]'")
    return relation_graph("nations")


@pytest.mark.parametrize("split", ["valid", "test"])
def test_ranks_by_hand(nations, split):
    "Filtered, ties in the middle, an entity among its own candidates; sources are asked for by the inverse relation"
    model = make_relation_model("bregman, diagonal maps", nations.training, seed=1).eval()
    asked = nations.validation if split == "valid" else nations.testing
    parts = [nations.training, nations.validation] + ([nations.testing] if split == "test" else [])
    known = {tuple(row) for part in parts for row in part.mapped_triples.tolist()}
    ranks = {"mrr_target": [], "mrr_source": []}
    with torch.inference_mode():
        for h, r, t in asked.mapped_triples.tolist():
            sides = [(model.score_t(torch.tensor([[h, 2 * r]]))[0], t, [(h, r, e) for e in range(14)]),
                     (model.score_t(torch.tensor([[t, 2 * r + 1]]))[0], h, [(e, r, t) for e in range(14)])]
            for name, (scores, own, triples) in zip(ranks, sides):
                out = torch.tensor([triple in known and e != own for e, triple in enumerate(triples)])
                scores = scores.masked_fill(out, -torch.inf)
                better, level = (scores > scores[own]).sum(), (scores == scores[own]).sum()
                ranks[name].append((better + (level + 1) / 2).item())
    found = relation_ranks(model, nations, split)
    for name, some in ranks.items(): assert found[name] == pytest.approx((1 / torch.tensor(some)).mean().item(), 1e-5)
    both = torch.tensor(ranks["mrr_target"] + ranks["mrr_source"])
    assert found["mrr"] == pytest.approx((1 / both).mean().item(), rel=1e-5)
    assert found["hits@1"] == pytest.approx((both <= 1).float().mean().item(), rel=1e-5)


def test_the_best_epoch_is_kept(nations, monkeypatch):
    values, states = iter([0.2, 0.5, 0.4]), []

    def ranks(model, *_):
        states.append({name: value.clone() for name, value in model.state_dict().items()})
        return dict(mrr=next(values))

    monkeypatch.setattr(relations, "relation_ranks", ranks)
    model = make_relation_model("distmult", nations.training)
    assert train_relations(model, nations, epochs=3, batch_size=256, lr=0.1, every=1) == 2
    assert all(torch.equal(value, states[1][name]) for name, value in model.state_dict().items())
    assert not torch.equal(next(iter(states[1].values())), next(iter(states[2].values())))


def test_equal_trials_for_all_and_a_stopped_run_goes_on(monkeypatch, tmp_path):
    made = []

    def fit(task):
        made.append(task)
        if len(made) == 9: raise KeyboardInterrupt
        good = {"transe": 0.03, "bregman, offsets": 0.1}[task.head]
        return dict(mrr=0.5 + (task.lr == good) / 4 + task.seed / 1000, seconds=1.0, parameters=3, epoch=5)

    monkeypatch.setattr(relations, "fit_relations", fit)
    asked = dict(out=tmp_path, graphs=["nations"], models=["transe", "bregman, offsets"])
    with pytest.raises(KeyboardInterrupt): run_relations(**asked)
    rows = run_relations(**asked)
    search = [task for task in made if task.split == "valid"]
    assert {(task.head, task.lr, task.seed) for task in search} == {
        (head, lr, 100) for head in asked["models"] for lr in RELATION_RATES} and len(search) == 6
    tested = {(task.head, task.lr, task.seed) for task in made if task.split == "test"}
    assert tested == {(*best, seed) for best in (("transe", 0.03), ("bregman, offsets", 0.1)) for seed in range(3)}
    assert len(rows) == 6 and len(made) == 6 + 6 + 1, "the one that was stopped is made again"
    run_relations(**asked)
    assert len(made) == 13 and set(rows["scale"]) == {"small"} and rows["versions"].str.contains("pykeen 1").all()
    with pytest.raises(ValueError, match="unknown model transx; expected some of: bregman, full maps"):
        run_relations(tmp_path, ["nations"], ["transx"])


def test_a_fit_is_a_row_and_the_same_again(monkeypatch, nations):
    monkeypatch.setitem(RELATION_GRAPHS, "nations", dict(epochs=5, batch_size=256))
    task = RelationFit("nations", "bregman, offsets", 3, 0.03)
    row, again = fit_relations(task), fit_relations(task)
    assert row["parameters"] == 14 * 32 + 110 * 2 * 32 + 32 * 32 + 32 + 32 and row["epoch"] == 5
    assert {name: value for name, value in row.items() if name != "seconds"} == {
        name: value for name, value in again.items() if name != "seconds"}
    assert set(row) <= set(RELATION_COLUMNS)


def test_tables_and_sentences():
    lines = [("a", 0, 0.5), ("a", 1, 0.7), ("b", 0, 0.9), ("b", 1, 0.9)]
    names = {"a": "bregman, full maps", "b": "mure"}
    rows = pd.DataFrame([{"dataset": "nations", "head": names[head], "seed": seed, "mrr": mrr, "mrr_target": mrr,
                          "mrr_source": mrr, "hits@1": 0.0, "hits@10": 1.0, "parameters": 1234.0, "seconds": 2.0}
                         for head, seed, mrr in lines])
    table = relation_table(rows)
    assert list(table.index) == [("nations", "mure"), ("nations", "bregman, full maps")]
    assert table["mrr"].tolist() == ["0.900 ± 0.000", "0.600 ± 0.141"] and table["parameters"].iloc[0] == "1,234"
    assert relation_findings(rows) == [
        "nations, 2 seeds: our best, bregman, full maps, reaches 0.600; the best of PyKEEN's, mure, 0.900 (-0.300). "
        "1 of 1 of PyKEEN's models are ahead of all of ours."]


def test_committed_rows_are_the_plan_of_today():
    "Every model had the same trials, and its seeds the step size that they chose"
    both = [(graph, model) for graph in RELATION_GRAPHS for model in RELATION_MODELS]
    search = Store(results / "relations_search.csv", RELATION_COLUMNS)
    trials = {RelationFit(*names, 100, lr, "valid").key for names in both for lr in RELATION_RATES}
    rates = chosen_rates(search.rows())
    assert search.keys() == trials
    store = Store(results / "relations.csv", RELATION_COLUMNS)
    assert store.keys() == {RelationFit(*names, seed, rates[names]).key for names in both for seed in range(3)}
    for row in store.rows().to_dict("records"):
        assert row["error"] == "" and 0 < row["mrr"] <= 1 and json.loads(row["settings"])["split"] == "test"
