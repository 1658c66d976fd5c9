"Fits on citation graphs: the protocol of OGB, tasks that open their graphs, settings, forms and rows"
import json
import pickle
import subprocess
import sys

import numpy as np
import pytest
import torch

from rolebregman.baselines import make_head
from rolebregman.datasets import OGBDataset, load_ogb, toy_tree, write_synthetic_ogb
from rolebregman.evaluation import evaluate
from rolebregman.study import (
    CITATION_COLUMNS,
    CITATION_DATASETS,
    CITATION_NAMES,
    NEIGHBOUR_FORMS,
    CitationTask,
    Store,
    averaged_features,
    choose_citation_settings,
    citation_findings,
    citation_fits,
    citation_tasks,
    citation_verdict,
    compare_neighbour_forms,
    evaluate_ogb,
    neighbour_forms_table,
    neighbour_gains,
    neighbour_gains_figure,
    ogb_evaluator,
    open_citations,
    protocol_metrics,
    run_citations,
    run_grid,
    runner,
)


def test_the_protocol_is_among_all_candidates_unless_ogb_has_one():
    tree = toy_tree(depth=3)
    torch.manual_seed(0)
    head = make_head("euclidean", dim=tree.dim)
    found, everything = protocol_metrics(head, tree, "valid"), evaluate(head, tree, "valid", candidates="all")
    assert {f"protocol_{name}": everything[name] for name in ("mrr", "hits@1", "hits@3", "hits@10")} == found


@pytest.fixture
def made_up(tmp_path, monkeypatch):
    "A benchmark in OGB's layout"
    monkeypatch.setenv("ROLEBREGMAN_CACHE", str(tmp_path / "cache"))
    write_synthetic_ogb(tmp_path, papers=3000, citations=30_000, held=150, negatives=100, dim=16, quiet=True)
    return load_ogb(root=tmp_path, quiet=True)


@pytest.mark.parametrize("name", ["euclidean", "role_bregman", "mlp"])
def test_the_evaluation_of_a_few_edges_is_that_of_the_first_ones(made_up, name):
    pytest.importorskip("ogb", reason="ogb is not installed: pip install rolebregman[graph]")
    ds, head = made_up, make_head(name, dim=16)
    found, (s, t) = evaluate_ogb(head, ds, limit=20), ds.edges["test"][:20].T
    x = torch.from_numpy(np.array(ds.features))
    others = torch.from_numpy(np.array(ds.negatives["test"][:20])).long()
    with torch.no_grad(): near, far = head(x[s], x[t])[:, None], head(x[s][:, None], x[others])
    assert found["mrr"] == pytest.approx((1 / (1 + ((far < near).sum(1) + (far <= near).sum(1)) / 2)).mean().item())


@pytest.mark.parametrize("head", ["euclidean", "bilinear", "role_bregman"])
@pytest.mark.parametrize("split", ["valid", "test"])
def test_ogbs_evaluator_agrees_with_ranks_by_hand(made_up, head, split):
    pytest.importorskip("ogb", reason="ogb is not installed: pip install rolebregman[graph]")
    ds, head = made_up, make_head(head, dim=16)
    head.fit_standardizer(np.array(ds.features))
    found = [evaluate_ogb(head, ds, split, batch=b, block=k) for b, k in ((64, 65536), (7, 13))]
    x, (s, t) = torch.from_numpy(np.array(ds.features)), ds.edges[split].T
    with torch.no_grad():
        true, false = head(x[s], x[t])[:, None], head(x[s][:, None], x[ds.negatives[split]])
    rank = 1 + ((false < true).sum(1) + (false <= true).sum(1)) / 2
    expected = {f"hits@{k}": (rank <= k).double().mean().item() for k in (1, 3, 10)} | {"mrr": (1 / rank).mean().item()}
    for some in found:
        assert some.keys() == expected.keys() and some == pytest.approx(expected, abs=1e-6)


def test_scores_that_are_no_numbers_and_other_splits_are_refused(made_up):
    pytest.importorskip("ogb", reason="ogb is not installed: pip install rolebregman[graph]")
    ds, head = made_up, make_head("euclidean", dim=16)
    with pytest.raises(ValueError, match="split = 'train': official negatives are there for valid, test"):
        evaluate_ogb(head, ds, "train")
    head.compare = lambda u, v: torch.full(torch.broadcast_shapes(u.shape, v.shape)[:-1], float("nan"))
    with pytest.raises(ValueError, match="edges 0 to 63 of test: Euclidean gives a distance that is not"):
        evaluate_ogb(head, ds)


def test_without_ogb_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "ogb.linkproppred", None)
    with pytest.raises(ImportError, match=r"pip install rolebregman\[graph\]"):
        ogb_evaluator()


def test_ogb_goes_through_the_same_code(tmp_path, monkeypatch):
    pytest.importorskip("ogb", reason="ogb is not installed")
    monkeypatch.chdir(tmp_path)
    write_synthetic_ogb("dataset", papers=2000, citations=9000, held=60, negatives=20, dim=8, quiet=True)
    ds = open_citations("ogbl-citation2+2hop", 0, "paper", quiet=True)
    assert isinstance(ds, OGBDataset) and isinstance(ds.features, np.memmap) and ds.dim == 24
    assert len(ds.edges["train"]) == 5000
    torch.manual_seed(0)
    head = make_head("cosine", dim=ds.dim)
    official = evaluate_ogb(head, ds, "test")
    assert protocol_metrics(head, ds) == {f"protocol_{name}": value for name, value in official.items()}


