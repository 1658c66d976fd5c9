"Hyperbolic distance and cones, against the hyperboloid and by their laws"
import math

import numpy as np
import pytest
import torch
from heads.cases import F64, close, moved, standardized
from scipy.spatial.distance import cdist

from rolebregman.baselines import EntailmentCones, hyperbolic_distance, polar


def test_hyperbolic_distance_is_that_of_the_hyperboloid():
    u, v = (polar(2 * torch.randn(100, 4, dtype=F64), 0.0, 40.0) for _ in range(2))
    def hyperboloid(p): return torch.cosh(p[:, -1]), torch.sinh(p[:, -1:]) * p[:, :-1]
    (s, x), (t, y) = hyperboloid(u), hyperboloid(v)
    close(hyperbolic_distance(u, v), torch.acosh(s * t - (x * y).sum(1)), rtol=1e-7, atol=1e-7)


def test_poincare_is_the_distance_of_the_unit_ball():
    "Nickel and Kiela (2017)"
    x, y, found = standardized(head := moved("poincare"))
    def ball(z):
        w = head.map(z).detach().numpy()
        r = np.linalg.norm(w, axis=-1, keepdims=True)
        return w / r * np.tanh(40 * np.tanh(r / 40) / 2)
    x, y = ball(x), ball(y)
    inside = np.outer(1 - (x**2).sum(-1), 1 - (y**2).sum(-1))
    wanted = np.arccosh(1 + 2 * cdist(x, y, "sqeuclidean") / inside)
    close(found, head.log_scale.exp().detach() * torch.as_tensor(wanted), rtol=1e-9, atol=1e-9)


def test_cones_nest():
    "What is in the cone of a point that is in the cone of another is in the cone of that other (Ganea et al., 2018)"
    head = EntailmentCones(2, 2, 0, opening=0.2).double()
    def anywhere(n, out): return polar(out * torch.rand(n, 1) * torch.randn(n, 2, dtype=F64), head.inner, 10.0)
    torch.manual_seed(0)
    a, b, c = anywhere(500_000, 1), anywhere(500_000, 3), anywhere(500_000, 5)
    held = (head.compare(b, a) == 0) & (head.compare(c, b) == 0)
    assert held.sum() > 20 and (head.compare(c[held], a[held]) < 1e-9).all()


def test_the_energy_of_cones_at_its_ends():
    head = EntailmentCones(2, 2, 0).double()
    point = lambda *p: torch.tensor(p, dtype=F64)
    y, scale = point(1, 0, 1), head.log_scale.exp().item()
    aperture = math.asin(0.2 / math.sinh(1))
    assert head.compare(point(1, 0, 3), y) == 0  # straight outwards
    for below in (point(1, 0, 0.5), point(-1, 0, 1)):  # towards the origin, and on the other side of it
        assert head.compare(below, y).item() == pytest.approx(scale * (math.pi - aperture), rel=1e-5)
    close(head.compare(y, y), torch.zeros((), dtype=F64))
