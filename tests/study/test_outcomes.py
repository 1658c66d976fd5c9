"""What became of each test pair: the metrics follow from it, and it stays with its row whatever happens."""
import os
import shutil

import numpy as np
import pandas as pd
import pytest
import torch

from rolebregman.baselines import HEADS, make_head
from rolebregman.datasets import toy_tree
from rolebregman.evaluation import Scores, score_split, split_metrics
from rolebregman.study import (
    CONTROL_METRICS,
    MATCHED,
    OUTCOMES,
    SCALES,
    WRONG,
    Store,
    Task,
    control_metrics,
    fit_and_evaluate,
    matched,
    outcome_metrics,
    outcome_row,
    outcome_shares,
    pack,
    pair_outcomes,
    run_grid,
    run_main_study,
    runner,
    trained_control,
    unpack,
)

FAST = dict(batch_size=64, lr=1e-2, epochs=1)
CHANGING = ["seconds", "peak_memory_mb", "commit"]


def tasks(heads=("cosine", "euclidean"), seeds=(0, 1)):
    return [Task("toy", head, seed, train=FAST) for seed in seeds for head in heads]


def beside(store):
    return store.path.with_stem(f"{store.path.stem}_pairs")


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    "The grid in a store with its outcomes, which no test changes"
    store = Store(tmp_path_factory.mktemp("kept") / "rows.csv", outcomes=True)
    run_grid(tasks(), store, progress=False)
    return store


def copied(store, folder):
    for path in (store.path, beside(store)): shutil.copy(path, folder)
    return Store(folder / store.path.name, outcomes=True)


def cut(path, lines):
    "Leave out the last lines, as a machine that died before they were written"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:-lines]))


def random_scores(c, ties, seed=0):
    draw = torch.Generator().manual_seed(seed)
    def some(*shape): return torch.randint(0, 5 if ties else 10**6, shape, generator=draw).double()
    return Scores(some(200), some(200), some(200, c), torch.rand(200, generator=draw) < 0.7)


@pytest.mark.parametrize("c", [1, 7, 100, 126, 127, 300])
@pytest.mark.parametrize("ties", [False, True])
def test_the_metrics_follow_from_the_outcomes_before_and_after_packing(c, ties):
    scores = random_scores(c, ties)
    outcomes, metrics = pair_outcomes(scores), split_metrics(scores)
    again = {name: unpack(pack(values)) for name, values in outcomes.items()}
    for name in outcomes: np.testing.assert_array_equal(again[name], outcomes[name])
    for name, value in outcome_metrics(again, c).items(): assert value == pytest.approx(metrics[name], abs=1e-12)
    hits = {f"hits@{k}": (outcomes["rank"] <= k).mean() for k in (1, 3, 10)}
    assert hits == pytest.approx({name: metrics[name] for name in hits}, abs=1e-12)


@pytest.mark.parametrize("name", HEADS)
def test_the_metrics_of_every_head_follow_from_its_outcomes(name):
    ds = toy_tree(seed=1)
    torch.manual_seed(0)
    scores = score_split(make_head(name, dim=ds.dim), ds)
    found, metrics = outcome_metrics(pair_outcomes(scores), 100), split_metrics(scores)
    assert found == pytest.approx({key: metrics[key] for key in found}, abs=1e-12)


@pytest.mark.parametrize("ties", [False, True])
def test_the_harder_counts_of_direction_follow_from_the_kind_of_a_pair(ties):
    scores, control = random_scores(9, ties), random_scores(9, ties, seed=1)
    match = torch.rand(200, generator=torch.Generator().manual_seed(2)) < 0.4
    outcomes = {name: unpack(pack(values)) for name, values in pair_outcomes(scores, control, match).items()}
    assert list(outcomes) == list(OUTCOMES) and set(outcomes["kind"]) == {0, MATCHED, WRONG, MATCHED + WRONG}
    found, metrics = outcome_metrics(outcomes, 9), control_metrics(scores, control, match)
    assert {name: found[name] for name in CONTROL_METRICS} == pytest.approx(metrics, abs=1e-12)


