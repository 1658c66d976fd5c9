"Parts that other tests reach only through something larger: each against its law or a case worked by hand"
import json
from math import log

import numpy as np
import pandas as pd
import pytest
import torch
import typer
from matplotlib.colors import to_hex

from rolebregman.baselines import HEADS, Entry, SquaredDistance, floored, heads_of_group, log_kl, make_head, maxmean
from rolebregman.cli.command import items_of, pairs_file, say, watched
from rolebregman.common import sorted_unique
from rolebregman.datasets import CitationGraph, DirectedDataset, check_vectors, faults_named, read_linqs, toy_tree
from rolebregman.evaluation import Comparison, NegativeSampler, compare
from rolebregman.heads import BregmanHead, RoleMap, SharedMap, robust_centre, target_forms
from rolebregman.icnn import ACTIVATIONS, Activation, Layer, Partials, Softplus, Squareplus
from rolebregman.interpretability import Explanation, explain
from rolebregman.retrieval import (
    Nearest,
    TargetIndex,
    as_array,
    as_numbers,
    check_rows,
    flush_to_disk,
    read_description,
)
from rolebregman.study import GRADED, Graded, judged_figure
from rolebregman.training import History, TrainConfig, make_step, on_device

# Activations and heads


@pytest.mark.parametrize("activation", ACTIVATIONS.values())
def test_formulas_of_an_activation_agree_with_their_definitions(activation):
    b, t = torch.randn(2, 50, dtype=torch.float64)
    s = activation.value_formula
    slope = lambda a: torch.func.vmap(torch.func.grad(s))(a)
    layer, partials = activation.layer_formula(b, t), activation.partials_formula(b, t)
    wanted = Layer(s(b), slope(b), s(b + t) - s(b), s(b + t) - s(b) - slope(b) * t)
    change, curvature = slope(b + t) - slope(b), activation.curvature(b)
    for found, right in zip(layer, wanted): assert torch.allclose(found, right)
    for found, right in zip(partials, Partials(slope(b), curvature, slope(b + t), change, change - curvature * t)):
        assert torch.allclose(found, right)


def test_values_of_the_activations_at_zero():
    zero = torch.zeros(())
    assert Squareplus.value(zero) == 1 and Softplus.value(zero) == pytest.approx(log(2))
    assert Squareplus.slope(zero) == Softplus.slope(zero) == 0.5
    assert issubclass(Squareplus, Activation) and issubclass(Softplus, Activation)


@pytest.mark.parametrize("name", [name for name, entry in HEADS.items() if entry.head.product_form])
def test_the_two_parts_of_a_product_form_make_the_distance(name):
    head = make_head(name, dim=4).double()
    u, v = head.encode_source(torch.randn(5, 4)), head.encode_target(torch.randn(3, 4))
    (s, s_bias), (t, t_bias) = head.source_form(u, v.mean(0)), head.target_form(v, v.mean(0))
    found = head.from_form(s_bias[:, None] + t_bias - s @ t.T)
    assert torch.allclose(found, head.compare(u[:, None], v), atol=1e-10)


@pytest.mark.parametrize("name", HEADS)
def test_a_line_of_the_registry_makes_the_head_that_it_describes(name):
    entry = HEADS[name]
    head = make_head(name, dim=64)
    assert isinstance(entry, Entry) and type(head) is entry.head and entry.about
    assert head.config.items() >= entry.config.items()


def test_squared_distances_are_half_of_the_square_in_the_form():
    head = SquaredDistance(2)
    u, v, nothing = torch.tensor([[3.0, 4.0]]), torch.tensor([[0.0, 0.0]]), torch.zeros(2)
    (s, s_bias), (t, t_bias) = head.source_form(u, nothing), head.target_form(v, nothing)
    assert s_bias + t_bias - (s * t).sum(1) == 12.5


def test_a_role_map_without_a_start_is_the_identity_with_coordinates_behind():
    map = RoleMap(3, 3, "residual", None, rank=2, extra=2)
    x = torch.randn(5, 3)
    assert torch.equal(map(x)[:, :3], x) and map(x).shape == (5, 5)
    assert torch.equal(RoleMap(3, 2, "linear", torch.eye(2, 3), 2, 0)(x), x[:, :2])


