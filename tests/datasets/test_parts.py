"Files for validation and test: one table, no pair in two parts, faults that name their file, a share drawn by seed"
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rolebregman.cli.inputs import columns_text
from rolebregman.datasets import SEEN, check_fractions, check_split, file_names, from_pairs, read_parts

IDS = [f"w{i}" for i in range(40)]
VECTORS = np.random.default_rng(0).normal(size=(40, 6)).astype(np.float32)


def table(pairs, **more):
    return pd.DataFrame(np.array(IDS)[np.array(pairs, int).reshape(-1, 2)], columns=["source", "target"]).assign(**more)


def some_pairs(n, seed=0):
    pairs = np.unique(np.random.default_rng(seed).integers(0, 40, (3 * n, 2)), axis=0)
    return np.random.default_rng(seed).permutation(pairs[pairs[:, 0] != pairs[:, 1]])[:n]


def named(ds, part):
    return {(ds.id(s), ds.id(t)) for s, t in ds.edges[part]}


def pairs_in(frame):
    return set(frame[["source", "target"]].itertuples(index=False, name=None))


def test_each_file_is_its_part():
    pairs = some_pairs(60)
    train, valid, test = table(pairs[:40]), table(pairs[40:50]), table(pairs[50:])
    ds = from_pairs(train, VECTORS, ids=IDS, valid=valid, test=test)
    assert [named(ds, part) for part in ("train", "valid", "test")] == [pairs_in(t) for t in (train, valid, test)]
    assert ds.report["read"]["test rows"] == 10 and "validation" not in ds.report["read"]


@pytest.mark.parametrize("seed", range(3))
def test_without_a_file_of_validation_a_share_of_the_training_pairs_is_drawn(seed):
    pairs = some_pairs(60, seed)
    train, test = table(pairs[:40]), table(pairs[40:])
    ds = from_pairs(train, VECTORS, ids=IDS, test=test, seed=seed)
    assert named(ds, "test") == pairs_in(test) and len(ds.edges["valid"]) == 4
    assert named(ds, "train") | named(ds, "valid") == pairs_in(train)
    again = from_pairs(train.sample(frac=1, random_state=1), VECTORS, ids=IDS, test=test, seed=seed)
    assert named(again, "valid") == named(ds, "valid"), "whatever the order of the rows"
    assert named(from_pairs(train, VECTORS, ids=IDS, test=test, seed=seed + 10), "valid") != named(ds, "valid")
    assert ds.report["read"]["validation"] == "4 rows drawn from pairs="


def test_with_a_file_of_validation_alone_nothing_is_tested():
    pairs = some_pairs(30)
    ds = from_pairs(table(pairs[:20]), VECTORS, ids=IDS, valid=table(pairs[20:]))
    assert [len(ds.edges[part]) for part in ("train", "valid", "test")] == [20, 10, 0]


ROW = st.tuples(st.integers(0, 7), st.integers(0, 7), st.sampled_from(["train", "valid", "test"]))


@settings(max_examples=25)
@given(st.lists(ROW, min_size=1))
def test_the_first_part_keeps_a_pair_and_no_pair_is_in_two(rows):
    files = {part: table([r[:2] for r in rows if r[2] == part]) for part in ("train", "valid", "test")}
    files = {part: frame for part, frame in files.items() if len(frame) or part == "train"}
    if not len(files["train"]): return
    found, _, dropped = read_parts(files, drop_seen=True)
    parts = {part: pairs_in(some.astype(str)) for part, some in found.groupby("part")}
    taken, lost = set(), 0
    for part in ("train", "valid", "test"):
        if part not in files: continue
        own = [pair for pair in files[part].itertuples(index=False, name=None) if pair not in taken]
        lost += len(files[part]) - len(own)
        drawn = parts.get("valid", set()) if part == "train" and "valid" not in files else set()
        assert set(own) == parts.get(part, set()) | drawn
        taken |= set(own)
    assert dropped.get(SEEN, 0) == lost


def test_a_pair_in_two_files_is_named_with_both(tmp_path):
    pairs = some_pairs(20)
    table(pairs[:12]).to_csv(tmp_path / "train.csv", index=False)
    table(pairs[10:]).to_csv(tmp_path / "test.csv", index=False)
    with pytest.raises(ValueError, match=r"test\.csv, row 0 \(the first is 0\): .* stands in .*train\.csv, row 10, as "
                                         r"well, 2 such rows; .*\(drop_seen=\)"):
        from_pairs(tmp_path / "train.csv", VECTORS, ids=IDS, test=tmp_path / "test.csv")
    ds = from_pairs(tmp_path / "train.csv", VECTORS, ids=IDS, test=tmp_path / "test.csv", drop_seen=True)
    assert len(ds.edges["test"]) == 8 and ds.report["dropped"][SEEN] == 2


def test_a_pair_that_holds_in_one_file_and_not_in_the_other_is_seen_as_well():
    train, test = table([(0, 1), (2, 3)], label=1), table([(0, 1), (4, 5)], label=[0, 1])
    with pytest.raises(ValueError, match="'w0' -> 'w1' stands in pairs=, row 0, as well"):
        read_parts(dict(train=train, test=test))


