"""Encoder and head as one sentence-transformers model: its similarity is the head's, and its trainer trains both."""
import dataclasses
import json
import os
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # what the libraries warn of while they are imported
    from datasets import Dataset
    from sentence_transformers import (
        SentenceTransformer,
        SentenceTransformerTrainer,
        SentenceTransformerTrainingArguments,
    )
    from sentence_transformers.base.modules import Dense
    from sentence_transformers.sentence_transformer import losses
    from sentence_transformers.sentence_transformer.evaluation import InformationRetrievalEvaluator
    from sentence_transformers.sentence_transformer.modules import BoW, StaticEmbedding

    from rolebregman.integrations import (
        DirectedEncoder,
        DirectedEvaluator,
        DirectedLoss,
        RoleHead,
        batch_known,
        text_pairs,
    )

from rolebregman.baselines import HEADS, make_head
from rolebregman.datasets import load_dataset
from rolebregman.evaluation import evaluate
from rolebregman.heads import load_head
from rolebregman.study import few_edges
from rolebregman.training import direction_loss

WORDS = ["poodle", "dog", "animal", "oak", "tree", "plant", "rose", "cat"]
WIDTH = 6


def model_of(words=WORDS, head="directed_bregman", width=WIDTH):
    bag = SentenceTransformer(modules=[BoW(list(words)), Dense(len(words), width, bias=False)], device="cpu")
    return DirectedEncoder.join(bag, make_head(head, dim=width))


@pytest.fixture(scope="module")
def toy():
    ds = few_edges(load_dataset("toy", seed=0), 150, 30, 36)
    ds.nodes["text"] = [f"w{i}" for i in range(ds.num_nodes)]
    return ds


@pytest.mark.parametrize("name", HEADS)
def test_similarity_is_minus_the_distance(name):
    model = model_of(head=name)
    queries, documents = model.encode_query(WORDS[:3]), model.encode_document(WORDS[3:])
    with torch.no_grad():
        D = model.head.pairwise(queries, documents)
        assert torch.equal(model.similarity(queries, documents), -D)
        assert torch.equal(model.similarity_of_all(queries, documents), -D)
        torch.testing.assert_close(model.similarity_of_each(queries, documents[:3]), -D.diagonal())
        assert torch.equal(model.similarity(list(queries), torch.tensor(documents)), -D)
        torch.testing.assert_close(model.similarity(queries[0], documents), -D[:1])
        pairwise = model.similarity_pairwise(queries, documents[:3])
        assert torch.equal(pairwise, -model.head(queries, documents[:3]))
    assert model.similarity_fn_name == "head" and model.get_embedding_dimension() == WIDTH


def test_a_new_head_takes_the_place_of_the_old_one():
    model, head = model_of(), make_head("mlp", dim=WIDTH)
    again = DirectedEncoder.join(model, head)
    assert [type(m).__name__ for m in again] == ["BoW", "Dense", "RoleHead"] and again.head is head


def test_gradients_flow_where_embeddings_have_some():
    model, X = model_of(), torch.randn(3, WIDTH)
    assert not model.similarity(X, X).requires_grad
    assert model.similarity(X.requires_grad_(), X).requires_grad and model.similarity_pairwise(X, X).requires_grad


def test_saved_and_loaded_bit_for_bit_without_trust(tmp_path):
    model = model_of()
    vectors = model.encode(WORDS)
    model.save(str(tmp_path))
    again = DirectedEncoder(str(tmp_path), device="cpu", local_files_only=True)
    assert np.array_equal(again.encode(WORDS), vectors)
    assert torch.equal(again.similarity(vectors, vectors), model.similarity(vectors, vectors))
    alone = load_head(tmp_path / "2_RoleHead")
    assert torch.equal(alone.pairwise(vectors, vectors), -model.similarity(vectors, vectors))
    card = (tmp_path / "README.md").read_text(encoding="utf-8")
    assert "from rolebregman.integrations import DirectedEncoder" in card and 'model = DirectedEncoder("' in card
    assert "SentenceTransformer(" not in card and "pip install -U 'rolebregman[text]'" in card
    with pytest.raises(ValueError, match="trust_remote_code"):
        SentenceTransformer(str(tmp_path), device="cpu", local_files_only=True)


