"Distances without a direction, against SciPy"
import pytest
import torch
from baselines.rivals import D, close, moved, standardized
from scipy.spatial.distance import cdist


@pytest.mark.parametrize("name", ["euclidean", "cosine"])
def test_euclidean_and_cosine_are_those_of_scipy_but_for_a_learned_scale(name):
    x, y, found = standardized(head := moved(name))
    close(found, head.log_scale.exp().detach() * torch.as_tensor(cdist(x, y, name)), rtol=1e-9, atol=1e-9)


def test_mahalanobis_is_that_of_scipy():
    x, y, found = standardized(head := moved("mahalanobis"))
    precision = (head.map.T @ head.map).detach().numpy()
    close(found, torch.as_tensor(cdist(x, y, "mahalanobis", VI=precision) ** 2 / D), rtol=1e-9, atol=1e-9)
