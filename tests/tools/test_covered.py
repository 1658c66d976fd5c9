"Rows of what coverage.py has measured"
import covered


def file(lines, branches, missing_lines, missing_branches):
    summary = dict(num_statements=lines, num_branches=branches, covered_lines=lines - len(missing_lines),
                   covered_branches=branches - len(missing_branches))
    return dict(summary=summary, missing_lines=missing_lines, missing_branches=missing_branches)


def test_lines_and_ways_that_no_test_takes_are_named():
    measured = {"rolebregman/b/c.py": file(10, 4, [3, 4, 5, 9], [[2, 3], [7, -1]]),
                "rolebregman/a.py": file(5, 0, [], [])}
    first, second, total = covered.rows(dict(files=measured))
    assert first == dict(module="a", statements=5, branches=0, taken=5, share="1.0000", not_taken="")
    assert (second["module"], second["taken"], second["share"], second["not_taken"]) == ("b/c", 8, "0.5714", "2-5 7 9")
    assert (total["module"], total["taken"], total["share"]) == ("all", 13, "0.6842")
