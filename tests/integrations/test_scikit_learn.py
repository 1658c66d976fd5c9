"The estimator passes the checks of scikit-learn, and is its head"
import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.metrics import accuracy_score, average_precision_score, f1_score, get_scorer, roc_auc_score
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.utils.estimator_checks import parametrize_with_checks

from rolebregman.baselines import make_head
from rolebregman.integrations import DirectedPairRanker


class Mirrored(DirectedPairRanker):
    "The checks' rows have any width and are no pairs: here each is a source, and its mirror image the target"

    def _pairs(self, X):
        return super()._pairs(np.hstack([X, -X]))


@parametrize_with_checks([Mirrored(epochs=2, head="role_bregman", head_options=dict(hidden=[8]), random_state=0)])
def test_the_checks_of_scikit_learn(estimator, check):
    check(estimator)


def pairs(ds, split):
    return np.hstack([ds.features[side] for side in ds.edges[split].T])


@pytest.fixture(scope="module")
def ranker(toy):
    return DirectedPairRanker(lr=3e-3, epochs=10, random_state=0).fit(pairs(toy, "train"))


def test_a_ranker_learns_and_is_its_head(toy, ranker):
    test, turned = pairs(toy, "test"), np.roll(pairs(toy, "test"), toy.dim, axis=1)
    assert ranker.score(test) > 0.95 and (ranker.predict_direction(test) == 1).mean() > 0.9
    assert (ranker.predict_direction(turned) == -ranker.predict_direction(test)).all()
    with torch.no_grad():
        assert np.allclose(ranker.score_pairs(test), ranker.head_(*np.hsplit(test, 2)).numpy(), rtol=1e-5)
    symmetric = clone(ranker).set_params(head="euclidean", epochs=1).fit(pairs(toy, "train"))
    assert (symmetric.predict_direction(test) == 0).all()


def test_neighbours_are_rows_of_what_was_fitted(toy, ranker):
    sources, X = toy.features[:9], pairs(toy, "train")
    distances, rows = ranker.kneighbors(sources, 4)
    assert np.array_equal(rows, ranker.kneighbors(sources, 4, return_distance=False))
    all_ = ranker.head_.pairwise(sources, np.unique(X[:, toy.dim:], axis=0)).detach().numpy()
    np.testing.assert_allclose(distances, np.sort(all_, 1)[:, :4], rtol=1e-5)
    again = ranker.head_.score(np.repeat(sources, 4, 0), X[rows.ravel(), toy.dim:]).numpy()
    np.testing.assert_allclose(again.reshape(9, 4), distances, rtol=1e-5)


@pytest.fixture(scope="module")
def judged(toy):
    "Each pair of the training part, and turned round as one that does not hold"
    X = pairs(toy, "train")
    return np.vstack([X, np.roll(X, toy.dim, axis=1)]), np.repeat([1, 0], len(X))


def test_pairs_that_do_not_hold_are_learned_from(toy):
    "True pairs, a third of them denied, are told apart by nothing else; labels of 0 and of -1 teach the same"
    X = pairs(toy, "train")[:100]
    make = DirectedPairRanker(epochs=40, lr=1e-2, batch_size=99, denied_weight=10, random_state=0).set_params(
        validation_fraction=0)
    y = (np.arange(len(X)) % 3 > 0).astype(int)
    fitted, without = clone(make).fit(X, y), clone(make).set_params(denied_weight=0).fit(X, y)
    told_apart = lambda ranker: roc_auc_score(y, ranker.decision_function(X))
    assert told_apart(fitted) > 0.8 and told_apart(fitted) > told_apart(without) + 0.1
    fitted, other = (clone(make).set_params(epochs=1).fit(X, labels) for labels in (y, 2 * y - 1))
    assert np.array_equal(other.score_pairs(X), fitted.score_pairs(X))
    assert np.array_equal(other.predict(X), 2 * fitted.predict(X) - 1)


def test_what_holds_is_at_most_at_the_threshold(toy, ranker):
    X, distances = pairs(toy, "train"), ranker.score_pairs(pairs(toy, "train"))
    assert np.array_equal(ranker.predict(X), (distances <= ranker.threshold_).astype(int))
    np.testing.assert_allclose(ranker.decision_function(X), ranker.threshold_ - distances, atol=1e-4)
    assert ranker.predict(X).mean() > 0.9
    far = np.hstack([toy.features[toy.edges["train"][:, 0]], np.roll(X[:, toy.dim:], 57, axis=0)])
    assert ranker.predict(far).mean() < 0.3


@pytest.mark.parametrize("flip", [False, True])
def test_the_threshold_is_where_most_are_told_apart(toy, flip):
    "By a loop over every place between two distances"
    from rolebregman.integrations.scikit_learn import _dataset, _threshold
    X = pairs(toy, "train")[:40]
    holds = np.random.default_rng(0).random(40) < 0.4
    valid = np.arange(40) % 4 == 0
    ds, of_valid = _dataset(*np.hsplit(X, 2), holds ^ flip, 0, valid, np.arange(1.0, 41))
    head = make_head("euclidean", toy.dim).double()
    positive = np.concatenate([ds.edges["train"], ds.edges["valid"]])
    near, far = (head.score(*ds.features[e.T]).numpy() for e in (positive, ds.denied["train"]))
    weights = np.concatenate([ds.weights, of_valid])
    assert sorted([*weights, *ds.denied_weights]) == list(range(1, 41))
    value = lambda t: np.average(near <= t, weights=weights) + np.average(far > t, weights=ds.denied_weights)
    every = np.sort(np.concatenate([near, far]))
    assert value(_threshold(head, ds, of_valid, 0)) == pytest.approx(max(map(value, (every[1:] + every[:-1]) / 2)))


