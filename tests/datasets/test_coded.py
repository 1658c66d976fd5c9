"""Large tables of pairs: the same ids as by the careful way, or left to it"""
import random
import sys

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rolebregman.common import number_pairs
from rolebregman.datasets import (
    as_ids,
    code_ids,
    count_both_ways,
    from_pairs,
    ids_in_order,
    pick_columns,
    places_of,
    read_coded,
    read_pairs,
    read_table,
    repeats,
    require_items,
)
from rolebregman.datasets import coded as coded_room


def coded(path):
    return read_coded(path, lambda table: pick_columns(table, None, None, path))


def text(table):
    return [list(table.columns), *table.fillna("").astype(str).to_numpy().tolist()]


def some_file(rng):
    "A table as strangers write them: numbers in odd spellings, quotes, ragged and blank lines, other ends of lines"
    sep, end = rng.choice([",", "\t"]), rng.choice(["\n"] * 6 + ["\r\n", "\r"])
    kind, width = rng.choice(["whole", "words", "quotes"]), rng.choice([2, 2, 3])
    odd = ["a", "7", "007", "-0", "+5", " 7", "\u00e9", "\x00", "1e3", "NA", "null", "", "1.0"]
    odd += ["9" * 18, "9" * 19, "9" * 20]

    def cell():
        if kind == "whole" and rng.random() < 0.97: return str(rng.randint(-3, 1200))
        word = "".join(rng.choices(odd, k=rng.choice([1, 2])))
        forms = ['"%s"', '"%s""x"', '"%s\n"', '"%s,"', 'a"%s', '"%s"z', '"%s', '%s"']
        return rng.choice(forms) % word if kind == "quotes" and rng.random() < 0.3 else word

    rows = [sep.join(cell() for _ in range(width if rng.random() < 0.995 else rng.randint(1, 4))) for _ in range(
        rng.randint(1, 12))]
    if rng.random() < 0.1: rows.insert(rng.randrange(len(rows)), rng.choice(["", " "]))
    head = sep.join([rng.choice(["child", '"child"']), "parent", "label"][:width])
    return sep, rng.choice(["", "\ufeff"]) + end.join([head, *rows]) + rng.choice([end, ""])


@pytest.mark.parametrize("seed", range(4))
def test_what_is_read_at_once_is_what_is_read_with_care(tmp_path, seed):
    rng, taken = random.Random(seed), 0
    pytest.importorskip("pyarrow")
    for _ in range(150):
        sep, content = some_file(rng)
        (path := tmp_path/("p.csv" if sep == "," else "p.tsv")).write_bytes(content.encode())
        if (found := coded(path)) is None: continue
        assert text(found) == text(read_table(path)), content  # which raises where the careful way refuses
        taken += 1
    assert taken > 30


def test_whole_numbers_are_numbers_only_where_all_are_written_so(tmp_path, monkeypatch):
    pytest.importorskip("pyarrow")
    path, told = tmp_path/"p.csv", []
    at_once = coded_room._codes_of_whole
    monkeypatch.setattr(coded_room, "_codes_of_whole", lambda *columns: told.append(len(columns)) or at_once(*columns))
    for rows, columns in (("7,12\n-3,7", [2]), ("7,12\n03,7", []), ("7,12\n-0,7", []), ("7,12\n 3,7", []),
                          ("7,12\n\n3,7", []), ("7,12\n3,", []), (f"7,12\n3,{2**63}", []),
                          (f"{-2**63},{2**63 - 1}\n1,2", []), (f"{10**17},7\n{10**17 + 1},7\n", [2])):
        path.write_text("child,parent\n" + rows)
        told.clear()
        assert text(coded(path)) == text(read_table(path)) and told == columns, rows


def test_a_number_of_base_16_is_another_id_than_the_number(tmp_path):
    pytest.importorskip("pyarrow")
    for word in ("", "n"):  # as long as 1048575, and below the rows that are looked at first
        rows = [f"{word}{i},{word}{i + 1}" for i in range(120)]
        for odd in ("0xFFFFF", "0XFFFFF"):
            (tmp_path/"p.csv").write_text("\n".join(["child,parent", *rows, f"{word}{odd},{word}7"]))
            assert coded(tmp_path/"p.csv")["child"].iloc[-1] == word + odd


NUMBERED = st.builds(str.__add__, st.sampled_from(["n", "GO:", "aa", "\u00e9", "n-", "1n", ""]), st.one_of(
    st.integers(0, 30).map(str), st.integers(0, 30).map(str), st.integers(10**9, 10**19).map(str),
    st.sampled_from(["007", "00", "-0", "-5", "+3", "0x1F", "0xFFFFF", "n3", "n", "x", " 4", "4 ", "\u0664"])))


