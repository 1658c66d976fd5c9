"""The head inside other libraries: each against the real one, its numbers the head's own, its faults said in words."""
import os
import subprocess
import sys
import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.utils.estimator_checks import parametrize_with_checks

import rolebregman.integrations as integrations
from rolebregman.baselines import HEADS, make_head
from rolebregman.datasets import load_dataset
from rolebregman.evaluation import evaluate
from rolebregman.heads import load_head

DIM = 8


def some_head(name="directed_bregman", dim=DIM, **options):
    return make_head(name, dim=dim, **options)


@pytest.fixture(scope="module")
def toy():
    ds = load_dataset("toy", seed=0)
    ds.nodes["text"] = [f"w{i}" for i in range(ds.num_nodes)]
    return ds


# The one place


def test_importing_loads_no_library():
    script = ("import sys, rolebregman.integrations as i; heavy = {'torch', 'transformers', 'sentence_transformers', "
              "'pytorch_metric_learning', 'pykeen', 'sklearn', 'huggingface_hub'}; print(heavy & set(sys.modules))")
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert ran.stdout == "set()\n"


@pytest.mark.parametrize("name", dir(integrations))
def test_every_name_is_there_and_documented(name):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what the libraries warn of while they are imported
        assert getattr(integrations, name).__doc__


def test_a_missing_library_names_the_extra(monkeypatch):
    monkeypatch.delitem(sys.modules, "rolebregman.integrations.metric_learning", raising=False)
    monkeypatch.setitem(sys.modules, "pytorch_metric_learning.distances", None)
    with pytest.raises(ImportError, match=r"as_pml_distance needs another package .*rolebregman\[metric\]"):
        integrations.as_pml_distance  # noqa: B018
    with pytest.raises(AttributeError, match="no attribute 'as_pml'"):
        integrations.as_pml  # noqa: B018


# pytorch-metric-learning


@pytest.mark.parametrize("name", HEADS)
def test_a_distance_is_the_head(name):
    head, X, Y = some_head(name), 5 * torch.randn(7, DIM), 5 * torch.randn(4, DIM)
    distance = integrations.as_pml_distance(head)
    assert isinstance(distance, integrations.HeadDistance)
    with torch.no_grad():
        assert torch.equal(distance(X, Y), head.pairwise(X, Y))
        assert torch.equal(distance.compute_mat(X, Y), head.pairwise(X, Y))
        assert torch.equal(distance(X), head.pairwise(X, X))
        assert torch.equal(distance.pairwise_distance(X[:4], Y), head(X[:4], Y))
    assert {id(p) for p in distance.parameters()} == {id(p) for p in head.parameters()}


def test_losses_over_similarities_equal_their_formulas():
    from pytorch_metric_learning import losses, miners
    head, X, Y = some_head(), torch.randn(4, DIM), torch.randn(6, DIM)
    ours, theirs = torch.tensor([0, 1, 2, 0]), torch.tensor([0, 1, 2, 2, 1, 0])
    distance, D, same = integrations.as_pml_distance(head), head.pairwise(X, Y), ours[:, None] == theirs
    with torch.no_grad():
        found = losses.SupConLoss(0.5, distance=distance)(X, ours, ref_emb=Y, ref_labels=theirs)
        share = (-D / 0.5).log_softmax(1)
        torch.testing.assert_close(found, -((share * same).sum(1) / same.sum(1)).mean())
        found = losses.NCALoss(distance=distance)(X, ours, ref_emb=Y, ref_labels=theirs)
        torch.testing.assert_close(found, -((-D).softmax(1) * same).sum(1).log().mean())
        a, p, b, n = miners.PairMarginMiner(2.0, 3.0, distance=distance)(X, ours, Y, theirs)
    assert set(zip(a.tolist(), p.tolist())) == {(i, j) for i, j in (same & (D > 2)).nonzero().tolist()}
    assert set(zip(b.tolist(), n.tolist())) == {(i, j) for i, j in (~same & (D < 3)).nonzero().tolist()}


