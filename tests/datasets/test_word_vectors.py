"""Word vectors: only the wanted words, each with its own vector, and every fault of a file named with its line."""
import bz2
import gzip
import lzma
import zipfile

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from rolebregman.datasets import (
    WordVectors,
    look_up,
    mean_vectors,
    phrase_rows,
    read_lines,
    read_word_vectors,
    spellings,
)

GLOVE = "the 0.1 -0.2 3e-3\ndog 1 2 3\nnew york 0.4 0.5 0.6\n. . . 7 8 9\n"


def write(tmp_path, content, name="vectors.txt"):
    path = tmp_path/name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


# Text files

def test_words_may_hold_spaces_and_vectors_are_exact(tmp_path):
    found = read_word_vectors(write(tmp_path, GLOVE))
    assert found.words == ["the", "dog", "new york", ". . ."]
    assert found.vectors.dtype == np.float32 and found.dim == 3
    numbers = np.array([[.1, -.2, 3e-3], [1, 2, 3], [.4, .5, .6], [7, 8, 9]], np.float32)
    assert (found.vectors == numbers).all()
    assert found.report == dict(read=4, kept=4)


@pytest.mark.parametrize("change", [
    lambda text: text.replace("\n", "\r\n"),
    lambda text: text.replace("\n", " \n"), # as some tools write it
    lambda text: text.removesuffix("\n"),
    lambda text: text + "\n\n",
    lambda text: "\ufeff" + text,
    lambda text: "4 3\n" + text, # word2vec's header
    lambda text: gzip.compress(text.encode(), mtime=0),
    lambda text: bz2.compress(text.encode()),
    lambda text: lzma.compress(text.encode()),
])
def test_line_ends_headers_and_packing_make_no_difference(tmp_path, change):
    found = read_word_vectors(write(tmp_path, change(GLOVE)))
    expected = read_word_vectors(write(tmp_path, GLOVE, "plain.txt"))
    assert found.words == expected.words and (found.vectors == expected.vectors).all()


def test_a_member_of_a_zip_is_read(tmp_path):
    with zipfile.ZipFile(tmp_path/"glove.zip", "w") as z:
        z.writestr("small.txt", GLOVE)
    assert len(read_word_vectors(tmp_path/"glove.zip", member="small.txt")) == 4
    with pytest.raises(ValueError, match=r"glove\.zip holds no large\.txt"):
        read_word_vectors(tmp_path/"glove.zip", member="large.txt")


def test_only_wanted_words_are_kept_and_none_is_made_up(tmp_path):
    found = read_word_vectors(write(tmp_path, GLOVE), ["dog", "cat", "new york"])
    assert found.words == ["dog", "new york"] and "cat" not in found
    with pytest.raises(KeyError, match="no vector of 'cat' among 2 words of vectors.txt; it is not filled in"):
        found["cat"]
    assert phrase_rows(found, "cat") is None and phrase_rows(found, "hot_dog") is None
    none = read_word_vectors(write(tmp_path, GLOVE), ["cat"])
    assert len(none) == 0 and none.vectors.shape == (0, 3)


def test_the_first_of_a_repeated_word_is_kept_and_counted(tmp_path):
    found = read_word_vectors(write(tmp_path, GLOVE + "dog 9 9 9\n"))
    assert found["dog"].tolist() == [1, 2, 3] and found.report["repeated word"] == 1


@pytest.mark.parametrize("line, says", [
    ("cat 0.1 0.2", r"line 5 \('cat 0.1 0.2'\): 2 numbers, expected 3; the file is cut off or damaged"),
    ("cat", r"line 5 \('cat'\): 0 numbers, expected 3"),
    ("cat 0.1 0.2 0.3 0.4", r"line 5 .*: 4 numbers, expected 3"),
    ("cat 0.1 x 0.3", r"line 5 \('cat'\): could not convert string to float: .*'x'"),
    ("cat 0.1  0.3", r"line 5 \('cat'\): could not convert"), # an empty field
    ("cat 0.1 nan 0.3", r"line 5: the vector of 'cat' holds a number that is not finite"),
    ("cat 1e39 0 0", r"line 5: the vector of 'cat' holds a number that is not finite"), # too large for float32
    ("cat 0 0.0 -0", r"line 5: the vector of 'cat' is zero everywhere; drop the line"),
])
def test_a_bad_line_is_named(tmp_path, line, says):
    path = write(tmp_path, GLOVE + line + "\n")
    with pytest.raises(ValueError, match="vectors.txt, " + says):
        read_word_vectors(path)