@settings(max_examples=60, deadline=None)
@given(st.one_of(st.lists(st.tuples(NUMBERED, NUMBERED), min_size=1, max_size=12), st.lists(
    st.tuples(*[st.integers(0, 40).map("GO:{}".format)] * 2), min_size=1, max_size=40)))
def test_ids_of_a_word_and_a_number_are_read_as_they_are_written(tmp_path_factory, pairs):
    pytest.importorskip("pyarrow")
    path = tmp_path_factory.getbasetemp()/"numbered.csv"
    path.write_text("\n".join(["child,parent", *map(",".join, pairs)]), encoding="utf-8")
    found = coded(path)
    assert list(zip(*(found[end].astype(str) for end in ("child", "parent")), strict=True)) == pairs
    coded_as = [kind.categories for kind in found.dtypes if isinstance(kind, pd.CategoricalDtype)]
    assert coded_as and all(list(ids) == sorted(set(ids)) for ids in coded_as)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("form", ["{}", "n{}", "w{0}w{0}", "GO:{:07}"])
def test_a_dataset_is_the_sorted_set_of_pairs_drawn_by_seed(tmp_path, form, seed):
    "By Python's sets and sorting, and NumPy's permutation"
    pairs = [tuple(map(form.format, pair)) for pair in np.random.default_rng(seed).integers(0, 25, (200, 2)).tolist()]
    path = tmp_path/"drawn.csv"
    path.write_text("\n".join(["child,parent", *map(",".join, pairs)]))
    ids = sorted({i for pair in pairs for i in pair}, reverse=True)
    ds = from_pairs(path, np.eye(len(ids), dtype=np.float32), ids=ids, seed=seed)
    kept = sorted({pair for pair in pairs if pair[0] != pair[1]})
    drawn, tenth = np.random.default_rng(seed).permutation(len(kept)), int(len(kept) / 10 + 0.5)
    for part, rows in zip(("train", "valid", "test"), np.split(drawn, [-2 * tenth, -tenth]), strict=True):
        assert [(ids[s], ids[t]) for s, t in ds.edges[part]] == [kept[i] for i in sorted(rows)]
    own = sum(s == t for s, t in pairs)
    both = sum(pair[::-1] in kept for pair in kept)
    assert ds.report["dropped"] == {k: v for k, v in {"self-pair": own, "repeated pair": len(pairs) - own - len(kept)
                                                      }.items() if v}
    assert ds.report["kept"].get("pairs in both directions", 0) == both
    assert ds.positives.tolist() == sorted([ids.index(s), ids.index(t)] for s, t in kept)


@pytest.mark.parametrize("name, content", [
    ("p.csv", "child;parent\na;b\n"), ("p.csv", "child,child\na,b\n"), ("p.csv", "child,parent\na\n"),
    ("p.csv", "child,parent\na,b,c\n"), ("p.csv", "child,parent\n"), ("p.csv", ""), ("p.csv.gz", "child,parent\na,b\n"),
    ("p.csv", "child,parent\na,\"b\n"), ("p.csv", ",parent,child\n0,a,b\n"), ("p.jsonl", '{"child": 1, "parent": 2}')])
def test_what_is_not_plain_is_left_to_the_careful_way(tmp_path, name, content):
    (tmp_path/name).write_text(content)
    assert coded(tmp_path/name) is None


def test_without_pyarrow_the_dataset_is_the_same(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.integers(0, 60, (400, 2)), columns=["child", "parent"])
    for name, some in (("i.csv", table), ("s.csv", "n" + table.astype(str)), ("l.csv", table.assign(label=1))):
        some.to_csv(tmp_path/name, index=False)
        ids = sorted(set(some[["child", "parent"]].astype(str).to_numpy().ravel()))
        vectors = rng.random((len(ids), 3), dtype=np.float32)
        fast = from_pairs(tmp_path/name, vectors, ids=ids)
        with monkeypatch.context() as patch:
            patch.setitem(sys.modules, "pyarrow", None)
            assert coded(tmp_path/name) is None
            slow = from_pairs(tmp_path/name, vectors, ids=ids)
        assert fast.report == slow.report and list(fast.nodes["id"]) == list(slow.nodes["id"])
        for part, edges in fast.edges.items(): assert (edges == slow.edges[part]).all()
        assert read_pairs(tmp_path/name)[0].equals(read_pairs(some)[0])


@pytest.mark.parametrize("columns", [
    ([7, 12, 7], [1, 7, 7]), (["b", " a", None], ["a", "b", "b"]), ([7, 7, 3], ["7", "3 ", "a"]),
    ([1.0, None, 3.0], [3, 2, 1]), ([b"a", "a", 3], ["3", "x", "a"]), ([10**17, 5, 10**17], [5, 5, 0])])