def test_losses_and_miners_take_rows_as_sources():
    from pytorch_metric_learning import losses, miners
    head, X, Y, rows = some_head(), torch.randn(6, DIM), torch.randn(6, DIM), torch.arange(6)
    distance, D = integrations.as_pml_distance(head), head.pairwise(X, Y)
    off = ~torch.eye(6, dtype=torch.bool)
    triplet = losses.TripletMarginLoss(margin=0.2, distance=distance)(X, rows, ref_emb=Y, ref_labels=rows.clone())
    hinge = (0.2 + D.diagonal()[:, None] - D)[off].relu()
    torch.testing.assert_close(triplet, hinge[hinge > 0].mean())
    contrastive = losses.ContrastiveLoss(0, 1, distance=distance)(X, rows, ref_emb=Y, ref_labels=rows.clone())
    apart = (1 - D[off]).relu()
    torch.testing.assert_close(contrastive, D.diagonal().mean() + apart[apart > 0].sum() / max(1, (apart > 0).sum()))
    a, p, n = miners.BatchHardMiner(distance=distance)(X, rows, Y, rows.clone())
    assert torch.equal(p, a) and torch.equal(n, D.masked_fill(~off, torch.inf).argmin(1))


def test_a_tester_of_the_library_ranks_by_the_head():
    from pytorch_metric_learning.testers import GlobalEmbeddingSpaceTester
    from pytorch_metric_learning.utils.accuracy_calculator import AccuracyCalculator
    from pytorch_metric_learning.utils.inference import CustomKNN
    head, X, Y = some_head(), torch.randn(12, DIM), 3 * torch.randn(12, DIM)
    nearest = head.pairwise(X, Y).argmin(1)
    knn = CustomKNN(integrations.as_pml_distance(head))
    tester = GlobalEmbeddingSpaceTester(
        normalize_embeddings=False, dataloader_num_workers=0,
        accuracy_calculator=AccuracyCalculator(include=("precision_at_1",), k=1, knn_func=knn))
    data = dict(query=list(zip(X, nearest.tolist())), target=list(zip(Y, range(12))))
    found = tester.test(data, 0, torch.nn.Identity(), torch.nn.Identity(), [("query", ["target"])])
    assert found["query"]["precision_at_1_level0"] == 1.0


def test_no_head_no_distance():
    with pytest.raises(TypeError, match="expected a DistanceHead, found Linear"):
        integrations.as_pml_distance(torch.nn.Linear(2, 2))


# Hugging Face Hub


@pytest.mark.parametrize("name", ["directed_bregman", "mlp", "cosine"])
def test_a_head_goes_to_a_folder_and_comes_back(tmp_path, name):
    head, X = some_head(name), torch.randn(5, DIM)
    integrations.HubHead(head, integrations.model_card(head, {"mrr": 0.5})).save_pretrained(tmp_path)
    again = integrations.HubHead.from_pretrained(tmp_path)
    with torch.no_grad():
        assert torch.equal(again(X, X.flip(0)), head(X, X.flip(0)))
        assert torch.equal(load_head(tmp_path)(X, X.flip(0)), head(X, X.flip(0)))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["README.md", "config.json", "model.safetensors"]
    assert again.card.data.eval_results[0].metric_value == 0.5


def test_a_card_that_was_given_is_the_card():
    card = integrations.model_card(head := some_head(), {"mrr": 0.5})
    assert integrations.HubHead(head, card).generate_model_card() is card
    assert "rolebregman" in str(integrations.HubHead(head).generate_model_card()), "a bare one, from the library's name"


def test_what_is_pushed_is_what_is_saved(monkeypatch):
    import huggingface_hub.hub_mixin as mixin
    pushed = {}

    class Api:
        def __init__(self, token=None): pass
        def create_repo(self, repo_id, **how): return type("Url", (), {"repo_id": repo_id})
        def upload_folder(self, folder_path, repo_id, **how):
            pushed.update(repo=repo_id, files=sorted(os.listdir(folder_path)))
            return "url"

    monkeypatch.setattr(mixin, "HfApi", Api)
    assert integrations.HubHead(some_head()).push_to_hub("me/hypernyms") == "url"
    assert pushed == dict(repo="me/hypernyms", files=["README.md", "config.json", "model.safetensors"])


