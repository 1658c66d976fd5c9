"Files for validation and test: one table, no pair in two parts, faults that name their file, a share drawn by seed"
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rolebregman.cli.inputs import columns_text
from rolebregman.datasets import SEEN, check_fractions, check_split, file_names, from_pairs, read_parts, text_that_fits

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


@pytest.mark.parametrize("labels", [[1, 0] * 5, ["yes", "no"] * 5, ["entailment", "neutral"] * 5])
@pytest.mark.parametrize("name", ["label", "Gold_Label", "says"])
@pytest.mark.parametrize("parts", [("test",), ("valid", "test"), ("valid",)])
def test_training_pairs_without_labels_hold_whatever_the_labels_of_the_held_out_ones(tmp_path, labels, name, parts):
    pairs, how = some_pairs(50), dict(label="says") if name == "says" else {}
    table(pairs[:30]).to_csv(tmp_path / "train.csv", index=False)
    files = {part: table(pairs[30 + 10 * k:40 + 10 * k], **{name: labels}) for k, part in enumerate(parts)}
    ds = from_pairs(tmp_path / "train.csv", VECTORS, ids=IDS, **files, **how)
    assert named(ds, "train") | (named(ds, "valid") if "valid" not in files else set()) == pairs_in(table(pairs[:30]))
    for part, frame in files.items():
        assert named(ds, part) == pairs_in(frame[::2])
        assert {(ds.id(s), ds.id(t)) for s, t in ds.denied[part]} == pairs_in(frame[1::2])
    assert not len(ds.denied["train"])
    said = ds.report["read"]["without labels"]
    assert said == f"{tmp_path / 'train.csv'}: each row holds" and said in columns_text(ds.report["read"])


def test_a_label_that_no_file_has_and_strengths_of_some_files_alone_are_refused(tmp_path):
    table(some_pairs(50)[:30]).to_csv(tmp_path / "train.csv", index=False)
    test = table(some_pairs(50)[30:], strength=range(20))
    for how in (dict(label="says"), dict(label="strength", min_label=7)):
        with pytest.raises(ValueError, match=rf"train.csv has no column '{how['label']}'|train.csv has no column"):
            from_pairs(tmp_path / "train.csv", VECTORS, ids=IDS, test=test, **how)
    other = table(some_pairs(50)[:30], label=1)  # is it labelled by that?
    with pytest.raises(ValueError, match="pairs has no column 'strength'"):
        from_pairs(other, VECTORS, ids=IDS, test=test, label="strength")


def test_held_out_pairs_need_no_weight():
    pairs = some_pairs(40)
    ds = from_pairs(table(pairs[:30], w=np.arange(30)), VECTORS, ids=IDS, test=table(pairs[30:]), weight_column="w")
    assert named(ds, "test") == pairs_in(table(pairs[30:])) and len(ds.weights) == len(ds.edges["train"])
    with pytest.raises(ValueError, match="pairs has no column 'w'"):
        from_pairs(table(pairs[:30]), VECTORS, ids=IDS, test=table(pairs[30:], w=1), weight_column="w")


WRITERS = {
    "plain.csv": lambda frame, path: frame.to_csv(path, index=False),
    "tabs.tsv": lambda frame, path: frame.to_csv(path, index=False, sep="\t"),
    "semicolons.csv": lambda frame, path: frame.to_csv(path, index=False, sep=";"),
    "old.csv": lambda frame, path: frame.to_csv(path, index=False, encoding="latin-1"),
    "both.csv.gz": lambda frame, path: frame.to_csv(path, index=False, sep=";", encoding="latin-1"),
    "table.parquet": lambda frame, path: frame.to_parquet(path),
    "lines.jsonl": lambda frame, path: frame.to_json(path, orient="records", lines=True, force_ascii=False),
    "packed.csv.zip": lambda frame, path: frame.to_csv(path, index=False, sep=";"),
    "table": None}  # not a file


