"Tables as a reader wants them: no column that counts the rows, the best of a column in bold"
import math
import re
from itertools import count

# Of a table's columns
BEST_IS_LARGEST = {"ranking acc.", "direction acc.", "MRR", "Hits@10", "paper R-Acc", "paper D-Acc", "ranking_accuracy",
                   "direction_accuracy", "mrr", "all", "nouns", "verbs", "random test", "lexical test"}


def without_row_numbers(
    table: str,  # in HTML, as pandas writes it
) -> str:
    "Without its first column, where that only counts the rows from 0"
    head, mark, body = table.partition("<tbody>")
    numbers = re.findall(r"<tr>\s*<th>(.*?)</th>", body)
    counts = numbers and numbers == list(map(str, range(len(numbers)))) and head.count("<tr") == 1
    if not counts or body.count("<th") != len(numbers): return table
    return (re.sub(r"<th></th>\s*", "", head, count=1) + mark
            + re.sub(r"(<tr>\s*)<th>\d+</th>\s*", r"\1", body))


def _best(column: list[str]) -> list[int]:
    "Which cells of a column hold its largest number"
    numbers = [float(m[0]) if (m := re.match(r"-?\d+(\.\d+)?", cell.strip())) else -math.inf for cell in column]
    return [i for i, number in enumerate(numbers) if number == max(numbers) > -math.inf]


def with_best_in_bold(
    table: str,  # in HTML or in markdown
) -> str:
    "The largest number of each column of BEST_IS_LARGEST in bold; a table whose rows are grouped is left as it is"
    html = "<table" in table
    row, cell = r"<tr.*?</tr>", r"(?<=>)[^<>]*(?=</t[hd]>)"
    if not html: row, cell = r"^\|[^\n]*\|$", r"(?<=\|)[^|\n]+(?=\|)"
    cells = [[found.strip() for found in re.findall(cell, line)] for line in re.findall(row, table, re.M | re.S)]
    if len(cells) < 4 or len({len(line) for line in cells}) != 1: return table
    best = {(i, k) for k, name in enumerate(cells[0]) if name in BEST_IS_LARGEST
            for i in _best([line[k] for line in cells])}
    rows = count()

    def in_row(line):
        i, columns = next(rows), count()
        set_bold = "<strong>{}</strong>" if html else " **{}** "
        return re.sub(cell, lambda m: set_bold.format(m[0].strip()) if (i, next(columns)) in best else m[0], line[0])

    return re.sub(row, in_row, table, flags=re.M | re.S)
