"Vectors and their ids, from every kind of array, table and file, with every fault that it may have"
import gzip
import lzma
import zipfile

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
import zstandard
from gensim.models import KeyedVectors, Word2Vec
from scipy import sparse

from rolebregman.datasets import WordVectors, from_pairs, read_ids, read_pairs, read_vectors


def test_vectors_come_from_arrays_frames_and_files(tmp_path):
    matrix = np.arange(6, dtype=np.float32).reshape(3, 2)
    np.save(tmp_path/"v.npy", matrix)
    np.savez(tmp_path/"v.npz", anything=matrix, ids=np.array([7, 8, 9]))
    assert read_vectors(matrix)[0] is matrix
    mapped, ids = read_vectors(tmp_path/"v.npy")
    assert isinstance(mapped, np.memmap) and (mapped == matrix).all() and ids is None
    loaded, ids = read_vectors(str(tmp_path/"v.npz"))
    assert (loaded == matrix).all() and ids == ["7", "8", "9"]
    framed, ids = read_vectors(pd.DataFrame(matrix, index=["x", "y", "z"]))
    assert (framed == matrix).all() and ids == ["x", "y", "z"]


def test_objects_are_refused_and_never_unpickled(tmp_path):
    class Runs:
        def __reduce__(self):
            return (open, (str(tmp_path/"it-ran"), "w"))
    np.save(tmp_path/"v.npy", np.array([[Runs()]], dtype=object), allow_pickle=True)
    np.savez(tmp_path/"v.npz", vectors=np.array([[Runs()]], dtype=object), allow_pickle=True)
    for name in ("v.npy", "v.npz"):
        with pytest.raises(ValueError, match=f"{name} cannot be read as NumPy arrays of numbers"):
            read_vectors(tmp_path/name)
    assert not (tmp_path/"it-ran").exists()


@pytest.mark.parametrize("kind", [
    "csv", "tsv.gz", "parquet", "feather", "orc", "jsonl", "json", "xlsx", "jsonl.xz", "xlsx.zip"])
def test_every_table_gives_the_same_vectors(tmp_path, kind):
    "Coordinates of whole numbers too, and ids that look like numbers"
    table, path = pd.DataFrame(dict(id=["007", "b"], x=[1.5, 2.5], y=[3, 4])), tmp_path/f"v.{kind}"
    lists = pd.DataFrame(dict(id=["007", "b"], v=[[1.5, 3.0], [2.5, 4.0]]))
    bare = tmp_path/f"v.{kind.split('.')[0]}"
    for some in (table, lists)[:1 if bare.suffix in (".xlsx", ".csv", ".tsv") else 2]:
        write = getattr(some, "to_" + dict(jsonl="json", xlsx="excel", tsv="csv").get(bare.suffix[1:], bare.suffix[1:]))
        how = dict(orient="records", lines="jsonl" in kind) if "json" in kind else {}
        how |= dict(index=False) if bare.suffix in (".xlsx", ".csv", ".tsv") else {}
        write(bare, **how, **(dict(sep="\t") if bare.suffix == ".tsv" else {}))
        if kind.endswith("gz"): path.write_bytes(gzip.compress(bare.read_bytes(), mtime=0))
        if kind.endswith("xz"): path.write_bytes(lzma.compress(bare.read_bytes()))
        if kind.endswith("zip"):
            with zipfile.ZipFile(path, "w") as box: box.write(bare, bare.name)
        vectors, ids = read_vectors(path)
        assert vectors.tolist() == [[1.5, 3], [2.5, 4]] and ids == ["007", "b"] and vectors.dtype.kind == "f"
    with zipfile.ZipFile(tmp_path/"any.zip", "w") as box: box.write(bare, bare.name)
    assert read_vectors(tmp_path/"any.zip", id_column="id")[1] == ["007", "b"]
    table.to_json(tmp_path/"ids.jsonl", orient="records", lines=True)
    assert read_ids(tmp_path/"ids.jsonl") == ["007", "b"]


