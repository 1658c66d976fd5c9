"An account of a pair adds up, to the last digits; closed forms; the measures; the command that can be stopped"
import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

from rolebregman import theory as bregman
from rolebregman.baselines import HEADS, make_head
from rolebregman.datasets import toy_tree
from rolebregman.heads import BregmanHead
from rolebregman.icnn import ICNN
from rolebregman.interpretability import (
    explain,
    extreme_pairs,
    gap_parts,
    items_along,
    layer_terms,
    level_figure,
    role_directions,
    secant_hessian,
    spectrum_figure,
)
from rolebregman.study import (
    ASYMMETRIC_HEADS,
    CASE_WORDS,
    GAP_COLUMNS,
    GAP_DATASETS,
    GAP_PERCENTILES,
    PAPER_CASE,
    PAPER_GAPS,
    GapTask,
    Store,
    Task,
    case_table,
    direction_table,
    fit_and_evaluate,
    gap_conclusions,
    gap_figure,
    gap_rows,
    gap_tasks,
    gaps,
    gaps_beside_paper,
    measure_gaps,
    open_dataset,
    run_gaps,
)

FAST = dict(batch_size=64, lr=1e-2, epochs=1)
BREGMAN = [name for name, entry in HEADS.items() if issubclass(entry.head, BregmanHead)]


@pytest.fixture(scope="module")
def tree():
    return toy_tree(seed=0)


@pytest.fixture(scope="module")
def head(tree):
    return Task("toy", "role_bregman", 0, train=FAST).trained(tree)


def points(*shape): return torch.randn(2, *shape, dtype=torch.float64)


@pytest.mark.parametrize("activation", ["squareplus", "softplus"])
@pytest.mark.parametrize("hidden", [(6,), (7, 5), (4, 8, 3)])
@pytest.mark.parametrize("size", [1e-6, 1e-2, 1.0, 30.0])
def test_parts_by_layer_and_the_secant_hessian_give_the_divergence(activation, hidden, size):
    potential = ICNN(5, hidden, activation=activation).double()
    d, v = points(50, 5)
    d = d * size
    u = v + d
    d = u - v
    exact = potential.divergence(u, v)
    terms = layer_terms(potential, u, v)
    assert [term.shape for term in terms] == [(50, n) for n in hidden] and min(term.min() for term in terms) >= 0
    total = sum(term.sum(-1) for term in terms) + potential.strong_convexity / 2 * d.square().sum(-1)
    torch.testing.assert_close(total, exact, rtol=1e-12, atol=0)
    matrix = secant_hessian(potential, u, v)
    torch.testing.assert_close(torch.einsum("ni,nij,nj->n", d, matrix, d) / 2, exact, rtol=1e-12, atol=0)
    assert torch.linalg.eigvalsh(matrix).min() >= potential.strong_convexity - 1e-12