def test_a_repository_is_read_from_its_snapshot(tmp_path, monkeypatch):
    head, asked = some_head(), {}
    integrations.HubHead(head).save_pretrained(tmp_path)
    download = lambda name, **how: asked.update(name=name, **how) or tmp_path
    monkeypatch.setattr("rolebregman.integrations.hub.snapshot_download", download)
    again = integrations.HubHead.from_pretrained("me/hypernyms", revision="v1", local_files_only=True)
    assert asked["name"] == "me/hypernyms" and asked["revision"] == "v1" and asked["local_files_only"]
    assert "*" not in "".join(asked["allow_patterns"])
    assert all(torch.equal(a, b) for a, b in zip(again.head.state_dict().values(), head.state_dict().values()))


def test_a_folder_without_a_head_is_said(tmp_path):
    with pytest.raises(FileNotFoundError, match="not a folder written by save_pretrained"):
        integrations.HubHead.from_pretrained(tmp_path)
    with pytest.raises(FileNotFoundError, match="is no folder, and cannot name a repository"):
        integrations.HubHead.from_pretrained(tmp_path / "nowhere")
    with pytest.raises(TypeError, match="expected a DistanceHead"):
        integrations.HubHead(torch.nn.Linear(2, 2))


def test_a_card_says_what_the_rows_say(toy):
    rows = pd.DataFrame([dict(dataset="go", head="mlp", seed=s, scale="quick", ranking_accuracy=r, mrr=0.25,
                              versions="torch 2", commit="abc", error=e)
                         for s, r, e in ((0, 0.5, ""), (1, 0.7, np.nan), (2, 0.1, "it failed"))])
    text = integrations.model_card(some_head(), rows, toy, encoder="all-minilm").text
    for part in ("ranking accuracy | 0.600 ± 0.141", "among the sampled candidates | 0.250", "seeds [0, 1]", "torch 2",
                 "scale `quick`", "Dataset: go", "all-minilm", "## Limits", "train 291 pairs"):
        assert part in text
    assert "area under" not in text
    with pytest.raises(ValueError, match="a card is of one dataset, found go, sick"):
        integrations.model_card(some_head(), pd.concat([rows, rows.assign(dataset="sick")]))
    with pytest.raises(ValueError, match="found 0 rows"):
        integrations.model_card(some_head(), rows[rows["seed"] == 2])


# scikit-learn


class Padded(integrations.DirectedPairRanker):
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
    return integrations.DirectedPairRanker(lr=3e-3, epochs=10, random_state=0).fit(pairs(toy, "train"))


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
    make = integrations.DirectedPairRanker(epochs=10, lr=3e-3, random_state=0)
    both = make.fit(np.vstack([X, Y]), np.repeat([1, 0], len(X)))
    assert (both.predict_direction(pairs(toy, "test")) == 1).mean() > 0.9


@pytest.mark.parametrize("label, fault", [("yes", "numeric|string"), (np.nan, "y contains NaN")])
def test_labels_that_are_no_numbers_are_refused(toy, ranker, label, fault):
    X = pairs(toy, "train")
    for use in (integrations.DirectedPairRanker(epochs=1).fit, ranker.score):
        with pytest.raises(ValueError, match=fault): use(X, [label] + [1] * (len(X) - 1))


def test_grid_search_and_cross_validation(toy):
    X = pairs(toy, "train")
    make = integrations.DirectedPairRanker(epochs=6, lr=3e-3, random_state=0)
    search = GridSearchCV(make, {"head": ["euclidean", "directed_bregman"]}, cv=2).fit(X)
    assert search.best_params_ == {"head": "directed_bregman"} and search.cv_results_["mean_test_score"][0] <= 0.75
    assert cross_val_score(make, X, cv=2).min() > 0.8


