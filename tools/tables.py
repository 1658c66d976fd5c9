"Tables as a reader wants them: no column that counts the rows, the best of a column in bold"
import math
import re
from itertools import count

from bs4 import BeautifulSoup

# Of a table's columns
BEST_IS_LARGEST = {"ranking acc.", "direction acc.", "MRR", "Hits@10", "paper R-Acc", "paper D-Acc", "ranking_accuracy",
                   "direction_accuracy", "mrr", "all", "nouns", "verbs", "random test", "lexical test"}
BEST_IS_SMALLEST = {"rank in ranking", "rank in direction", "rank in MRR", "mean rank"}


def without_row_numbers(
    table: str,  # in HTML, as pandas writes it
) -> str:
    "Without its first column, where that only counts the rows from 0"
    page = BeautifulSoup(table, "html.parser")
    head, names = page.select("thead tr"), page.select("tbody th")
    rows = page.select("tbody tr")
    counts = len(head) == 1 and len(rows) == len(names) > 0 and all(
        name.parent is row and name.get_text() == str(i) for i, (name, row) in enumerate(zip(names, rows)))
    if not counts or head[0].th.get_text(): return table
    for name in (head[0].th, *names): name.decompose()
    return str(page)


def as_html(
    table: str,  # in HTML, as pandas writes it
) -> str:
    "What is bold in markdown is bold; a long name of a column may be broken behind an underscore, and nowhere else"
    table = re.sub(r"\*\*([^*<>]+)\*\*", r"<strong>\1</strong>", table)
    return re.sub(r"(?<=<th>)(\w+_\w+)(?=</th>)", lambda m: m[1].replace("_", "_<wbr/>"), table)


def _best(name: str, column: list[str]) -> list[int]:
    "Which cells of a column hold its largest number, or its smallest"
    sign = -1 if name in BEST_IS_SMALLEST else 1
    numbers = [sign * float(m[0]) if (m := re.match(r"-?\d+(\.\d+)?", cell)) else -math.inf for cell in column]
    return [i for i, number in enumerate(numbers) if number == max(numbers) > -math.inf]


def _best_cells(cells: list[list[str]]) -> set[tuple[int, int]]:
    "Rows and columns of what is best; none in a table whose rows are grouped, or of less than three"
    if len(cells) < 4 or len({len(line) for line in cells}) != 1: return set()
    return {(i, k) for k, name in enumerate(cells[0]) if name in BEST_IS_LARGEST | BEST_IS_SMALLEST
            for i in _best(name, [line[k] for line in cells])}


def _bold_in_html(table):
    page = BeautifulSoup(table, "html.parser")
    rows = [row.find_all(["th", "td"]) for row in page.find_all("tr")]
    best = _best_cells([[cell.get_text().strip() for cell in row] for row in rows])
    for i, k in best: rows[i][k].string.wrap(page.new_tag("strong"))
    return str(page) if best else table


def _bold_in_markdown(table):
    row, cell = re.compile(r"^\|[^\n]*\|$", re.M), re.compile(r"(?<=\|)[^|\n]+(?=\|)")
    best = _best_cells([[found.strip() for found in cell.findall(line)] for line in row.findall(table)])
    rows = count()

    def in_row(line):
        i, columns = next(rows), count()
        return cell.sub(lambda m: f" **{m[0].strip()}** " if (i, next(columns)) in best else m[0], line[0])

    return row.sub(in_row, table)


def with_best_in_bold(
    table: str,  # in HTML or in markdown
) -> str:
    """The largest number of each column of BEST_IS_LARGEST in bold, the smallest of each of BEST_IS_SMALLEST.

    A table whose rows are grouped is left as it is."""
    return (_bold_in_html if "<table" in table else _bold_in_markdown)(table)