def test_shares_by_hand():
    "Rank 1 of 4: all candidates behind; rank 3: half of them; rank 5: none"
    shares = outcome_shares(dict(rank=np.array([1, 3, 5]), direction=np.array([1, np.nan, 0.5])), 4)
    assert shares["ranking_accuracy"].tolist() == [1, 0.5, 0] and shares["mrr"].tolist() == [1, 1 / 3, 0.2]
    np.testing.assert_array_equal(shares["direction_accuracy"], [1, np.nan, 0.5])
    assert set(shares) == {"ranking_accuracy", "direction_accuracy", "mrr"}, "a list of before has no kind"
    kinds = dict(rank=np.ones(4), direction=np.array([1, 0, 0.5, np.nan]), kind=np.array([0.0, 1, 2, 3]))
    shares = outcome_shares(kinds, 4)
    np.testing.assert_array_equal(shares["direction_matched"], [np.nan, 0, np.nan, np.nan])
    np.testing.assert_array_equal(shares["direction_prior_wrong"], [np.nan, np.nan, 0.5, np.nan])


def test_no_one_way_pair_is_no_direction_accuracy():
    found = outcome_metrics(dict(rank=np.ones(3), direction=np.full(3, np.nan)), 10)
    assert np.isnan(found["direction_accuracy"]) and found["mrr"] == 1


@pytest.mark.parametrize("top, kind", [(126.5, "u1"), (127, "u1"), (127.5, "u2"), (32767, "u2"), (32768, "u4")])
def test_a_list_takes_the_fewest_bytes_that_hold_it(top, kind):
    values = np.array([0, 0.5, np.nan, top])
    assert pack(values).startswith(f"{kind}:")
    np.testing.assert_array_equal(unpack(pack(values)), values)


@pytest.mark.parametrize("bad", [0.25, -0.5, np.inf, -np.inf])
def test_what_is_no_half_is_refused(bad):
    with pytest.raises(ValueError, match=f"pack: {bad} at position 2"): pack([1, np.nan, bad])


@pytest.mark.parametrize("bad", ["", "u1", "u1:%%", f"x9{pack([1])[2:]}", pack([1, 2])[:-4], f"u2{pack([1])[2:]}"])
def test_a_damaged_text_is_refused(bad):
    with pytest.raises(ValueError, match="no packed list of outcomes"): unpack(bad)


def test_thirteen_thousand_pairs_of_a_seed_stay_small():
    "20 heads and 10 seeds in 6 MB: 30 kB for a head and seed, even where no rank is likelier than another"
    draw = np.random.default_rng(0)
    outcomes = dict(rank=draw.integers(2, 203, 13_000) / 2, direction=draw.choice([0, 0.5, 1, np.nan], 13_000))
    assert sum(len(pack(values)) for values in outcomes.values()) < 30_000


def test_the_hash_is_that_of_the_pairs_in_their_order():
    ds = toy_tree(seed=0)
    scores = score_split(make_head("cosine", dim=ds.dim), ds)
    one = outcome_row(scores, ds)["pairs"]
    assert outcome_row(scores, toy_tree(seed=0))["pairs"] == one
    assert outcome_row(scores, toy_tree(seed=1))["pairs"] != one
    ds.edges["test"] = ds.edges["test"][::-1]
    assert outcome_row(scores, ds)["pairs"] != one


def test_outcomes_are_those_of_the_row_in_the_order_of_the_edges(kept):
    task = tasks()[0]
    ds = task.open(quiet=True)
    expected = pair_outcomes(score_split(task.trained(ds), ds), trained_control(task, ds), matched(ds))
    line = kept.pairs().iloc[0]
    assert (line["head"], line["seed"], line["candidates"]) == ("cosine", 0, 100)
    for name in OUTCOMES: np.testing.assert_array_equal(line[name], expected[name])
    assert kept.pairs().groupby("seed")["pairs"].nunique().tolist() == [1, 1]


def test_outcomes_change_nothing_in_the_rows(kept, tmp_path):
    plain = Store(tmp_path / "plain.csv")
    run_grid(tasks(), plain, progress=False)
    pd.testing.assert_frame_equal(*(store.rows().drop(columns=CHANGING) for store in (plain, kept)), check_exact=True)
    assert not beside(plain).exists() and beside(kept).exists()
    assert "outcomes" not in fit_and_evaluate(tasks()[0])


