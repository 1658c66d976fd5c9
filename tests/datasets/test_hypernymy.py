"""Word pairs that others publish figures on: the published counts where a mirror holds them, faults on small files."""
import os

import numpy as np
import pandas as pd
import pytest

from rolebregman.datasets import HYPERNYMY_SETS, load_hypernymy, read_hypernymy, toy_tree, without_words

HEADER = "word1\tword2\tlabel\tfold\n"


def a_file(folder, text, name="leds.tsv"):
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_rows_are_kept_as_they_are_even_twice_and_with_more_columns(tmp_path):
    rows = read_hypernymy(a_file(tmp_path, "word1\tword2\tlabel\trelation\tfold\r\nIce\tsolid\tTrue\thyper\tval\r\n"
                                           "Ice\tsolid\tTrue\thyper\tval\r\nnan\tnull\tFalse\trandom\ttest\r\n"))
    assert rows.to_dict("list") == {"word1": ["ice", "ice", "nan"], "word2": ["solid", "solid", "null"],
                                    "holds": [True, True, False], "part": ["valid", "valid", "test"]}


@pytest.mark.parametrize("text, says", [
    (HEADER + "a\tb\tTrue\tval\na\tb\ttrue\tval\n", "line 3 .*a label True or False"),
    (HEADER + "a\tb\tTrue\ttrain\n", "line 2 .*fold val or test"), (HEADER + "a\tb\tTrue\n", "line 2 .*4 fields"),
    ("word1\tword2\tlabel\n", r"line 1: .*expected \['fold'\] too"), ("", "line 1"), (HEADER, "holds no pairs")])
def test_what_cannot_be_read_names_its_line(tmp_path, text, says):
    with pytest.raises(ValueError, match=f"leds.tsv.*{says}"): read_hypernymy(a_file(tmp_path, text))


def test_a_set_is_found_in_a_folder_and_an_unknown_one_is_refused(tmp_path):
    a_file(tmp_path, HEADER + "a\tb\tTrue\tval\n", "eval.tsv")
    assert load_hypernymy("eval", tmp_path).equals(load_hypernymy("eval", tmp_path / "eval.tsv"))
    with pytest.raises(ValueError, match="no set 'bless': choose from leds, eval, shwartz"): load_hypernymy("bless")


def test_a_node_goes_by_either_of_its_names_whatever_the_case():
    ds = toy_tree(depth=2, branching=2, dim=4)
    ds.nodes = pd.DataFrame(dict(id=range(7), text=["a", "b", "C", "d", "e", "f", "g"],
                                 lemma=["x", "Y_z", "c", "b", None, "f", "g"]))
    keep = without_words(ds, ["B", "c", "y z"])
    assert np.flatnonzero(~keep).tolist() == [1, 2, 3]


@pytest.mark.skipif(not os.environ.get("ROLEBREGMAN_MIRROR"), reason="ROLEBREGMAN_MIRROR is not set")
@pytest.mark.parametrize("name, counts", zip(HYPERNYMY_SETS, [(2770, 1385, 275), (13450, 3415, 736),
                                                              (52577, 13104, 5256)], strict=True))
def test_counts_are_those_of_the_publisher(name, counts):
    rows = load_hypernymy(name, quiet=True)
    assert (len(rows), rows["holds"].sum(), (rows["part"] == "valid").sum()) == counts
