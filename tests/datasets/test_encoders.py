"""Vectors of texts: each text is encoded once, its vector is right, and it stays the same."""
import os
import sqlite3
import sys
import uuid

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rolebregman.datasets import FetchError, VectorCache, check_vectors, encode_texts, fetch


@pytest.fixture(autouse=True)
def empty_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("ROLEBREGMAN_CACHE", str(tmp_path/"cache"))
    return tmp_path/"cache"


class Lengths:
    "An encoder that counts: (letters, words, 1), and remembers what it was asked"
    name, version = "lengths", "1"

    def __init__(self):
        self.asked = []

    def __call__(self, texts):
        self.asked += texts
        return np.array([[len(t), len(t.split()), 1] for t in texts], dtype=np.float64)


REAL = os.environ.get("ROLEBREGMAN_CACHE")
TEXTS = ["nucleus", "cell wall", "a", "cell wall", "outer membrane of the cell"]


def test_vectors_come_in_the_order_of_the_texts_as_float32():
    vectors = encode_texts(TEXTS, Lengths(), quiet=True)
    assert vectors.dtype == np.float32
    assert vectors.tolist() == [[7, 1, 1], [9, 2, 1], [1, 1, 1], [9, 2, 1], [26, 5, 1]]


def test_each_text_is_encoded_once_and_new_ones_only():
    encoder = Lengths()
    first = encode_texts(TEXTS, encoder, quiet=True)
    assert sorted(encoder.asked) == sorted(set(TEXTS))
    encoder.asked.clear()
    again = encode_texts([*TEXTS[::-1], "lysosome"], encoder, quiet=True)
    assert encoder.asked == ["lysosome"]
    assert (again[:-1] == first[::-1]).all()


def test_another_version_or_name_is_another_cache():
    encode_texts(TEXTS, Lengths(), quiet=True)
    for change in (dict(version="2"), dict(name="others")):
        encoder = Lengths()
        encode_texts(TEXTS, encoder, quiet=True, **change)
        assert len(encoder.asked) == 4


@pytest.mark.parametrize("options", [dict(cache=False), dict(name=None, version=None)])
def test_without_name_and_version_or_on_request_nothing_is_kept(options, empty_cache):
    encoder = Lengths()
    function = encoder if options.get("cache") is False else lambda texts: encoder(texts)
    for _ in range(2):
        encode_texts(TEXTS, function, quiet=True, **options)
    assert len(encoder.asked) == 8 and not (empty_cache/"vectors").exists()


def test_one_line_says_how_many_came_from_the_cache(capsys):
    encode_texts(TEXTS[:2], Lengths())
    encode_texts(TEXTS, Lengths())
    assert capsys.readouterr().err.splitlines() == ["lengths: 0 of 2 texts from the cache",
                                                    "lengths: 2 of 4 texts from the cache"]


def test_an_interrupted_run_keeps_what_was_finished():
    texts = [f"text {i:04d}" for i in range(300)]
    class Breaks(Lengths):
        def __call__(self, chunk):
            if len(self.asked) >= 200:
                raise KeyboardInterrupt
            return super().__call__(chunk)
    with pytest.raises(KeyboardInterrupt):
        encode_texts(texts, Breaks(), quiet=True)
    encoder = Lengths()
    encode_texts(texts, encoder, quiet=True)
    assert 0 < len(encoder.asked) < 300


@pytest.mark.parametrize("value, says", [(np.nan, "is not finite"), (np.inf, "is not finite"),
                                         (0, "is zero everywhere")])
def test_a_vector_without_place_or_direction_is_named_and_not_kept(value, says):
    def encoder(texts):
        return [[value] * 2 if t == "bad" else [1, 2] for t in texts]
    with pytest.raises(ValueError, match=rf"words: the vector of text \d \('bad'\) {says}, 1 such of 3"):
        encode_texts(["good", "bad", "fine"], encoder, name="words", version="1", quiet=True)
    assert VectorCache("words", "1").read(["good", "bad", "fine"]) == {}