def test_ids_on_lines_may_be_packed(tmp_path):
    (tmp_path/"ids.txt.zst").write_bytes(zstandard.compress(b"a\nb\n"))
    assert read_ids(tmp_path/"ids.txt.zst") == ["a", "b"]


def test_a_member_is_named_all_the_way(tmp_path):
    matrix, pairs = np.eye(4, dtype="f4"), pd.DataFrame(dict(source=list("0123"), target=list("1230")))
    np.savez(tmp_path/"v.npz", a=matrix, b=2 * matrix)
    how = dict(fractions=(0.5, 0.25, 0.25))
    assert (from_pairs(pairs, tmp_path/"v.npz", member="b", **how).features == 2 * matrix).all()
    with pytest.raises(ValueError, match="name one with member="): from_pairs(pairs, tmp_path/"v.npz", **how)
    with zipfile.ZipFile(tmp_path/"v.zip", "w") as box:
        for k in (1, 2): box.writestr(f"w{k}.txt", "".join(f"{i} {k} {i + 1}\n" for i in range(4)))
    assert from_pairs(pairs, tmp_path/"v.zip", member="w2.txt", **how).features[:, 0].tolist() == [2] * 4


def test_damaged_vector_files_are_named(tmp_path):
    np.save(tmp_path/"a.npy", np.ones((100, 4)))
    (tmp_path/"a.npy").write_bytes((tmp_path/"a.npy").read_bytes()[:500])
    np.savez(tmp_path/"b.npz", v=np.ones((100, 4)))
    (tmp_path/"b.npz").write_bytes((tmp_path/"b.npz").read_bytes()[:500])
    np.savez(tmp_path/"c.npz", v=np.ones((2, 2)), w=np.ones((3, 3)))
    (tmp_path/"d.pt").write_text("1 2 3")
    (tmp_path/"e.npy").write_bytes(b"")
    for name, says in (("a.npy", "cannot be read"), ("b.npz", "is damaged or cut off|cannot be read"),
                       ("c.npz", r"expected exactly one \(n, d\) matrix"),
                       ("d.pt", r"a file of PyTorch; in Python: np.save\('vectors.npy', torch.load\(.*d.pt', weights_"),
                       ("e.npy", "is damaged or cut off")):
        with pytest.raises(ValueError, match=f"{name}.*({says})"):
            read_vectors(tmp_path/name)
    with pytest.raises(ValueError, match=r"shape \(3,\), expected \(n, d\)"):
        read_vectors(np.ones(3))


def test_vectors_come_from_parquet_with_their_ids(tmp_path):
    pytest.importorskip("pyarrow")
    matrix = np.arange(6, dtype=np.float32).reshape(3, 2)
    plain = pd.DataFrame(matrix, columns=["v0", "v1"])
    forms = dict(plain=(plain, ["0", "1", "2"]), column=(plain.assign(id=[5, 6, 7]), ["5", "6", "7"]),
                 text=(plain.assign(word=list("xyz")), list("xyz")), index=(plain.set_axis(list("xyz")), list("xyz")),
                 lists=(pd.DataFrame(dict(id=list("xyz"), vector=list(matrix))), list("xyz")))
    for name, (frame, ids) in forms.items():
        frame.to_parquet(tmp_path/f"{name}.parquet")
        for embeddings in (frame, tmp_path/f"{name}.parquet"):
            vectors, found = read_vectors(embeddings)
            assert (vectors == matrix).all() and found == ids and np.issubdtype(vectors.dtype, np.floating)


@pytest.mark.parametrize("content", [b"", b"PAR1", b"child,parent\n", b"PAR1" + bytes(99) + b"PAR1"])
def test_a_damaged_parquet_file_is_named(tmp_path, content):
    pytest.importorskip("pyarrow")
    (tmp_path/"p.parquet").write_bytes(content)
    for read in (read_pairs, read_vectors):
        with pytest.raises(ValueError, match="p.parquet is damaged, cut off or no Parquet file"):
            read(tmp_path/"p.parquet")