@pytest.mark.parametrize("name", [n for n in heads_of_group("peer") if HEADS[n].head.source is SharedMap.source])
def test_a_shared_map_treats_both_items_alike(name):
    head, x = make_head(name, 4), torch.randn(3, 4)
    assert torch.equal(head.encode_source(x), head.encode_target(x))


def test_log_kl_is_the_kullback_leibler_divergence():
    u, v = torch.randn(2, 4, 5, dtype=torch.float64).log_softmax(-1)
    wanted = torch.nn.functional.kl_div(u, v, reduction="none", log_target=True).sum(-1)
    assert torch.allclose(log_kl(u, floored(v)), wanted) and log_kl(u, u).abs().max() == 0


def test_floored_keeps_what_is_a_normal_number():
    v = torch.tensor([0.0, -5.0, -77.0, -1e4])
    assert torch.equal(floored(v)[:3], v[:3]) and floored(v).exp().min() >= torch.finfo(v.dtype).tiny


def test_maxmean_goes_from_the_mean_to_the_maximum():
    d = torch.tensor([1.0, 2.0, 6.0])
    assert [maxmean(d, torch.tensor(m)).item() for m in (-100.0, 0.0, 100.0)] == [3, 4.5, 6]


# Search


@pytest.fixture(params=["role_bregman", "bilinear"])
def index(request):
    pytest.importorskip("faiss", reason="FAISS is an extra")
    return TargetIndex(make_head(request.param, dim=6), torch.randn(300, 6), "faiss", factory="Flat")


@torch.no_grad()
def test_scan_products_and_engine_find_the_same(index):
    q, only = index.encode_query(torch.randn(4, 6)), torch.arange(0, 300, 2)
    out = torch.tensor([0, 3]), torch.tensor([7, 9])  # places among the items that count
    nothing = torch.zeros(2, 0, dtype=torch.int64).unbind()
    for k, which, leave in ((5, None, nothing), (5, None, out), (3, only, out)):
        wanted = index.by_scan(q, k, which, leave)
        for find in (index.by_products, index.by_engine):
            for found, right in zip(find(q, k, which, leave), wanted): assert torch.allclose(found, right, atol=1e-5)


@torch.no_grad()
def test_tiles_are_bounds_of_the_distance_and_infinite_where_left_out(index):
    q = index.encode_query(torch.randn(4, 6))
    out, d = (torch.tensor([1]), torch.tensor([20])), index.compare_all(q, index.items)
    for start, lower in index.tiles(index.query_rows(q)[0], None, out):
        if start <= 20 < start + len(lower): assert lower[20 - start, 1] == torch.inf
        order = lower[:, 0].argsort()
        assert (d[0, start + order].diff() > -1e-4).all(), "bounds come in the order of the distances"


def test_candidates_that_are_left_out_become_minus_one():
    j, out = torch.tensor([[0, 2, -1], [2, 1, 0]]), (torch.tensor([1, 0]), torch.tensor([2, 0]))
    assert Nearest(make_head("euclidean", dim=2)).leave_out(j, 3, out).tolist() == [[-1, 2, -1], [-1, 1, 0]]


def test_a_head_that_has_changed_is_noticed():
    near = Nearest(head := BregmanHead(3))
    near.check_head()
    with torch.no_grad(): next(head.parameters()).add_(1)
    with pytest.raises(ValueError, match="make the index anew"): near.check_head()


def test_anything_becomes_an_array_or_numbers():
    assert as_array(torch.ones(2, requires_grad=True), "X").tolist() == [1, 1]
    swapped = np.arange(3.0).astype(">f8")[::-1]
    assert as_numbers(swapped, "X").tolist() == [2, 1, 0]
    with pytest.raises(ValueError, match="Y: expected real numbers, found complex"): as_numbers([1j], "Y")
    with pytest.raises(ValueError, match="X: "): as_array([[1], [1, 2]], "X")


