"A head as an interaction of PyKEEN: scored by it, trained and ranked by its own loops"
import pickle
import warnings

import numpy as np
import pytest
import torch

from rolebregman.baselines import HEADS, make_head
from rolebregman.evaluation import evaluate, filtered_ranks
from rolebregman.heads import BregmanHead
from rolebregman.integrations import RELATION_MAPS, HeadInteraction, RelationInteraction, head_model, relation_model

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
    with pytest.raises(ValueError, match="the triples have 2: choose one, or take relation_model"):
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


def ranked(model, asked, *out):
    "PyKEEN's filtered mean reciprocal rank of targets and of sources, ties in the middle"
    from pykeen.evaluation import RankBasedEvaluator
    found = RankBasedEvaluator().evaluate(model, asked, batch_size=64, use_tqdm=False, additional_filter_triples=[*out])
    return [found.get_metric(f"{side}.realistic.inverse_harmonic_mean_rank") for side in ("tail", "head")]


def by_hand(D, pairs, holding, itself):
    "The same by counting in a table of distances, of targets: with the source itself among the candidates or without"
    found = []
    for x, y in pairs.tolist():
        row = D[x].clone()
        row[[b for a, b in holding if a == x and b != y]] = torch.inf
        if not itself: row[x] = torch.inf
        found.append(1 / (1 + (row < row[y]).sum() + ((row == row[y]).sum() - 1) / 2))
    return torch.stack(found).mean().item()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["directed_bregman", "euclidean", "mlp"])
def test_with_loops_left_out_pykeen_ranks_as_we_do(toy, triples, name):
    "Its own convention keeps the entity itself among its candidates; both are counted by hand, for sources too"
    head = make_head(name, dim=toy.dim).fit_standardizer(toy.features)
    model, every = head_model(head, toy.features, triples("train")), torch.arange(toy.num_nodes)
    loops = torch.stack([every, 0 * every, every], 1)
    holding = torch.from_numpy(np.insert(toy.holding, 1, 0, axis=1))
    asked, pairs = triples("test").mapped_triples, torch.from_numpy(toy.edges["test"])
    with torch.no_grad(): D = head.pairwise(toy.features, toy.features)
    both = [(D, pairs, toy.holding.tolist()), (D.T, pairs.flip(1), toy.holding[:, ::-1].tolist())]
    without, own = ranked(model, asked, holding, loops), ranked(model, asked, holding)
    assert without == pytest.approx([by_hand(*each, itself=False) for each in both], rel=1e-5)
    assert own == pytest.approx([by_hand(*each, itself=True) for each in both], rel=1e-5)
    assert without[0] == pytest.approx((1 / filtered_ranks(head, toy)).mean().item(), rel=1e-6)
    if name != "mlp": assert without[0] > own[0] + 0.05  # which does not have an entity near to itself


@pytest.mark.filterwarnings("ignore")
def test_loops_are_left_out_of_each_relation(toy, triples):
    "A loop `(i, r, i)` is of one relation: left out of the first alone, the second keeps PyKEEN's convention"
    head = make_head("directed_bregman", dim=toy.dim).fit_standardizer(toy.features)
    model = moved(relation_model(head, triples("train", 2), toy.features), 0.02)
    every, pairs = torch.arange(toy.num_nodes), torch.from_numpy(toy.edges["test"])
    holding = toy.holding.tolist()
    known, loops = ([torch.stack([a, torch.full_like(a, r), b], 1) for r in (0, 1)]
                    for a, b in (torch.from_numpy(toy.holding.copy()).T, (every, every)))
    for relation in (0, 1):
        asked = torch.stack([pairs[:, 0], torch.full_like(pairs[:, 0], relation), pairs[:, 1]], 1)
        with torch.no_grad():
            D = -model.score_t(torch.stack([every, torch.full_like(every, relation)], 1))
        for left_out, itself in ((loops, False), (loops[:1], relation == 1)):
            found = ranked(model, asked, *known, *left_out)[0]
            assert found == pytest.approx(by_hand(D, pairs, holding, itself), rel=1e-5)

def moved(model, by=0.2):
    "The same model, the maps of its relations off their start"
    with torch.no_grad():
        for part in model.relation_representations:
            for weight in part.parameters(): weight.add_(by * torch.randn(weight.shape))
    return model


def maps_of(model, relation):
    return [part(torch.tensor([relation]))[0].detach() for part in model.relation_representations]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("maps", RELATION_MAPS)