def test_a_parquet_file_that_is_cut_off_or_empty_is_named(tmp_path):
    pytest.importorskip("pyarrow")
    table = pd.DataFrame(dict(source=[str(i) for i in range(999)], target="x"))
    table.to_parquet(tmp_path/"p.parquet")
    (tmp_path/"p.parquet").write_bytes((tmp_path/"p.parquet").read_bytes()[:-40])
    with pytest.raises(ValueError, match="p.parquet is damaged, cut off"):
        read_pairs(tmp_path/"p.parquet")
    table[:0].to_parquet(tmp_path/"q.parquet")
    with pytest.raises(ValueError, match=r"q.parquet has 0 rows; its columns are \['source', 'target'\]"):
        read_pairs(tmp_path/"q.parquet")


@pytest.mark.parametrize("name", ["w.txt", "w.vec", "w.txt.gz"])
def test_word_vectors_are_looked_up_and_never_made_up(tmp_path, name):
    text = b"ice 1 0 0\ncream 0 1 0\n. . . 0 0 1\nrose 0 0 2\n"
    (tmp_path/name).write_bytes(gzip.compress(text, mtime=0) if name.endswith("gz") else text)
    vectors, ids = read_vectors(tmp_path/name, ["Rose", "ice cream", "ice age", "tulip"])
    assert ids == ["Rose", "ice cream"] and vectors.tolist() == [[0, 0, 2], [0.5, 0.5, 0]]


def test_the_report_says_how_words_were_found(tmp_path):
    (tmp_path/"w.vec").write_text("6 2\nUS 1 0\nus 0 1\nNew_York 1 1\nnew 2 0\nyork 0 2\nFrance 3 3\n")
    pairs = pd.DataFrame([("US", "New_York"), ("France", "US"), ("us", "NEW"), ("New York", "us"), ("Peru", "US")],
                         columns=["source", "target"])
    ds = from_pairs(pairs, tmp_path/"w.vec", missing="drop", split="edge", fractions=(0.5, 0.25, 0.25))
    assert dict(zip(ds.nodes["id"], ds.features.tolist(), strict=True)) == {
        "US": [1, 0], "New_York": [1, 1], "France": [3, 3], "us": [0, 1], "NEW": [2, 0], "New York": [1, 1]}
    assert ds.report["vectors"] == {"as written": 4, "in lower case": 1, "by their parts": 1, "not there": 1,
                                    "vectors equal to an earlier one": "1, the first in row 5 (id New York)"}
    (tmp_path/"w.txt").write_text("a 1 0\nb 0 1\na 5 5\n")
    read_vectors(tmp_path/"w.txt", ["a"], report=(said := {}))
    assert said == {"as written": 1, "in lower case": 0, "by their parts": 0, "not there": 0, "repeated word": 1}


def test_masks_are_not_lost():
    pytest.importorskip("pyarrow")
    array = np.ma.masked_equal([[1.0, 2.0], [3.0, -1.0], [-1.0, -1.0]], -1)
    with pytest.raises(ValueError, match=r"embeddings, row 1 \(the first is 0\): masked, 2 such rows; fill them in"):
        read_vectors(array)
    vectors, ids = read_vectors(array[:1])
    assert type(vectors) is np.ndarray and vectors.tolist() == [[1, 2]] and ids is None
    for column in ("Float64", "double[pyarrow]", "Int64"):  # pandas' own masks
        frame = pd.DataFrame(dict(id=list("ab"), x=[0.5, 1.5], y=pd.array([1, None], dtype=column)))
        with pytest.raises(ValueError, match=r"embeddings, row 1 \(the first is 0\): column 'y' is empty, expected a"):
            read_vectors(frame)
        assert read_vectors(frame[:1])[0].tolist() == [[0.5, 1]]


