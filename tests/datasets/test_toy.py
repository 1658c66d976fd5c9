"The toy tree: its shape, and the direction in its vectors"
import numpy as np
import pytest

from rolebregman.datasets import toy_tree


@pytest.mark.parametrize("depth, branching, nodes", [(1, 9, 10), (3, 3, 40), (5, 2, 63), (2, 4, 21)])
def test_the_toy_is_a_tree_from_child_to_parent(depth, branching, nodes):
    ds = toy_tree(depth=depth, branching=branching, dim=8)
    assert ds.num_nodes == nodes and ds.dim == 8 and len(ds.positives) == nodes - 1
    child, parent = ds.positives.T
    assert sorted(child) == list(range(1, nodes)) # one parent each, none for the root
    depths, texts = ds.nodes.depth.to_numpy(), ds.nodes.text.to_numpy()
    assert (depths[child] == depths[parent] + 1).all() and depths.max() == depth
    assert all(texts[c].rpartition(".")[0] == texts[p] for c, p in ds.positives)


@pytest.mark.parametrize("seed", range(5))
def test_direction_in_the_toy_can_be_learned(seed):
    "The mean step of the training edges tells child from parent in every test edge"
    ds = toy_tree(seed=seed)
    x = ds.features
    step = np.mean(x[ds.edges["train"][:, 0]] - x[ds.edges["train"][:, 1]], axis=0)
    assert ((x[ds.edges["test"][:, 0]] - x[ds.edges["test"][:, 1]]) @ step > 0).all()


def test_the_toy_depends_on_its_seed_alone():
    assert (toy_tree(seed=3).features == toy_tree(seed=3).features).all()
    assert (toy_tree(seed=3).features != toy_tree(seed=4).features).any()