@pytest.mark.parametrize("lost", ["row", "outcomes", "both", "a part of a line", "the second file"])
def test_a_kill_between_the_two_writes_is_healed(kept, tmp_path, lost):
    store = copied(kept, tmp_path)
    whole, pairs = store.rows(), store.pairs()
    if lost in ("row", "both"): cut(store.path, 1)
    if lost in ("outcomes", "both"): cut(beside(store), 1)
    if lost == "a part of a line": os.truncate(beside(store), beside(store).stat().st_size - 9)
    if lost == "the second file": beside(store).unlink()
    missing = len(tasks()) if lost == "the second file" else 1
    assert len(store.keys()) == len(tasks()) - missing
    again = run_grid(tasks(), store, progress=False)
    pd.testing.assert_frame_equal(again.drop(columns=CHANGING), whole.drop(columns=CHANGING), check_exact=True)
    found = store.pairs().sort_values(["seed", "head"], ignore_index=True)
    assert len(found) == 4 and len(store.keys()) == 4
    for name in OUTCOMES:
        for one, other in zip(found[name], pairs.sort_values(["seed", "head"])[name]):
            np.testing.assert_array_equal(one, other)
    size = store.path.stat().st_size, beside(store).stat().st_size
    run_grid(tasks(), store, progress=False)
    assert (store.path.stat().st_size, beside(store).stat().st_size) == size, "nothing is done twice"


def test_outcomes_of_another_fit_do_not_count(kept, tmp_path):
    store = copied(kept, tmp_path)
    rows = store.rows()
    store.append(dict(rows.loc[0], mrr=0.125))  # a row of other outcomes, without its own
    assert len(store.keys()) == 3 and len(store.pairs()) == 3 and len(store.rows()) == 4
    assert run_grid(tasks(), store, progress=False).loc[0, "mrr"] == rows.loc[0, "mrr"] and len(store.pairs()) == 4


def test_a_store_of_before_reads_and_gets_its_outcomes(tmp_path):
    before = run_grid(tasks(), Store(tmp_path / "rows.csv"), progress=False)
    store = Store(tmp_path / "rows.csv", outcomes=True)
    pd.testing.assert_frame_equal(store.rows(), before, check_exact=True)
    assert not store.keys() and not len(store.pairs())
    run_grid(tasks(), store, progress=False)
    assert len(store.pairs()) == 4 and len(Store(store.path).pairs()) == 4, "they are read where none are asked for"


def test_a_failed_fit_has_no_outcomes_and_is_done(tmp_path, monkeypatch):
    def gone(seed, quiet): raise OSError("no source")
    monkeypatch.setitem(runner.DATASETS, "gone", gone)
    store = Store(tmp_path / "rows.csv", outcomes=True)
    run_grid([Task("gone", "cosine", 0)], store, progress=False)
    assert len(store.keys()) == 1 and not store.keys(failed=False) and not len(store.pairs())


def test_a_damaged_list_is_named(tmp_path):
    store = Store(tmp_path / "rows.csv", outcomes=True)
    run_grid(tasks(), store, progress=False)
    text = beside(store).read_text()
    beside(store).write_text(text.replace("u1:eN", "u1:eM", 1))
    with pytest.raises(ValueError, match="rows_pairs.csv, toy cosine 0 quick .*the line is damaged"): store.keys()


def test_the_main_study_keeps_them_where_its_scale_says_so(tmp_path, capsys):
    assert [name for name, scale in SCALES.items() if scale.outcomes] == ["paper"]
    how = dict(datasets=["toy"], heads=["cosine"], seeds=1, progress=False)
    run_main_study(**how, out=tmp_path / "a")
    run_main_study(**how, out=tmp_path / "b", outcomes=True)
    assert not (tmp_path / "a" / "quick_pairs.csv").exists() and (tmp_path / "b" / "quick_pairs.csv").exists()
    run_main_study(**how, out=tmp_path / "a", outcomes=True)
    assert "1 fit, 0 of them done before" in capsys.readouterr().out and (tmp_path / "a" / "quick_pairs.csv").exists()