@pytest.mark.parametrize("name", ["euclidean", "mlp", "directed_bregman"])
def test_each_relation_is_the_head_behind_its_maps(toy, triples, maps, name):
    head = make_head(name, dim=toy.dim).fit_standardizer(toy.features)
    model, x = moved(relation_model(head, triples("train", 3), toy.features, maps)), torch.tensor(toy.features)
    rows, every = torch.tensor([4, 90, 300]), torch.arange(toy.num_nodes)
    with torch.no_grad():
        z = head.standardized(x)
        for relation in range(3):
            if maps == "full":
                A, a, B, b = maps_of(model, relation)
                u, v = z.double() @ A.double().T + a, z.double() @ B.double().T + b
            elif maps == "diagonal":
                A, a, B, b = maps_of(model, relation)
                u, v = z.double() * A + a, z.double() * B + b
            else:
                a, b = maps_of(model, relation)
                u, v = z.double() + a, z.double() + b
            wide = make_head(name, dim=toy.dim).double()
            wide.load_state_dict({key: value.double() for key, value in head.state_dict().items()})
            from_rows = wide.compare_all(wide.source(u[rows]), wide.target(v))
            to_rows = wide.compare_all(wide.source(u), wide.target(v[rows]))
            both = from_rows[:, rows.flip(0)].diagonal()
            near = dict(rtol=2e-4, atol=2e-4 * from_rows.abs().median().item(), check_dtype=False)
            given = lambda *columns: torch.stack([rows if c is None else torch.full_like(rows, c) for c in columns], 1)
            torch.testing.assert_close(model.score_t(given(None, relation)), -from_rows, **near)
            torch.testing.assert_close(model.score_h(given(relation, None)), -to_rows.T, **near)
            r = model.score_r(torch.stack([rows, rows.flip(0)], 1))
            assert r.shape == (3, 3)
            torch.testing.assert_close(r[:, relation], -both, **near)
            hrt = torch.stack([rows, torch.full_like(rows, relation), rows.flip(0)], 1)
            torch.testing.assert_close(model.score_hrt(hrt)[:, 0], -both, **near)
            torch.testing.assert_close(model.score_t(hrt[:, :2], tails=every[7:40]), model.score_t(hrt[:, :2])[:, 7:40])
            torch.testing.assert_close(model.score_t(hrt[:, :2], slice_size=50), model.score_t(hrt[:, :2]))
            assert not head.nonnegative or (from_rows >= 0).all() and (to_rows >= 0).all()


@pytest.mark.filterwarnings("ignore")
def test_a_relation_is_a_bregman_head_with_its_maps_and_at_first_the_head_itself_bit_for_bit(toy, triples):
    head = BregmanHead(toy.dim, roles="none").fit_standardizer(toy.features)
    x, rows = torch.tensor(toy.features), torch.tensor([[4, 1], [90, 1]])
    for maps in RELATION_MAPS:
        model = relation_model(head, triples("train", 2), x, maps)
        with torch.no_grad():
            pairs = torch.tensor([[4, 0, 7], [4, 1, 7], [90, 1, 90]])
            assert torch.equal(model.score_hrt(pairs)[:, 0], -head(x[pairs[:, 0]], x[pairs[:, 2]]))
            assert torch.equal(*model.score_r(pairs[:, [0, 2]]).T) and model.score_hrt(pairs)[2] == 0
    moved(model)
    single = BregmanHead(toy.dim, roles="both", maps="affine")
    single.standardizer, single.potential = head.standardizer, head.potential
    A, a, B, b = maps_of(model, 1)
    state = {"source.start": A, "source.offset": a, "target.start": B, "target.offset": b}
    single.maps.load_state_dict(state)
    with torch.no_grad():
        torch.testing.assert_close(model.score_t(rows), -single.pairwise(x[rows[:, 0]], x), rtol=1e-4, atol=1e-3)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("maps", RELATION_MAPS)
def test_training_moves_what_is_learned_by_finite_gradients_and_learns_each_relation(toy, triples, maps):
    from pykeen.training import LCWATrainingLoop
    from pykeen.triples import CoreTriplesFactory
    source, target = torch.tensor(toy.edges["train"]).T
    both = torch.cat([torch.stack([source, 0 * source, target], 1), torch.stack([target, 0 * source + 1, source], 1)])
    factory = CoreTriplesFactory(both, num_entities=toy.num_nodes, num_relations=2)
    head = BregmanHead(16, hidden=(16,), roles="none", inputs="raw")
    model = relation_model(head, factory, maps=maps)
    model.score_t(both[:9, :2]).sum().backward()
    for weight in model.parameters(): assert weight.grad.isfinite().all() and weight.grad.any()
    from pykeen.losses import CrossEntropyLoss
    model.loss, before = CrossEntropyLoss(), [weight.detach().clone() for weight in model.parameters()]
    loop = LCWATrainingLoop(model=model, triples_factory=factory, optimizer="adam", optimizer_kwargs=dict(lr=0.02))
    losses = loop.train(factory, num_epochs=8, batch_size=64, use_tqdm=False)
    assert losses[-1] < (0.8 if maps == "offset" else 0.6) * losses[0]
    assert not any(map(torch.equal, model.parameters(), before))
    with torch.no_grad(): assert (model.score_hrt(both) <= 0).all()


