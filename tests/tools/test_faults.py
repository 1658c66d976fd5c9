"A short form of make faults, and the rows that the long one has left"
import csv
import time

import faults
import pytest


@pytest.mark.parametrize("kind", [faults.Head, faults.Index, faults.Cache])
def test_kills_at_random_moments(kind):
    assert faults.killed(kind(), 3) == (3, "")


@pytest.mark.parametrize("kind", [faults.Head, faults.Index])
def test_two_writers_and_a_reader(kind):
    tried, held, first = faults.crowded(kind(), 3)
    assert (held, first) == (tried, "") and tried > 3


class Careless(faults.Subject):
    "Writes in place, in two parts, and comes to the second one where no kill is to meet it"
    kills = 12

    def write(self, folder, number):
        with open(folder / "state", "wb", buffering=0) as file:
            file.write(bytes([number]) * 1500)
            time.sleep(60 if 1 <= number <= self.kills else 0.05)
            file.write(bytes([number]) * 1500)

    def read(self, folder):
        found = set((folder / "state").read_bytes())
        if len(found) != 1 or (folder / "state").stat().st_size != 3000: raise ValueError("torn")
        return found.pop()


def test_what_is_written_in_place_is_found_out():
    held, first = faults.killed(Careless(), Careless.kills)
    assert held < Careless.kills and first == "ValueError: torn"


def test_memory_stays_flat():
    assert faults.memory(rounds=6) == (6, 6, "")


def test_every_case_of_the_tests_that_are_counted_is_there():
    for file, some in faults.TESTS.values():
        text = (faults.ROOT / "tests" / file).read_text()
        words = some.split(" or ")
        found = [word for word in words if any(word in line for line in text.splitlines() if line.startswith("def te"))]
        assert found == words, f"{file} has no test of {set(words) - set(found)}"


def test_cases_that_hold_are_counted_and_none_is_a_fault():
    assert faults.tested("test_common.py", "printable") == (1, 1, "")
    with pytest.raises(SystemExit, match="none of tests/test_common.py was run with -k 'no_such_test'"):
        faults.tested("test_common.py", "no_such_test")


def test_whatever_was_tried_held():
    if not faults.ROWS.exists(): pytest.skip("no rows yet: make faults")
    with faults.ROWS.open(newline="") as file: rows = list(csv.DictReader(file))
    assert [row for row in rows if row["tried"] != row["held"] or row["tried"] == "0"] == []
    subjects = {row["subject"] for row in rows if row["fault"] == "killed at a random moment"}
    if subjects != set(faults.SUBJECTS): pytest.skip(f"not run yet: {', '.join(set(faults.SUBJECTS) - subjects)}")
