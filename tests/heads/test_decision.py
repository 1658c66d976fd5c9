"From two distances to three probabilities: turned with the pair, saved with the head, refused where not its own"
import copy
import json
import math
import pickle
import shutil

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rolebregman.baselines import HEADS, make_head
from rolebregman.datasets import toy_tree
from rolebregman.heads import CLASSES, Decision, check_shares, load_head, weights_mark, write_files
from rolebregman.retrieval import fingerprint
from rolebregman.training import TrainConfig, fit

numbers = st.floats(-1e3, 1e3)
decisions = st.builds(Decision, scale=st.floats(1e-6, 1e6), weights=st.tuples(*[numbers] * 4),
                      threshold=st.floats(0.01, 0.99))
distances = st.floats(-1e30, 1e30)
SOME = Decision(scale=2.0, weights=(0.5, -1.5, 0.25, 0.75), threshold=0.4, about=dict(split="valid", pairs=30))


@given(decisions, distances, distances)
def test_a_pair_turned_round_has_the_two_ways_exchanged_to_the_last_bit(decision, a, b):
    there, back = decision.probabilities([a], [b])[0], decision.probabilities([b], [a])[0]
    assert there.tolist() == back[[1, 0, 2]].tolist()
    assert np.isfinite(there).all() and (there >= 0).all() and math.isclose(there.sum(), 1, rel_tol=1e-12)


@given(distances, distances, st.floats(0.01, 0.98))
def test_a_prior_is_bayes_rule(a, b, share):
    prior = (share, (1 - share) / 3, 2 * (1 - share) / 3)
    equal, found = SOME.probabilities([a], [b])[0], SOME.probabilities([a], [b], prior)[0]
    np.testing.assert_allclose(found, equal * prior / (equal @ prior), rtol=1e-9, atol=1e-300)


def test_the_form_by_hand():
    "asinh(2 / 2) = 0.8814, asinh(6 / 2) = 1.8184"
    u, v = 0.881373587, 1.818446459
    odds = [math.exp(0.5 - 1.5 * a + 0.25 * b + 0.75 * (v - u)) for a, b in ((u, v), (v, u))] + [1]
    assert SOME.probabilities([2.0], [6.0])[0].tolist() == pytest.approx([odd / sum(odds) for odd in odds])


def test_a_class_is_the_likelier_way_from_the_threshold_on():
    found = [[0.4, 0.3, 0.3], [0.39, 0.3, 0.31], [0.1, 0.5, 0.4], [0.45, 0.45, 0.1], [0.0, 0.0, 1.0]]
    assert [CLASSES[i] for i in SOME.classes(found)] == ["this way", "neither", "other way", "neither", "neither"]
    assert SOME.classes(found, 0.3).tolist() == [0, 0, 1, 2, 2] and SOME.classes(found, 0.6).tolist() == [2] * 5
    assert SOME.classes(found, 0).tolist() == [0, 0, 1, 2, 2] and SOME.classes([[1.0, 0.0, 0.0]], 1).tolist() == [0]
    with pytest.raises(ValueError, match="threshold = 1.5: expected a probability"): SOME.classes(found, 1.5)


def _a_step(head):
    head(torch.ones(4, 8), torch.zeros(4, 8)).mean().backward()
    torch.optim.SGD(head.parameters(), lr=0.1).step()


@pytest.mark.parametrize("change", [
    _a_step,
    lambda head: head.load_state_dict(make_head("bilinear", dim=8).fit_standardizer(torch.randn(9, 8)).state_dict()),
    lambda head: head.standardizer.fit(3 * torch.randn(50, 8)), lambda head: head.fit_standardizer(torch.randn(50, 8)),
    lambda head: setattr(head, "inputs", "unit")])
def test_a_decision_goes_with_the_weights_that_it_was_made_for(change, tmp_path):
    torch.manual_seed(0)
    head = make_head("bilinear", dim=8).fit_standardizer(torch.randn(50, 8))
    head.decision = SOME
    change(head)
    assert head.decision is None
    with pytest.raises(ValueError, match="has no decision"): head.decide(torch.ones(1, 8), torch.zeros(1, 8))
    assert load_head(head.save_pretrained(tmp_path)).decision is None


def test_a_decision_stays_with_copies_and_other_precision(tmp_path, caplog):
    head = make_head("role_bregman", dim=8)
    head.decision = SOME
    saved = load_head(head.save_pretrained(tmp_path))
    for other in copy.deepcopy(head), pickle.loads(pickle.dumps(head)), saved, head.double(), head.float():
        assert other.decision == SOME
    assert not caplog.records and weights_mark(head) == weights_mark(saved)
    with torch.no_grad(): next(head.parameters()).add_(1)
    assert weights_mark(head) != weights_mark(saved)
    assert head.decision is None and "learned or was cast since its decision was made" in caplog.text


