"What the chapter on citations says of its rows, and the paper's table"

import pandas as pd

from rolebregman.study import (
    CITATION_COLUMNS,
    citation_findings,
    citation_verdict,
    paper_citation,
)


def test_few_rows_are_enough_for_the_page():
    nothing = pd.DataFrame(columns=CITATION_COLUMNS)
    assert citation_verdict(nothing) == [] and citation_findings(nothing) == []


def test_the_papers_table():
    paper = paper_citation()
    assert paper["ranking_accuracy_mean"].idxmax() == "poincare" and paper.loc["bilinear", "negative_rate"] == 0.7144
