"How a head sees its inputs: lengths at the ends of the range, settings that there are not, and what fits anew"
import json

import pytest
import torch
from heads.cases import F32, F64, D, close, points

from rolebregman.baselines import make_head
from rolebregman.datasets import toy_tree
from rolebregman.heads import BregmanHead, DistanceHead, load_head, unit_length
from rolebregman.training import TrainConfig, fit


def test_lengths_at_the_ends_of_the_range():
    for dtype in (F32, F64):
        largest, least = torch.finfo(dtype).max, torch.finfo(dtype).tiny
        x = torch.tensor([[3, 4, 0], [-3, 4, 0]], dtype=dtype)
        for size in (1.0, largest / 4, least, least * torch.finfo(dtype).eps):
            close(unit_length(x * size), x / 5, rtol=4 * torch.finfo(dtype).eps)
    usual = torch.randn(100, 7)
    assert unit_length(usual[0]).equal(unit_length(usual)[0]), "one alone"
    assert unit_length(usual.view(10, 2, 5, 7)).equal(unit_length(usual).view(10, 2, 5, 7)), "many axes"
    assert unit_length(usual).equal(torch.nn.functional.normalize(usual, dim=-1)), "the same bits"
    assert torch.autograd.gradcheck(unit_length, points(3).requires_grad_())


def test_inputs_that_there_are_not(tmp_path):
    with pytest.raises(ValueError, match="inputs: expected one of raw, unit, scale, standard, found 'centred'"):
        make_head("mlp", D, inputs="centred")
    with pytest.raises(ValueError, match="all rows are zero, so there is no scale"):
        make_head("mlp", D, inputs="scale").fit_standardizer(torch.zeros(3, D))
    make_head("mlp", D).save_pretrained(tmp_path)
    about = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(about | dict(inputs="centred")))
    with pytest.raises(ValueError, match="config.json: inputs 'centred' is not one of raw, unit, scale, standard"):
        load_head(tmp_path)
    with pytest.raises(TypeError, match='Old: standardize = False is now default_inputs = "raw"'):
        type("Old", (DistanceHead,), dict(standardize=False))


def test_a_scale_that_a_type_cannot_hold_is_refused():
    for dtype, size, says in ((torch.float16, 1e30, "too much for torch.float16"), (F64, 1e200, "too large")):
        for inputs in ("scale", "standard"):
            head = make_head("mlp", D, inputs=inputs).to(dtype)
            with pytest.raises(ValueError, match=says): head.fit_standardizer(points(9) * size)
            assert head.standardizer.scale == 1 and not head.standardizer.fitted


def test_a_length_is_taken_before_a_narrower_type_loses_it():
    head = make_head("mlp", D, inputs="unit")
    for size in (1e-300, 1e300):
        close(head.standardized(points(5) * size).norm(dim=-1), torch.ones(5), rtol=1e-6)


def test_a_subclass_says_its_own_default_inputs():
    kind = type("Raw", (BregmanHead,), dict(default_inputs="raw"))
    assert (kind(D).inputs, kind(D, inputs="unit").inputs, BregmanHead(D).inputs) == ("raw", "unit", "standard")
    assert "inputs='raw'" in repr(kind(D))


def test_other_inputs_are_fitted_anew():
    head = make_head("role_bregman", D).double().fit_standardizer(points(200))
    head.inputs = "standard"
    assert head.standardizer.fitted
    head.inputs = "scale"
    assert not head.standardizer.fitted and head.standardizer.mean.dtype == F64
    assert BregmanHead(D, inputs="unit").inputs == "unit" and make_head("cosine", D).inputs == "raw"
    assert "scale" in head.standardizer.extra_repr()


@pytest.mark.parametrize("name", ["directed_bregman", "mlp", "cosine"])
def test_training_further_starts_from_the_same_distances(name, tmp_path):
    tree, other = toy_tree(dim=D, seed=0), toy_tree(dim=D, seed=1)
    head = make_head(name, D)
    fit(head, tree, TrainConfig(epochs=2), progress=False)
    x, y = torch.from_numpy(tree.features[:50]), torch.from_numpy(tree.features[50:100])
    before = head(x, y)
    head.save_pretrained(tmp_path)
    for one in (head, load_head(tmp_path)):
        fit(one, other, TrainConfig(epochs=0), progress=False)
        assert one(x, y).equal(before)
    if name != "cosine":
        fit(head, other, TrainConfig(epochs=0), progress=False, refit_inputs=True)
        assert not head(x, y).allclose(before, rtol=1e-3)