@pytest.mark.parametrize("first", ["plain.csv", "semicolons.csv", "old.csv", "both.csv.gz", "table.parquet"])
@pytest.mark.parametrize("second", WRITERS)
def test_files_of_another_separator_encoding_or_format(tmp_path, first, second):
    pairs, ids = some_pairs(40), [f"ärger{i}" for i in range(40)]
    frames = [pd.DataFrame(np.array(ids)[some], columns=["source", "target"]) for some in (pairs[:30], pairs[30:])]
    given = []
    for frame, name, folder in zip(frames, (first, second), ("a", "b")):
        (tmp_path / folder).mkdir()
        given.append(tmp_path / folder / name if WRITERS[name] else frame)
        if WRITERS[name]: WRITERS[name](frame, given[-1])
    names = {first, second}
    how = dict(sep=";") if names & {"semicolons.csv", "both.csv.gz", "packed.csv.zip"} else {}
    how |= dict(encoding="latin-1") if names & {"old.csv", "both.csv.gz"} else {}
    ds = from_pairs(given[0], VECTORS, ids=ids, test=given[1], **how)
    assert named(ds, "test") == pairs_in(frames[1])
    assert named(ds, "train") | named(ds, "valid") == pairs_in(frames[0])
    if first == "plain.csv" and second == "both.csv.gz":
        said = ds.report["read"]["not with that separator and encoding"]
        assert said == str(given[0]) and said in columns_text(ds.report["read"])


@pytest.mark.parametrize("how", [dict(sep="|"), dict(encoding="utf-16"), dict(sep="|", encoding="latin-1")])
def test_what_no_file_has_is_refused(tmp_path, how):
    table(some_pairs(40)[:30]).to_parquet(tmp_path / "train.parquet")
    for test in (table(some_pairs(40)[30:]), tmp_path / "train.parquet"):
        with pytest.raises(ValueError, match=r"only .csv, .tsv and .tab have a sep= and an encoding=; leave them out"):
            from_pairs(tmp_path / "train.parquet", VECTORS, ids=IDS, test=test, **how)
    for name, some in dict(train=slice(30), test=slice(30, 40)).items():
        table(some_pairs(40)[some]).to_csv(tmp_path / f"{name}.csv", index=False)
    if how == dict(sep="|"):
        with pytest.raises(ValueError, match="train.csv: cannot tell source from target .* its header has commas"):
            from_pairs(tmp_path / "train.csv", VECTORS, ids=IDS, test=tmp_path / "test.csv", **how)


@pytest.mark.parametrize("how", ["files", "column", "words", "missing"])
def test_training_pairs_of_which_none_holds_are_named_with_their_file(tmp_path, how):
    pairs, path = some_pairs(40), tmp_path / "own.csv"
    train, test = table(pairs[:30], label=0), table(pairs[30:], label=1)
    if how == "words": train, test = train.assign(label="no"), test.assign(label="yes")
    more = dict(test=test)
    if how == "column":
        train, more = pd.concat([train.assign(s="train"), test.assign(s="test")]), dict(split_column="s")
    if how == "missing":
        train = pd.concat([train, table([(0, 1)], label=1).assign(target="nobody")])
        more |= dict(missing="drop")
    train.to_csv(path, index=False)
    with pytest.raises(ValueError, match=r"own.csv: (none of its 30 rows holds|no pair of train is left that holds)"):
        from_pairs(path, VECTORS, ids=IDS, **more)


def test_a_column_that_only_one_file_has_is_refused():
    with pytest.raises(ValueError, match="pairs= has labels and test= has none"):
        read_parts(dict(train=table([(0, 1)], label=1), test=table([(2, 3)])))


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


@pytest.mark.parametrize("written, found", [
    (dict(sep=";", encoding="utf-16"), dict(sep=";", encoding="utf-16")), (dict(sep=";"), dict(sep=";", encoding=None)),
    (dict(encoding="utf-16"), dict(sep=None, encoding="utf-16")), ({}, dict(sep=None, encoding=None)),
    (dict(sep="|"), None), (dict(sep=";", encoding="utf-32"), None)])
def test_a_file_has_the_separator_and_encoding_of_another_or_its_own_or_cannot_be_read_so(tmp_path, written, found):
    table([[0, 1]]).assign(source="é").to_csv(tmp_path / "later.csv", index=False, **written)
    assert text_that_fits(tmp_path / "later.csv", sep=";", encoding="utf-16") == found