@pytest.mark.parametrize("settings, fault", [
    (dict(head="nope"), "no head 'nope'"), (dict(lr=-1.0), "TrainConfig.lr"),
    (dict(validation_fraction=1.0), "validation_fraction"), (dict(head_options=dict(width=3)), "width")])
def test_settings_that_make_no_sense(toy, settings, fault):
    with pytest.raises((ValueError, TypeError), match=fault):
        integrations.DirectedPairRanker(**settings).fit(pairs(toy, "train"))


@pytest.mark.parametrize("change, fault", [
    (lambda X: X[:, :7], "n_features = 7"), (lambda X: np.hstack([X[:, :4], 0 * X[:, :4]]), "two different targets"),
    (lambda X: np.where(X == X[0, 0], np.nan, X), "NaN")])
def test_pairs_that_make_no_sense(toy, change, fault):
    with pytest.raises(ValueError, match=fault):
        integrations.DirectedPairRanker().fit(change(pairs(toy, "train")))


# PyKEEN


@pytest.fixture(scope="module")
def triples(toy):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from pykeen.triples import CoreTriplesFactory

    def make(split, relations=1):
        source, target = torch.tensor(toy.edges[split]).T
        relation = torch.arange(len(source)) % relations
        return CoreTriplesFactory(torch.stack([source, relation, target], 1), num_entities=toy.num_nodes,
                                  num_relations=relations)

    return make


@pytest.mark.filterwarnings("ignore")
def test_pykeen_scores_by_the_head_and_trains_it(toy, triples):
    from pykeen.evaluation import RankBasedEvaluator
    from pykeen.training import SLCWATrainingLoop
    head = some_head(dim=toy.dim).fit_standardizer(toy.features)
    before, vectors = head.pairwise(toy.features, toy.features).detach(), toy.features.copy()
    model = integrations.head_model(head, toy.features, triples("train"))
    rows = torch.tensor([[3, 0], [8, 0]])
    with torch.no_grad():
        torch.testing.assert_close(model.score_t(rows), -before[rows[:, 0]])
        torch.testing.assert_close(model.score_h(rows.flip(1)), -before[:, rows[:, 0]].T)
        torch.testing.assert_close(model.score_hrt(torch.tensor([[3, 0, 8]])), -before[3, 8].reshape(1, 1))
    model.reset_parameters_(), model.reset_parameters_()
    assert torch.equal(head.pairwise(toy.features, toy.features).detach(), before)
    SLCWATrainingLoop(model=model, triples_factory=triples("train"), optimizer="adam", optimizer_kwargs=dict(lr=3e-3)
                      ).train(triples("train"), num_epochs=5, batch_size=64, use_tqdm=False)
    assert np.array_equal(toy.features, vectors)  # PyKEEN resets its modules in place
    assert evaluate(head, toy, "test")["direction_accuracy"] > 0.8
    found = RankBasedEvaluator().evaluate(model, triples("test").mapped_triples, batch_size=64, use_tqdm=False,
                                          additional_filter_triples=[triples("train").mapped_triples])
    assert found.get_metric("tail.realistic.inverse_harmonic_mean_rank") > 0.5


@pytest.mark.filterwarnings("ignore")
def test_a_reset_brings_the_given_weights_back(toy, triples):
    head = some_head()
    before = [p.detach().clone() for p in head.parameters()]
    interaction = integrations.HeadInteraction(head)
    with torch.no_grad():
        for p in head.parameters(): p.add_(1)
    interaction.reset_parameters()
    assert all(torch.equal(p, start) for p, start in zip(head.parameters(), before))


@pytest.mark.filterwarnings("ignore")
def test_pykeen_faults(toy, triples):
    head = some_head(dim=toy.dim)
    with pytest.raises(ValueError, match="the triples have 2"):
        integrations.head_model(head, toy.features, triples("train", 2))
    with pytest.raises(ValueError, match=r"expected shape \(364, 32\).*found \(364, 31\)"):
        integrations.head_model(head, toy.features[:, 1:], triples("train"))
    with pytest.raises(TypeError, match="expected a DistanceHead"):
        integrations.HeadInteraction(torch.nn.Linear(2, 2))