@pytest.mark.filterwarnings("ignore")
def test_a_model_of_several_relations_is_saved_and_reset(toy, triples, tmp_path):
    for vectors in None, toy.features:
        head = BregmanHead(toy.dim, roles="none", inputs="raw")
        model = relation_model(head, triples("train", 3), vectors, seed=3)
        rows = torch.tensor([[3, 0, 8], [3, 2, 8]])
        with torch.no_grad(): fresh = model.score_hrt(rows)
        moved(model)
        torch.save(model, tmp_path/"model.pkl")
        for again in torch.load(tmp_path/"model.pkl", weights_only=False), pickle.loads(pickle.dumps(model)):
            with torch.no_grad():
                assert torch.equal(again.score_hrt(rows), model.score_hrt(rows))
                for weight in again.interaction.parameters(): weight.add_(1)
                again.reset_parameters_()
                assert vectors is None or torch.equal(again.score_hrt(rows), fresh)
                torch.testing.assert_close(*again.score_hrt(rows))  # all maps are the identity
    one, other = (relation_model(head, triples("train"), seed=seed).state_dict() for seed in (3, 4))
    same = relation_model(head, triples("train"), seed=3).state_dict()
    assert all(torch.equal(one[key], same[key]) for key in one)
    assert not all(torch.equal(one[key], other[key]) for key in one)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", HEADS)
def test_equal_entities_and_relations_tie_to_the_last_bit(toy, triples, name):
    "So that who says the same of all has the rank in the middle, by PyKEEN's own evaluator"
    from pykeen.evaluation import RankBasedEvaluator
    torch.manual_seed(1)
    head, rows = make_head(name, dim=DIM), torch.tensor([[3, 0], [5, 0], [80, 0]])
    with torch.no_grad():
        for weight in head.parameters(): weight.add_(0.05 * torch.randn_like(weight))
    vectors, factory = torch.randn(1, DIM).expand(toy.num_nodes, DIM), triples("train")
    for model in head_model(head, vectors, factory), moved(relation_model(head, factory, vectors)):
        model.eval()
        with torch.inference_mode():
            for scores in model.score_t(rows), model.score_h(rows.flip(1)): assert len(scores[1].unique()) == 1
        found = RankBasedEvaluator().evaluate(model, triples("test").mapped_triples[:20], use_tqdm=False, batch_size=7)
        assert found.get_metric("tail.realistic.arithmetic_mean_rank") == (toy.num_nodes + 1) / 2
    many = relation_model(head, triples("train", 5), torch.randn(toy.num_nodes, DIM))
    with torch.inference_mode(): found = many.score_r(torch.tensor([[1, 2], [7, 3]]))
    assert all(len(row.unique()) == 1 for row in found)


@pytest.mark.filterwarnings("ignore")
def test_what_relations_cannot_take_is_named(toy, triples):
    head, factory = BregmanHead(toy.dim, roles="none"), triples("train", 2)
    for given, error, said in (
            (dict(maps="rotation"), ValueError, "maps must be one of offset, diagonal, full, found 'rotation'"),
            (dict(vectors=toy.features[:9]), ValueError, r"expected shape \(364, 32\).*found \(9, 32\)"),
            (dict(vectors=np.where(toy.features > 9, 0, np.inf)), ValueError, "vectors: row 0 holds a NaN or an inf"),
            (dict(head=torch.nn.Linear(2, 2)), TypeError, "head: expected a DistanceHead, found Linear"),
            (dict(triples_factory=toy.edges["train"]), TypeError, "triples_factory: expected PyKEEN's, found ndarray")):
        with pytest.raises(error, match=said): relation_model(**dict(head=head, triples_factory=factory) | given)
    x, d = torch.zeros(2, toy.dim), toy.dim
    for r, said in (((), "found none"), ((x, x), r"found \(2, 32\), \(2, 32\)"), (x, r"found \(2, 32\)$"),
                    ((x, x, x, x), "takes 4 representations")):
        with pytest.raises(ValueError, match=said): RelationInteraction(head)(x, r, x)
    with pytest.raises(ValueError, match="h: expected embeddings of width 32"):
        RelationInteraction(head, "offset")(x[:, 1:], (x, x), x)
    with pytest.raises(IndexError): relation_model(head, factory).score_hrt(torch.tensor([[0, 2, 1]]))
    from pykeen.models import ERModel
    from pykeen.nn.representation import Embedding
    how = dict(triples_factory=factory, interaction=RelationInteraction(head), entity_representations=Embedding,
               entity_representations_kwargs=dict(shape=(d,)), relation_representations=Embedding)
    with pytest.raises(ValueError, match="requires 4 relation representations"):
        ERModel(**how, relation_representations_kwargs=dict(shape=(d,)))
