"What coverage.py has measured, as results/coverage.csv: python tools/covered.py coverage.json"
import csv
import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
COLUMNS = ["module", "statements", "branches", "taken", "share", "not_taken"]


def runs(numbers: list[int]) -> str:
    "1, 2, 3, 7 as 1-3 7"
    found = []
    for number in sorted(numbers):
        if found and number == found[-1][1] + 1: found[-1][1] = number
        else: found.append([number, number])
    return " ".join(str(a) if a == b else f"{a}-{b}" for a, b in found)


def rows(measured: dict) -> list[dict]:
    "One for each module, and one for all; a line that was not run, or left on one way only, is named"
    found = []
    for name, file in sorted(measured["files"].items()):
        about = file["summary"]
        taken = about["covered_lines"] + about["covered_branches"]
        total = about["num_statements"] + about["num_branches"]
        missing = {*file["missing_lines"], *(start for start, _ in file.get("missing_branches", []))}
        module = name.removeprefix("rolebregman/").removesuffix(".py")
        found.append(dict(module=module, statements=about["num_statements"],
                          branches=about["num_branches"], taken=taken, share=f"{taken / total if total else 1:.4f}",
                          not_taken=runs(missing)))
    total = {key: sum(row[key] for row in found) for key in ("statements", "branches", "taken")}
    share = total["taken"] / max(1, total["statements"] + total["branches"])
    return [*found, dict(module="all", **total, share=f"{share:.4f}", not_taken="")]


def main(path: str):
    found = rows(json.loads(Path(path).read_text(encoding="utf-8")))
    with (ROOT / "results/coverage.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(found)
    print(f"{float(found[-1]['share']):.2%} of lines and branches; the bar is 95%")
    sys.exit(float(found[-1]["share"]) < 0.95)


if __name__ == "__main__": main(*sys.argv[1:])