@pytest.mark.parametrize("bad, words", [(torch.nan, "row 12 holds a NaN"), (1e20, r"row 12 is too far out \(1e\+20\)")])
def test_the_first_bad_row_is_named(bad, words):
    x = torch.zeros(5, 2)
    check_rows(x, "Y", 10, "leave it out")
    x[2, 1] = x[4, 0] = bad
    with pytest.raises(ValueError, match=f"Y: {words}.*; leave it out"): check_rows(x, "Y", 10, "leave it out")


def test_the_centre_is_not_moved_by_an_outlier():
    targets = torch.tensor([[1.0], [2.0], [1e9]])
    assert robust_centre(targets).tolist() == [2] and robust_centre(targets).dtype == torch.float64


def test_what_is_laid_out_is_the_form_rounded_once():
    head, targets = BregmanHead(4), torch.randn(9, 4)
    fine, centre = BregmanHead(4).double(), robust_centre(targets)
    fine.load_state_dict(head.state_dict())
    vectors, bias, norms = target_forms(fine, targets, centre, block=4)
    wanted = fine.target_form(targets.double(), centre)
    assert torch.equal(vectors, wanted[0].float()) and torch.equal(bias, wanted[1].float())
    assert torch.equal(norms, wanted[0].norm(dim=1).float())


def test_what_is_written_is_on_disk_before_the_file_is_closed(tmp_path):
    with open(tmp_path / "a", "wb") as file:
        file.write(b"all")
        flush_to_disk(file)
        assert (tmp_path / "a").read_bytes() == b"all"


def test_a_saved_index_says_what_it_is(tmp_path):
    TargetIndex(make_head("euclidean", dim=3), torch.randn(5, 3)).save(tmp_path)
    about = read_description(tmp_path / "index.json")
    assert about == json.loads((tmp_path / "index.json").read_text())
    (tmp_path / "index.json").write_text("{}")
    with pytest.raises(ValueError, match="index.json is damaged"): read_description(tmp_path / "index.json")


# Data


def test_sorted_unique_is_numpys():
    codes = np.random.default_rng(0).integers(0, 50, 200)
    assert np.array_equal(sorted_unique(codes), np.unique(codes)) and not len(sorted_unique(codes[:0]))


@pytest.mark.parametrize("vectors, words", [
    ([[1, 2]], "shape (1, 2) for 2 texts"), ([[1, np.inf], [1, 1]], "text 0 ('ape') is not finite, 1 such of 2"),
    ([[1, 1], [0, 0]], "text 1 ('bee') is zero everywhere")])
def test_an_encoder_that_fails_is_told_on(vectors, words):
    assert check_vectors([[1, 2], [3, 4]], ["ape", "bee"], "mine").dtype == np.float32
    with pytest.raises(ValueError) as error: check_vectors(vectors, ["ape", "bee"], "mine")
    assert "mine: " in str(error.value) and words in str(error.value)


def test_faults_of_a_file_carry_its_name():
    with pytest.raises(ValueError, match="a.txt is not UTF-8 text: byte 0xff"), faults_named("a.txt"): b"\xff".decode()
    with pytest.raises(ValueError, match="a.gz is damaged or cut off"), faults_named("a.gz"): raise EOFError("end")
    with pytest.raises(KeyError), faults_named("a.txt"): {}["passes"]


def test_a_citation_graph_is_as_in_its_files(tmp_path):
    (tmp_path / "tiny.content").write_text("a\t1\t0\tmath\nb\t0\t1\tart\n")
    (tmp_path / "tiny.cites").write_text("a\tb\n")  # cited, citing
    graph = read_linqs(tmp_path, "tiny")
    assert isinstance(graph, CitationGraph) and graph.edges.tolist() == [[1, 0]]
    assert graph.words.toarray().tolist() == [[1, 0], [0, 1]] and graph.topics == ["math", "art"]


# Training and evaluation


