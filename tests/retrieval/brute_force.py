"Heads and items that a search must get right, and the distances of all pairs that it is held against"
import numpy as np
import torch

from rolebregman.baselines import HEADS, make_head
from rolebregman.heads import INITS, MAPS, ROLES, BregmanHead
from rolebregman.retrieval import SourceIndex, TargetIndex

D = 12
SIDES = TargetIndex, SourceIndex
FORMS = [name for name in HEADS if HEADS[name].head.product_form]


def any_head(seed):
    "A head of a registry or a Bregman head with drawn options, its parameters moved from where they start"
    g = np.random.default_rng(seed)
    torch.manual_seed(seed)
    names = list(HEADS)
    if seed % 3 == 0: head = make_head(names[seed // 3 % len(names)], dim=D)
    else:
        roles = str(g.choice(ROLES))
        wide = roles in ("both", "shared")
        head = BregmanHead(D, proj_dim=int(g.choice([3, 8, D])) if wide else D, roles=roles, maps=str(g.choice(MAPS)),
                           hidden=[(8,), (16, 8), (8, 8, 8)][g.integers(3)], init=str(g.choice(INITS)),
                           strong_convexity=float(g.choice([0.0, 0.1, 1.0])), extra=0 if roles == "none" else 2,
                           activation=str(g.choice(["squareplus", "softplus"])))
    with torch.no_grad():
        for p in head.parameters(): p.add_(0.1 * torch.randn_like(p))
    return head


def hard_items(g, m):
    "Points, a crowd that nearly coincides, twins, and outliers a thousand and a million times as far"
    Y = torch.randn(m, D, generator=g)
    crowd = torch.randint(m, (m // 2,), generator=g)
    Y[crowd] = Y[:1] + 1e-4 * torch.randn(len(crowd), D, generator=g)
    Y[crowd[::9]] = Y[:1].clone()
    Y[1:2], Y[2:3] = Y[1:2] * 1e3, Y[2:3] * 1e6
    return Y


def distances_of(index, X, Y):
    "By the head's own distance of every pair"
    with torch.no_grad(): return index.head.pairwise(X, Y) if index.kind == "target" else index.head.pairwise(Y, X).T


def agree(index, X, Y, k, filter=None, allowed=None):
    "The distances found are the k smallest, and each is the head's own for its row"
    own = distances_of(index, X, Y)
    distances, rows = index.search(X, k, filter)
    if allowed is not None: own = own.masked_fill(~allowed, torch.inf)
    wanted = own.topk(k, largest=False).values
    # A head of both signs rounds relative to its terms, not to what is left of them
    near = 1e-5 * wanted.abs() + 3e-6 * wanted.abs().amax(1, keepdim=True) * (not index.head.nonnegative) + 1e-12
    assert ((distances - wanted).abs() <= near).all()
    assert ((own.gather(1, rows) - distances).abs() <= near).all()
    assert all(len(set(row.tolist())) == k for row in rows)
    assert not index.head.nonnegative or (distances >= 0).all()
    assert (distances.diff(dim=1) >= 0).all()