def test_the_width_is_checked_on_lines_that_nobody_wants(tmp_path):
    with pytest.raises(ValueError, match="line 5"):
        read_word_vectors(write(tmp_path, GLOVE + "cat 0.1\n"), ["dog"])


def test_a_bad_line_far_down_is_named(tmp_path):
    lines = [f"word{i} {i + 1} 2 3" for i in range(9000)]
    lines[8500] = "odd 1 2 three"
    with pytest.raises(ValueError, match=r"line 8501 \('odd'\)"):
        read_word_vectors(write(tmp_path, "\n".join(lines)))


@pytest.mark.parametrize("header", ["5 3", "5\t3", "5 3 ", "3000000 3", "3 3", "1 3"])
@pytest.mark.parametrize("pack, name", [(bytes, "v.txt"), (gzip.compress, "v.vec.gz"), (bz2.compress, "v.vec"),
                                        (lambda text: b"\xef\xbb\xbf" + text, "v.vec")])
def test_a_header_that_promises_another_number_of_words_is_an_error(tmp_path, header, pack, name):
    promised = int(header.split()[0])
    says = rf"{name}: its header promises {promised:,} words, but it has 4; (it is cut off|something was added)"
    for text in (f"{header}\n{GLOVE}", f"{header}\n{GLOVE}\n\n"):  # an empty line is no word
        for wanted in (None, ["dog"]):
            with pytest.raises(ValueError, match=says + ".* write the right number into its first line"):
                read_word_vectors(write(tmp_path, pack(text.encode()), name), wanted)
    assert len(read_word_vectors(write(tmp_path, pack(f"4 3\n{GLOVE}".encode()), name))) == 4


BINARY = b"3 2\n" + b"".join(w + b" " + np.array(v, "<f4").tobytes() + b"\n" for w, v in (
    (b"dog", [1, 2]), (b"new_york", [3, 4]), (b"dog", [9, 9])))


@pytest.mark.parametrize("pack, name", [(bytes, "w.bin"), (gzip.compress, "w.bin.gz"),
                                        (lambda b: b.replace(b"\nnew", b"new").replace(b"\ndog", b"dog", 1), "W.BIN")])
def test_word2vecs_binary_files_are_read(tmp_path, pack, name):
    content = pack(BINARY) if name != "W.BIN" else b"3 2\n" + pack(BINARY[4:])  # gensim writes no line ends
    path = write(tmp_path, content, name)
    found = read_word_vectors(path)
    assert found.words == ["dog", "new_york"] and found.vectors.tolist() == [[1, 2], [3, 4]]
    assert found.report == {"read": 3, "kept": 2, "repeated word": 1} and found.vectors.dtype == np.float32
    assert read_word_vectors(path, ["new_york", "cat"], dim=2).words == ["new_york"]
    assert read_word_vectors(path, ["cat"]).vectors.shape == (0, 2)
    with pytest.raises(ValueError, match="holds 2 numbers for a word, expected 3"): read_word_vectors(path, dim=3)


@pytest.mark.parametrize("content, says", [
    (b"", "is no file of word2vec's binary format: it begins with b''"), (GLOVE.encode(), "is no file of word2vec's"),
    (BINARY[:-5], "its header promises 3 words, but it has 2; it is cut off"),
    (BINARY.replace(b"3 2", b"4 2", 1), "promises 4 words, but it has 3; it is cut off"),
    (BINARY.replace(b"3 2", b"2 2", 1), "promises 2 words, but it has 3; something was added"),
    (BINARY.replace(b"3 2", b"1 2", 1)[:-1], "promises 1 words, but it has 3; something was added"),
    (BINARY + b"cat", "3 bytes follow the 3 words of its header"),
    (b"\xba\x16\x4f\x2f" + bytes(99), "is a model of fastText, expected vectors; give its .vec"),
    (b"1 2\nnan " + np.array([np.nan, 1], "<f4").tobytes(), "word 1: the vector of b'nan' is zero everywhere or not"),
    (b"1 2\n\xff " + np.array([1, 1], "<f4").tobytes(), "the word b'.xff' is not UTF-8"),
    (gzip.compress(BINARY * 99, mtime=0)[:-9], "is damaged or cut off|but it has"),
])
def test_a_damaged_binary_file_is_named(tmp_path, content, says):
    with pytest.raises(ValueError, match=f"w.bin.*({says})"): read_word_vectors(write(tmp_path, content, "w.bin"))


