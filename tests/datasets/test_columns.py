"What a table of pairs says: columns found by one rule, labels read as they are meant, and nothing left out in silence"
import re

import numpy as np
import pandas as pd
import pytest

from rolebregman.cli.inputs import columns_text
from rolebregman.common import pairs_of_numbers
from rolebregman.datasets import (
    columns_named,
    find_column,
    label_values,
    numbered_pairs,
    pair_blocks,
    pairs_of_table,
    pick_columns,
    read_pairs,
    read_rows,
    scored_pairs,
    unique_pairs,
)

PETS = pd.DataFrame(dict(child=["dog", "cat", "stone"], parent="animal"))


def held(table, **options):
    return list(read_pairs(table, **options)[0]["source"])


# Names

@pytest.mark.parametrize("label", ["label", "Label", " label", "LABEL ", "gold_label", "Gold Label", "\u00a0label"])
def test_a_column_of_labels_is_found_in_any_case(tmp_path, label):
    PETS.assign(**{label: [1, 1, 0]}).to_csv(tmp_path/"p.csv", index=False)
    found, read, dropped = read_pairs(tmp_path/"p.csv")
    assert list(found["source"]) == ["dog", "cat"] and dropped == {"labelled as not holding": 1}
    assert read["label column"] == label and read["labels"] == "1: holds; 0: does not" and "unused columns" not in read
    assert read["used columns"] == f"child (source), parent (target), {label.strip()} (label)"


def test_a_space_after_the_comma_changes_nothing(tmp_path):
    (tmp_path/"p.csv").write_text("child, parent, label, weight\ndog, animal, 1, 2\nstone, animal, 0, 1\n")
    found, read, _ = read_pairs(tmp_path/"p.csv")
    assert list(found["source"]) == ["dog"] and list(found["target"]) == ["animal"]
    assert read["unused columns"] == "weight"


@pytest.mark.parametrize("columns, which", [
    (["source", "target", "source"], "two columns 'source'"), (["Source", "source", "target"], "'Source' and 'source'"),
    (["source", "target", "Target "], "'target' and 'Target '"), (["Word 1", "word1", "word2"], "'Word 1' and 'word1'"),
    (["source", "target", "child", "parent"], "'source' and 'child' could each be the source"),
    (["child", "parent", "PARENT", "x"], "'parent' and 'PARENT' could each be the target")])
def test_a_header_in_which_two_columns_could_be_meant_is_refused(tmp_path, columns, which):
    (tmp_path/"p.csv").write_text(",".join(columns) + "\n" + ",".join("abcd"[:len(columns)]) + "\n")
    for read in (read_pairs, lambda path: list(pair_blocks(path))):
        with pytest.raises(ValueError, match=which): read(tmp_path/"p.csv")


def test_what_is_said_settles_it():
    four = PETS.assign(source="s", target="t")
    assert pick_columns(four, "child", None, "t") == ("child", "parent") # its partner
    assert pick_columns(four, None, "target", "t") == ("source", "target")
    assert pick_columns(four, "parent", "child", "t") == ("parent", "child")
    assert pick_columns(PETS.rename(columns=dict(child="Kid ")), "kid", "PARENT", "t") == ("Kid ", "parent")
    assert pick_columns(PETS.assign(Child="x"), "Child", None, "t") == ("Child", "parent") # as it is written
    with pytest.raises(ValueError, match="column 'target' cannot be both"):
        pick_columns(PETS.set_axis(["source", "target"], axis=1), "target", None, "t")
    with pytest.raises(ValueError, match="'Label' and 'label' could each be label; say which with label="):
        read_pairs(PETS.assign(Label=1, label=0))
    assert held(PETS.assign(Label=[1, 0, 0], label=1), label="Label") == ["dog"]


def test_names_are_compared_without_case_spaces_and_dashes():
    assert columns_named(["Word 1", "word_1", "word-1", "word2", 7], "word1") == ["Word 1", "word_1", "word-1"]
    assert find_column(pd.DataFrame(columns=[7, "b"]), ("7",), "t") == 7
    assert find_column(PETS, ("id",), "t") is None


# Labels

@pytest.mark.parametrize("labels", [
    [1, 1, 0], [True, True, False], ["True", "true", "FALSE"], ["yes", "Yes ", "no"], ["entailment"] * 2 + ["neutral"],
    ["Entailment", "entails", "not_entailment"], ["ENTAILMENT", "entailment", "contradiction"], ["1", "1.0", "0"],
    ["y", "t", "n"], [b"yes", b"yes", b"no"], pd.array([1.0, 1.0, 0.0], "Float64"),
    pd.array([True, True, False], "boolean"), pd.Categorical(["yes", "yes", "non-entailment"])])