@pytest.mark.parametrize("answer", [np.ones(3), np.ones((2, 4)), np.ones((3, 0))])
def test_a_wrong_shape_is_named(answer):
    with pytest.raises(ValueError, match=r"shape .* for 3 texts, expected \(3, d\)"):
        encode_texts(["a", "b", "c"], lambda texts: answer)


def test_a_changed_width_asks_for_another_version():
    encode_texts(["a"], lambda t: np.ones((len(t), 3)), name="w", version="1", quiet=True)
    with pytest.raises(ValueError, match=r"lengths \[3, 4\]; a changed encoder needs another version"):
        encode_texts(["a", "b"], lambda t: np.ones((len(t), 4)), name="w", version="1", quiet=True)


@pytest.mark.parametrize("text", ["", "  ", None, 3, float("nan")])
def test_a_text_that_is_none_is_named(text):
    with pytest.raises(ValueError, match="text 1 is .*, expected a text that is not empty"):
        encode_texts(["cell", text], Lengths())


def test_an_unknown_encoder_lists_the_known_ones():
    with pytest.raises(ValueError, match="no encoder 'word2vec': choose all-minilm-l6-v2, or pass a function"):
        encode_texts(["cell"], "word2vec")


def test_a_missing_extra_names_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    with pytest.raises(ImportError, match=r"pip install rolebregman\[text\]"):
        encode_texts(["cell"], quiet=True)


def test_a_full_cache_needs_no_extra_and_no_model(monkeypatch):
    from rolebregman.datasets.encoders import _source_version
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    VectorCache("all-minilm-l6-v2", _source_version("all-minilm-l6-v2")).write(["cell"], np.ones((1, 384)))
    assert encode_texts(["cell"], quiet=True).shape == (1, 384)


def test_a_damaged_cache_is_named_with_what_to_do():
    cache = VectorCache("lengths", "1")
    cache.path.parent.mkdir(parents=True)
    cache.path.write_bytes(b"not a database, but long enough to be taken for one" * 100)
    with pytest.raises(OSError, match=r"lengths-.*sqlite cannot be used .*; delete it"):
        encode_texts(TEXTS, Lengths(), quiet=True)


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.text(min_size=1), min_size=1, max_size=8, unique=True), st.integers(0, 2**32))
def test_any_text_comes_back_with_its_own_vector(texts, seed):
    vectors = np.random.default_rng(seed).normal(size=(len(texts), 3)).astype(np.float32)
    cache = VectorCache(uuid.uuid4().hex, "1")
    cache.write(texts, vectors)
    cache.write(texts, vectors + 1) # a text keeps the vector it has
    found = cache.read(texts[::-1])
    assert set(found) == set(texts)
    assert all((found[t] == v).all() for t, v in zip(texts, vectors, strict=True))


@pytest.mark.parametrize("fault, said", [("full", "database or disk is full"), ("folder", "cannot be made"),
                                         ("read only", "attempt to write a readonly database")])
def test_a_healthy_cache_is_not_to_be_deleted(fault, said, monkeypatch, empty_cache):
    cache = VectorCache("lengths", "1")
    if fault == "folder":
        empty_cache.write_text("a file stands here")
    else:
        cache.write(["a text"], np.ones((1, 3), np.float32))
    connect = sqlite3.connect
    def limited(*arguments, **how):
        db = connect(*arguments, **how)
        db.execute("pragma query_only = on" if fault == "read only" else "pragma max_page_count = 1")
        return db
    monkeypatch.setattr(sqlite3, "connect", limited)
    with pytest.raises(OSError, match=said) as error:
        cache.write([f"{i}" for i in range(99)], np.ones((99, 300), np.float32))
    assert "delete" not in str(error.value) and "set ROLEBREGMAN_CACHE to a folder that has room" in str(error.value)
    if fault != "folder": assert cache.read(["a text"])["a text"].tolist() == [1, 1, 1], "what is there can be read"


@pytest.mark.parametrize("blob", [np.float32([1, np.nan, 3]).tobytes(), np.float32([1, np.inf, 3]).tobytes(),
                                  np.zeros(3, np.float32).tobytes(), b"", b"12345", "text"])
