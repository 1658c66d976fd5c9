"Two taxonomies with leaves held out: what is in no training pair, and what may be proposed"
import numpy as np
import pytest

from rolebregman.datasets import Taxonomy, broader_terms, hold_out_leaves, load_leaves, taxonomy


def grown(n=400, seed=0):
    "A random tree in which every seventh term is called like another"
    rng = np.random.default_rng(seed)
    pairs = np.stack([np.arange(1, n), [rng.integers(max(1, child // 3)) for child in range(1, n)]], 1)
    texts = np.array([f"t{i if i % 7 else i // 2}" for i in range(n)], object)
    return Taxonomy("grown", np.array([f"i{i}" for i in range(n)], object), texts, pairs, dict(source="here"))


def by_letters(texts): return np.stack([np.random.default_rng(abs(hash(t)) % 2**32).normal(size=8) for t in texts])


@pytest.mark.parametrize("seed", range(3))
def test_what_is_held_out_is_in_no_training_pair_under_any_of_its_meanings(seed):
    tree = grown()
    parts, same = hold_out_leaves(tree, seed, 0.1)
    words = {part: set(tree.texts[pairs[:, 0]]) for part, pairs in parts.items()}
    seen = set(tree.texts[parts["train"]].ravel())
    parents = set(tree.texts[tree.pairs[:, 1]])
    for part in "valid", "test":
        assert words[part] and not words[part] & seen and not words[part] & parents
    assert not words["valid"] & words["test"]
    assert sum(map(len, parts.values())) + len(same) == len(tree.pairs)
    assert all(tree.texts[a] == tree.texts[b] for a, b in same)
    assert len(words["valid"]) == len(words["test"]), "a share of the words, not of the pairs"


def test_the_draw_is_of_the_seed():
    tree = grown()
    assert np.array_equal(hold_out_leaves(tree, 1)[0]["test"], hold_out_leaves(tree, 1)[0]["test"])
    assert set(hold_out_leaves(tree, 1)[0]["test"][:, 0]) != set(hold_out_leaves(tree, 2)[0]["test"][:, 0])
    for share in 0, 0.5, 0.001:
        with pytest.raises(ValueError, match="take another share"): hold_out_leaves(tree, 0, share)


def test_the_dataset_keeps_what_follows_from_negatives_and_pairs_of_a_word_with_itself_out():
    tree = grown()
    ds = load_leaves(tree, 0, 0.1, by_letters, quiet=True)
    root = {tuple(pair) for pair in ds.holding}
    assert {(child, 0) for child in range(1, 400)} <= root, "each term is below the first one"
    assert set(ds.pool) == set(tree.pairs[:, 1]) and ds.report["read"]["pairs"] == 399
    assert ds.nodes["text"].tolist() == tree.texts.tolist() and ds.report["source"] == "here"


def test_broad_terms_have_children():
    tree = grown()
    children = np.bincount(tree.pairs[:, 1], minlength=400)
    for least in 1, 3, 10:
        assert broader_terms(tree, least) == list(dict.fromkeys(tree.texts[children >= least]))


def test_an_unknown_taxonomy_is_refused():
    with pytest.raises(ValueError, match="no taxonomy 'music': choose from wordnet"): taxonomy.read_taxonomy("music")
