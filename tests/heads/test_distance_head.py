"What all heads have in common: inputs on one scale, scores in blocks, files"
import json
import sys

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from rolebregman.baselines import HEADS, make_head
from rolebregman.heads import BregmanHead, DistanceHead, Standardizer, files, load_head
from rolebregman.retrieval import TargetIndex

D = 6  # width of the embeddings
F64 = torch.float64
SMALL = dict(hidden=(8, 7), rank=3)


def points(n, seed=0):
    "Raw embeddings, off centre and not of unit size, as encoders make them"
    return 3.0 + 0.5 * torch.randn(n, D, dtype=F64, generator=torch.Generator().manual_seed(seed))


class Climb(DistanceHead):
    "How far one has to climb from a source to a target"
    def compare(self, u, v): return (v - u).relu().sum(-1)


# ---- inputs on one scale

def test_the_scale_of_blocks_is_that_of_all_rows(monkeypatch):
    monkeypatch.setattr("rolebregman.heads.inputs._ROWS", 7)
    x, rows = 1000 + points(40), torch.arange(0, 40, 3)
    for part, taken in (x, None), (x[rows], rows):
        fitted = Standardizer(D).double().fit(x, taken)
        assert torch.allclose(fitted.mean, part.mean(0), rtol=1e-12)
        assert torch.allclose(fitted.scale, part.var(0, correction=0).mean().rsqrt(), rtol=1e-9)


def test_standardiser_refuses_what_has_no_scale():
    head = BregmanHead(D, **SMALL)
    for bad, message in ((torch.ones(5, D), "all rows are equal"), (torch.ones(0, D), "at least one row"),
        (torch.ones(D), r"shape \(6,\)"), (points(5).index_fill(0, torch.tensor([3]), torch.nan), "row 3"),
        (points(5).index_fill(0, torch.tensor([2]), torch.inf), "row 2")):
        with pytest.raises(ValueError, match=message): head.fit_standardizer(bad)
    with pytest.raises(ValueError, match=f"{D}"): head.fit_standardizer(torch.randn(5, D + 1))
    assert head.standardizer(points(2).float()).equal(points(2).float())  # and is as it was
    counts = torch.arange(5 * D).reshape(5, D)
    squares = head.fit_standardizer(counts).standardizer(counts.float()).square().sum(-1)
    assert squares.mean().allclose(torch.tensor(float(D)))


@pytest.mark.parametrize("name", ["role_bregman", "mlp"])
def test_arrays_of_any_layout_are_taken_as_what_they_hold(name):
    torch.manual_seed(0)
    head, X = make_head(name, 5), np.random.default_rng(0).normal(size=(4, 5)).astype(np.float32)
    expected = head.score(X, X[[1, 2, 3, 0]])
    same = torch.stack([head.score(X[::-1], X[[0, 3, 2, 1]]).flip(0), head.score(X.astype(">f4"), X[[1, 2, 3, 0]]),
                        head.score(np.asfortranarray(X), X[[1, 2, 3, 0]]), head.score(X.tolist(), X[[1, 2, 3, 0]])])
    assert torch.equal(same, expected.expand(4, -1))
    assert torch.equal(head(X[0][::-1], X[1]), head(X[0][::-1].copy(), X[1]))


# ---- what a subclass must say

def test_a_head_without_compare_says_what_to_define():
    x = points(2)
    with pytest.raises(NotImplementedError, match=r"DistanceHead must define compare\(u, v\)"): DistanceHead(D)(x, x)
    with pytest.raises(NotImplementedError, match="Climb has no form as an inner product"):
        Climb(D).source_form(x, x[0])
    with pytest.raises(ValueError, match="dim must be a whole number of at least 1, found 0"): Climb(0)


# ---- many pairs

def test_what_cannot_be_scored_is_named():
    head, X = make_head("role_bregman", 5), np.zeros((4, 5), np.float32)
    X[2, 1] = np.nan
    with pytest.raises(ValueError, match="distance of row 2 is nan, and 1 are not finite"): head.score(X, X * 1)
    with pytest.raises(ValueError, match=r"pair up, \(n, 5\) both, found shapes \(5,\) and \(5,\)"):
        head.score(X[0], X[0])
    with pytest.raises(ValueError, match="x: expected numbers, found dtype object"): head(np.array([None] * 5), X[0])


def test_what_is_masked_is_no_number():
    "What lies under a mask was taken for a vector; an array of which nothing is masked is one as any other"
    head, rows = make_head("icnn_bregman", 4), np.ma.masked_array(np.ones((5, 4)), mask=np.eye(5, 4))
    for ask in (lambda: head(rows, rows), lambda: head.score(rows, rows.data), lambda: head.score(rows.data, rows),
                lambda: head.pairwise(rows, rows.data), lambda: head.fit_standardizer(rows),
                lambda: TargetIndex(head, rows), lambda: TargetIndex(head, rows.data).search(rows, 1)):
        with pytest.raises(ValueError, match=r"([xyXY]|features): .*4 values are masked; leave their rows out"): ask()
    whole = np.ma.masked_array(np.ones((5, 4)), mask=False)
    assert head.score(whole, 2 * whole).equal(head.score(whole.data, 2 * whole.data))