def test_a_vector_that_was_damaged_in_the_cache_is_made_anew(blob):
    encoder = Lengths()
    first = encode_texts(TEXTS, encoder, quiet=True)
    with sqlite3.connect(VectorCache("lengths", "1").path) as db:
        db.execute("update vectors set vector = ? where text = ?", (blob, VectorCache._key("a")))
    encoder.asked.clear()
    assert (encode_texts(TEXTS, encoder, quiet=True) == first).all() and encoder.asked == ["a"]
    encoder.asked.clear()
    assert (encode_texts(TEXTS, encoder, quiet=True) == first).all() and encoder.asked == [], "and is kept"


def _encode_in_a_process(start, queue):
    texts = [f"text {i}" for i in range(start, start + 400)]
    try:
        queue.put((start, encode_texts(texts, Lengths(), quiet=True)))
    except BaseException as e:
        queue.put((start, repr(e)))


def test_processes_share_one_cache(copies):
    queue = copies.Queue()
    workers = [copies.Process(target=_encode_in_a_process, args=(start, queue)) for start in (0, 200, 400)]
    for w in workers:
        w.start()
    for start, vectors in [queue.get(timeout=120) for _ in workers]:
        assert (vectors == Lengths()([f"text {i}" for i in range(start, start + 400)])).all()
    for w in workers:
        w.join()
    with sqlite3.connect(VectorCache("lengths", "1").path) as db:
        assert db.execute("select count(*) from vectors").fetchone() == (800,)


# Sentence-BERT itself: where its files can be had

@pytest.fixture(scope="module")
def model(tmp_path_factory):
    pytest.importorskip("sentence_transformers")
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("ROLEBREGMAN_CACHE", raising=False) if REAL is None else patch.setenv("ROLEBREGMAN_CACHE", REAL)
        try:
            return fetch("all-minilm-l6-v2", quiet=True)
        except FetchError as e:
            pytest.skip(f"the model cannot be had here: {str(e).splitlines()[0]}")


@pytest.fixture
def bert(model, monkeypatch):
    monkeypatch.setattr("rolebregman.datasets.encoders.fetch", lambda name, quiet: model)


def test_a_text_has_the_same_vector_in_any_batch(bert):
    texts = ["cell", "the part of a cell that holds its chromosomes " * 8, "plasma membrane", "nucleus", "organelle"]
    together = encode_texts(texts, cache=False, quiet=True)
    alone = np.concatenate([encode_texts([t], cache=False, quiet=True) for t in texts])
    assert together.shape == (5, 384)
    assert np.abs(together - alone).max() < 1e-5
    assert np.abs(np.linalg.norm(together, axis=1) - 1).max() < 1e-5


def test_the_model_gives_what_its_own_library_gives_with_any_number_of_threads(bert, model):
    from sentence_transformers import SentenceTransformer
    texts = [f"{'nucleus and ' * (i % 7)}term {i}" for i in range(40)]
    expected = SentenceTransformer(str(model), device="cpu", local_files_only=True).encode(texts)
    for threads in (1, 3):
        torch.set_num_threads(threads)
        try:
            found = encode_texts(texts, cache=False, quiet=True)
            assert torch.get_num_threads() == threads
        finally:
            torch.set_num_threads(1)
        assert np.abs(found - expected).max() < 1e-5


def test_related_terms_are_nearer_than_unrelated_ones(bert):
    a, b, c = encode_texts(["plasma membrane", "membrane", "a recipe for apple cake"], cache=False, quiet=True)
    assert a @ b > 0.5 > 0.3 > a @ c


@pytest.mark.parametrize("vectors, words", [
    ([[1, 2]], "shape (1, 2) for 2 texts"), ([[1, np.inf], [1, 1]], "text 0 ('ape') is not finite, 1 such of 2"),
    ([[1, 1], [0, 0]], "text 1 ('bee') is zero everywhere")])
def test_an_encoder_that_fails_is_told_on(vectors, words):
    assert check_vectors([[1, 2], [3, 4]], ["ape", "bee"], "mine").dtype == np.float32
    with pytest.raises(ValueError) as error: check_vectors(vectors, ["ape", "bee"], "mine")
    assert "mine: " in str(error.value) and words in str(error.value)