def test_the_graph_is_larger_than_what_is_trained_on(tmp_path, monkeypatch):
    "At most 5,000 pairs are trained on, and the neighbours come from all training pairs"
    tree = toy_tree(depth=4)
    whole, less = averaged_features(tree), averaged_features(tree).limit(50)
    assert np.array_equal(whole.features, less.features) and len(less.edges["train"]) == 50
    assert not np.array_equal(averaged_features(tree.limit(50)).features, whole.features)


def test_a_worker_that_gets_a_task_can_open_its_dataset():
    "In a process that has imported nothing yet"
    ask = ("import pickle, sys; task = pickle.load(sys.stdin.buffer); "
           "from rolebregman.study.runner import DATASETS; print(task.dataset in DATASETS, type(task).open.__module__)")
    task = CitationTask("cora+2hop", "cosine", 0, "paper")
    done = subprocess.run([sys.executable, "-c", ask], input=pickle.dumps(task), capture_output=True)
    assert done.stdout.split() == [b"False", b"rolebregman.study.citation_fits"], done.stderr


def test_a_task_opens_citation_graphs_and_what_the_study_knows():
    assert CitationTask("toy", "cosine", 3, "paper").open().seed == 3
    with pytest.raises(ValueError, match="the study knows"): CitationTask("corra", "cosine", 0, "paper").open()
    assert set(CITATION_DATASETS) < set(CITATION_NAMES)


@pytest.fixture
def short(monkeypatch):
    "Toy data in place of the graphs, and one epoch"
    def open_toy(name, seed, scale="paper", quiet=False):
        assert name in CITATION_NAMES
        return toy_tree(depth=3, seed=seed).limit(100, valid=20)
    monkeypatch.setattr(citation_fits, "open_citations", open_toy)
    monkeypatch.setitem(runner.SCALES, "paper", runner.Scale((), 1, 100, dict(epochs=1)))


def test_settings_are_the_best_of_equal_trials(short, tmp_path):
    chosen = tmp_path / "chosen.json"
    chosen.write_text(json.dumps(dict(go=dict(mlp=dict(train=dict(lr=1.0), options={})))))
    scores = choose_citation_settings(tmp_path / "rows.csv", chosen, ["euclidean", "mlp"], progress=False)
    rows = Store(tmp_path / "rows.csv", CITATION_COLUMNS).rows()
    assert rows.groupby("head").size().to_dict() == dict(euclidean=6, mlp=6)
    means = rows.set_index("settings")[["ranking_accuracy", "direction_accuracy"]].mean(axis=1)
    kept = json.loads(chosen.read_text())
    assert kept["go"]["mlp"]["train"] == dict(lr=1.0) # what others chose stays
    assert set(kept["cora"]) == {"euclidean", "mlp"}
    best = means[json.dumps(kept["cora"]["mlp"]["train"])]
    assert scores["mlp"] in np.atleast_1d(best) and scores["mlp"] == means[(rows["head"] == "mlp").to_numpy()].max()
    tasks = citation_tasks(chosen, ["citeseer+2hop"], ["mlp", "iqe"], range(2))
    assert [task.train for task in tasks] == [kept["cora"]["mlp"]["train"], {}] * 2


def test_forms_are_compared_on_validation(short, tmp_path):
    rows = compare_neighbour_forms(tmp_path / "rows.csv", tmp_path / "none.json", progress=False)
    table = neighbour_forms_table(rows)
    assert list(table.index) == ["cora", *(f"cora{form}" for form in NEIGHBOUR_FORMS)] and len(rows) == 6 * 6 * 3
    assert table.nunique().le(1).all() # the same data here


def test_the_command_goes_on_where_it_stopped(short, tmp_path, capsys):
    how = dict(heads=["cosine", "icnn_bregman", "role_bregman", "direction_prior"], jobs=1, out=str(tmp_path))
    run_citations(datasets=["cora", "cora+2hop"], seeds=1, **how)
    first = (tmp_path / "citation.csv").read_bytes()
    run_citations(datasets=["cora", "cora+2hop"], seeds=2, **how)
    assert (tmp_path / "citation.csv").read_bytes().startswith(first)
    rows = Store(tmp_path / "citation.csv", CITATION_COLUMNS).rows()
    assert len(rows) == 16 and (rows["error"] == "").all()
    assert "16 rows, 0 of them failed" in capsys.readouterr().out
    table = neighbour_gains(rows, "ranking_accuracy")
    assert len(table) == 4 and (table["gain"] == 0).all() # the same data here
    assert len(citation_findings(rows)) >= 4 and len(citation_verdict(rows)) == 4
    neighbour_gains_figure(rows).savefig(tmp_path / "figure.png")


def test_rows_hold_the_protocol(short, tmp_path):
    row = run_grid(citation_tasks(tmp_path / "none.json", ["cora"], ["cosine"], [0]),
                   Store(tmp_path / "rows.csv", CITATION_COLUMNS), progress=False).iloc[0]
    ds = citation_fits.open_citations("cora", 0, "paper")
    head = make_head("cosine", dim=ds.dim)
    head.fit_standardizer(ds.features, np.unique(ds.edges["train"]))
    assert row["protocol_mrr"] == pytest.approx(evaluate(head, ds, candidates="all")["mrr"], abs=1e-9)


@pytest.mark.parametrize("argument", [dict(datasets=["corra"]), dict(heads=["cosin"])])
def test_the_command_says_what_it_does_not_know(argument, tmp_path):
    with pytest.raises(ValueError, match="unknown .* expected some of: .*cos|cora"):
        run_citations(out=str(tmp_path), **argument)