@pytest.mark.parametrize("dtype", [None, "category"])
def test_codes_are_the_ids_and_equal_where_these_are(columns, dtype):
    given = [pd.Series(column, dtype=dtype) for column in columns]
    found = code_ids(*given, what=["child", "parent"])
    assert [list(some) for some in found] == [list(as_ids(some)) for some in given]
    assert found[0].dtype == found[1].dtype and list(found[0].categories) == sorted(found[0].categories)
    pairs, index = pd.DataFrame(dict(zip(("source", "target"), found, strict=True))), pd.Index(["b", "7"])
    expected = [[{"b": 0, "7": 1}.get(end, -1) for end in pair] for pair in zip(*found, strict=True)]
    assert places_of(pairs, index).tolist() == expected == places_of(pairs.astype("str"), index).tolist()


def test_an_id_that_is_missing_among_many_of_a_category_is_the_empty_text():
    "128 categories are more than the bytes that hold their codes can count"
    column = pd.Series([*map(str, range(127)), None], dtype="category")
    assert list(code_ids(column, column[::-1], what=["s", "t"])[0]) == [*map(str, range(127)), ""]


def test_repeats_are_those_of_pandas():
    rng = np.random.default_rng(1)
    for n, rows in ((5, 40), (300, 2000), (3000, 2000)):
        table = pd.DataFrame(rng.integers(0, n, (rows, 2)), columns=["source", "target"])
        pairs = pd.DataFrame(dict(zip(table, code_ids(*map(table.get, table), what=["s", "t"]), strict=True)))
        assert (repeats(pairs) == table.duplicated().to_numpy()).all()


def test_ids_stand_in_the_order_of_the_rows_without_those_of_self_pairs():
    rng = np.random.default_rng(3)
    table = pd.DataFrame(rng.integers(0, 60, (200, 2)), columns=["source", "target"]).astype(str)
    table.loc[len(table)] = ["own", "own"]
    pairs = pd.DataFrame(dict(zip(table, code_ids(*map(table.get, table), what=["s", "t"]), strict=True)))
    apart = table[table["source"] != table["target"]]
    for size in (3, 1000):
        assert list(ids_in_order(pairs, size)) == list(dict.fromkeys(apart.to_numpy().ravel()))


@pytest.mark.parametrize("asked, there, how", [
    ("cafe\u0301", "caf\u00e9", "in another Unicode form"), ("Celery", "celery", "in other case"),
    ("celery ", "celery", "in other case, width or with other blanks"), ("ＡＢ", "AB", "in other case, width")])
def test_an_id_that_is_there_in_another_way_of_writing_is_told(asked, there, how):
    "They look the same, or nearly so, and the error says which one is meant"
    pairs = pd.DataFrame(dict(source=pd.Categorical([asked], [asked, "x"]), target=pd.Categorical(["x"], [asked, "x"]),
                              row=[0]))
    with pytest.raises(ValueError, match=f"source .* has no vector; '{there}' is there, {how}"):
        require_items(pairs, ["x", "y", there], "vector", "pairs.csv")
    with pytest.raises(ValueError, match=r"has no vector\. 1 such ids"):
        require_items(pairs, ["x", "y"], "vector", "pairs.csv")


@pytest.mark.parametrize("size", [1, 7, 1 << 20])
def test_pairs_both_ways_are_counted_as_one_by_one(size):
    rng = np.random.default_rng(2)
    pairs = np.unique(rng.integers(0, 70, (1600, 2)), axis=0)
    pairs = pairs[pairs[:, 0] != pairs[:, 1]]
    numbers, there = number_pairs(*pairs.T, 70), set(map(tuple, pairs.tolist()))
    before = numbers.copy()
    assert count_both_ways(numbers, 70, size) == sum((t, s) in there for s, t in there) > 0
    assert count_both_ways(numbers[pairs[:, 0] < pairs[:, 1]], 70, size) == 0 == count_both_ways(numbers[:0], 70, size)
    assert np.array_equal(numbers, before)


@pytest.mark.parametrize("number", [0, 7, 255, 65_535, 999_999, 1_000_000, 1_048_575, 16_777_215, 4_294_967_295])
@pytest.mark.parametrize("among", [1, 1_000_000])
def test_a_number_of_base_16_is_text_however_long_it_is(tmp_path, number, among):
    "0xFFFFF has as many letters as 1048575: the file is as long as it would be with digits"
    rows = [(among, 2)] * 150 + [(hex(number), 3)]
    (tmp_path / "pairs.csv").write_text("source,target\n" + "".join(f"{s},{t}\n" for s, t in rows))
    found = coded(tmp_path / "pairs.csv")
    assert found is None or list(found["source"].astype(str))[-1] == hex(number)
    assert list(read_pairs(tmp_path / "pairs.csv")[0]["source"].astype(str))[-1] == hex(number)