@pytest.mark.parametrize("scoring", ["roc_auc", "average_precision", "accuracy", "f1"])
def test_the_scorers_of_scikit_learn(judged, ranker, scoring):
    X, y = judged
    of = {"roc_auc": roc_auc_score, "average_precision": average_precision_score}.get(scoring)
    expected = of(y, -ranker.score_pairs(X)) if of else {"accuracy": accuracy_score, "f1": f1_score}[scoring](
        y, ranker.score_pairs(X) <= ranker.threshold_)
    assert get_scorer(scoring)(ranker, X, y) == pytest.approx(expected) and expected > 0.7


def test_a_weight_of_two_is_two_rows_and_of_zero_none(toy, judged):
    "For pairs that hold and those that do not, in whatever order; a row of weight 0 may be anything"
    (X, y), make = (part[::9] for part in judged), DirectedPairRanker(epochs=3, random_state=0, validation_fraction=0)
    often = np.random.default_rng(0).integers(3, size=len(X))
    weighted = clone(make).fit(X, y, sample_weight=often)
    rows = np.random.default_rng(1).permutation(np.repeat(np.arange(len(X)), often))
    repeated = clone(make).fit(X[rows], y[rows])
    assert np.array_equal(weighted.decision_function(X), repeated.decision_function(X))
    assert not np.allclose(weighted.score_pairs(X), clone(make).fit(X[often > 0], y[often > 0]).score_pairs(X))
    assert np.array_equal(X[weighted.kneighbors(X[:4, :toy.dim], 2)[1], toy.dim:],
                          X[rows][repeated.kneighbors(X[:4, :toy.dim], 2)[1], toy.dim:])


@pytest.mark.parametrize("weights, fault", [([1.0] * 5, "expected"), (-1.0, "at least 0, found -1"),
                                            (0.0, "every weight is zero"), (np.nan, "NaN")])
def test_weights_that_make_no_sense(toy, weights, fault):
    X = pairs(toy, "train")
    with pytest.raises(ValueError, match=f"sample_weight.*({fault})"):
        DirectedPairRanker().fit(X, sample_weight=weights if isinstance(weights, list) else np.full(len(X), weights))


def test_all_weights_times_a_constant_are_the_same_weights(toy):
    X = pairs(toy, "train")
    wrong = np.hstack([X[:, :toy.dim], np.roll(X[:, toy.dim:], 57, axis=0)])
    both, y = np.vstack([X, wrong]), np.repeat([1, 0], len(X))
    found = [DirectedPairRanker(epochs=3, random_state=0).fit(both, y, np.full(len(both), times)).threshold_
             for times in (0.25, 1.0, 64.0)]
    assert found == pytest.approx([found[1]] * 3, rel=1e-6)


def test_a_pair_that_is_said_to_hold_and_not_to_holds(toy):
    from rolebregman.integrations.scikit_learn import _dataset
    X = pairs(toy, "train")[:5]
    ds, _ = _dataset(*np.hsplit(np.vstack([X, X[:3], X[4:]]), 2), np.array([1, 1, 1, 1, 0, 0, 0, 0, 0]) > 0, 0)
    assert len(ds.edges["train"]) == 4 and len(ds.denied["train"]) == 1


@pytest.mark.parametrize("label, fault", [("yes", "numeric|string"), (np.nan, "y contains NaN")])
def test_labels_that_are_no_numbers_are_refused(toy, ranker, label, fault):
    X = pairs(toy, "train")
    for use in (DirectedPairRanker(epochs=1).fit, ranker.score):
        with pytest.raises(ValueError, match=fault): use(X, [label] + [1] * (len(X) - 1))


def test_grid_search_and_cross_validation(toy):
    X = pairs(toy, "train")
    make = DirectedPairRanker(epochs=6, lr=3e-3, random_state=0)
    search = GridSearchCV(make, {"head": ["euclidean", "directed_bregman"]}, cv=2).fit(X)
    assert search.best_params_ == {"head": "directed_bregman"} and search.cv_results_["mean_test_score"][0] <= 0.75
    assert cross_val_score(make, X, cv=2).min() > 0.8


@pytest.mark.parametrize("settings, fault", [
    (dict(head="nope"), "no head 'nope'"), (dict(lr=-1.0), "TrainConfig.lr"),
    (dict(validation_fraction=1.0), "validation_fraction"), (dict(head_options=dict(width=3)), "width")])
def test_settings_that_make_no_sense(toy, settings, fault):
    with pytest.raises((ValueError, TypeError), match=fault):
        DirectedPairRanker(**settings).fit(pairs(toy, "train"))


@pytest.mark.parametrize("change, fault", [
    (lambda X: X[:, :7], "n_features = 7"), (lambda X: np.hstack([X[:, :4], 0 * X[:, :4]]), "two different targets"),
    (lambda X: np.where(X == X[0, 0], np.nan, X), "NaN")])
def test_pairs_that_make_no_sense(toy, change, fault):
    with pytest.raises(ValueError, match=fault):
        DirectedPairRanker().fit(change(pairs(toy, "train")))