def test_labels_are_read_as_they_are_meant(labels):
    assert held(PETS.assign(label=labels)) == ["dog", "cat"]
    assert label_values(PETS.assign(label=labels), "label", "t").tolist() == [1, 1, 0]


@pytest.mark.parametrize("label, says", [
    ("maybe", "label 'maybe' is no number and no word"), ("", "label '' is no number"),
    ("-", "label '-' is no number"),
    (None, "label is missing"), (2, "label 2 is neither 0 nor 1"),
     (-1, "label -1 is neither"), (0.5, "label 0.5 is neither"),
    (np.inf, r"label .*inf.* is no number")])
def test_a_label_of_which_it_is_not_clear_what_it_says_is_refused(label, says):
    with pytest.raises(ValueError, match=rf"pairs, row 2 \(the first is 0\): .*{says}"):
        read_pairs(PETS.assign(label=pd.Series([1, 0, label], dtype=object)))


def test_rows_say_what_they_say():
    table = PETS.assign(label=["yes", "no", "yes"], split=["train", "dev", "Test"], note="x")
    rows, read, dropped = read_rows(table, split_column="split")
    assert rows["score"].tolist() == [1, 0, 1] and rows["part"].tolist() == ["train", "valid", "test"] and not dropped
    assert read["unused columns"] == "note" and read["parts"] == "train 1, valid 1, test 1"
    assert list(unique_pairs(rows, {}, "t")[0]["part"]) == ["train", "test"]
    assert list(scored_pairs(rows)["score"]) == [1, 0, 1]
    assert list(pairs_of_table(table, "child", "parent", "t", 5)["row"]) == [5, 6, 7]


# Relations

KINDS = pd.DataFrame(dict(head=list("abcc"), relation=["is_a", "part_of", "is_a", "part_of"], tail=list("xyzz")))


@pytest.mark.parametrize("count, ends", [(12, "'r11' (1); say"), (13, "'r11' (1), ...; say")])
def test_of_many_relations_a_dozen_is_named(count, ends):
    table = pd.DataFrame(dict(head="a", relation=[f"r{i:02}" for i in range(count)], tail="b"))
    with pytest.raises(ValueError, match=re.escape(ends)): read_pairs(table)


@pytest.mark.parametrize("column", ["relation", "Predicate", "edge_type", " rel"])
def test_one_of_several_relations_is_asked_for(column):
    table = KINDS.rename(columns=dict(relation=column))
    with pytest.raises(ValueError, match=r"has several relations: 'is_a' \(2\), 'part_of' \(2\); say with relation="):
        read_pairs(table)
    found, read, dropped = read_pairs(table, relation="is_a")
    assert list(found["source"]) == ["a", "c"] and dropped == {"of another relation": 2} and read["relation"] == "is_a"
    assert list(found["row"]) == [0, 2] and "unused columns" not in read
    assert held(table, relation=["is_a", "part_of"]) == ["a", "b", "c"] # both, since it was said
    with pytest.raises(ValueError, match=r"relation = 'isa', but column .* has 'is_a' \(2\)"):
        read_pairs(table, relation="isa")


def test_a_relation_may_be_alone_or_in_a_column_of_another_name():
    assert read_pairs(KINDS[::2])[1]["relation"] == "is_a"
    table = KINDS.rename(columns=dict(relation="kind"))
    assert read_pairs(table)[1]["unused columns"] == "kind"
    assert held(table, relation="part_of", relation_column="Kind") == ["b", "c"]
    with pytest.raises(ValueError, match="none of the columns .* is called relation or predicate"):
        read_pairs(table, relation="is_a")
    with pytest.raises(ValueError, match=r"no column 'sort' \(relation_column=\)"):
        read_pairs(table, relation="is_a", relation_column="sort")


def test_labels_of_another_relation_do_not_contradict_and_rows_are_counted_in_the_table():
    table = KINDS.assign(label=[1, 1, 1, 0])
    assert held(table, relation="is_a") == ["a", "c"]
    with pytest.raises(ValueError, match=r"row 3 \(the first is 0\): label 'so'"):
        read_pairs(KINDS.assign(label=["so", 1, "so", "so"]).iloc[[0, 1, 2, 3]], relation="part_of")
    with pytest.raises(ValueError, match="holds in row 2 and does not in row 3"):
        read_pairs(table, relation=["is_a", "part_of"])


# Parts

@pytest.mark.parametrize("column", ["split", "fold", "Set"])
def test_a_column_of_parts_that_was_not_named_is_said(column):
    table = PETS.assign(**{column: ["train", "validation", "test"]})
    read = read_pairs(table)[1]
    assert read["split column not used"] == (f"{column} (train, validation, test): name it with split_column= to keep "
                                             "to its parts")
    assert read["unused columns"] == column
    assert "split column not used" not in read_pairs(PETS.assign(**{column: ["train", "later", "test"]}))[1]
    assert "split column not used" in read_pairs(table.assign(**{column: [None, "train", " test"]}))[1]
    assert "split column not used" not in read_pairs(PETS.assign(**{column: None}))[1]
    assert "split column not used" not in read_pairs(table, split_column=column.upper())[1]