@pytest.mark.parametrize("name", ["train.csv", "valid.csv", "test.csv"])
def test_an_item_without_a_vector_is_named_with_its_file_and_row(tmp_path, name):
    pairs = some_pairs(36)
    for part, some in zip(("train", "valid", "test"), np.split(pairs, 3)):
        frame = table(some)
        if name == f"{part}.csv": frame.loc[5, "target"] = "nobody"
        frame.to_csv(tmp_path / f"{part}.csv", index=False)
    with pytest.raises(ValueError, match=rf"{name}, row 5 \(the first is 0\): target 'nobody' has no vector"):
        from_pairs(tmp_path / "train.csv", VECTORS, ids=IDS, valid=tmp_path / "valid.csv", test=tmp_path / "test.csv")


def test_a_column_that_only_one_file_has_is_refused():
    with pytest.raises(ValueError, match="pairs= has labels and test= has none"):
        read_parts(dict(train=table([(0, 1)], label=1), test=table([(2, 3)])))
    with pytest.raises(ValueError, match="valid= has weights and pairs= has none|column 'w'"):
        read_parts(dict(train=table([(0, 1)]), valid=table([(2, 3)], w=1.0)), weight_column="w")


@pytest.mark.parametrize("how", [dict(split="node"), dict(split_column="part")])
def test_files_and_another_way_to_split_do_not_go_together(how):
    pairs = table(some_pairs(20), part="train")
    with pytest.raises(ValueError, match="valid= and test= say the parts"):
        from_pairs(pairs, VECTORS, ids=IDS, test=pairs, **how)


@pytest.mark.parametrize("how,says", [
    (dict(valid=True, test=True, fractions=(0.5, 0.2, 0.3)), "leave fractions= out"),
    (dict(test=True, fractions=(0.8, 5, 0.1)), "expected three shares that sum to 1"),
    (dict(drop_seen=True), "drop_seen= is for pairs in files of their own"),
    (dict(drop_seen=True, split_column="part"), "drop_seen= is for pairs in files of their own")])
def test_what_would_have_no_effect_is_refused(how, says):
    pairs = table(some_pairs(30), part="train")
    files = {part: pairs[start:start + 5] for part, start in dict(valid=20, test=25).items() if how.get(part)}
    with pytest.raises(ValueError, match=says): from_pairs(pairs[:20], VECTORS, ids=IDS, **how | files)
    rest = {name: value for name, value in how.items() if name not in files}
    with pytest.raises(ValueError, match=says):
        check_split("edge", **dict(fractions=(0.8, 0.1, 0.1)) | rest, held_out=tuple(files))
    if "fractions" in how and "valid" not in how:
        with pytest.raises(ValueError, match=says): check_fractions(how["fractions"])


def test_columns_of_a_file_that_are_others_than_those_of_training_are_said():
    pairs = table(some_pairs(30))
    other = pairs[25:].rename(columns=dict(source="child", target="parent")).assign(split="train", note=1)
    read = from_pairs(pairs[:20], VECTORS, ids=IDS, valid=pairs[20:25], test=other).report["read"]
    assert read["columns of test"] == "child (source), parent (target); left unused: split, note"
    assert "columns of valid" not in read and "unused columns" not in read
    assert columns_text(read).endswith("; columns of test: child (source), parent (target); left unused: split, note")


def test_files_of_two_relations_are_no_split():
    pairs = table(some_pairs(30), relation="is_a")
    other = pairs.assign(relation="part_of")
    with pytest.raises(ValueError, match="test= has the relation 'part_of' and pairs= 'is_a'"):
        from_pairs(pairs[:20], VECTORS, ids=IDS, test=other[20:])
    both = pd.concat([pairs, other])
    ds = from_pairs(both[:20], VECTORS, ids=IDS, test=both[20:40], relation="is_a")
    assert named(ds, "test") == pairs_in(pairs[20:])
    assert named(from_pairs(pairs[:20], VECTORS, ids=IDS, test=pairs[20:]), "test") == pairs_in(pairs[20:])


def test_labels_and_weights_go_with_their_rows():
    pairs = some_pairs(40)
    rows = table(pairs, label=np.arange(40) % 2, w=np.arange(40) / 10)
    ds = from_pairs(rows[:30], VECTORS, ids=IDS, test=rows[30:], weight_column="w")
    held, judged = rows[rows["label"] == 1], rows[rows["label"] == 0]
    assert named(ds, "test") == pairs_in(held[held.index >= 30])
    assert {(ds.id(s), ds.id(t)) for s, t in ds.denied["test"]} == pairs_in(judged[judged.index >= 30])
    assert {(ds.id(s), ds.id(t)) for s, t in ds.denied["train"]} == pairs_in(judged[judged.index < 30])
    weight = {(r.source, r.target): r.w for r in rows.itertuples()}
    assert ds.weights.tolist() == [weight[ds.id(s), ds.id(t)] for s, t in ds.edges["train"]]


def test_what_messages_call_the_parts(tmp_path):
    assert file_names(dict(train=tmp_path / "a.csv", test=None)) == dict(train=str(tmp_path / "a.csv"), test="test=")
