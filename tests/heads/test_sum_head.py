"A sum of heads: what it is in numbers known from outside, what it promises, how it is made, kept, trained and searched"
import json

import numpy as np
import pytest
import torch
from heads.cases import D, points

from rolebregman import TargetIndex, TrainConfig, evaluate, fit, load_head
from rolebregman.baselines import HEADS, make_head
from rolebregman.datasets import toy_tree
from rolebregman.heads import BregmanHead, DistanceHead, SumHead, class_of, described, sketch


class Squares(DistanceHead):
    "Half the squared distance after a stretch: the divergence of `||Ax||^2 / 2`, so that sums are known by hand"
    nonnegative, symmetric, product_form, default_inputs = True, True, True, "raw"

    def __init__(self, dim, stretch):
        super().__init__(dim, stretch=stretch)
        self.stretch = torch.nn.Parameter(torch.full((dim,), float(stretch)))

    def source(self, x): return x * self.stretch

    def target(self, y): return y * self.stretch

    def compare(self, u, v): return (u - v).square().sum(-1) / 2

    def source_form(self, u, centre): return u - centre, (u - centre).square().sum(-1) / 2

    def target_form(self, v, centre): return v - centre, (v - centre).square().sum(-1) / 2


def test_squares_add_up_by_hand():
    "2 * (3 d)^2 / 2 + 0.5 * (2 d)^2 / 2 = 10 d^2"
    head = SumHead.of([Squares(2, 3), Squares(2, 2)], [2, 0.5])
    x, y = torch.tensor([[1.0, 0], [0, 2]]), torch.tensor([[0.0, 0], [0, 1]])
    assert head(x, y).tolist() == [10, 10] and head.symmetric and head.nonnegative and head.product_form
    assert head.pairwise(x, y).tolist() == [[10, 20], [40, 10]]
    torch.testing.assert_close(head.pairwise(x, y, exact=False), head.pairwise(x, y))


@pytest.mark.parametrize("weights", [None, [1, 1, 1], [0.1, 3, 2]])
def test_the_distance_is_that_of_the_members_and_so_is_every_form(weights):
    names = "role_bregman", "max_affine_bregman"
    heads = [make_head(name, D).double().fit_standardizer(points(50)) for name in names]
    heads.append(BregmanHead(D, 4, inputs="unit", extra=1, maps="affine").double())
    x, y = points(7, seed=1), points(9, seed=2)
    head = SumHead.of(heads, weights)
    weights = weights or [1 / 3] * 3
    expected = sum(weight * one.pairwise(x, y) for weight, one in zip(weights, heads))
    for found in head.pairwise(x, y), head.pairwise(x, y, exact=False), head(x[:, None], y):
        torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(head.gap(x, y[:7]), sum(w * one.gap(x, y[:7]) for w, one in zip(weights, heads)))


@pytest.mark.parametrize("names, nonnegative, product", [
    (("role_bregman", "order"), True, False), (("role_bregman", "tversky"), False, False),
    (("role_bregman", "bilinear"), False, True), (("role_bregman", "euclidean"), True, False),
    (("icnn_bregman", "directed_bregman"), True, True)])
def test_it_promises_what_all_members_promise(names, nonnegative, product):
    head = SumHead.of([make_head(name, D) for name in names])
    assert (head.nonnegative, head.product_form, head.symmetric) == (nonnegative, product, False)


def test_members_are_copies_and_stay_what_they_were():
    one, other = (make_head("order", D).fit_standardizer(points(20, dtype=torch.float32)) for _ in range(2))
    head, x, y = SumHead.of([one, other]), points(3), points(3, seed=1)
    before = head(x, y)
    with torch.no_grad(): next(one.parameters()).mul_(2)
    assert torch.equal(head(x, y), before) and not torch.equal((one(x, y) + other(x, y)) / 2, before)


@pytest.mark.parametrize("name", HEADS)
def test_any_head_of_the_registry_in_threes(tmp_path, name):
    torch.manual_seed(3)
    head = make_head(name, D, members=3, inputs="scale").fit_standardizer(points(50))
    assert len(head.members) == 3 and {member.inputs for member in head.members} == {"scale"}
    again, x, y = load_head(head.save_pretrained(tmp_path)), points(5), points(5, seed=1)
    assert torch.equal(again(x, y), head.eval()(x, y)) and json.dumps(again.config) == json.dumps(head.config)
    starts = [torch.cat([p.flatten() for p in member.parameters()]) for member in head.members]
    fixed = name in ("euclidean", "cosine", "mahalanobis", "bilinear", "order")  # they start at the inputs' own metric
    assert torch.equal(starts[0], starts[1]) == fixed
    shapes = sketch(SumHead, head.config, 200)
    assert shapes == {key: tuple(value.shape) for key, value in head.state_dict().items()}


def test_made_twice_it_is_the_same_and_draws_what_its_members_draw():
    torch.manual_seed(5)
    one, after = make_head("mlp", D, members=2), torch.rand(1)
    torch.manual_seed(5)
    members = [make_head("mlp", D) for _ in range(2)]
    assert torch.equal(torch.rand(1), after)
    for own, given in zip(one.members, members):
        assert all(torch.equal(a, b) for a, b in zip(own.parameters(), given.parameters()))