@pytest.mark.parametrize("header", ["", "4 3\n", "4\t3\n"])
def test_tabs_may_stand_where_spaces_do(tmp_path, header):
    tabs = "the\t0.1\t-0.2\t3e-3\ndog\t1 2 3\nnew york\t0.4\t0.5\t0.6\n. . .\t7\t8\t9\n"
    found, plain = (read_word_vectors(write(tmp_path, header + text)) for text in (tabs, GLOVE))
    assert found.words == plain.words and (found.vectors == plain.vectors).all()
    odd = read_word_vectors(write(tmp_path, "a\tb 1 2 3\n" + GLOVE))  # a word with a tab in it
    assert odd.words[0] == "a\tb"


@pytest.mark.parametrize("gap", ["  ", "    ", " \t", "\t\t"])
def test_several_spaces_may_stand_where_one_does(tmp_path, gap):
    aligned = "".join(gap.join(line.split(" ")) + "\n" for line in ("the 0.1 -0.2 3e-3", "dog 1 2 3", "owl 4 5 6"))
    found = read_word_vectors(write(tmp_path, aligned))
    assert found.words == ["the", "dog", "owl"]
    assert (found.vectors == np.array([[.1, -.2, 3e-3], [1, 2, 3], [4, 5, 6]], np.float32)).all()


def test_a_zip_is_read_where_it_holds_one_file(tmp_path):
    def zipped(*names):
        with zipfile.ZipFile(tmp_path/"w.zip", "w") as z:
            for name in names: z.writestr(name, "" if name.endswith("/") else GLOVE)
        return tmp_path/"w.zip"
    for names in (["w.txt"], ["folder/", "folder/w.vec", "__MACOSX/w.vec"]):
        assert read_word_vectors(zipped(*names))["dog"].tolist() == [1, 2, 3]
    for names in ([], ["a.txt", "b.txt"]):
        with pytest.raises(ValueError, match=rf"w\.zip holds {len(names)} files .*, expected one; unpack"):
            read_word_vectors(zipped(*names))
    (tmp_path/"w.zip").write_bytes(zipped("w.txt").read_bytes()[:-30])
    with pytest.raises(ValueError, match="w.zip is damaged or cut off"): read_word_vectors(tmp_path/"w.zip")


@pytest.mark.parametrize("content, says", [
    (b"", "is no file of word vectors"),
    (b"dog\ncat\n", "is no file of word vectors"),
    (b"id,text\n1,dog\n", "is no file of word vectors"),
    (b"the 0.1 0.2\nd\xf6g 0.3 0.4\n", r"line 2: byte 0xf6 is not UTF-8 .*; save the file as UTF-8"),
    ("the 0.1 0.2\n".encode("utf-16"), r"line 1: byte 0xff is not UTF-8"),
    (gzip.compress(GLOVE.encode() * 100, mtime=0)[:-9], "is damaged or cut off after line .*; get it again"),
    (gzip.compress(GLOVE.encode(), mtime=0)[:20], "is damaged or cut off"),
])
def test_a_file_that_cannot_be_read_is_named(tmp_path, content, says):
    with pytest.raises(ValueError, match="vectors.txt.*" + says):
        read_word_vectors(write(tmp_path, content))


def test_another_width_than_the_files_is_refused(tmp_path):
    for dim in (2, 4):
        with pytest.raises(ValueError, match=f"holds 3 numbers on a line, expected {dim}"):
            read_word_vectors(write(tmp_path, GLOVE), dim=dim)


def test_a_missing_file_is_a_missing_file(tmp_path):
    with pytest.raises(FileNotFoundError):
        read_word_vectors(tmp_path/"nothing.txt")