def test_modules_are_named_by_the_package_which_outlives_its_rooms(tmp_path):
    "So also the library's own class finds the module, where its user trusts it; and every older name is understood"
    model = model_of()
    model.save(str(tmp_path))
    listed = tmp_path / "modules.json"
    assert [m["type"].rpartition(".")[2] for m in json.loads(listed.read_text())] == ["BoW", "Dense", "RoleHead"]
    assert json.loads(listed.read_text())[-1]["type"] == "rolebregman.integrations.RoleHead"
    plain = SentenceTransformer(str(tmp_path), device="cpu", local_files_only=True, trust_remote_code=True)
    assert isinstance(plain[-1], RoleHead) and np.array_equal(plain.encode(WORDS), model.encode(WORDS))
    for name in ("rolebregman.directed_encoder", "rolebregman.integrations.sentence_transformers"):
        listed.write_text(listed.read_text().replace("rolebregman.integrations.RoleHead", f"{name}.RoleHead"))
        again = DirectedEncoder(str(tmp_path), device="cpu", local_files_only=True)
        assert np.array_equal(again.similarity(again.encode(WORDS), again.encode(WORDS)).detach().numpy(),
                              model.similarity(model.encode(WORDS), model.encode(WORDS)).detach().numpy())
        listed.write_text(listed.read_text().replace(f"{name}.RoleHead", "rolebregman.integrations.RoleHead"))


def test_an_evaluator_of_the_library_takes_queries_as_sources():
    model = model_of()
    queries, corpus = {str(i): w for i, w in enumerate(WORDS[:4])}, {str(i): w for i, w in enumerate(WORDS[4:])}
    nearest = model.similarity(model.encode(WORDS[:4]), model.encode(WORDS[4:])).argmax(1)
    evaluator = InformationRetrievalEvaluator(queries, corpus, {q: {str(int(nearest[int(q)]))} for q in queries},
                                              accuracy_at_k=[1], precision_recall_at_k=[1], mrr_at_k=[1], ndcg_at_k=[1],
                                              map_at_k=[1])
    assert evaluator(model)["head_accuracy@1"] == 1.0


def test_what_does_not_fit_is_said():
    bag = SentenceTransformer(modules=[BoW(WORDS)], device="cpu")
    with pytest.raises(ValueError, match="vectors of width 8, the head takes 5"):
        DirectedEncoder.join(bag, make_head("mlp", dim=5))
    with pytest.raises(ValueError, match="the last module is a BoW"):
        DirectedEncoder(modules=[BoW(WORDS)], device="cpu")
    with pytest.raises(TypeError, match="expected a DistanceHead"):
        RoleHead(torch.nn.Linear(2, 2))
    with pytest.raises(ValueError, match="found 'cosine'"):
        model_of().similarity_fn_name = "cosine"
    with pytest.raises(ValueError, match=r"embeddings of torch.int8: expected floats"):
        model_of().similarity(torch.zeros(2, WIDTH, dtype=torch.int8), torch.zeros(2, WIDTH))
    with pytest.raises(ValueError, match="use DirectedEncoder.join"):
        DirectedLoss(bag)
    with pytest.raises(ValueError, match="loss is 'hinge'"):
        DirectedLoss(model_of(), "hinge")
    for name, value in (("margin", "1"), ("direction_margin", -1.0), ("direction_weight", float("nan"))):
        with pytest.raises(ValueError, match=f"{name} is {value!r}; expected a finite number of at least 0"):
            DirectedLoss(model_of(), **{name: value})
    with pytest.raises(ValueError, match="found 1"):
        model = model_of()
        DirectedLoss(model)([model.preprocess(["dog"])])
    with pytest.raises(ValueError, match=r"shapes \(2, 6\) and \(3, 6\)"):
        model_of().similarity_pairwise(torch.zeros(2, WIDTH), torch.zeros(3, WIDTH))


def test_known_pairs_of_a_batch():
    # a names b twice and c once; b is its own candidate
    found = batch_known(["a", "a", "b"], ["b", "c", "c", "a", "d"]).int().tolist()
    assert found == [[1, 1, 1, 1, 0], [1, 1, 1, 1, 0], [1, 1, 1, 0, 0]]


def batch(model, *columns):
    features = [model.preprocess(list(column)) for column in columns]
    return features, [model(dict(column))["sentence_embedding"] for column in features]


@pytest.mark.parametrize("weight", [0.0, 2.0])
def test_softmax_loss_by_hand(weight):
    model = model_of()
    features, (x, y, z) = batch(model, ["poodle", "oak"], ["dog", "tree"], ["rose", "cat"])
    found = DirectedLoss(model, direction_weight=weight, direction_margin=0.3)(features)
    D = model.head.pairwise(x, torch.cat([y, z]))
    torch.testing.assert_close(found["rank"], torch.nn.functional.cross_entropy(-D, torch.arange(2)))
    direction = weight * direction_loss(model.head(x, y), model.head(y, x), margin=0.3)
    torch.testing.assert_close(found["direction"], direction)