def test_the_config_says_what_the_members_are_now():
    head = SumHead.of([BregmanHead(D), BregmanHead(D, inputs="unit")])
    assert [one["inputs"] for one in head.config["members"]] == ["standard", "unit"] and head.inputs == "raw"
    head.inputs = "scale"
    assert [one["inputs"] for one in head.config["members"]] == ["scale", "scale"]
    assert class_of(*(head.config["members"][0][key] for key in ("module", "class"))) is BregmanHead
    assert described(head)["class"] == "SumHead" and described(head)["module"] == "rolebregman.heads"


def test_a_sum_of_sums(tmp_path):
    one = SumHead.of([Squares(2, 1), Squares(2, 2)], [1, 1])
    head = SumHead.of([one, Squares(2, 3)], [2, 1])
    x, y = torch.tensor([[1.0, 0]]), torch.tensor([[0.0, 0]])
    assert head(x, y).item() == (2 * (1 + 4) + 9) / 2
    assert load_head(head.save_pretrained(tmp_path))(x, y).item() == head(x, y).item()


@pytest.mark.parametrize("bad, said", [
    (dict(members=[]), "at least one head"), (dict(members=["order"]), r"members\[0\] does not say class"),
    (dict(members=[dict(described(BregmanHead(D)), module="os")]), "'BregmanHead' of 'os', which is not known"),
    (dict(members=[described(BregmanHead(D)), described(BregmanHead(D + 1))]), r"members\[1\] takes .* width 7"),
    (dict(members=[described(BregmanHead(D))], weights=[-1]), "a positive number for each of 1 members"),
    (dict(members=[described(BregmanHead(D))], weights=[float("nan")]), "a positive number"),
    (dict(members=[described(BregmanHead(D))], weights=[1, 2]), "a positive number for each of 1 members")])
def test_what_is_no_sum_is_refused(bad, said):
    with pytest.raises(ValueError, match=said): SumHead(D, **bad)


def test_heads_of_two_types_are_refused():
    with pytest.raises(ValueError, match=r"heads\[1\] has torch.float64 .* the first one torch.float32"):
        SumHead.of([BregmanHead(D), BregmanHead(D).double()])
    with pytest.raises(ValueError, match="members is 0"): make_head("order", D, members=0)


def test_training_fits_the_inputs_of_all_members_and_moves_all_of_them():
    ds = toy_tree(depth=3, branching=3, dim=8, seed=0)
    torch.manual_seed(0)
    head = SumHead.of([BregmanHead(8, inputs="standard"), BregmanHead(8, inputs="scale"), make_head("order", 8)])
    before = [[p.clone() for p in member.parameters()] for member in head.members]
    fit(head, ds, TrainConfig(epochs=3, lr=1e-2), progress=False)
    assert all(member.standardizer.fitted for member in head.members)
    assert all(any(not torch.equal(a, b) for a, b in zip(member.parameters(), own))
               for member, own in zip(head.members, before))
    kept = [member.standardizer.mean.clone() for member in head.members]
    fit(head, toy_tree(depth=3, branching=3, dim=8, seed=1), TrainConfig(epochs=1), progress=False)
    assert all(torch.equal(member.standardizer.mean, mean) for member, mean in zip(head.members, kept))


def test_its_index_finds_what_all_its_distances_say(tmp_path):
    ds = toy_tree(depth=4, branching=3, dim=8, seed=0)
    torch.manual_seed(1)
    kinds = dict(proj_dim=4), dict(inputs="unit", maps="residual"), dict(roles="none")
    head = SumHead.of([BregmanHead(8, **kind) for kind in kinds])
    head.fit_standardizer(ds.features).eval()
    found, rows = TargetIndex(head, ds.features).search(ds.features[:20], k=5)
    every = head.pairwise(ds.features[:20], ds.features).detach()
    np.testing.assert_array_equal(rows, every.argsort(dim=1, stable=True)[:, :5])
    np.testing.assert_allclose(found, every.gather(1, torch.as_tensor(rows)), rtol=1e-6)
    index = TargetIndex(head, ds.features)
    index.save(tmp_path / "index")
    assert TargetIndex.load(tmp_path / "index").search(ds.features[:20], k=5)[1].tolist() == rows.tolist()


def test_evaluated_like_any_head():
    ds = toy_tree(depth=3, branching=3, dim=8, seed=0)
    torch.manual_seed(0)
    head = make_head("directed_bregman", 8, members=2).fit_standardizer(ds.features)
    assert evaluate(head, ds)["negative_rate"] == 0
    same = SumHead.of([head.members[0], head.members[0]])
    expected, found = evaluate(head.members[0], ds), evaluate(same, ds)
    assert {name: found[name] for name in ("mrr", "ranking_accuracy")} == {
        name: expected[name] for name in ("mrr", "ranking_accuracy")}