@pytest.mark.parametrize("activation", ["squareplus", "softplus"])
def test_the_secant_hessian_becomes_the_hessian_of_autograd(activation):
    potential = ICNN(4, (6, 5), activation=activation).double()
    v = points(20, 4)[0]
    exact = bregman.hessian(potential, v)
    torch.testing.assert_close(secant_hessian(potential, v, v), exact, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(secant_hessian(potential, v + 1e-7, v), exact, rtol=1e-5, atol=1e-6)


def test_it_is_the_mean_hessian_on_the_way_where_there_is_one_layer():
    "D(u, v) is the integral of (1 - r) d' H(v + r d) d; with one layer no other matrix gives it for that unit"
    potential = ICNN(3, (4,)).double()
    u, v = points(3)
    at, weight = np.polynomial.legendre.leggauss(60)
    r = torch.tensor((at + 1) / 2)
    mean = (torch.tensor(weight)[:, None, None] * (1 - r)[:, None, None] * potential.hessian(v + r[:, None] * (u - v)))
    torch.testing.assert_close(secant_hessian(potential, u, v), mean.sum(0), rtol=1e-9, atol=1e-10)


class Quadratic(ICNN):
    "The potential 1/2 lambda ||u||^2 alone: the network's output weights are zero"

    def _weights(self):
        layers, out = super()._weights()
        return layers, out * 0


def test_a_quadratic_potential_worked_by_hand():
    "With phi = ||u||^2, P_s = I and P_t = diag(2, 1): D(x, y) = ||P_s x - P_t y||^2"
    head = BregmanHead(2, strong_convexity=2.0)
    head.potential = Quadratic(2, (3,), 2.0)
    with torch.no_grad(): head.maps["target"].start.copy_(torch.tensor([[2.0, 0.0], [0.0, 1.0]]))
    found = explain(head, [3.0, 1.0], [1.0, -1.0], ("a", "b"))
    assert (found.forward, found.reverse, found.gap) == (1 + 4, 25 + 4, -24)  # (1, 2) and (-5, -2)
    assert found.table.loc["layer 1"].tolist() == [0, 0, 0]
    assert found.table.loc["strong convexity"].tolist() == found.table.loc["local quadratic"].tolist() == [5, 29, -24]
    assert found.eigenvalues.tolist() == [2, 2] and found.directions["contribution"].tolist() == [4, 1]
    assert found.directions["share"].tolist() == [0.8, 0.2] and found.directions["step"].abs().tolist() == [2, 1]
    assert repr(found).startswith("a -> b: 5 forward, 29 reverse, gap -24\nlargest part: strong convexity (5)")
    values, vectors = role_directions(head)
    assert values.tolist() == [1, 0] and vectors[0].abs().tolist() == [1, 0]


@pytest.mark.parametrize("name", BREGMAN)
def test_every_bregman_head_is_explained(name):
    head = make_head(name, dim=6)
    with torch.no_grad():
        for parameter in head.parameters(): parameter.add_(0.1 * torch.randn_like(parameter))
    x, y = torch.randn(2, 6)
    found = explain(head, x.numpy(), y)
    parts = found.table.iloc[1:-1].sum()
    torch.testing.assert_close(torch.tensor(parts.to_numpy()), torch.tensor(found.table.iloc[0].to_numpy()),
                               rtol=1e-11, atol=1e-13)
    assert found.directions["contribution"].sum() == pytest.approx(found.forward, rel=1e-12)
    assert found.forward == pytest.approx(head(x, y).item(), rel=1e-4)
    assert found.gap == pytest.approx(head.gap(x, y).item(), abs=1e-4)
    v = head.double().encode_target(y.double())
    hessian = bregman.hessian(head.potential, v)
    np.testing.assert_allclose(found.eigenvalues, torch.linalg.eigvalsh(hessian).flip(0).detach(), rtol=1e-10)
    assert found.table.loc["local quadratic", "forward"] == pytest.approx(
        ((d := head.encode_source(x.double()) - v) @ hessian @ d / 2).item(), rel=1e-10)


def test_an_explanation_leaves_the_head_as_it_was(head, tree):
    before = {name: value.clone() for name, value in head.state_dict().items()}
    head.train()
    explain(head, *tree.features[:2])
    assert head.training and next(head.parameters()).dtype == torch.float32
    assert all(torch.equal(value, before[name]) for name, value in head.state_dict().items())
    head.eval()


@pytest.mark.parametrize("name", sorted(set(HEADS) - set(BREGMAN)))
def test_other_heads_are_refused_by_name(name):
    other = make_head(name, dim=4)
    for ask in (lambda: explain(other, torch.ones(4), torch.ones(4)), lambda: role_directions(other),
                lambda: gap_parts(other, torch.ones(2, 4), torch.ones(2, 4))):
        with pytest.raises(TypeError, match=f"BregmanHead.*found {type(other).__name__}"): ask()


@pytest.mark.parametrize("x, y, message", [
    (np.ones(3), np.ones(4), r"x: expected one embedding of shape \(4,\), found \(3,\)"),
    (np.ones(4), np.ones((1, 4)), r"y: expected one embedding of shape \(4,\), found \(1, 4\)"),
    ("item 1", np.ones(4), "x: expected one embedding of 4 numbers, found 'item 1'"),
    (np.ones(4), None, "y: expected one embedding of 4 numbers, found None"),
    (np.array([1, np.inf, 1, 1]), np.ones(4), "x: entry 1 is inf, expected finite numbers"),
    (np.ones(4), np.array([1, 1, 1, np.nan]), "y: entry 3 is nan, expected finite numbers")])
def test_bad_items_are_refused(x, y, message):
    with pytest.raises(ValueError, match=message): explain(make_head("role_bregman", dim=4), x, y)


@pytest.mark.parametrize("names", [("a",), "ab", ("a", "b", "c")])
def test_two_names_are_expected(names):
    with pytest.raises(ValueError, match="names: expected two, found"):
        explain(make_head("role_bregman", dim=4), np.ones(4), np.zeros(4), names)


def test_parts_of_the_gap_want_as_many_sources_as_targets():
    with pytest.raises(ValueError, match="x holds 3 sources and y 2 targets; expected as many"):
        gap_parts(make_head("role_bregman", dim=4), torch.ones(3, 4), torch.ones(2, 4))


def test_one_item_twice_without_maps_is_at_distance_zero():
    found = explain(make_head("icnn_bregman", dim=3), np.ones(3), np.ones(3))
    assert (found.table == 0).all(axis=None) and (found.directions["share"] == 0).all()
    assert "0 forward" in repr(found) and found.plot().axes


@pytest.mark.parametrize("name", BREGMAN)
def test_items_and_pair_sum_to_the_gap(name):
    head = make_head(name, dim=5).double()
    with torch.no_grad():
        for parameter in head.parameters(): parameter.add_(0.1 * torch.randn_like(parameter))
    x, y = points(40, 5)
    items, pair = gap_parts(head, x, y)
    torch.testing.assert_close(items + pair, head.gap(x, y).detach(), rtol=1e-9, atol=1e-10)
    triangle = gap_parts(head, torch.stack([x[0], x[1], x[2]]), torch.stack([x[1], x[2], x[0]]))[0]
    assert triangle.sum().abs() < 1e-10  # what is a number of each item sums to zero around a circle


def test_a_quadratic_head_without_maps_has_neither_gap_nor_parts():
    head = make_head("icnn_bregman", dim=3)
    head.potential = Quadratic(3, (2,), 1.0)
    for part in gap_parts(head, *points(10, 3)): assert part.abs().max() < 1e-12


def test_extreme_pairs_are_the_ends_of_the_gaps(head, tree):
    found = extreme_pairs(head, tree, 5)
    x, y = tree.features[tree.edges["test"].T]
    gap = np.sort((head.score(x, y).double() - head.score(y, x).double()).numpy())
    np.testing.assert_array_equal(found.loc["strongest", "gap"], gap[:5])
    np.testing.assert_array_equal(found.loc["most wrong", "gap"], gap[::-1][:5])
    assert len(extreme_pairs(head, tree, 10**6)) <= len(gap)
    bare = replace(tree, nodes=tree.nodes[["id"]])  # without texts, ids name the items
    assert set(extreme_pairs(head, bare, 5)["source"]) <= set(bare.nodes["id"])
    assert items_along(head, bare, 1, 1)["high"].isin(bare.nodes["id"]).all()


def test_role_directions_of_known_maps():
    head = BregmanHead(4)
    with torch.no_grad(): head.maps["source"].start.add_(torch.diag(torch.tensor([0.0, 3.0, 0.0, 1.0])))
    values, vectors = role_directions(head)
    torch.testing.assert_close(values, torch.tensor([3.0, 1, 0, 0], dtype=torch.float64))
    torch.testing.assert_close(vectors[:2].abs(), torch.eye(4, dtype=torch.float64)[[1, 3]])
    for plain in (BregmanHead(4, roles="none"), BregmanHead(4, roles="shared")):
        assert role_directions(plain)[0].max() == 0


def test_items_along_stand_in_order(head, tree):
    found = items_along(head, tree, directions=3, number=2, rows=np.arange(10))
    assert len(found) == 3 and (found["rising"] >= 0.4).all() and (found["singular"].diff().dropna() <= 0).all()
    along = head.standardized(tree.features).double() @ role_directions(head)[1][0]
    top = tree.nodes["text"][along[:10].argsort()[[0, -1]].tolist()]
    assert {found["low"][0].split(", ")[0], found["high"][0].split(", ")[0]} == set(top)


def test_pictures(head, tree):
    flat = make_head("role_bregman", dim=tree.dim, proj_dim=2, hidden=[8])
    assert len(level_figure(flat, tree, tree.edges["test"][0]).axes) == 3
    with pytest.raises(ValueError, match=f"two dimensions.*has {tree.dim}"): level_figure(head, tree, (0, 1))
    assert len(spectrum_figure({"a": (head, tree.features[:5]), "b": (flat, tree.features[:5])}).axes[0].lines) == 3


@pytest.mark.parametrize("name", ASYMMETRIC_HEADS)
def test_every_asymmetric_head_is_measured(name, tree):
    head = make_head(name, dim=tree.dim)
    found = measure_gaps(head, tree)
    assert set(found) <= set(GAP_COLUMNS) and all(np.isfinite(value) for value in found.values())
    gaps = [found[name] for name in GAP_PERCENTILES]
    assert gaps == sorted(gaps) and ("hessian_trace" in found) == isinstance(head, BregmanHead)
    if name in BREGMAN:
        assert 0.1 <= found["least_eigenvalue"] <= found["top_eigenvalue"] < found["hessian_trace"]
        assert 0 < found["convexity_share"] < 1
    if name == "icnn_bregman": assert found["direction_frozen"] == 0.5  # proposition 3


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    "Rows of two seeds and three heads on the toy tree, written by the command"
    folder = tmp_path_factory.mktemp("rows")
    chosen = {"toy": {head: dict(train=FAST | dict(direction_margin=2.0)) for head in ASYMMETRIC_HEADS}}
    (folder / "chosen.json").write_text(json.dumps(chosen))
    how = dict(datasets="toy", heads="role_bregman,icnn_bregman,order", seeds=2, scale="quick",
               chosen=str(folder / "chosen.json"), out=str(folder / "rows.csv"))
    run_gaps(**how)
    return how


def test_the_command_goes_on_where_it_was_stopped(written, capsys):
    path = written["out"]
    whole = open(path, "rb").read()
    assert len(Store(path, GAP_COLUMNS).rows()) == 5  # the two heads of the table twice
    with open(path, "r+b") as file: file.truncate(len(whole) - 40)  # killed while the last row was written
    run_gaps(**written)
    assert "5 fits, 4 of them done before" in capsys.readouterr().out
    rows, before = Store(path, GAP_COLUMNS).rows(), whole.decode().splitlines()
    assert open(path).read().splitlines()[:5] == before[:5] and len(rows) == 5 and (rows["error"] == "").all()
    run_gaps(**written)
    assert "5 of them done before" in capsys.readouterr().out


def test_its_rows_are_those_of_the_main_study(written, tree):
    rows = gap_rows(written["out"])
    one = rows[rows["head"] == "role_bregman"].iloc[0]
    task = gap_tasks(["toy"], 1, written["chosen"], "quick", heads=["role_bregman"])[0]
    same = fit_and_evaluate(task)
    for name in ("config", "gap_mean", "mrr", "forward_preferred_rate"): assert one[name] == same[name]
    assert one["margin"] == 2 and one["hessian_trace"] == measure_gaps(task.trained(tree), tree)["hessian_trace"]


def test_a_failure_is_a_row(tmp_path, monkeypatch):
    monkeypatch.setattr(gaps, "measure_gaps", lambda *_: 1 / 0)
    row = fit_and_evaluate(GapTask("toy", "role_bregman", 0, train=FAST))
    assert row["error"] == "ZeroDivisionError: division by zero"


@pytest.mark.parametrize("name", ["heads", "datasets"])
def test_unknown_names_are_refused(name):
    with pytest.raises(SystemExit, match=f"unknown {name[:-1]} euclid; expected some of"): run_gaps(**{name: "euclid"})


def study_rows(written):
    "The toy's rows under the names of the study's datasets"
    rows = gap_rows(written["out"])
    extra = dict(rho_distance=0.3, rho_gap=0.4, rho_gap_positive=0.1, case_forward=1.0, case_reverse=2.0)
    return pd.concat([rows.assign(dataset=name, **(extra if name.startswith("hyper") else {}))
                      for name in GAP_DATASETS], ignore_index=True)


def test_tables_and_sentences_from_rows_whole_or_partial(written, tmp_path):
    rows = study_rows(written)
    assert len(gaps_beside_paper(rows)) == len(PAPER_GAPS) and len(direction_table(rows)) == 6 and len(case_table(rows)) == 3
    assert set(gap_conclusions(rows)) >= {"Validity", "Hessian trace", "The annotators", "Celery and food"}
    assert len(gap_figure(rows).axes) == 3
    for some in (rows[rows["dataset"] == "wordnet"], rows[rows["head"] == "role_bregman"], rows.iloc[:1],
                 gap_rows(tmp_path / "none.csv")):
        assert all(gap_conclusions(some).values())
        gaps_beside_paper(some), direction_table(some), case_table(some), gap_figure(some)


def test_the_papers_figures_are_the_papers():
    assert PAPER_GAPS.query("head == 'role_bregman'")["hessian_trace"].tolist() == [42.1213, 94.7032, 83.0153]
    assert PAPER_CASE["case_forward"] - PAPER_CASE["case_reverse"] == pytest.approx(-1.77)


def test_celery_and_food(real):
    real("hyperlex"), real("glove-6b-50d-subset")
    ds = open_dataset("hyperlex/random", 0, "paper", quiet=True)
    found = measure_gaps(head := Task("hyperlex/random", "role_bregman", 0, "paper", dict(epochs=2)).trained(ds), ds)
    rows = [int(np.flatnonzero(ds.nodes["id"] == word)[0]) for word in CASE_WORDS]
    why = explain(head, *ds.features[rows])
    assert (found["case_forward"], found["case_reverse"]) == pytest.approx((why.forward, why.reverse), rel=1e-4)
    assert -1 <= found["rho_gap_positive"] <= 1 and found["rho_gap"] > 0
