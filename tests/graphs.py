"Small graphs that several tests are about"
import numpy as np
import pandas as pd

from rolebregman.datasets import DirectedDataset


def dataset(edges, n, pool=None, valid=(), test=()):
    "A dataset of n random nodes with these edges"
    split = dict(train=edges, valid=valid, test=test)
    split = {name: np.array(part, dtype=np.int64).reshape(-1, 2) for name, part in split.items()}
    features = np.random.default_rng(0).normal(size=(n, 8)).astype(np.float32)
    return DirectedDataset(name="made", features=features, nodes=pd.DataFrame(dict(id=[f"n{i}" for i in range(n)])),
                           edges=split, pool=pool)


def dense(n, share, seed):
    "Edges of a random directed graph, without loops"
    drawn = np.argwhere(np.random.default_rng(seed).random((n, n)) < share)
    return drawn[drawn[:, 0] != drawn[:, 1]]
