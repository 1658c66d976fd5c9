"The tool that changes the library in one place at a time, and the rows that it has left"
import ast
import csv

import mutants
import pytest

SOURCE = '''
"A docstring with 1 < 2"
LIMIT = 3
BLOCK = 1 << 20


def small(a: int = 4, *, b=True) -> bool:
    "Another, 5"
    if a <= LIMIT and not b: raise ValueError(f"{a + 6} is more than {7}")
    a += 1
    return max(a, -b)
'''
CHANGES = {"LIMIT = 4", "a: int = 5", "b=False", "a < LIMIT", "LIMIT or not b", "and (b)", "if (not (a <= LIMIT and",
           "a -= 1", "a += 2", "    pass", "return None", "min(a, -b)", "max(a, (b))"}


@pytest.fixture
def small(tmp_path, monkeypatch):
    "A library of one module"
    (tmp_path / "rolebregman").mkdir()
    (tmp_path / "rolebregman/small.py").write_text(SOURCE)
    monkeypatch.setattr(mutants, "ROOT", tmp_path)
    mutants.mutants.cache_clear()
    yield mutants.mutants("small")
    mutants.mutants.cache_clear()


def test_each_place_is_changed_once_and_what_only_words_and_sizes_say_is_left_alone(small):
    texts = [mutants.mutated(one).decode() for one in small]
    for text in texts: ast.parse(text)
    assert len(set(texts)) == len(texts) == len(CHANGES) and SOURCE not in texts
    assert {change: sum(change in text for text in texts) for change in CHANGES} == dict.fromkeys(CHANGES, 1)
    assert len({one.name for one in small}) == len(small), "a name is that of one mutant"


def test_a_line_more_above_changes_no_name(small, tmp_path):
    path = tmp_path / "rolebregman/small.py"
    path.write_text("import os\n" + SOURCE)
    mutants.mutants.cache_clear()
    moved = mutants.mutants("small")
    assert [(one.name, one.line + 1) for one in small] == [(one.name, one.line) for one in moved]


def test_the_same_seed_draws_the_same_and_a_smaller_sample_is_in_a_larger_one():
    few, many = mutants.sample(60, 0), mutants.sample(120, 0)
    assert few == many[:len(few)] and few == mutants.sample(60, 0) != mutants.sample(60, 1)
    assert {one.module for one in many} == set(mutants.TESTS)


def test_tests_of_a_module_are_there():
    for module, files in mutants.TESTS.items():
        assert (mutants.ROOT / f"rolebregman/{module}.py").exists()
        for file in files: assert (mutants.ROOT / "tests" / file.partition(":")[0]).exists(), file


@pytest.mark.parametrize("body, wanted", [("assert True", ("survived", "")), ("assert 1 > 2", ("killed", "test_a")),
                                          ("while True: pass", ("time", ""))])
def test_a_fork_says_whether_a_test_fails(tmp_path, body, wanted):
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests/test_one.py").write_text(f"def test_a():\n    {body}\n")
    outcome, by = mutants.in_a_fork(tmp_path, ["test_one.py"], 60 if wanted[0] != "time" else 2)
    assert (outcome, by.rpartition("::")[2]) == wanted


def test_nearly_every_mutant_is_noticed_and_each_equivalent_one_has_a_reason():
    rows, same = mutants.read_rows(), mutants.equivalent()
    assert set(same) <= set(rows) and all(len(reason) > 10 for reason in same.values())
    assert all(rows[key]["outcome"] == "survived" for key in same)
    rest = [row["outcome"] != "survived" for key, row in rows.items() if key not in same]
    if len(rows) < 400: pytest.skip(f"{len(rows)} of 400 mutants have been run, {sum(rest)} were noticed: make mutants")
    assert sum(rest) >= 0.92 * len(rest), f"{sum(rest)} of {len(rest)}"


def test_rows_are_in_the_order_of_modules_and_lines():
    if not mutants.ROWS.exists(): pytest.skip("no rows yet: make mutants")
    with mutants.ROWS.open(newline="") as file: rows = list(csv.DictReader(file))
    order = list(mutants.TESTS)
    places = [(order.index(row["module"]), int(row["line"])) for row in rows]
    assert places == sorted(places) and set(rows[0]) == set(mutants.COLUMNS)
