"Distances without a direction, against SciPy"
import pytest
import torch
from heads.cases import D, close, moved, standardized
from scipy.spatial.distance import cdist

from rolebregman.baselines import SquaredDistance


@pytest.mark.parametrize("name", ["euclidean", "cosine"])
def test_euclidean_and_cosine_are_those_of_scipy_but_for_a_learned_scale(name):
    x, y, found = standardized(head := moved(name))
    close(found, head.log_scale.exp().detach() * torch.as_tensor(cdist(x, y, name)), rtol=1e-9, atol=1e-9)


def test_mahalanobis_is_that_of_scipy():
    x, y, found = standardized(head := moved("mahalanobis"))
    precision = (head.map.T @ head.map).detach().numpy()
    close(found, torch.as_tensor(cdist(x, y, "mahalanobis", VI=precision) ** 2 / D), rtol=1e-9, atol=1e-9)


def test_squared_distances_are_half_of_the_square_in_the_form():
    head = SquaredDistance(2)
    u, v, nothing = torch.tensor([[3.0, 4.0]]), torch.tensor([[0.0, 0.0]]), torch.zeros(2)
    (s, s_bias), (t, t_bias) = head.source_form(u, nothing), head.target_form(v, nothing)
    assert s_bias + t_bias - (s * t).sum(1) == 12.5