def test_margin_loss_and_labels_by_hand():
    model = model_of()
    features, (x, y) = batch(model, ["poodle", "oak", "rose"], ["dog", "tree", "plant"])
    found = DirectedLoss(model, "margin", margin=0.5)(features, torch.tensor([1, 0, 1]))
    D, off = model.head.pairwise(x, y), ~torch.eye(3, dtype=torch.bool)
    hinge = (0.5 + D.diagonal()[:, None] - D)[off].relu()
    torch.testing.assert_close(found["rank"], hinge.mean())  # over the six triples, as in `rank_loss`
    torch.testing.assert_close(found["direction"], (1 + model.head.gap(x, y)).relu()[[0, 2]].mean())


@pytest.mark.parametrize("labels", [[0, 1, 2], [1, -1, 1], [0.01, 1.0, 1.0], [1, 1], [[1], [1], [1]]])
def test_labels_that_say_anything_else_than_one_way_are_refused(labels):
    model = model_of()
    features, _ = batch(model, ["poodle", "oak", "rose"], ["dog", "tree", "plant"])
    with pytest.raises(ValueError, match="label: expected 1 for each pair that runs one way"):
        DirectedLoss(model)(features, torch.tensor(labels))


def test_equal_texts_are_told_by_their_tokens():
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Whitespace

    from rolebregman.integrations.sentence_transformers import _text_keys
    tokenizer = Tokenizer(WordLevel({"[PAD]": 0, "a": 1, "b": 2}, unk_token="[PAD]"))
    tokenizer.pre_tokenizer = Whitespace()

    def column(texts, width):
        rows = [tokenizer.encode(t).ids for t in texts]
        return dict(input_ids=torch.tensor([r + [0] * (width - len(r)) for r in rows]),
                    attention_mask=torch.tensor([[1] * len(r) + [0] * (width - len(r)) for r in rows]))

    bytes_of = lambda *ids: np.array(ids, np.int64).tobytes()
    a, a_b, b_b = bytes_of(1), bytes_of(1, 2), bytes_of(2, 2)
    assert _text_keys([column(["a", "a b"], 2), column(["a b", "", "a"], 4)]) == [[a, a_b], [a_b, b"", a]]
    assert _text_keys([dict(pixel_values=torch.zeros(1))]) is None
    static = StaticEmbedding(tokenizer, embedding_dim=4)
    first, second = _text_keys([static.preprocess(["a b", "a"]), static.preprocess(["a", "b b", "a b"])])
    assert first == [a_b, a] and second == [a, b_b, a_b]


@pytest.mark.parametrize("loss", ["softmax", "margin"])
def test_known_targets_are_no_negatives_under_any_tokeniser(loss):
    model = model_of()
    sources, targets, others = ["poodle", "oak", "poodle"], ["dog", "tree", "animal"], ["rose", "cat", "tree"]
    features, (x, y, z) = batch(model, sources, targets, others)
    D, names = model.head.pairwise(x, torch.cat([y, z])), targets + others
    pairs = set(zip(sources, targets))
    free = torch.tensor([[(s, t) not in pairs and s != t for t in names] for s in sources])
    if loss == "softmax":
        keep = free | torch.eye(3, 6, dtype=torch.bool)
        wanted = (D.diagonal() + (-D).masked_fill(~keep, -torch.inf).logsumexp(1)).mean()
    else: wanted = (1 + D.diagonal()[:, None] - D)[free].relu().mean()
    torch.testing.assert_close(DirectedLoss(model, loss)(features)["rank"], wanted)


def test_pairs_as_texts(toy):
    data = text_pairs(toy, "train", negatives=2, seed=3)
    edges, row = toy.edges["train"], {t: i for i, t in enumerate(toy.nodes["text"])}
    assert data.column_names == ["source", "target", "negative_1", "negative_2", "label"]
    assert [(row[s], row[t]) for s, t in zip(data["source"], data["target"])] == list(map(tuple, edges))
    positives = set(map(tuple, toy.positives))
    assert not positives & {(row[s], row[n]) for s, n in zip(data["source"], data["negative_1"])}
    assert data["label"] == toy.one_way("train").astype(int).tolist()
    assert text_pairs(toy, negatives=2, seed=3)["negative_2"] == data["negative_2"]
    with pytest.raises(ValueError, match="no column 'text'"):
        text_pairs(dataclasses.replace(toy, nodes=toy.nodes.drop(columns="text")))


