"An account of a pair adds up, to the last digits; closed forms; pictures"
from dataclasses import replace

import numpy as np
import pytest
import torch

from rolebregman import theory as bregman
from rolebregman.baselines import HEADS, make_head
from rolebregman.datasets import toy_tree
from rolebregman.heads import BregmanHead
from rolebregman.icnn import ICNN
from rolebregman.interpretability import (
    Explanation,
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
from rolebregman.study import Task

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

    def layers_and_output(self):
        layers, out = super().layers_and_output()
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


def test_an_explanation_holds_both_distances():
    head, x, y = BregmanHead(3), torch.randn(3), torch.randn(3)
    found = explain(head, x, y)
    assert isinstance(found, Explanation)
    with torch.no_grad(): assert found.forward == pytest.approx(head(x, y).item(), rel=1e-5)