@pytest.mark.parametrize("name", sorted(HEADS))
def test_every_head_decides_alike_both_ways_and_is_loaded_with_its_decision(name, tmp_path):
    torch.manual_seed(0)
    head, (X, Y) = make_head(name, dim=8), torch.randn(2, 300, 8)
    head.fit_standardizer(X)
    head.decision = SOME
    found = head.decide(X, Y)
    assert found.equal(head.decide(Y, X)[:, [1, 0, 2]]) and found.dtype == torch.float64
    if head.symmetric: assert found[:, 0].equal(found[:, 1])
    again = load_head(head.save_pretrained(tmp_path))
    assert again.decision == SOME and again.decide(X, Y).equal(found)
    other = (head.score(X, Y), head.score(X, Y) if head.symmetric else head.score(Y, X), (0.1, 0.1, 0.8))
    assert again.decide(X, Y, other[2]).equal(torch.from_numpy(SOME.probabilities(*other)))


def test_a_head_without_a_decision_says_what_to_do(tmp_path):
    head = make_head("mlp", dim=3)
    with pytest.raises(ValueError, match="this MLP has no decision.*rolebregman.training.calibrate"):
        head.decide(torch.zeros(1, 3), torch.zeros(1, 3))
    assert load_head(head.save_pretrained(tmp_path)).decision is None
    assert "decision" not in json.loads((tmp_path / "config.json").read_text())  # a file like those of before


def test_a_distance_that_is_not_finite_is_refused():
    head = make_head("mlp", dim=3)
    head.decision = SOME
    broken = torch.tensor([[0.0] * 3, [math.nan] * 3])
    with pytest.raises(ValueError, match="row 1 is nan"): head.decide(broken, torch.zeros(2, 3))
    with pytest.raises(ValueError, match="row 0 has the distances inf and 1"): SOME.probabilities([math.inf], [1.0])


@pytest.mark.parametrize("change", [lambda head, ds: fit(head, ds, TrainConfig(epochs=0), progress=False),
                                    lambda head, ds: head.fit_standardizer(ds.features),
                                    lambda head, ds: setattr(head, "inputs", "unit")])
def test_what_changes_the_distances_drops_the_decision(change):
    ds = toy_tree(depth=3, dim=4)
    head = make_head("mlp", dim=4).fit_standardizer(ds.features)
    head.decision = SOME
    change(head, ds)
    assert head.decision is None


def test_a_decision_belongs_to_its_weights(tmp_path):
    "Edited, damaged, or put beside the weights of another head, it is refused"
    head = make_head("mlp", dim=3)
    head.decision = SOME
    config = head.save_pretrained(tmp_path / "one") / "config.json"
    about = json.loads(config.read_text())
    config.write_text(json.dumps(dict(about, decision=dict(about["decision"], threshold=0.9))))
    with pytest.raises(ValueError, match="was edited, or is of another head"): load_head(tmp_path / "one")
    for change, said in [(dict(about["decision"], threshold=2), "threshold = 2"),
                         (dict(about["decision"], scale=0.0), "scale = 0.0"), ([1, 2], "expected about"),
                         (dict(about["decision"], weights=["a"] * 4), "four finite numbers")]:
        write_files(tmp_path / "one", json.dumps(dict(about, decision=change)), head.state_dict())
        with pytest.raises(ValueError, match=f"config.json: decision.*{said}|config.json: {said}"):
            load_head(tmp_path / "one")
    head.decision = None
    head.save_pretrained(tmp_path / "two")
    config.write_text(json.dumps(about))
    shutil.copy(config, tmp_path / "two" / "config.json")
    with pytest.raises(ValueError, match="is not the config that model.safetensors was saved with"):
        load_head(tmp_path / "two")


def test_shares_are_checked():
    assert check_shares([0.2, 0.3, 0.5]) == (0.2, 0.3, 0.5)
    for wrong in (0.5, 0.5), (0.5, 0.5, 0.5), (1.0, 0.0, 0.0), (0.2, 0.3, math.nan), 0.3, "abc", None:
        with pytest.raises(ValueError, match="prior = .*expected three shares"): check_shares(wrong)


def test_what_a_head_is_known_by_does_not_hang_on_its_decision(tmp_path):
    "An index that was saved with a head goes with it before and after it was calibrated, trained or loaded"
    head = make_head("role_bregman", dim=4)
    before = fingerprint(head)
    head.decision = SOME
    assert fingerprint(head) == before == fingerprint(load_head(head.save_pretrained(tmp_path)))
    head.decision = None
    assert fingerprint(head) == before
