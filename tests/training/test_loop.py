"The training loop on graphs small enough to be checked by brute force: what it learns, keeps, refuses and repeats"
import math
import time
from dataclasses import replace

import numpy as np
import pytest
import torch
from graphs import dataset

from rolebregman.baselines import HEADS, make_head
from rolebregman.common import named_generator
from rolebregman.datasets import NegativeSampler, toy_tree
from rolebregman.evaluation import evaluate, filtered_ranks, preference_rate, score_edges
from rolebregman.training import (
    History,
    TrainConfig,
    batch_losses,
    denied_loss,
    fit,
)

FAST = TrainConfig(batch_size=64, lr=1e-2, epochs=4)


def trained(name="role_bregman", ds=None, **settings):
    ds = ds or toy_tree(depth=4, dim=8)
    torch.manual_seed(0)
    head = make_head(name, dim=ds.dim)
    return head, fit(head, ds, replace(FAST, **settings), progress=False)


def test_progress_may_be_a_function_of_the_history():
    ds, seen = toy_tree(depth=4, dim=8), []
    history = fit(make_head("role_bregman", dim=8), ds, FAST, progress=lambda h: seen.append((len(h), h.rows[-1])))
    assert seen == list(enumerate(history.rows))[1:]


# Sampling

def test_named_generators_are_the_same_in_every_process():
    assert named_generator("go", "test", 0).initial_seed() == 5756592582942858386
    assert named_generator("a", "bc").initial_seed() != named_generator("ab", "c").initial_seed()


# Hard candidates among the negatives

@pytest.mark.parametrize("loss", ["margin", "softmax"])
def test_hard_negatives_change_a_training_and_a_share_of_zero_nothing(loss):
    tree = toy_tree(depth=4, dim=8)
    without = replace(tree, hard_kinds=())
    rows = [trained(ds=ds, loss=loss, negatives=4, hard_share=share)[1].table.rank_loss[1:].tolist()
            for ds, share in ((tree, 0.0), (without, 0.0), (tree, 0.5), (tree, 0.5))]
    assert rows[0] == rows[1] != rows[2] == rows[3]


def test_preference_rate_refuses_what_cannot_rank():
    assert preference_rate([1, 1, 2], [1, 2, 1]) == 0.5
    for bad in (math.nan, math.inf, -math.inf):
        with pytest.raises(ValueError, match="not finite"): preference_rate([bad], [0.0])
        with pytest.raises(ValueError, match="not finite"): preference_rate([0.0], [bad])


def test_score_edges_does_not_depend_on_the_block():
    ds = toy_tree(depth=3, dim=8)
    head, edges = make_head("mlp", dim=8).double(), ds.edges["train"]
    negatives = NegativeSampler(ds).sample(edges[:, 0], 6, torch.Generator().manual_seed(0))
    f = torch.as_tensor(ds.features).double()
    few, many = (score_edges(head, f, edges, negatives, block=b) for b in (7, 100_000))
    for a, b in zip(few, many): torch.testing.assert_close(a, b)
    torch.testing.assert_close(many[0], head(f[edges[:, 0]], f[edges[:, 1]]).detach())
    torch.testing.assert_close(many[1], head(f[edges[:, 1]], f[edges[:, 0]]).detach())
    torch.testing.assert_close(many[2], head(f[edges[:, 0]][:, None], f[negatives]).detach())


# The loop

@pytest.mark.parametrize("loss", ["margin", "softmax"])
@pytest.mark.parametrize("name", HEADS)
def test_every_head_trains(name, loss):
    head, history = trained(name, loss=loss, negatives=4, epochs=3)
    assert not head.training and np.isfinite(history.table["score"]).all() and len(history) <= 3
    assert all(torch.isfinite(p).all() for p in head.parameters())
    if head.symmetric: assert (history.table["direction_accuracy"] == 0.5).all()


def test_the_seed_alone_decides():
    torch.manual_seed(1)
    start = make_head("mlp", dim=8).state_dict()
    ends = []
    for noise, seed in ((10, 0), (20, 0), (30, 1)):
        head = make_head("mlp", dim=8)
        head.load_state_dict(start)
        torch.manual_seed(noise)
        np.random.seed(noise)
        before = torch.random.get_rng_state()
        fit(head, toy_tree(depth=4, dim=8), replace(FAST, seed=seed, patience=0), progress=False)
        assert torch.equal(before, torch.random.get_rng_state())
        ends.append(torch.cat([p.detach().flatten() for p in head.parameters()]))
    assert torch.equal(ends[0], ends[1]) and not torch.equal(ends[0], ends[2])