def test_a_step_of_training_lowers_the_loss_and_repeats_itself():
    ds, batch = toy_tree(3, 2, 8), torch.arange(8)
    runs = []
    for _ in range(2):
        torch.manual_seed(0)
        step = make_step(BregmanHead(8), ds, TrainConfig(lr=0.01), sampler=NegativeSampler(ds))
        runs.append(torch.stack([step(batch) for _ in range(60)]))
    assert torch.equal(*runs) and runs[0].shape == (60, 2)
    assert runs[0][-10:].sum() < 0.8 * runs[0][:10].sum()


def test_features_stay_where_they_are_for_a_head_on_the_cpu():
    features = np.ones((2, 3), np.float32)
    assert on_device(features, BregmanHead(3)) is features


def test_the_best_epoch_is_the_first_with_the_highest_score():
    history = History(TrainConfig())
    for epoch, right in enumerate((0.5, 0.9, 0.9, 0.7)): history.add(epoch, 1.0, 0.0, right, float("nan"))
    assert history.best_epoch == 1 and len(history) == 3 and history.table["score"].tolist() == [0.5, 0.9, 0.9, 0.7]


def test_a_comparison_says_what_was_counted():
    found = compare([3.0, 2.0, 5.0], [1.0, 2.0, 3.0])
    assert isinstance(found, Comparison) and (found.wins, found.losses, found.seeds) == (2, 0, 3)
    assert found.mean_difference == pytest.approx(4 / 3) and found.p_value == 0.5
    assert str(found).startswith("+1.3333 [") and "ahead in 2 of 3 seeds, p = 0.5" in str(found)


def test_an_explanation_holds_both_distances():
    head, x, y = BregmanHead(3), torch.randn(3), torch.randn(3)
    found = explain(head, x, y)
    assert isinstance(found, Explanation)
    with torch.no_grad(): assert found.forward == pytest.approx(head(x, y).item(), rel=1e-5)


@pytest.fixture
def judged():
    "Four pairs with scores of annotators that are made of the squared distance"
    ds = toy_tree(3, 2, 6)
    pairs = np.array([[1, 0], [0, 1], [4, 2], [5, 6]])
    near = -np.square(ds.features[pairs[:, 0]] - ds.features[pairs[:, 1]]).sum(1)
    graded = pd.DataFrame(dict(source=pairs[:, 0], target=pairs[:, 1], score=near, pos=list("NNVV"), random="test",
                               lexical="test", split="test", type=["hyp-1", "r-hyp-2", "ant", "hyp-3"]))
    return DirectedDataset("judged", ds.features, ds.nodes, ds.edges, graded=graded)


def test_graded_fits_are_measured_by_rank_correlation(judged):
    rho = Graded("hyperlex/random", "euclidean", 0).measure(make_head("euclidean", dim=6), judged)
    assert set(rho) == set(GRADED) and rho["all"] == pytest.approx(1)


def test_a_point_of_the_figure_of_judged_pairs_is_a_pair(judged):
    head = BregmanHead(6)
    ax, = judged_figure(judged, head).axes
    points = np.concatenate([c.get_offsets() for c in ax.collections])
    x, y = (torch.tensor(judged.features[judged.graded[end]]) for end in ("source", "target"))
    with torch.no_grad(): wanted = np.stack([judged.graded["score"], head.gap(x, y)], 1)
    assert np.allclose(np.sort(points, 0), np.sort(wanted, 0), atol=1e-5)
    assert [len(c.get_offsets()) for c in ax.collections] == [2, 1, 1], "hypernyms, their reversals, neither"
    assert len({to_hex(c.get_facecolor()[0]) for c in ax.collections}) == 3


# The command


def test_vectors_come_from_what_is_said_now(tmp_path):
    assert items_of(tmp_path, vectors=tmp_path / "v.npy").vectors == tmp_path / "v.npy"
    with pytest.raises(typer.BadParameter, match="say where vectors are: --vectors"): items_of(tmp_path)


def test_what_is_said_goes_to_standard_error(capsys):
    say("a line")
    assert capsys.readouterr() == ("", "a line\n") and not watched()


def test_a_file_of_pairs_has_its_help():
    assert pairs_file("pairs").help == "pairs"