@pytest.mark.parametrize("ids, says", [
    (np.array([1, 2.0**53]), r"row 1 .*: the id 9007199254740992 is a float, which cannot tell whole numbers apart"),
    (np.array([1, 2.0**53 + 2]), "from 9007199254740992 on"), (np.array([-1e20, 2]), "row 0 .*: the id -1e.20 is a"),
    (np.array([1, 2.0**24], np.float32), "from 16777216 on; keep ids as text or whole numbers"),
    (pd.array([1, 2.0**53], dtype="Float64"), "from 9007199254740992 on"),
])
def test_ids_that_are_floats_and_too_large_are_refused(tmp_path, ids, says):
    pytest.importorskip("pyarrow")
    frame = pd.DataFrame(dict(id=ids, x=[0.5, 1.5], y=[2.5, 3.5]))
    frame.to_parquet(tmp_path/"v.parquet")
    np.savez(tmp_path/"v.npz", vectors=frame[["x", "y"]].to_numpy(), ids=np.asarray(ids, dtype=float))
    for given in (frame, frame.set_index("id"), tmp_path/"v.parquet"):
        with pytest.raises(ValueError, match=says): read_vectors(given)
    with pytest.raises(ValueError, match=says): read_ids(tmp_path/"v.parquet")
    if ids.dtype != np.float32:
        with pytest.raises(ValueError, match=f"v.npz.*{says}"): read_vectors(tmp_path/"v.npz")


def test_ids_as_bytes_and_as_whole_floats_are_text(tmp_path):
    for ids, text in ((np.array([b"dog", b"\xc3\xa9"]), ["dog", "é"]), (np.array([7.0, 2.0**53 - 1]), None)):
        np.savez(tmp_path/"v.npz", v=np.eye(2), ids=ids)
        assert read_vectors(tmp_path/"v.npz")[1] == (text or ["7", "9007199254740991"])
    with pytest.raises(ValueError, match=r"embeddings: the id b'\\xff' is not UTF-8"):
        read_vectors(pd.DataFrame(dict(id=[b"\xff"], x=[1.5])))


@pytest.mark.parametrize("kind", [">f4", ">f8", ">f2", ">i4", "longdouble"])
def test_numbers_in_an_order_or_width_that_pytorch_does_not_know_are_taken(tmp_path, kind):
    matrix = np.arange(1, 13).reshape(6, 2).astype(kind)
    np.save(tmp_path/"v.npy", matrix)
    np.savez(tmp_path/"v.npz", matrix)
    pairs = pd.DataFrame(dict(source=range(5), target=range(1, 6)))
    for given in (tmp_path/"v.npy", tmp_path/"v.npz", np.load(tmp_path/"v.npy", mmap_mode="r")):
        if kind == ">i4" and isinstance(given, np.memmap): continue  # of an array in memory floats are expected
        ds = from_pairs(pairs, given, fractions=(0.6, 0.2, 0.2))
        assert torch.as_tensor(np.asarray(ds.features)).double().tolist() == matrix.astype(float).tolist()
        assert ds.report["vectors"]["changed"].startswith(matrix.dtype.str)


def test_what_is_no_matrix_of_numbers_is_named(tmp_path):
    for kind, says in (("c8", "complex64"), ("U3", "<U3"), ("M8[D]", "datetime64")):
        np.save(tmp_path/"v.npy", np.ones((2, 2)).astype("i8").astype(kind))
        with pytest.raises(ValueError, match=f"v.npy: a matrix of {says}.*, expected numbers"):
            read_vectors(tmp_path/"v.npy")
    with pytest.raises(ValueError, match=r"embeddings, row 2 \(the first is 0\): 1 numbers, expected 2 as in row 0"):
        read_vectors([[1, 2], [3, 4], [5]])
    with pytest.raises(ValueError, match="two columns are called 'x'"):
        read_vectors(pd.DataFrame([[1.5, 2]], columns=["x", "x"]))
    with pytest.raises(TypeError, match=r"holds the tables \['train', 'test'\]; pass one"):
        read_vectors(dict(train=pl.DataFrame(), test=pl.DataFrame()))
    with pytest.raises(ValueError, match="columns .*expected vectors as columns of numbers"):
        read_vectors(pl.LazyFrame(dict(id=["a"])))


