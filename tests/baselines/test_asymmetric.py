"Orders, quasimetrics, movements and features: their laws, and their formulas against slower code in double precision"
import math

import pytest
import torch
from heads.cases import CASES, F64, D, close, moved, points, standardized

from rolebregman.baselines import IQE, TransE, WideNorm, maxmean, union_length

each_quasimetric = pytest.mark.parametrize("case", [c for c in CASES if c.startswith(("iqe", "wide_norm"))])


@each_quasimetric
def test_laws_of_a_quasimetric(case):
    head = moved(case)
    for scale in (0.01, 1.0, 100.0):
        x, y, z = (points(500, seed=s, scale=scale) for s in range(3))
        xz, xy, yz = head(x, z), head(x, y), head(y, z)
        assert (xz <= (xy + yz) * (1 + 1e-12)).all() and head(x, x).eq(0).all() and (xy > 0).all()


def _covered(u, v):
    "The length of a union of intervals as one would do it by hand: merge what overlaps"
    total, reach = 0.0, -math.inf
    for a, b in sorted((a, b) for a, b in zip(u, v) if b > a):
        total, reach = total + max(0.0, b - max(a, reach)), max(b, reach)
    return total


def test_union_of_intervals():
    for size in (1, 2, 3, 8, 16):
        u, v = (points(40, seed=s)[:, :1].expand(40, size) + torch.randn(40, size, dtype=F64) for s in (0, 1))
        close(union_length(u, v), torch.tensor([_covered(a, b) for a, b in zip(u.tolist(), v.tolist())], dtype=F64))
        close(union_length(u[3], v[:, None]), union_length(u[3].expand_as(v), v)[:, None])
        close(union_length(u[:, None], v[3]), union_length(u, v[3].expand_as(u))[:, None])
    for u, v, length in (([0, 0], [1, 1], 1), ([0, 1], [1, 2], 2), ([0, 5], [1, 6], 2), ([0, 1], [9, 2], 9),
        ([3, 0], [1, 0], 0), ([1, 0], [2, 5], 5)):
        assert union_length(torch.tensor(u), torch.tensor(v)) == length


def test_order_is_what_the_target_has_above_the_source():
    "Vendrov et al. (2016): the more specific item, here the source, has the larger coordinates"
    x, y, found = standardized(head := moved("order"))
    x, y = head.map(x).detach(), head.map(y).detach()
    close(found, (y - x[:, None]).clamp(min=0).square().sum(-1), rtol=1e-9, atol=1e-9)


def test_iqe_is_positively_homogeneous():
    head = moved("iqe")
    u, v = head.encode_source(points(50)), head.encode_target(points(50, seed=1))
    close(head.compare(3 * u + 5, 3 * v + 5), 3 * head.compare(u, v))


def test_wide_norm_is_an_asymmetric_norm():
    head = moved("wide_norm")
    zero = torch.zeros((), dtype=F64)
    a, b = (torch.randn(300, head.config["proj_dim"], dtype=F64) for _ in range(2))
    norm = lambda d: head.compare(zero.expand(d.shape), d)
    close(norm(3 * a), 3 * norm(a))
    assert (norm(a + b) <= norm(a) + norm(b) + 1e-12).all() and ((norm(a) - norm(-a)).abs() > 1e-6).all()


def test_translation_and_rotation_at_rest_are_plain_distances():
    translate, x, y = TransE(D, D, 0, norm=2).double(), points(9), points(9, seed=1)
    close(translate(x, y), 4 * (x - y).norm(dim=1) / math.sqrt(D), rtol=1e-6)
    head = moved("rotate")
    with torch.no_grad(): head.angle.zero_()
    close(head(x, y), head(y, x))


def test_errors_name_what_was_found():
    with pytest.raises(ValueError, match="hidden -1"): WideNorm(D, hidden=-1)
    with pytest.raises(ValueError, match="found 0"): IQE(D, size=0)
    with pytest.raises(ValueError, match="found 3"): TransE(D, norm=3)


def test_maxmean_goes_from_the_mean_to_the_maximum():
    d = torch.tensor([1.0, 2.0, 6.0])
    assert [maxmean(d, torch.tensor(m)).item() for m in (-100.0, 0.0, 100.0)] == [3, 4.5, 6]