def test_the_best_weights_come_back():
    ds = toy_tree(depth=4, dim=8)
    head, history = trained("mlp", ds, lr=0.3, epochs=12, patience=0)
    table, valid = history.table, ds.edges["valid"]
    assert history.best_epoch == table["score"].idxmax() < len(history), "the case needs a best epoch before the last"
    negatives = NegativeSampler(ds).sample(valid[:, 0], 10, named_generator("fit", ds.name, ds.seed))
    forward, reverse, negative = score_edges(head, ds.features, valid, negatives)
    assert preference_rate(forward[:, None], negative) == table.loc[history.best_epoch, "ranking_accuracy"]
    assert preference_rate(forward, reverse) == table.loc[history.best_epoch, "direction_accuracy"]


def test_patience_stops_early_and_zero_does_not():
    assert len(trained("mlp", lr=0.0, epochs=9, patience=2)[1]) == 2
    assert len(trained("mlp", lr=0.0, epochs=9, patience=0)[1]) == 9


def test_learning_beats_the_untrained_head():
    history = trained("direction_prior", epochs=10)[1]
    assert history.table["direction_accuracy"].max() > 0.9


def test_without_validation_the_last_weights_stay():
    tree = toy_tree(depth=3, dim=8)
    ds = replace(tree, edges=dict(tree.edges, valid=tree.edges["valid"][:0]))
    assert trained("mlp", ds, patience=1)[1].best_epoch == 4


def test_pairs_in_both_directions_train_on_ranking_alone():
    tree = toy_tree(depth=3, dim=8)
    both = np.unique(np.concatenate([tree.edges["train"], tree.edges["train"][:, ::-1]]), axis=0)
    ds = replace(tree, edges=dict(train=both, valid=tree.edges["valid"], test=tree.edges["test"]))
    history = trained("role_bregman", ds)[1]
    assert (history.table["direction_loss"].iloc[1:] == 0).all() and history.table["rank_loss"].iloc[1:].gt(0).any()


def test_direction_weight_zero_leaves_direction_out():
    assert (trained("role_bregman", direction_weight=0.0)[1].table["direction_loss"].iloc[1:] == 0).all()


@pytest.mark.parametrize("name", ["role_bregman", "mlp", "bilinear"])
def test_divergence_of_training_stops_with_advice(name):
    with pytest.raises(FloatingPointError, match=r"epoch \d+.*Lower lr \(now 1e\+30\)"):
        trained(name, lr=1e30, epochs=9)


def test_a_head_without_trainable_parameters_passes_through():
    tree = toy_tree(depth=3, dim=8)
    head = make_head("euclidean", dim=8).requires_grad_(False)
    history = fit(head, tree, FAST, progress=False)
    assert len(history) == 0 and history.best_epoch == 0 and not head.training


def test_the_standardiser_sees_training_nodes_only():
    tree = toy_tree(depth=4, dim=8)
    seen = np.unique(tree.edges["train"])
    features = tree.features.copy()
    unseen = np.setdiff1d(np.arange(len(features)), seen)
    assert len(unseen)
    features[unseen] += 100
    head, other = trained("mlp", tree, epochs=0)[0], trained("mlp", replace(tree, features=features), epochs=0)[0]
    for name, value in head.named_buffers(): assert torch.equal(value, dict(other.named_buffers())[name]), name


def test_features_may_be_a_file_that_cannot_be_written(tmp_path):
    tree = toy_tree(depth=3, dim=8)
    np.save(tmp_path / "vectors.npy", tree.features)
    mapped = replace(tree, features=np.load(tmp_path / "vectors.npy", mmap_mode="r"))
    (head, history), (other, same) = trained("role_bregman", mapped), trained("role_bregman", tree)
    assert isinstance(mapped.features, np.memmap) and same.rows[1:] == history.rows[1:]
    assert evaluate(head, mapped) == evaluate(other, tree)
    assert torch.equal(filtered_ranks(head, mapped), filtered_ranks(other, tree))