def test_scoring_goes_on_in_smaller_blocks_where_memory_runs_out(monkeypatch, caplog):
    torch.manual_seed(0)
    head, (x, y) = make_head("role_bregman", 5), torch.randn(2, 100, 5)
    expected, compare = head.score(x, y), head.compare
    def small(u, v):
        if len(u) > 30: raise RuntimeError("[enforce fail] can't allocate memory: you tried to allocate 1 bytes")
        return compare(u, v)
    monkeypatch.setattr(head, "compare", small)
    with caplog.at_level("WARNING", "rolebregman"): assert torch.allclose(head.score(x, y), expected, rtol=1e-5)
    assert "out of memory: scoring goes on in blocks of 16 rows" in caplog.text


# ---- files

@pytest.mark.parametrize("name", HEADS)
def test_a_file_names_the_package_that_hands_the_class_on(name, tmp_path):
    "Rooms move, packages stay"
    head = make_head(name, D)
    about = json.loads((head.save_pretrained(tmp_path) / "config.json").read_text())
    assert about["module"] in ("rolebregman.heads", "rolebregman.baselines") and about["class"] == type(head).__name__
    assert getattr(sys.modules[about["module"]], about["class"]) is type(head)


def test_a_class_of_ones_own_is_kept_under_its_module(tmp_path):
    about = json.loads((Climb(D).save_pretrained(tmp_path) / "config.json").read_text())
    assert about["module"] == __name__ and type(load_head(tmp_path)) is Climb


@pytest.mark.parametrize("module, name", [("rolebregman.peers", "Tversky"), ("rolebregman.geometries", "HiT"),
    ("rolebregman.baselines", "MLP"), ("rolebregman.heads", "BregmanHead"),
    ("rolebregman.heads.role_head", "BregmanHead")])
def test_modules_of_the_versions_before_are_known(module, name, tmp_path):
    kind = next(entry.head for entry in HEADS.values() if entry.head.__name__ == name)
    file = kind(D).save_pretrained(tmp_path) / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"module": module}))
    assert type(load_head(tmp_path)) is kind


@pytest.mark.parametrize("module, name", [("rolebregman.cli", "app"), ("rolebregman.cli.app", "fit"),
    ("rolebregman.study", "BregmanHead"), ("rolebregman", "BregmanHead"), ("rolebregman.heads", "load_head"),
    ("rolebregman.heads", "Standardizer"), ("rolebregman.heads", "role_head"), ("rolebregman.heads", "__class__"),
    ("rolebregman.heads.role_head", "_TwoViews"), ("os", "system"), ("this", "s"), (3, 4), ("", ""), (".heads", "x")])
def test_nothing_but_a_head_is_made_and_nothing_else_is_imported(module, name, tmp_path):
    file = Climb(D).save_pretrained(tmp_path) / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"module": module, "class": name}))
    before = set(sys.modules)
    with pytest.raises(ValueError, match="which is not known: import it first"): load_head(tmp_path)
    assert set(sys.modules) <= before


def without_mark(folder):
    "The config of a head that is now as an older version has saved it"
    save_file(load_file(folder / "model.safetensors"), folder / "model.safetensors")
    return folder / "config.json"


def test_broken_folders_are_refused_with_the_file_named(tmp_path):
    def save(): return BregmanHead(D, **SMALL).save_pretrained(tmp_path)
    with pytest.raises(FileNotFoundError, match="config.json"): load_head(tmp_path)
    (save() / "model.safetensors").unlink()
    with pytest.raises(FileNotFoundError, match="model.safetensors"): load_head(tmp_path)
    whole = (save() / "model.safetensors").read_bytes()
    for cut in (whole[:-100], whole[:4], b"", b"\x80\x04" + whole):
        (tmp_path / "model.safetensors").write_bytes(cut)
        with pytest.raises(ValueError, match="model.safetensors"): load_head(tmp_path)
    about = json.loads(without_mark(save()).read_text())
    wrong = [{"class": "Nobody"}, {"class": "Path", "module": "pathlib"}, {"module": "rolebregman.nowhere"},
        {"class": "ICNN", "module": "rolebregman.icnn.potential"}, {"dtype": "int64"}, {"config": []},
        {"config": about["config"] | {"bogus": 1}}, {"config": about["config"] | {"roles": "?"}}]
    for text in ["", "{", "3", "[]", "{}", *(json.dumps(about | part) for part in wrong)]:
        (tmp_path / "config.json").write_text(text)
        with pytest.raises(ValueError, match="config.json"): load_head(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(about | {"config": about["config"] | {"hidden": [9]}}))
    with pytest.raises(ValueError, match="model.safetensors"): load_head(tmp_path)


