"The heads that laws are asked of: all of the registry, rivals with other settings, and every kind of Bregman head"
from itertools import product

import pytest
import torch

from rolebregman.baselines import HEADS, DeepDivergence, MaxAffineBregman, TransE, heads_of_group, make_head
from rolebregman.heads import INITS, MAPS, ROLES, BregmanHead, SumHead

D = 6  # width of the embeddings
F32, F64 = torch.float32, torch.float64
PEERS = tuple(name for name in heads_of_group("peer") if not HEADS[name].head.symmetric)  # those with a direction
NARROW = {"iqe": dict(components=3, size=4, hidden=0), "wide_norm": dict(proj_dim=5, components=3, size=4, hidden=0),
    "transe": dict(proj_dim=5, hidden=0), "rotate": dict(proj_dim=3, hidden=0), "tversky": dict(features=7, hidden=0),
    "max_affine_bregman": dict(pieces=9), "deep_divergence": dict(pieces=9, hidden=0),
    "entailment_cones": dict(proj_dim=4, hidden=0), "hit": dict(proj_dim=4, hidden=0)}


def _rivals():
    for name in HEADS:
        yield name, lambda name=name: make_head(name, D)
        if name in NARROW: yield f"{name}-small", lambda name=name: make_head(name, D, **NARROW[name])
    yield "transe-euclidean", lambda: TransE(D, 5, 8, norm=2)
    yield "max_affine_bregman-hard", lambda: MaxAffineBregman(D, 9, temperature=0)
    yield "sum", lambda: make_head("directed_bregman", D, members=2, hidden=(8, 7), rank=3, extra=2)
    yield "sum-mixed", lambda: SumHead.of([BregmanHead(D, 4, (8,), inputs="unit"), make_head("order", D)], [2, 0.5])
    yield "deep_divergence-hard", lambda: DeepDivergence(D, 9, temperature=0, hidden=8)


def _bregman_heads():
    "Every two settings together in some head: sides, maps, starts, each with and without extras and features"
    def bregman(**kw): return lambda: BregmanHead(D, **dict(hidden=(8, 7), rank=3) | kw)
    for (r, roles), (m, maps) in product(enumerate(ROLES), enumerate(MAPS)):
        extra = 2 * (roles != "none" and (r + m) % 2)
        features = 3 * ((r + m) % 3 == 0)
        name = f"bregman-{roles}-{maps}{'-extra' * bool(extra)}{'-features' * bool(features)}"
        yield name, bregman(roles=roles, maps=maps, extra=extra, features=features)
    for (m, maps), (i, init) in product(enumerate(MAPS), enumerate(INITS)):
        narrow = dict(proj_dim=4) if (m + i) % 2 == 0 else {}
        if narrow or init != "identity":
            yield f"bregman-both-{maps}-{init}{'-narrow' * bool(narrow)}", bregman(maps=maps, init=init, **narrow)
    for maps in MAPS[::2]:
        yield f"bregman-shared-{maps}-narrow", bregman(roles="shared", maps=maps, proj_dim=4, extra=1)
    yield "bregman-wide", bregman(proj_dim=9)
    yield "bregman-softplus", bregman(activation="softplus", strong_convexity=0.0)


RIVALS = dict(_rivals())  # one or more of each formula
CASES = RIVALS | dict(_bregman_heads())


def heads(condition=lambda head: True, among=CASES):
    "Ask a law of every head, or of those that promise it"
    return pytest.mark.parametrize("case", [name for name, make in among.items() if condition(make())])


def points(*shape, seed=0, scale=1.0, dtype=F64):
    "Raw embeddings, off centre and not of unit size, as encoders make them"
    noise = torch.randn(*shape, D, dtype=F64, generator=torch.Generator().manual_seed(seed))
    return (3.0 + 0.5 * scale * noise).to(dtype)


def fresh(case, dtype=F64):
    torch.manual_seed(0)
    return CASES[case]().to(dtype).fit_standardizer(points(200, seed=9, dtype=dtype))


def moved(case, dtype=F64):
    "A head whose parameters have left the place where they start, so that no symmetry of the start is left"
    head = fresh(case, dtype)
    with torch.no_grad():
        for p in head.parameters(): p.add_(0.3 * torch.randn_like(p))
    return head


def standardized(head, n=9, m=7):
    "Sources and targets as the head's `source` and `target` see them, and the distances of all pairs"
    x, y = points(n), points(m, seed=1)
    return head.standardizer(x), head.standardizer(y), head.pairwise(x, y).detach()


def close(a, b, rtol=1e-10, atol=1e-11): torch.testing.assert_close(a, b, rtol=rtol, atol=atol)