@pytest.mark.parametrize("name", [name for name in HEADS if make_head(name, dim=8).symmetric])
def test_a_symmetric_head_ties_to_the_last_bit_at_every_place_of_a_batch(name):
    torch.manual_seed(0)
    head = make_head(name, dim=24)
    for pairs in range(1, 200):
        features, rows = torch.randn(200, 24), torch.randint(200, (pairs, 2))
        forward, reverse, _ = score_edges(head, features, rows, rows[:, :1])
        assert torch.equal(forward, reverse), pairs


def test_the_best_epoch_is_the_first_with_the_highest_score():
    history = History(TrainConfig())
    for epoch, right in enumerate((0.5, 0.9, 0.9, 0.7)): history.add(epoch, 1.0, 0.0, right, float("nan"))
    assert history.best_epoch == 1 and len(history) == 3 and history.table["score"].tolist() == [0.5, 0.9, 0.9, 0.7]


@pytest.mark.parametrize("loss", ["margin", "softmax"])
def test_weights_of_one_change_no_bit(loss):
    ds = toy_tree(depth=4, dim=8)
    same = replace(ds, weights=np.ones(len(ds.edges["train"])))
    (head, history), (other, again) = trained(ds=ds, loss=loss, negatives=5), trained(ds=same, loss=loss, negatives=5)
    assert history.table.equals(again.table)
    assert all((a == b).all() for a, b in zip(head.state_dict().values(), other.state_dict().values()))


def test_fit_hands_each_edge_its_own_weight():
    ds, seen = toy_tree(depth=4, dim=8), []
    ds = replace(ds, weights=np.random.default_rng(0).random(len(ds.edges["train"])))

    def watch(head, features, edges, *rest, weights):
        seen.extend(zip(ds.codes(edges.numpy()).tolist(), weights.tolist()))
        return batch_losses(head, features, edges, *rest, weights=weights)

    fit(make_head("role_bregman", dim=8), ds, replace(FAST, epochs=2), progress=False, losses=watch)
    assert sorted(seen) == sorted(2 * list(zip(ds.codes(ds.edges["train"]).tolist(), ds.weights.tolist())))


def with_denied(seed=0, n=40):
    "Random edges and as many denied pairs of their sources, of which half are in the test"
    rng = np.random.default_rng(seed)
    pairs = np.unique(rng.integers(0, n, (300, 2)), axis=0)
    pairs = rng.permutation(pairs[pairs[:, 0] != pairs[:, 1]])
    ds = dataset(pairs[:100], n, test=pairs[100:120])
    ds.denied = dict(train=pairs[120:200], test=pairs[200:220])
    return ds


@pytest.mark.parametrize("loss", ["margin", "softmax"])
def test_denied_pairs_are_learned_from_unless_their_weight_is_zero(loss):
    ds, settings = with_denied(), dict(loss=loss, epochs=8, patience=0, lr=1e-2, batch_size=32)
    cases = {"without": (replace(ds, denied=None), 1.0), "of no weight": (ds, 0.0), "with": (ds, 1.0)}
    found = {}
    for name, (some, weight) in cases.items():
        torch.manual_seed(0)
        head = make_head("mlp", dim=8)
        fit(head, some, TrainConfig(denied_weight=weight, **settings), progress=False)
        found[name] = [torch.as_tensor(head.score(*(ds.features[pairs[:, side]] for side in (0, 1))))
                       for pairs in (ds.edges["train"], ds.denied["train"])]
    assert all(map(torch.equal, found["without"], found["of no weight"]))
    wrong = {name: 1 - preference_rate(held[:, None], denied.expand(len(held), -1))
             for name, (held, denied) in found.items()}
    assert wrong["with"] < 0.15 and wrong["with"] < wrong["without"] / 2


