"Weights of pairs: read from a column, kept for each training edge, refused where they are none"
import numpy as np
import pandas as pd
import pytest

from rolebregman.datasets import DirectedDataset, check_weights, from_pairs, toy_tree

WORDS = [f"w{i:02d}" for i in range(12)]
PAIRS = pd.DataFrame([(WORDS[i], WORDS[i // 2]) for i in range(1, 12)], columns=["child", "parent"])
VECTORS = np.random.default_rng(0).normal(size=(12, 4)).astype(np.float32)
OWN = PAIRS.assign(weight=np.arange(11) / 2)


def of_edges(ds):
    names = ds.nodes["id"].to_numpy()
    return {(names[s], names[t]): w for (s, t), w in zip(ds.edges["train"], ds.weights)}


@pytest.mark.parametrize("name", ["pairs.csv", "pairs.tsv", "pairs.parquet"])
def test_each_training_edge_has_the_weight_of_its_row_whatever_the_order(tmp_path, name):
    write = dict(csv=lambda t, p: t.to_csv(p, index=False), tsv=lambda t, p: t.to_csv(p, index=False, sep="\t"),
                 parquet=lambda t, p: t.to_parquet(p))[name.split(".")[1]]
    write(OWN[::-1], tmp_path / name)
    ds = from_pairs(tmp_path / name, VECTORS, ids=WORDS, weight_column="weight")
    wanted = {(a, b): w for a, b, w in OWN.to_numpy().tolist()}
    assert of_edges(ds) == {pair: wanted[pair] for pair in of_edges(ds)} and len(ds.weights) == len(ds.edges["train"])
    assert ds.weights.flags.writeable  # PyTorch warns of what is not
    plain = from_pairs(PAIRS, VECTORS, ids=WORDS)
    assert plain.weights is None and all((plain.edges[k] == e).all() for k, e in ds.edges.items())
    assert ds.report["read"]["weight column"] == "weight" and "weight (weight)" in ds.report["read"]["used columns"]


@pytest.mark.parametrize("labels, how", [((1, 0), {}), (("entailment", "neutral"), {}), ((7, 2), dict(min_label=5))])
def test_each_denied_pair_of_training_has_the_weight_of_its_row(labels, how):
    turned = PAIRS[PAIRS["child"] < "w05"].rename(columns=dict(child="parent", parent="child"))
    rows = pd.concat([PAIRS.assign(label=labels[0]), turned.assign(label=labels[1])], ignore_index=True)
    rows = rows.assign(weight=np.arange(len(rows)) % 7 / 2)
    for some in (rows, rows[::-1], pd.concat([rows, rows])):
        ds = from_pairs(some, VECTORS, ids=WORDS, weight_column="weight", fractions=(1, 0, 0), **how)
        names, of = ds.nodes["id"].to_numpy(), {(a, b): w for a, b, _, w in rows.to_numpy().tolist()}
        denied = [(names[s], names[t]) for s, t in ds.denied["train"]]
        assert len(denied) == len(turned) and ds.denied_weights.tolist() == [of[pair] for pair in denied]
        assert of_edges(ds) == {pair: of[pair] for pair in of_edges(ds)}


def test_denied_pairs_may_all_be_of_weight_zero_but_not_those_that_hold():
    turned = PAIRS[:4].rename(columns=dict(child="parent", parent="child")).assign(label=0)
    holding = PAIRS.assign(label=1)
    rows = pd.concat([holding.assign(weight=2), turned.assign(weight=0)])
    assert not from_pairs(rows, VECTORS, ids=WORDS, weight_column="weight").denied_weights.any()
    rows = pd.concat([holding.assign(weight=0), turned.assign(weight=2)])
    with pytest.raises(ValueError, match="pairs: the weight of each of the 11 pairs to learn from is 0"):
        from_pairs(rows, VECTORS, ids=WORDS, weight_column="weight")


def test_a_column_weight_that_was_not_named_is_mentioned_and_not_used():
    for name in ("weight", " Weight ", "WEIGHTS"):
        ds = from_pairs(OWN.rename(columns=dict(weight=name)), VECTORS, ids=WORDS)
        assert ds.weights is None and "name it with weight_column=" in ds.report["read"]["weight column not used"]
    assert "weight column not used" not in from_pairs(PAIRS.assign(note=1), VECTORS, ids=WORDS).report["read"]


def test_a_limit_keeps_the_weights_of_the_edges_that_stay():
    ds = from_pairs(OWN.assign(weight=range(1, 12)), VECTORS, ids=WORDS, weight_column="weight")
    assert of_edges(ds.limit(4)).items() <= of_edges(ds).items() and len(ds.limit(4).weights) == 4


@pytest.mark.parametrize("value,said", [("-0.5", "weight is '-0.5'"), ("heavy", "weight is 'heavy'"),
                                        ("inf", "weight is 'inf'"), ("", "weight is missing")])
def test_what_is_no_weight_is_named_with_its_file_and_row(tmp_path, value, said):
    OWN.astype(dict(weight=str)).assign(weight=["1"] * 6 + [value] + ["1"] * 4).to_csv(tmp_path / "p.csv", index=False)
    with pytest.raises(ValueError, match=rf"p\.csv, row 6 \(the first is 0\): {said}"):
        from_pairs(tmp_path / "p.csv", VECTORS, ids=WORDS, weight_column="weight")


def test_weights_that_cannot_all_be_meant_are_refused():
    with pytest.raises(ValueError, match="column 'weight' is 0 in each row"):
        from_pairs(OWN.assign(weight=0), VECTORS, ids=WORDS, weight_column="weight")
    twice = pd.concat([OWN, OWN[:1].assign(weight=7)])
    with pytest.raises(ValueError, match="has weight 0 in row 0 and 7 in row 11"):
        from_pairs(twice, VECTORS, ids=WORDS, weight_column="weight")
    with pytest.raises(ValueError, match="no column 'trust'"):
        from_pairs(OWN, VECTORS, ids=WORDS, weight_column="trust")


@pytest.mark.parametrize("weights", [[1.0], np.zeros(100), np.full(100, -1), np.full(100, np.nan)])
def test_a_dataset_checks_its_weights(weights):
    ds = toy_tree(depth=3, branching=2, dim=3)
    weights = np.asarray(weights)[:len(ds.edges["train"])]
    with pytest.raises(ValueError, match=r"weights"):
        DirectedDataset(ds.name, ds.features, ds.nodes, ds.edges, weights=weights)
    assert check_weights([0, 2], 2).tolist() == [0, 2]
