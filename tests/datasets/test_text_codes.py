"""Codes of texts: those of pandas and of Python's sorting, whatever the tables and the hash do"""
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rolebregman.datasets import code_texts
from rolebregman.datasets import text_codes as room

pa = pytest.importorskip("pyarrow")
LETTERS = st.sampled_from(["a", "b", "item", "\u00e9", "\U0001f333", "12345678", " ", "\0", "\x7f"])
TEXTS = st.lists(st.one_of(st.none(), st.lists(LETTERS, max_size=12).map("".join)), max_size=30)


def small(patch):
    "Pieces and blocks of a few texts, so that a short column has many"
    patch.setattr(room, "PIECE", 3)
    patch.setattr(room, "ROWS", 2)


def agree(columns, **options):
    "Codes and texts are those of pandas.factorize of all columns, sorted"
    codes, texts = code_texts(*columns, **options)
    given = [text for column in columns for text in column.to_pylist()]
    own, unique = pd.factorize(np.array(given, dtype=object), sort=True)
    assert np.concatenate(codes).tolist() == own.tolist() and texts.tolist() == list(unique) == sorted(unique)
    assert [len(some) for some in codes] == list(map(len, columns)) and {some.dtype.name for some in codes} == {"int32"}


@settings(max_examples=150, deadline=None)
@given(TEXTS, TEXTS, st.booleans(), st.integers(0, 3), st.integers(0, 3))
def test_codes_are_those_of_pandas(first, second, large, skipped, words):
    kind = pa.large_string() if large else pa.string()
    with pytest.MonkeyPatch.context() as patch:
        small(patch)
        whole = pa.array(first + second, kind)[skipped:]  # which begins in the midst of its buffers
        agree([pa.chunked_array([pa.array(first, kind), whole[2:], whole[:0]], kind), pa.chunked_array([whole], kind)],
              words=words)


@pytest.mark.parametrize("odd", [0, 1, 1 << 63])
@pytest.mark.parametrize("form", ["item{}", "w{0}w{0}w{0}", "{:09}", "{:070}", "\u00e9{}"])
def test_a_hash_that_says_nothing_changes_no_code(monkeypatch, odd, form):
    small(monkeypatch)
    monkeypatch.setattr(room, "ODD", np.full_like(room.ODD, odd))
    rows = np.random.default_rng(0).integers(0, 40, (2, 300))
    agree([pa.chunked_array([pa.array([form.format(row) for row in some])]) for some in rows])


def test_texts_that_differ_in_their_ends_only():
    "By a zero byte, by one letter more, in the last word and behind it, and beyond what is looked at"
    stem = "x" * 63
    texts = ["", "\0", "a", "a\0", "a\0\0", stem, stem + "y", stem + "z", stem + "yy", "x" * 9]
    columns = [pa.chunked_array([pa.array(texts[::-1] * 3)]), pa.chunked_array([[text] for text in texts])]
    for words in (0, 1, 8):
        agree(columns, words=words)


def test_most_texts_that_come_again_are_not_left_to_pyarrow(monkeypatch):
    looked, by_pyarrow = [], room._by_pyarrow
    monkeypatch.setattr(room, "PIECE", 1000)
    monkeypatch.setattr(room, "_by_pyarrow", lambda pieces, *rest: (
        looked.append(sum(len(texts) for texts, _ in pieces)) or by_pyarrow(pieces, *rest)))
    for different, low, high in ((500, 0, 0.05), (10**6, 0.9, 1)):
        rows = np.random.default_rng(1).integers(0, different, (2, 20_000))
        looked.clear()
        agree([pa.chunked_array([pa.array([f"item{row}" for row in some])]) for some in rows])
        assert low * rows.size < sum(looked) <= high * rows.size


def test_nothing_is_no_text():
    agree([pa.chunked_array([], pa.string())])
    agree([pa.chunked_array([pa.array([None, None], pa.string())]), pa.chunked_array([], pa.string())])
