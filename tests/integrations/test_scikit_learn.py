"The estimator passes the checks of scikit-learn, and is its head"
import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.utils.estimator_checks import parametrize_with_checks

from rolebregman.integrations import DirectedPairRanker


class Padded(DirectedPairRanker):
    "The checks' data have any width: an odd one gets a column of zeros"

    def _pairs(self, X):
        return super()._pairs(np.pad(X, ((0, 0), (0, X.shape[1] % 2))))


@parametrize_with_checks([Padded(epochs=2, head="role_bregman", head_options=dict(hidden=[8]), random_state=0)])
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


def test_pairs_that_do_not_hold_teach_nothing(toy):
    X, Y = pairs(toy, "train"), np.roll(pairs(toy, "train"), toy.dim, axis=1)
    make = DirectedPairRanker(epochs=10, lr=3e-3, random_state=0)
    both = make.fit(np.vstack([X, Y]), np.repeat([1, 0], len(X)))
    assert (both.predict_direction(pairs(toy, "test")) == 1).mean() > 0.9


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
