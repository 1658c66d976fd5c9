"A head as an interaction of PyKEEN: scored by it, trained and ranked by its own loops"
import pickle
import warnings

import numpy as np
import pytest
import torch

from rolebregman.baselines import make_head
from rolebregman.evaluation import evaluate, filtered_ranks
from rolebregman.integrations import HeadInteraction, head_model

DIM = 8


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
    head = make_head("directed_bregman", dim=toy.dim).fit_standardizer(toy.features)
    before, vectors = head.pairwise(toy.features, toy.features).detach(), toy.features.copy()
    model = head_model(head, toy.features, triples("train"))
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
    head = make_head("directed_bregman", dim=DIM)
    before = [p.detach().clone() for p in head.parameters()]
    interaction = HeadInteraction(head)
    with torch.no_grad():
        for p in head.parameters(): p.add_(1)
    interaction.reset_parameters()
    assert all(torch.equal(p, start) for p, start in zip(head.parameters(), before))


@pytest.mark.filterwarnings("ignore")
def test_pykeen_faults(toy, triples):
    head = make_head("directed_bregman", dim=toy.dim)
    with pytest.raises(ValueError, match="the triples have 2"):
        head_model(head, toy.features, triples("train", 2))
    with pytest.raises(ValueError, match=r"expected shape \(364, 32\).*found \(364, 31\)"):
        head_model(head, toy.features[:, 1:], triples("train"))
    with pytest.raises(TypeError, match="expected a DistanceHead"):
        HeadInteraction(torch.nn.Linear(2, 2))


@pytest.mark.filterwarnings("ignore")
def test_a_model_can_be_saved_and_resets_to_its_vectors(toy, triples, tmp_path):
    model = head_model(make_head("directed_bregman", dim=toy.dim), toy.features, triples("train"))
    torch.save(model, tmp_path/"model.pkl")
    for again in torch.load(tmp_path/"model.pkl", weights_only=False), pickle.loads(pickle.dumps(model)):
        rows = torch.tensor([[3, 0, 8]])
        with torch.no_grad():
            assert torch.equal(again.score_hrt(rows), model.score_hrt(rows))
            again.entity_representations[0]._embeddings.weight.zero_()
        again.reset_parameters_()
        with torch.no_grad(): assert torch.equal(again.score_hrt(rows), model.score_hrt(rows))


@pytest.mark.filterwarnings("ignore")
def test_with_loops_left_out_pykeen_ranks_as_we_do(toy, triples):
    "Its own convention keeps the entity itself among its candidates"
    from pykeen.evaluation import RankBasedEvaluator
    head = make_head("directed_bregman", dim=toy.dim).fit_standardizer(toy.features)
    model, every = head_model(head, toy.features, triples("train")), torch.arange(toy.num_nodes)
    loops = torch.stack([every, 0 * every, every], 1)
    holding = torch.from_numpy(np.insert(toy.holding, 1, 0, axis=1))
    ours = (1 / filtered_ranks(head, toy)).mean().item()

    def theirs(*out):
        return RankBasedEvaluator().evaluate(
            model, triples("test").mapped_triples, batch_size=64, use_tqdm=False, additional_filter_triples=list(out)
        ).get_metric("tail.realistic.inverse_harmonic_mean_rank")

    assert theirs(holding, loops) == pytest.approx(ours, rel=1e-6) and theirs(holding) < ours - 0.05