def test_a_word_that_is_a_number_is_no_number(tmp_path):
    text = "".join(f"{w} 0.5 0.25\n" for w in ("1999", "route 66", "3.14", "nan", "inf", "dog"))
    assert read_word_vectors(write(tmp_path, text)).words == ["1999", "route 66", "3.14", "nan", "inf", "dog"]


_chars = st.characters(exclude_categories=["Cs"], exclude_characters="\n\r\ufeff")
_words = st.text(_chars, min_size=1, max_size=12).map(lambda w: "w" + w + "w")
_numbers = hnp.arrays(np.float32, (3,), elements=st.floats(-1e6, 1e6, width=32)).filter(np.any)


@settings(max_examples=60, deadline=None)
@given(st.dictionaries(_words, _numbers, min_size=1, max_size=12))
def test_what_was_written_is_read(tmp_path_factory, vectors):
    lines = [f"{w} {' '.join(repr(float(x)) for x in v)}\n" for w, v in vectors.items()]
    found = read_word_vectors(write(tmp_path_factory.mktemp("v"), "".join(lines)), dim=3)
    assert found.words == list(vectors)
    assert (found.vectors == np.stack(list(vectors.values()))).all()


def test_lines_keep_what_python_takes_for_a_line_end(tmp_path):
    odd = "a\x85b\x0bc\u2028d"
    assert list(read_lines(write(tmp_path, odd + "\nnext\r\n"))) == [odd, "next"]


# Phrases

WORDS = WordVectors(["ice", "cream", "st", "st.", "o'brien", "x-ray", "ray"],
                    np.arange(1, 15, dtype=np.float32).reshape(7, 2), "seven words")


@pytest.mark.parametrize("phrase, words", [
    ("ice_cream", ["ice", "cream"]), ("Ice Cream", ["ice", "cream"]), ("ice-cream/ice", ["ice", "cream", "ice"]),
    ("St._ice", ["st.", "ice"]), ("ice.", ["ice"]), ("'ice'", ["ice"]), ("O'Brien", ["o'brien"]),
    ("X-ray", ["x-ray"]), # its own row goes before the mean of its parts
    ("z-ray", None), ("ice_cream_cone", None), ("", None), ("_-_", None), ("...", None),
])
def test_a_phrase_is_its_own_row_or_all_of_its_parts(phrase, words):
    rows = phrase_rows(WORDS, phrase)
    assert (rows and [WORDS.words[i] for i in rows]) == words
    if words:
        assert set(words) <= spellings([phrase])
        assert np.allclose(mean_vectors(WORDS, [rows])[0], np.mean([WORDS[w] for w in words], axis=0))


CASED = ["US", "us", "New_York", "new", "york", "France", "St.", "Louis", "É"]


@pytest.mark.parametrize("phrase, words, way", [
    ("US", ["US"], "as written"), ("us", ["us"], "as written"), ("New_York", ["New_York"], "as written"),
    ("France", ["France"], "as written"), ("NEW", ["new"], "in lower case"), ("Us", ["us"], "in lower case"),
    ("new york", ["new", "york"], "by their parts"), ("New York", ["new", "york"], "by their parts"),
    ("St. Louis", ["St.", "Louis"], "by their parts"), ("US-France", ["US", "France"], "by their parts"),
    ("É", ["É"], "as written"), ("é", None, "not there"), ("france", None, "not there"), ("LOUIS", None, "not there"),
])
def test_a_token_is_looked_for_as_it_is_written_then_in_lower_case_then_by_its_parts(tmp_path, phrase, words, way):
    text = "".join(f"{w} {' '.join(map(str, v))}\n" for w, v in zip(CASED, np.eye(len(CASED)), strict=True))
    known = read_word_vectors(write(tmp_path, text), spellings([phrase]))
    found, ways = look_up(known, [phrase])
    assert {k: [known.words[i] for i in v] for k, v in found.items()} == ({phrase: words} if words else {})
    assert [w for w, n in ways.items() if n] == [way]


def test_words_and_vectors_must_fit():
    for words, n in ((["a", "a"], 2), (["a"], 2), (["a", "b"], 1)):
        with pytest.raises(ValueError, match="one word a vector"):
            WordVectors(words, np.ones((n, 2), np.float32))