def test_an_interrupted_save_leaves_the_old_head(tmp_path, monkeypatch):
    head = BregmanHead(D, **SMALL)
    head.save_pretrained(tmp_path)
    before = {p.name: p.read_bytes() for p in tmp_path.iterdir()}
    def full(*args, **kwargs): raise OSError("no space left on device")
    monkeypatch.setattr(files, "save_file", full)
    with pytest.raises(OSError, match="no space"): BregmanHead(D, **SMALL).save_pretrained(tmp_path)
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == before


def test_weights_that_are_not_finite_are_neither_saved_nor_loaded(tmp_path):
    head = make_head("mahalanobis", 5)
    head.save_pretrained(tmp_path)
    name, weight = next(iter(head.named_parameters()))
    with torch.no_grad(): weight.view(-1)[0] = float("nan")
    with pytest.raises(ValueError, match=f"cannot be saved: {name} holds a NaN"): head.save_pretrained(tmp_path)
    assert load_head(tmp_path).state_dict()[name].isfinite().all(), "what was there stays"
    state = {key: value.clone() for key, value in head.state_dict().items()}
    save_file(state, tmp_path / "model.safetensors")
    with pytest.raises(ValueError, match=f"model.safetensors: {name} holds a NaN"): load_head(tmp_path)


@pytest.mark.parametrize("change, message", [({"dtype": "float64"}, "says torch.float64 of .* holds torch.float32"),
    ({"config": {"dim": 10**12}}, "config.json: Mahalanobis does not take this config")])
def test_a_config_that_does_not_fit_the_weights_is_refused(tmp_path, change, message):
    about = json.loads(without_mark(make_head("mahalanobis", 5).save_pretrained(tmp_path)).read_text())
    (tmp_path / "config.json").write_text(json.dumps(about | change))
    with pytest.raises(ValueError, match=message): load_head(tmp_path)


def test_no_more_pairs_are_compared_at_once_than_fit_a_cache():
    class Counting(BregmanHead):
        def compare(self, u, v):
            found = super().compare(u, v)
            sizes.append(found.numel())
            return found

    sizes, head = [], Counting(3, hidden=(4,))
    X = torch.randn(2 * head.pairs_at_once + 5, 3)
    head.score(X, X)
    head.pairwise(X[:30], X[:300])
    assert max(sizes) <= head.pairs_at_once and sizes[0] == head.pairs_at_once and sum(sizes) == len(X) + 30 * 300


@pytest.mark.parametrize("whole", [True, False], ids=["a map", "a weight"])
def test_tied_weights_are_saved_and_come_back_untied(tmp_path, whole):
    "Both role maps as one, or one weight of both: the distances come back, and each side then has its own"
    head, (x, y) = BregmanHead(D, maps="linear", **SMALL), points(10).float().split(5)
    if whole:
        head.maps["target"] = head.maps["source"]
    else:
        head.maps["target"].start = head.maps["source"].start
    with torch.no_grad():
        head.maps["source"].start.normal_()
    again = load_head(head.save_pretrained(tmp_path))
    assert torch.equal(again.score(x, y), head.score(x, y))
    with torch.no_grad():
        again.maps["source"].start.add_(1)
    assert torch.equal(again.maps["target"].start, head.maps["target"].start)


def test_weights_of_any_layout_are_saved(tmp_path):
    "A weight that is a view, turned round or every second row of another, comes back as what it holds"
    head, (x, y) = BregmanHead(D, maps="linear", **SMALL), points(10).float().split(5)
    turned, second = torch.randn(D, D).T, torch.randn(2 * D, D)[::2]
    for side, weight in ("source", turned), ("target", second): head.maps[side].start = torch.nn.Parameter(weight)
    assert not turned.is_contiguous() and not second.is_contiguous()
    again = load_head(head.save_pretrained(tmp_path))
    assert again.maps["source"].start.equal(turned) and again.maps["target"].start.equal(second)
    torch.testing.assert_close(again(x, y), head(x, y))  # a product of another layout may round otherwise


def test_the_compiler_is_asked_where_one_asks_for_it_and_not_else(monkeypatch):
    asked, head, X = [], make_head("mlp", D), points(9).float()
    monkeypatch.setattr("rolebregman.heads.distance_head.compiled", lambda compare: asked.append(compare) or compare)
    plain = head.score(X, X)
    assert not asked and head.score(X, X, compile=True).equal(plain) and asked == [head.compare]


@pytest.mark.parametrize("name, shape", [("X", (4,)), ("Y", (2, 5, 4)), ("Y", (4,))])
def test_pairwise_takes_rows_and_names_the_argument_that_has_none(name, shape):
    rows = torch.ones(2, 4)
    with pytest.raises(ValueError) as error:
        make_head("euclidean", dim=4).pairwise(**dict(X=rows, Y=rows) | {name: torch.ones(shape)})
    assert str(error.value) == f"{name}: expected rows, (n, 4), found shape {shape}; reshape it"


def test_a_head_that_never_had_a_decision_says_nothing_of_one(caplog):
    assert make_head("euclidean", dim=4).decision is None and not caplog.records