def test_the_package_that_training_needs_is_named(toy, monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(ImportError, match=r"rolebregman\[joint\]"): text_pairs(toy)


def test_the_evaluator_measures_as_evaluate_does(toy):
    model = model_of(toy.nodes["text"], width=16)
    found = DirectedEvaluator(toy, "test", candidates=9, name="toy")(model)
    features = model.encode(list(toy.nodes["text"]))
    expected = evaluate(model.head, dataclasses.replace(toy, features=features), "test", 9)
    expected["score"] = (expected["ranking_accuracy"] + expected["direction_accuracy"]) / 2
    found = {k.removeprefix("toy_"): v for k, v in found.items()}
    assert found == pytest.approx(expected, rel=0, abs=0, nan_ok=True)  # without hard candidates their rate is NaN
    assert DirectedEvaluator(toy, name="toy").primary_metric == "toy_score"


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("loss", ["softmax", "margin"])
def test_the_trainer_trains_encoder_and_head(toy, tmp_path, loss):
    model = model_of(toy.nodes["text"], width=16)
    model.head.fit_standardizer(model.encode(list(toy.nodes["text"])))
    before = {name: value.clone() for name, value in model.named_parameters()}
    first = DirectedEvaluator(toy, "train")(model)
    settings = SentenceTransformerTrainingArguments(
        str(tmp_path), num_train_epochs=8, per_device_train_batch_size=32, learning_rate=1e-2, use_cpu=True,
        learning_rate_mapping={r"\.head\.": 3e-3}, eval_strategy="epoch", save_strategy="epoch", report_to="none",
        load_best_model_at_end=True, metric_for_best_model="eval_score", disable_tqdm=True)
    measure = DirectedLoss(model, loss, mini_batch_size=20 if loss == "margin" else None)
    trainer = SentenceTransformerTrainer(model, settings, train_dataset=text_pairs(toy, negatives=1), loss=measure,
                                         evaluator=DirectedEvaluator(toy))
    trainer.train()
    assert all((before[name] != value).any() for name, value in model.named_parameters() if name.endswith("weight"))
    last = DirectedEvaluator(toy, "train")(model)
    assert last["score"] > first["score"] + 0.1 and last["direction_accuracy"] > 0.8
    logged = next(row for row in trainer.state.log_history if "eval_score" in row)
    assert {"eval_ranking_accuracy", "eval_direction_accuracy"} <= set(logged)


@pytest.mark.parametrize("seed", range(4))
def test_known_pairs_against_a_loop(seed):
    g = np.random.default_rng(seed)
    sources = [tuple(x) for x in g.integers(4, size=(30, 2)).tolist()]
    targets = [tuple(x) for x in g.integers(4, size=(30 + 20 * (seed % 2), 2)).tolist()]
    pairs = set(zip(sources, targets))
    wanted = [[(x, y) in pairs or x == y for y in targets] for x in sources]
    assert batch_known(sources, targets).tolist() == wanted
    assert batch_known([], []).shape == (0, 0)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("loss", ["MultipleNegativesRankingLoss", "CachedMultipleNegativesRankingLoss",
                                  "MultipleNegativesSymmetricRankingLoss"])
def test_losses_of_the_library_take_the_similarity(loss, tmp_path):
    model = model_of()
    before = {name: value.clone() for name, value in model.named_parameters()}
    data = Dataset.from_dict(dict(anchor=WORDS[:4], positive=WORDS[4:]))
    settings = SentenceTransformerTrainingArguments(str(tmp_path), num_train_epochs=1, learning_rate=1e-2, use_cpu=True,
                                                    report_to="none", save_strategy="no", disable_tqdm=True)
    measure = getattr(losses, loss)(model, similarity_fct=model.similarity, scale=1)
    trainer = SentenceTransformerTrainer(model, settings, train_dataset=data, loss=measure)
    trainer.train()
    assert sum((before[name] != value).any() for name, value in model.named_parameters()) > 3
    assert measure.get_config_dict()["similarity_fct"] == "similarity_of_all"


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_a_head_keeps_its_precision_behind_an_encoder_of_another(dtype, tmp_path):
    "When it is joined, and when the model is loaded; what is asked for by name is done"
    bag = SentenceTransformer(modules=[Dense(WIDTH, WIDTH), Dense(WIDTH, WIDTH)], device="cpu").to(dtype)
    head = make_head("role_bregman", dim=WIDTH)
    before = {name: value.clone() for name, value in head.state_dict().items()}
    model = DirectedEncoder.join(bag, head)
    assert model.head is head and next(model.parameters()).dtype == dtype
    assert all(torch.equal(value, before[name]) for name, value in head.state_dict().items())
    assert {value.dtype for value in head.state_dict().values()} == {torch.float32}
    x, y = torch.randn(2, 3, WIDTH).to(dtype)
    assert torch.equal(model.similarity(x, y), -head.pairwise(x.float(), y.float()).detach())
    assert next(model.to(torch.float64).head.parameters()).dtype == torch.float64


@pytest.mark.parametrize("name", ["role_bregman", "cosine"])
def test_the_loss_takes_a_model_of_half_precision_and_autocast(name):
    model = model_of(head=name)
    model.head.to(torch.bfloat16)
    for autocast in False, True:
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            texts = [model.preprocess(WORDS[:4]), model.preprocess(WORDS[4:])]
            loss = DirectedLoss(model)(texts)
        (loss["rank"] + loss["direction"]).backward()
        assert loss["rank"].isfinite() and any(p.grad is not None for p in model.head.parameters())


def test_equal_texts_of_several_nodes_tie_in_the_evaluator(toy):
    "Texts of all nodes are one: no pair is told from another, in whatever batch its texts are encoded"
    ds = dataclasses.replace(toy, nodes=toy.nodes.assign(text=[WORDS[0]] * toy.num_nodes))
    seen = []
    model = model_of()
    encode = model.encode
    model.encode = lambda texts, **how: seen.extend(texts) or encode(texts, **how)
    found = DirectedEvaluator(ds, "test", candidates=20)(model)
    assert found["ranking_accuracy"] == found["direction_accuracy"] == 0.5 and seen == WORDS[:1]


@pytest.mark.parametrize("loss, size", [("softmax", 1), ("softmax", 3), ("margin", 3), ("margin", 99)])
def test_a_cached_loss_has_the_gradients_of_the_plain_one(loss, size):
    "And its encoder sees few texts at a time, each of them once more for the gradient"
    model, seen = model_of(), []
    texts = [model.preprocess(words) for words in (WORDS[:7], WORDS[1:], [*WORDS[2:], WORDS[0]])]
    found = {}
    for mini in None, size:
        model.zero_grad()
        hook = model[1].register_forward_pre_hook(lambda _, args: seen.append(len(args[0]["sentence_embedding"])))
        measure = DirectedLoss(model, loss, mini_batch_size=mini)
        losses = measure([dict(column) for column in texts], torch.arange(7) % 2)
        sum(losses.values()).backward()
        hook.remove()
        found[mini] = losses | {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    plain, cached = found.values()
    assert plain["1.linear.weight"].abs().sum() > 0 and sum(bool(value.any()) for value in plain.values()) > 9
    torch.testing.assert_close(cached, plain)
    assert seen[:3] == [7] * 3 and max(seen[3:]) <= size and sum(seen[3:]) == 2 * 3 * 7


def test_a_cached_loss_draws_the_same_dropout_twice():
    "A gradient under dropout is that of the loss that was given: a step along it, under the same draw, says so"
    model = model_of().double()
    model[1].linear = torch.nn.Sequential(model[1].linear, torch.nn.Dropout(0.5))
    weight = model[1].linear[0].weight
    texts = [model.preprocess(words) for words in (WORDS[:4], WORDS[4:])]
    measure = DirectedLoss(model.train(), mini_batch_size=3)

    def loss():
        torch.manual_seed(3)
        return measure([{k: v.double() if v.is_floating_point() else v for k, v in t.items()} for t in texts])["rank"]

    slope, = torch.autograd.grad(loss(), weight)
    step = 1e-6 * torch.randn_like(weight)
    with torch.no_grad():
        before, _ = loss(), weight.add_(step)
        after, _ = loss(), weight.sub_(2 * step)
        assert (after - loss()).item() / 2 == pytest.approx((slope * step).sum().item(), rel=1e-4) and before != after


@pytest.mark.parametrize("size", [0, -1, 2.0, True, "3"])
def test_a_size_that_is_none_is_refused(size):
    with pytest.raises(ValueError, match="mini_batch_size: expected a whole number from 1"):
        DirectedLoss(model_of(), mini_batch_size=size)


def test_two_processes_learn_what_one_does_of_their_batches_in_turn(tmp_path):
    "PyTorch's wrapper sees one call of the model a step, in which every parameter has its part; so does every loss"
    script = Path(__file__).with_name("two_trainers.py")
    done = subprocess.run([sys.executable, script, tmp_path], capture_output=True, text=True, timeout=300,
                          env=os.environ | dict(HF_HUB_OFFLINE="1", OMP_NUM_THREADS="1"))
    assert done.returncode == 0, done.stderr
    for case in "softmax", "margin-in-parts":
        one, two = (load_file(tmp_path / f"{processes}-{case}.safetensors") for processes in (1, 2))
        torch.testing.assert_close(two, one)