def test_sparse_matrices_are_taken_where_they_fit(tmp_path):
    dense = np.array([[0, 1.5], [2, 0], [0, 0]], np.float32)
    sparse.save_npz(tmp_path/"s.npz", sparse.csr_matrix(dense))
    for given in (sparse.csr_matrix(dense), sparse.coo_array(dense), tmp_path/"s.npz",
                  torch.tensor(dense).to_sparse(),
                  pd.DataFrame.sparse.from_spmatrix(sparse.csr_matrix(dense))):
        assert (read_vectors(given)[0] == dense).all()
    read_vectors(tmp_path/"s.npz", report=(said := {}))
    assert said == {"changed": "sparse to dense"}
    assert read_vectors(sparse.eye(3, dtype=int, format="lil"))[0].dtype == np.float32
    with pytest.raises(ValueError, match=r"embeddings: a sparse matrix of shape \(1000000, 5000\) takes 19 GiB"):
        read_vectors(sparse.csr_matrix((1_000_000, 5_000)))


def test_tables_of_other_libraries_are_taken():
    pa, datasets = pytest.importorskip("pyarrow"), pytest.importorskip("datasets")
    columns = dict(id=["a", "b"], v=[[1.5, 2.5], [3.5, 4.5]])
    for given, width in ((pa.table(columns), 2), (datasets.Dataset.from_dict(columns), 2), (pl.DataFrame(columns), 2),
                         (pl.LazyFrame(dict(id=["a", "b"], x=[1.5, 3.5])), 1),
                         (pa.table(columns).to_pandas(types_mapper=pd.ArrowDtype), 2)):
        vectors, ids = read_vectors(given)
        assert ids == ["a", "b"] and vectors[:, 0].tolist() == [1.5, 3.5] and vectors.shape == (2, width)
    assert read_vectors(pa.table(dict(key=[5, 6], x=[1.5, 2.5])), id_column="key")[1] == ["5", "6"]


def test_what_is_packed_once_more_is_named(tmp_path):
    np.save(tmp_path/"v.npy", np.eye(2))
    (tmp_path/"v.npy.gz").write_bytes(gzip.compress((tmp_path/"v.npy").read_bytes()))
    with pytest.raises(ValueError, match="v.npy.gz: a .npy that is packed once more cannot be read; unpack it"):
        read_vectors(tmp_path/"v.npy.gz")
    lists = pd.Series([[1.0, 2.0], [3.0, 4.0]], index=["a", "b"])
    assert read_vectors(lists)[1] == ["a", "b"] and read_vectors(lists)[0].tolist() == [[1, 2], [3, 4]]
    assert read_vectors(pd.DataFrame(dict(id=["a"], x=[True], y=[0.5])))[0].tolist() == [[1, 0.5]]


def test_safetensors_and_members(tmp_path):
    from safetensors.torch import save_file
    path, matrix = tmp_path/"v.safetensors", torch.tensor([[1.5, 2.5], [3.5, 4.5]])
    for kind in (torch.float32, torch.bfloat16, torch.float16):
        save_file({"embedding.weight": matrix.to(kind), "bias": torch.ones(2)}, path)
        vectors, ids = read_vectors(path)
        assert vectors.tolist() == matrix.tolist() and ids is None
    save_file(dict(a=matrix, b=matrix + 1, ids=torch.tensor([7, 9])), path)
    np.savez(tmp_path/"v.npz", a=matrix, b=matrix + 1, ids=[7, 9])
    for given in (path, tmp_path/"v.npz"):
        assert read_vectors(given, member="b")[0].tolist() == (matrix + 1).tolist()
        assert read_vectors(given, member="a")[1] == ["7", "9"]
        with pytest.raises(ValueError, match=r"shapes \{'a': \(2, 2\), .*matrix; name one with member=$"):
            read_vectors(given)
        with pytest.raises(ValueError, match="has no member 'c'; it holds {'a'"): read_vectors(given, member="c")
        with pytest.raises(ValueError, match=r"exactly one \(n, d\) matrix$"): read_vectors(given, member="ids")
    with pytest.raises(ValueError, match="member = 'a': only .npz, .safetensors and .zip"):
        read_vectors(np.eye(2), member="a")
    for content in (b"", b"\x08\0\0\0\0\0\0\0{", b"not at all" * 9):
        (tmp_path/"w.safetensors").write_bytes(content)
        with pytest.raises(ValueError, match="w.safetensors is damaged, cut off or no .safetensors file"):
            read_vectors(tmp_path/"w.safetensors")