def test_denied_loss_against_pairs_one_by_one():
    ds, head = with_denied(), make_head("role_bregman", dim=8)
    denied, edges = torch.as_tensor(ds.denied["train"][:7]), torch.as_tensor(ds.edges["train"][:7])
    x = torch.as_tensor(ds.features)
    head.fit_standardizer(x)
    with torch.no_grad():
        near, far = (torch.stack([head(x[s], x[t]) for s, t in rows]).double() for rows in (edges, denied))
        by_hand = dict(margin=(0.3 + near - far).clamp(min=0), softmax=torch.log1p((near - far).exp()))
        for loss, values in by_hand.items():
            found = denied_loss(head, ds.features, denied, edges, TrainConfig(loss=loss, margin=0.3))
            assert found.item() == pytest.approx(values.mean().item(), rel=1e-5)


def test_a_denied_pair_of_weight_zero_teaches_nothing_and_one_of_weight_does():
    ds, settings = with_denied(), TrainConfig(epochs=2, patience=0, lr=1e-2, batch_size=32)
    half = np.arange(len(ds.denied["train"])) % 2
    found = {}
    for name, weights in {"all": None, "half": half, "alike": half * 3, "none": half * 0}.items():
        torch.manual_seed(0)
        fit(head := make_head("mlp", dim=8), replace(ds, denied_weights=weights), settings, progress=False)
        found[name] = head.score(*(ds.features[ds.edges["train"][:, side]] for side in (0, 1)))
    torch.manual_seed(0)
    fit(head := make_head("mlp", dim=8), replace(ds, denied=None), settings, progress=False)
    assert torch.equal(found["none"], head.score(*(ds.features[ds.edges["train"][:, side]] for side in (0, 1))))
    assert torch.equal(found["half"], found["alike"])
    assert not torch.equal(found["half"], found["all"]) and not torch.equal(found["half"], found["none"])


def test_the_seconds_of_a_history_are_those_that_it_took():
    began, slow = time.perf_counter(), []
    ds = toy_tree(depth=4, dim=8)

    def wait(history):
        slow.append(history.seconds)
        time.sleep(0.2)
    history = fit(make_head("euclidean", 8), ds, replace(FAST, epochs=2, patience=0), progress=wait)
    assert slow == [0.0, 0.0] and 0.4 < history.seconds < time.perf_counter() - began
    assert f"2 epochs in {history.seconds:.1f} s" in repr(history)


@pytest.mark.parametrize("compile", [False, True])
def test_the_compiler_is_asked_where_one_asks_for_it_and_not_else(monkeypatch, compile):
    asked = []
    monkeypatch.setattr("rolebregman.training.steps.compiled", lambda function: asked.append(function) or function)
    fit(make_head("euclidean", 8), toy_tree(depth=3, dim=8), replace(FAST, epochs=1), progress=False, compile=compile)
    assert bool(asked) == compile




@pytest.mark.parametrize("config", [dict(epochs=1), None, 3])
def test_settings_of_another_kind_are_refused(config):
    ds = toy_tree(depth=3, dim=4, seed=0)
    with pytest.raises(TypeError, match=r"config.*TrainConfig\(epochs=10\) is one"):
        fit(make_head("euclidean", dim=4), ds, config, progress=False)


def test_a_head_is_validated_as_it_scores_and_trained_as_it_trains():
    "As one with dropout needs it"
    ds, head, seen = toy_tree(depth=3, dim=4, seed=0), make_head("bilinear", dim=4), []
    compare = head.compare
    head.compare = lambda u, v: seen.append((torch.is_grad_enabled(), head.training)) or compare(u, v)
    fit(head, ds, TrainConfig(epochs=2, batch_size=8), progress=False)
    assert set(seen) == {(True, True), (False, False)} and not head.training


@pytest.mark.parametrize("size", [8, 64])
def test_the_losses_of_an_epoch_are_means_over_its_edges(size):
    "Of a head that learns nothing they are its loss of all edges at once, but for the negatives that are drawn"
    ds = toy_tree(depth=4, dim=8, seed=0)
    torch.manual_seed(0)
    head = make_head("role_bregman", dim=8)
    row = fit(head, ds, TrainConfig(epochs=1, lr=1e-12, batch_size=size), progress=False).rows[1]
    x, y = torch.from_numpy(ds.features[ds.edges["train"]]).unbind(1)
    with torch.no_grad(): wanted = (1 + head(x, y) - head(y, x)).clamp(min=0).mean().item()
    assert row["direction_loss"] == pytest.approx(wanted, rel=1e-4) and 0.1 < row["rank_loss"] < 10