@pytest.mark.parametrize("parts, says", [
    (["train", "later", "test"], r"row 1 .*: column 'split' holds 'later', expected train, valid or test"),
    (["train", None, "test"], "row 1 .*: column 'split' holds ''"),
    (["test", "dev", "test"], "column 'split' has no row of train")])
def test_parts_that_are_none_are_named(parts, says):
    with pytest.raises(ValueError, match=says): read_pairs(PETS.assign(split=parts), split_column="split")
    with pytest.raises(ValueError, match=r"no column 'parts' \(split_column=\)"):
        read_pairs(PETS.assign(split=parts), split_column="parts")


def test_a_pair_in_two_parts_is_named():
    table = pd.concat([PETS, PETS[:1]]).assign(split=["train", "valid", "test", "test"])
    with pytest.raises(ValueError, match="'dog' -> 'animal' is train in row 0 and test in row 3"):
        read_pairs(table, split_column="split")
    assert held(table.assign(split=["train", "valid", "test", "train"]), split_column="split") == list(PETS["child"])


@pytest.mark.parametrize("columns, said", [([], []), (["weight"], ["weight"]), (["weight", "label"], ["weight"])])
def test_numbered_pairs_are_the_unique_ones_in_the_order_of_their_ids(columns, said):
    rng = np.random.default_rng(4)
    table = pd.DataFrame(rng.integers(0, 9, (60, 2)), columns=["source", "target"]).astype(str)
    table = table.assign(weight=(table["source"] + table["target"]).astype(int), label=1)
    table = table[["source", "target", *columns]]
    rows = read_rows(table, weight_column="weight" if columns else None)[0]
    numbers, more, dropped = numbered_pairs(rows, {"of another relation": 3}, "t")
    unique, also = unique_pairs(rows, {"of another relation": 3}, "t")
    assert dropped == also and list(more.columns) == said
    ids = rows["source"].cat.categories
    found = ids.to_numpy()[pairs_of_numbers(numbers, len(ids))].tolist()
    assert found == sorted(unique[["source", "target"]].astype(str).to_numpy().tolist())
    if said: assert (more["weight"].to_numpy() == [int(s + t) for s, t in found]).all()
    with pytest.raises(ValueError, match="t: no pair is left; dropped {'self-pair': 60}"):
        numbered_pairs(rows.assign(target=rows["source"]), {}, "t")


@pytest.mark.parametrize("name, labels", [("y", (1, 0)), ("holds", ("Yes", " no")), ("is_true", ("True", "False")),
                                          ("target_label", ("1.0", "0.0"))])
def test_a_column_that_seems_to_say_which_rows_hold_is_mentioned(name, labels):
    table = pd.DataFrame(dict(source=list("abcd"), target=list("efgh"))).assign(**{name: [*labels, *labels]})
    said = read_rows(table)[1]["label column not used"]
    assert said.startswith(f"{name} (") and "name it with label= if it says which rows hold" in said
    told = columns_text(read_rows(table)[1])
    assert f"{name} (" in told and "name it with --label" in told
    for other in ([1, 1, 1, 1], [0, 1, 2, 0], ["a", "0", "1", "0"]):
        assert "label column not used" not in read_rows(table.assign(**{name: other}))[1]
    assert "label column not used" not in read_rows(table, label=name)[1]
    rows, read, _ = read_rows(table.rename(columns={name: " Labels"}))
    assert rows["holds"].tolist() == [True, False] * 2 and read["label column"] == " Labels"


@pytest.mark.parametrize("name", ["rel type", "Relations", "edge_label"])
def test_relations_by_other_names_are_told_apart(name):
    table = pd.DataFrame(dict(source=list("abcd"), target=list("efgh"))).assign(**{name: list("xyxy")})
    with pytest.raises(ValueError, match=r"has several relations: 'x' \(2\), 'y' \(2\)"): read_rows(table)
    assert len(read_rows(table, relation="x")[0]) == 2


@pytest.mark.parametrize("header, says", [("a^b", "it has one column alone: of a file of pairs pass sep="),
                                          ("a;b", "its header has semicolons"), ("a b", "one column alone")])
def test_advice_on_a_file_of_one_column_is_of_its_separator(tmp_path, header, says):
    (tmp_path / "p.csv").write_text(f"{header}\n1{header[1]}2\n")
    with pytest.raises(ValueError, match=f"p.csv: cannot tell source from target .*{says}"):
        read_rows(tmp_path / "p.csv")