def test_word_vectors_of_other_libraries_and_kinds(tmp_path):
    keyed = KeyedVectors(2)
    keyed.add_vectors(["US", "us", "ice", "zero"], np.array([[1, 0], [0, 1], [2, 2], [0, 0]]))
    model = Word2Vec(vector_size=2, min_count=1)
    model.wv = keyed
    some = KeyedVectors(2)
    some.add_vectors(["US", "us", "ice"], keyed.vectors[:3])
    some.save_word2vec_format(tmp_path/"gensim.txt")
    some.save_word2vec_format(tmp_path/"gensim.bin", binary=True)
    text = "4 2\nUS 1 0 \nus 0 1 \nice 2 2 \nzero 0 0 \n"  # as fastText writes it
    (tmp_path/"w.vec").write_text(text)
    (tmp_path/"tabs.txt").write_text(text.replace(" \n", "\n").replace(" ", "\t"))
    (tmp_path/"w.bin").write_bytes(b"3 2\n" + b"".join(
        w.encode() + b" " + np.array(v, "<f4").tobytes() for w, v in (("US", [1, 0]), ("us", [0, 1]), ("ice", [2, 2]))))
    for name in ("w.vec", "w.bin"):
        (tmp_path/f"{name}.zst").write_bytes(zstandard.compress((tmp_path/name).read_bytes()))
    for given in (keyed, model, *(tmp_path/name for name in ("w.vec", "tabs.txt", "w.bin", "gensim.txt", "gensim.bin",
                                                            "w.vec.zst", "w.bin.zst")),
                  WordVectors(["US", "us", "ice"], np.float32([[1, 0], [0, 1], [2, 2]]))):
        vectors, ids = read_vectors(given, ["US", "ICE", "France"], report=(said := {}))
        assert ids == ["US", "ICE"] and vectors.tolist() == [[1, 0], [2, 2]]
        assert said == {"as written": 1, "in lower case": 1, "by their parts": 0, "not there": 1}
    with pytest.raises(ValueError, match="embeddings: the vector of 'zero' is zero everywhere or not finite"):
        read_vectors(keyed, ["zero"])


def test_what_is_no_file_of_vectors_says_where_it_belongs(tmp_path):
    with pytest.raises(FileNotFoundError, match="no file all-minilm-l6-v2; the name of an encoder is passed as"):
        read_vectors("all-minilm-l6-v2")
    with pytest.raises(TypeError, match="embeddings is a function; pass it as encoder="):
        read_vectors(len)


def test_ids_come_one_on_each_line_or_in_a_column(tmp_path):
    (tmp_path/"ids.txt").write_text("a b\nNA\n\n")
    (tmp_path/"ids.tsv").write_text("id\tword\n1\towl\n2\tdog\n")
    assert read_ids(tmp_path/"ids.txt") == ["a b", "NA"]
    assert read_ids(tmp_path/"ids.tsv") == ["1", "2"] and read_ids(tmp_path/"ids.tsv", "word") == ["owl", "dog"]
    with pytest.raises(ValueError, match="ids.tsv has no column 'name'; its columns are .* Name one with id_column="):
        read_ids(tmp_path/"ids.tsv", "name")


def test_a_table_of_ids_has_a_column_id_in_any_case_or_one_alone(tmp_path):
    (tmp_path/"cased.csv").write_text("word, ID \nowl,1\ndog,2\n")
    (tmp_path/"alone.csv").write_text("name\nowl\ndog\n")
    (tmp_path/"two.csv").write_text("id,Id\nowl,1\ndog,2\n")
    assert read_ids(tmp_path/"cased.csv") == ["1", "2"] and read_ids(tmp_path/"alone.csv") == ["owl", "dog"]
    with pytest.raises(ValueError, match="two.csv: columns 'id' and 'Id' could each be id"):
        read_ids(tmp_path/"two.csv")
