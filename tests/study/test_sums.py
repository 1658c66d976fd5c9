"Five heads as one in the study: what is fitted and how, gains from outcomes that are known, the same rows again"
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

from rolebregman.study import (
    MAIN_METRICS,
    MEMBERS,
    SUM_HEADS,
    SUM_WAYS,
    Question,
    Store,
    SumTask,
    Task,
    ask_all,
    fit_and_evaluate,
    keep_settings,
    run_sums,
    sum_findings,
    sum_name,
    sum_pairs,
    sum_questions,
    sum_tasks,
)
from rolebregman.study.store import SEARCH
from rolebregman.training import fit_members

FAST = dict(train=dict(epochs=1, batch_size=64), options=dict(inputs="scale"))


@pytest.fixture
def chosen(tmp_path):
    keep_settings(tmp_path / "chosen.json", "toy", dict.fromkeys(SUM_HEADS, FAST))
    return tmp_path / "chosen.json"


def test_rivals_get_as_many_members_and_their_own_settings(chosen):
    tasks = sum_tasks(["toy"], seeds=2, chosen=chosen)
    assert len(tasks) == 2 * (len(SUM_HEADS) + 2) == len({task.key for task in tasks})
    apart = [task for task in tasks if task.way == "apart"]
    assert [task.head for task in apart] == [*SUM_HEADS] * 2
    for task in apart:
        assert task.options == dict(inputs="scale", members=MEMBERS) and task.train == FAST["train"]
        assert all(member.inputs == "scale" for member in task.make(8).members)


def test_the_ways_differ_in_what_they_do_and_in_their_hash():
    tasks = {way: SumTask("toy", "order", 3, options=dict(members=2), train=FAST["train"], way=way) for way in SUM_WAYS}
    assert len({task.config for task in tasks.values()}) == 3
    assert [member.inputs for member in tasks["raw and standard"].make(8).members] == ["raw", "standard"]
    ds = tasks["apart"].open(quiet=True)
    apart, plain = tasks["apart"].trained(ds), tasks["apart"].make(ds.dim)
    histories = fit_members(plain, ds, tasks["apart"].training, progress=False)
    assert [history.config.seed for history in histories] == [6, 7]
    assert all(torch.equal(a, b) for a, b in zip(apart.state_dict().values(), plain.state_dict().values()))
    together = tasks["together"].trained(ds)
    plain = Task("toy", "order", 3, options=dict(members=2), train=FAST["train"]).trained(ds)
    assert all(torch.equal(a, b) for a, b in zip(together.state_dict().values(), plain.state_dict().values()))


def test_the_same_task_gives_the_same_row_and_its_seconds_are_those_of_all_members():
    task = SumTask("toy", "mlp", 0, options=dict(members=3), train=dict(epochs=2, batch_size=32))
    one, other = fit_and_evaluate(task), fit_and_evaluate(replace(task))
    same = pd.DataFrame([one, other]).drop(columns=["seconds", "peak_memory_mb"])
    assert not one["error"] and len(same.drop_duplicates()) == 1
    alone = fit_and_evaluate(Task("toy", "mlp", 0, train=dict(epochs=2, batch_size=32)))
    assert one["parameters"] == 3 * alone["parameters"]
    ds = task.open(quiet=True)
    members = fit_members(task.make(ds.dim), ds, task.training, progress=False)
    assert task.fit(task.make(ds.dim), ds).seconds > members[0].seconds


def outcomes(heads, config, pairs=400):
    lines = []
    for seed in range(3):
        luck = np.random.default_rng(seed).random(pairs)
        for head, chance in heads.items():
            right = (luck < chance).astype(float)
            lines.append(dict(dataset="toy", head=head, seed=seed, scale="quick", config=config, pairs="p",
                              candidates=100, rank=np.where(right, 1.0, 51.0), direction=right))
    return pd.DataFrame(lines)


class Kept:
    "A store of sums whose outcomes are known"
    def __init__(self, ways):
        self.ways, some = ways, []
        for number, (head, _, chance) in enumerate(ways):
            some.append(outcomes({head: chance}, str(number)))
        self.found = pd.concat(some, ignore_index=True)

    def pairs(self): return self.found

    def rows(self):
        way = [f'{{"way": "{self.ways[int(config)][1]}", "lr": 1}}' for config in self.found["config"]]
        return self.found[["dataset", "head", "seed", "scale", "config"]].assign(settings=way)


def test_gains_and_places_from_outcomes_that_are_known():
    sums = Kept([("directed_bregman", "apart", 0.9), ("directed_bregman", "together", 0.8), ("order", "apart", 0.7)])
    alone = outcomes(dict(directed_bregman=0.8, order=0.8, mlp=0.5), "alone")
    pairs = sum_pairs(pd.concat([alone, alone.assign(dataset="other")]), sums)
    assert set(pairs["dataset"]) == {"toy"} and len(pairs) == 3 * (3 + 3)
    asked = sum_questions(pairs)
    assert asked[-1] == Question("directed_bregman, 5 apart", ["order, 5 apart"], MAIN_METRICS)
    lines = ask_all(pairs, *asked)
    verdicts = {(line.head, line.against): line.verdict for line in lines.query("metric == 'mrr'").itertuples()}
    assert verdicts == {("directed_bregman, 5 apart", "directed_bregman"): "better",
                        ("directed_bregman, 5 together", "directed_bregman"): "equivalent",
                        ("order, 5 apart", "order"): "worse", ("directed_bregman, 5 apart", "order, 5 apart"): "better"}
    said = sum_findings(lines)
    assert len(said) == 4 and said[0].startswith("directed_bregman, 5 apart, beside the head alone: ranking +0.0")
    assert said[1].startswith("directed_bregman, 5 apart, beside sums of rivals: ") and "better in 1" in said[1]


def test_names_of_sums():
    assert [sum_name("order", way) for way in SUM_WAYS] == ["order, 5 apart", "order, 5 together",
                                                            "order, raw and standard"]


def test_run_and_again(chosen, tmp_path):
    how = dict(datasets=["toy"], heads=("directed_bregman", "order"), seeds=1, jobs=1, out=tmp_path, chosen=chosen,
               scale="quick")
    rows = run_sums(**how)
    assert len(rows) == 4 and set(rows["error"]) == {""}
    size = (tmp_path / "sums.csv").stat().st_size, (tmp_path / "sums_pairs.csv").stat().st_size
    run_sums(**how)
    assert ((tmp_path / "sums.csv").stat().st_size, (tmp_path / "sums_pairs.csv").stat().st_size) == size
    pairs = sum_pairs(outcomes(dict(mlp=0.5), "alone"), Store(tmp_path / "sums.csv", SEARCH))
    assert set(pairs["head"]) == {"mlp", "order, 5 apart"} | {sum_name("directed_bregman", way) for way in SUM_WAYS}
    with pytest.raises(ValueError, match="unknown dataset gone"): run_sums(**how | dict(datasets=["gone"]))
