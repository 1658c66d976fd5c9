"Panels: one base, variants that differ in what they say, and the changes that no setting says"
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from torch.nn import functional as F
from typer.testing import CliRunner

from rolebregman.baselines import make_head
from rolebregman.cli.app import app
from rolebregman.datasets import toy_tree
from rolebregman.study import (
    COLUMNS,
    DATASETS,
    KEY,
    OUR_PANELS,
    PANEL_METRICS,
    PANELS,
    SEARCH,
    FromIdentity,
    Store,
    Task,
    UsualWeight,
    Variant,
    ablation_rows,
    base_name,
    dataset_panels,
    fit_and_evaluate,
    nearest_loss,
    panel_datasets,
    panel_differences,
    panel_heads,
    panel_rows,
    panel_tasks,
    panels,
    run_ablations,
    run_grid,
    variant_of,
    with_maps_from_identity,
    with_reversed_pairs,
    with_usual_weights,
)
from rolebregman.theory import bregman_divergence
from rolebregman.training import batch_losses, rank_loss

FAST = dict(batch_size=64, lr=1e-2, epochs=2)
results = Path(__file__).resolve().parents[2] / "results"
CHANGING = ["seconds", "peak_memory_mb", "commit"]


def plan(panel, seeds=1, **how):
    return panel_tasks(panel, "toy", seeds, "none.json", "quick", FAST, **how)


@pytest.mark.parametrize("panel", PANELS)
def test_a_panel_has_one_base_and_no_fit_twice(panel):
    found = plan(panel, seeds=2)
    assert len({v.key for v in found}) == len(found)
    assert sum(v.panel == "base" for v in found) == 2 * len(panel_heads(panel))
    every = {variant_of(v, panel, name).key for v in found if v.panel == "base" for name in PANELS[panel]}
    assert {v.key for v in found} == every
    assert panel_datasets(panel) and set(panel_datasets(panel)) <= set(DATASETS)


@pytest.mark.parametrize("panel", PANELS)
def test_a_variant_differs_from_the_base_in_what_it_says(panel):
    for variant in plan(panel):
        change = PANELS[panel].get(variant.variant, {})
        base = next(v for v in plan(panel) if v.panel == "base" and v.head == variant.head)
        kept = {name: value for name, value in vars(base.training).items() if name not in change.get("train", {})}
        assert kept.items() <= vars(variant.training).items()
        ours, theirs = (make_head(v.head, 8, **v.options).config for v in (variant, base))
        differ = {name for name in ours if ours[name] != theirs[name]}
        assert differ <= set(change.get("options", {})) | ({"hidden"} if {"width", "depth"} & set(change) else set())
        assert variant.change == variant.hidden_settings == change.get("change", {})


@pytest.mark.parametrize("panel, setting, named", [
    ("direction_weight", dict(train=dict(direction_weight=0.3)), "0.3"),
    ("inputs", dict(options=dict(inputs="unit")), "unit"),
    ("lambda", dict(options=dict(strong_convexity=0.0)), "0"), ("projection", dict(options=dict(roles="none")), "none"),
    ("layers", dict(options=dict(hidden=[128])), "1"), ("negatives", dict(train=dict(negatives=16)), "16"),
    ("negatives", dict(train=dict(negatives=7)), "as chosen"), ("noise", dict(train=dict(margin=0.1)), "0")])
def test_the_base_goes_by_the_variant_that_was_chosen(tmp_path, panel, setting, named):
    chosen = tmp_path / "chosen.json"
    own = dict(train={}, options={}) | setting
    chosen.write_text(json.dumps({"toy": {head: own for head in panel_heads(panel)}}))
    found = panel_tasks(panel, "toy", 1, chosen, "quick", FAST)
    bases = [v for v in found if v.panel == "base"]
    assert len(bases) == len(panel_heads(panel)) and {base_name(base, panel) for base in bases} == {named}
    others = {v.variant for v in found if v.panel != "base"}
    assert others == set(PANELS[panel]) - {named} and len({v.key for v in found}) == len(found)
    assert all(v.train.items() >= {**own["train"], **PANELS[panel][v.variant].get("train", {})}.items()
               for v in found if v.panel != "base")


def test_rows_of_one_panel_have_the_base_that_each_dataset_has():
    def row(dataset, panel, variant, weight):
        settings = json.dumps(dict(panel=panel, variant=variant, direction_weight=weight, inputs="raw"))
        return dict(dataset=dataset, head="role_bregman", panel=panel, variant=variant, seed=0, scale="quick",
                    settings=settings, direction_accuracy=weight, ranking_accuracy=0.5)
    rows = pd.DataFrame([row("toy", "base", "base", 0.3), row("toy", "direction_weight", "1", 1),
                         row("sick", "base", "base", 1.0), row("sick", "direction_weight", "0.3", 0.3)])
    found = panel_rows(rows, "direction_weight").set_index(["dataset", "variant"])
    assert found["base"].to_dict() == {("toy", "0.3"): True, ("toy", "1"): False, ("sick", "1"): True,
                                       ("sick", "0.3"): False}
    lines = panel_differences(rows, "direction_weight").set_index("dataset")["difference"]
    assert lines.to_dict() == pytest.approx({"toy": 0.7, "sick": -0.7})


def test_the_base_is_the_task_of_the_main_study():
    base = plan("maps")[0]
    assert base.key == Task("toy", "role_bregman", 0, train=FAST).key
    changed = next(v for v in plan("inputs") if v.variant == "unit")
    assert changed.config != base.config and changed.training == base.training


def test_width_and_layers_follow_the_chosen_ones(tmp_path):
    chosen = tmp_path / "chosen.json"
    chosen.write_text(json.dumps({"toy": {"role_bregman": dict(train={}, options=dict(hidden=[64, 32]))}}))
    hidden = {v.variant: v.options["hidden"] for p in ("width", "layers") for v in panel_tasks(p, "toy", 1, chosen)}
    assert hidden == {"base": [64, 32], "a quarter": [16, 8], "half": [32, 16], "double": [128, 64], "1": [64],
                      "3": [64, 32, 32]}


def test_amounts_that_there_are_not_are_left_out():
    assert {v.variant for v in plan("data", edges=400)} == {"base", "100", "200"}


@pytest.mark.parametrize("share", [0, 0.1, 0.4, 1])
def test_turned_pairs(share):
    tree = toy_tree(seed=3)
    noisy = with_reversed_pairs(tree, share)
    for part in ("train", "valid"):
        now, before = noisy.edges[part], tree.edges[part]
        back = (now == before[:, ::-1]).all(1)
        assert back.sum() == round(share * len(before)) and (now[~back] == before[~back]).all()
    assert (noisy.edges["test"] == tree.edges["test"]).all() and noisy.one_way("train").all()
    assert len(noisy.positives) == len(tree.positives)  # none stands there both ways


def test_pairs_that_are_annotated_both_ways_are_not_turned():
    tree = toy_tree(seed=3)
    train = np.concatenate([tree.edges["train"], tree.edges["train"][:5, ::-1]])
    tree = replace(tree, edges=tree.edges | dict(train=train))
    both = ~tree.one_way("train")
    assert both.sum() == 10
    assert (with_reversed_pairs(tree, 1.0).edges["train"][both] == tree.edges["train"][both]).all()


@pytest.mark.parametrize("how", ["softplus", "clamped"])
def test_usual_weights_against_the_definition(how):
    head = make_head("icnn_bregman", dim=6, hidden=(5, 4), activation="softplus").double()
    with_usual_weights(head.potential, how)
    potential = head.double().potential
    positive = F.softplus if how == "softplus" else F.relu

    def phi(u):
        z = F.softplus(potential.skips[0](u))
        z = F.softplus(z @ positive(potential.steps[0].raw).T + potential.skips[1](u))
        return z @ positive(potential.output.raw)[0] + 0.05 * u.square().sum(-1)

    u, v = torch.randn(2, 20, 6, dtype=torch.float64)
    torch.testing.assert_close(potential(u), phi(u))
    torch.testing.assert_close(head.compare(u, v), bregman_divergence(phi, u, v))
    assert (head.compare(u, v) >= 0).all()


def test_fresh_softplus_weights_grow_with_the_width():
    sums = [UsualWeight(n, 30, "softplus")().sum(1).mean().item() for n in (50, 200)]
    assert sums == pytest.approx([50 * np.log(2), 200 * np.log(2)], rel=0.02)


def trained_with(decay, change):
    "A head after a few epochs with weight decay, its maps written in one way or the other, and its distances"
    torch.manual_seed(0)
    tree, head = toy_tree(seed=0), make_head("role_bregman", 32, inputs="raw")
    train = dict(FAST, lr=1e-2, weight_decay=decay)
    Variant("toy", "role_bregman", 0, "quick", train, change=change).fit(head.fit_standardizer(tree.features), tree)
    x, y = (torch.from_numpy(tree.features[end]) for end in tree.edges["test"].T)
    return head, head(x, y).detach()


def test_without_decay_both_ways_to_write_a_map_take_the_same_steps():
    written = dict(maps="from identity")
    ours, theirs = (trained_with(0.0, change)[1] for change in ({}, written))
    torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-4)
    strong, kept = (trained_with(30.0, change)[0] for change in ({}, written))
    eye = torch.eye(32)
    assert torch.linalg.matrix_norm(strong.maps["source"].start) < 0.5 * torch.linalg.matrix_norm(eye)
    assert torch.linalg.matrix_norm(kept.maps["source"].change) < 0.5 * torch.linalg.matrix_norm(eye)


@pytest.mark.parametrize("init", ["identity", "same", "independent"])
def test_distances_stay_what_they_are_where_maps_are_written_from_the_identity(init):
    head = make_head("role_bregman", 8, init=init).double()
    x, y = torch.randn(2, 20, 8, dtype=torch.float64)
    before = head(x, y)
    with_maps_from_identity(head)
    torch.testing.assert_close(head(x, y), before, rtol=1e-12, atol=1e-12)
    for role_map in head.maps.values(): assert isinstance(role_map, FromIdentity)


def test_nearest_loss():
    positive, negative = torch.rand(50), 3 * torch.rand(50, 4)
    torch.testing.assert_close(nearest_loss(positive, negative[:, :1]), rank_loss(positive, negative[:, :1]))
    torch.testing.assert_close(nearest_loss(positive, negative), rank_loss(positive, negative.min(1).values))
    assert nearest_loss(positive, negative) >= rank_loss(positive, negative)


def trained(monkeypatch, panel, name):
    "The head and the dataset that a variant hands to the training, and the losses meanwhile"
    seen = {}
    monkeypatch.setattr(panels, "fit", lambda head, ds, *config, losses, **how: seen.update(losses=losses, ds=ds))
    variant = next(v for v in plan(panel) if v.variant == name)
    head, ds = make_head(variant.head, 32, **variant.options), toy_tree(seed=0)
    variant.fit(head, ds)
    return head, ds, seen


@pytest.mark.parametrize("how", ["raw", "unit", "scale"])
def test_inputs_of_a_variant_are_those_of_its_head(monkeypatch, how):
    head, ds, _ = trained(monkeypatch, "inputs", how)
    assert head.inputs == how and make_head("role_bregman", 32).inputs == "standard"


def test_amount_of_training_pairs(monkeypatch):
    _, ds, seen = trained(monkeypatch, "data", "100")
    assert len(seen["ds"].edges["train"]) == 100 and len(ds.edges["train"]) == 291
    assert len(seen["ds"].positives) == len(ds.positives)  # what is left out is no negative


def test_only_the_hard_negatives_have_a_loss_of_their_own(monkeypatch):
    _, _, seen = trained(monkeypatch, "negatives", "nearest of 4")
    assert seen["losses"].func is batch_losses and seen["losses"].keywords == dict(rank_loss=nearest_loss)
    assert trained(monkeypatch, "negatives", "16")[2]["losses"] is batch_losses


def test_panels_of_a_dataset_and_datasets_of_a_panel_are_one_table():
    for dataset in panel_datasets("ours"):
        assert {panel for panel in PANELS if dataset in panel_datasets(panel)} >= set(dataset_panels(dataset))
        assert all(dataset in panel_datasets(panel) for panel in dataset_panels(dataset))


def some_variants():
    wanted = {"unit", "40", "nearest of 4", "clamped weights", "base"}
    found = [v for panel in ("inputs", "noise", "negatives", "plain head")
             for v in panel_tasks(panel, "toy", 1, "none.json", "quick", FAST) if v.variant in wanted]
    return list({v.key: v for v in found}.values())


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    store = Store(tmp_path_factory.mktemp("ablations") / "rows.csv", SEARCH)
    run_grid(some_variants(), store, progress=False)
    return store


def test_rows(undisturbed):
    rows = undisturbed.rows()
    assert len(rows) == len(some_variants()) and (rows["error"] == "").all() and (rows["negative_rate"] == 0).all()
    not_of_a_tree = ["error", "settings", "direction_prior_wrong", "filtered_mrr", "label_auc",
                     "label_average_precision"]
    assert rows.drop(columns=not_of_a_tree).notna().all(axis=None)
    main_row = fit_and_evaluate(Task("toy", "role_bregman", 0, train=FAST))
    base = rows[rows["config"] == main_row["config"]].iloc[0]
    assert all(base[name] == main_row[name] for name in (*KEY, *PANEL_METRICS, "mrr", "gap_mean", "parameters"))


def test_the_same_rows_from_two_processes(undisturbed, tmp_path):
    store = Store(tmp_path / "rows.csv", SEARCH)
    run_grid(some_variants()[:3], store, progress=False)
    first = store.path.read_bytes()
    run_grid(some_variants(), store, jobs=2, progress=False)
    assert store.path.read_bytes().startswith(first)
    ours, theirs = (s.rows().sort_values(KEY, ignore_index=True).drop(columns=CHANGING) for s in (store, undisturbed))
    pd.testing.assert_frame_equal(ours, theirs, check_exact=True)
    before = store.path.read_bytes()
    run_grid(some_variants(), store, progress=False)
    assert store.path.read_bytes() == before


def test_a_failure_is_a_row_and_is_retried_on_request(tmp_path):
    failing = Variant("toy", "role_bregman", 0, train=dict(FAST, lr=1e30), panel="inputs", variant="raw")
    store = Store(tmp_path / "rows.csv", SEARCH)
    run_grid([failing], store, progress=False)
    assert "FloatingPointError" in store.rows()["error"][0] and not len(ablation_rows(store.path))
    before = store.path.stat().st_size
    run_grid([failing], store, progress=False)
    assert store.path.stat().st_size == before
    run_grid([failing], store, retry=True, progress=False)
    assert store.path.stat().st_size > before


def test_the_command_in_a_process_of_its_own(tmp_path):
    command = [sys.executable, "-m", "rolebregman", *"study ablations --panel activation --datasets toy".split(),
               *"--seeds 1 --jobs 1 --chosen none.json --out".split(), str(tmp_path)]
    quiet = os.environ | {"TQDM_DISABLE": "1"}
    run = subprocess.run(command, capture_output=True, text=True, timeout=120, env=quiet)
    assert run.returncode == 0, run.stderr
    again = CliRunner().invoke(app, command[3:])
    for said, done in ((run.stdout, 0), (again.output, 2)):
        assert f"toy: 2 fits, {done} of them done before" in said and "2 rows in" in said
    assert ablation_rows(tmp_path / "ablations.csv")["variant"].tolist() in (["base", "softplus"], ["softplus", "base"])


def test_what_the_command_does_not_know(capsys):
    for wrong in (dict(panel="colour"), dict(panel="maps", datasets=["gone"])):
        with pytest.raises(ValueError, match="expected some of"):
            run_ablations(**wrong)
    assert not capsys.readouterr().out


def committed():
    files = dict(ablation_projection=["projection"], ablation_direction_weight=["direction_weight"],
                 ablations=OUR_PANELS)
    return [(name, panels) for name, panels in files.items() if (results / f"{name}.csv").exists()]


@pytest.mark.parametrize("name, panels", committed())
def test_committed_rows(name, panels):
    rows = Store(results / f"{name}.csv", SEARCH).rows()
    fine = ablation_rows(results / f"{name}.csv")
    assert (fine["negative_rate"] == 0).all() and set(rows["scale"]) == {"paper"}
    assert set(fine["panel"]) <= {"base", *panels}
    assert all(variant in PANELS[panel] for panel, variant in zip(fine["panel"], fine["variant"]) if panel != "base")


@pytest.mark.parametrize("name, panels", committed())
def test_committed_rows_are_those_of_the_plan(name, panels):
    "Every variant for each seed, but for amounts of training pairs that a dataset does not have"
    store = Store(results / f"{name}.csv", SEARCH)
    for dataset, some in store.rows().groupby("dataset"):
        own = panels if name != "ablations" else dataset_panels(dataset)
        plan = {task.key: task for panel in own
                for task in panel_tasks(panel, dataset, some["seed"].nunique(), results / "chosen.json")}
        keys = {key for key in store.keys(failed=False) if key[0] == dataset}
        assert keys <= set(plan) and all("edges" in plan[key].change for key in set(plan) - keys)


def test_committed_bases_are_the_rows_of_the_main_study():
    theirs = Store(results / "main.csv", COLUMNS).rows()
    for name, _ in committed():
        base = ablation_rows(results / f"{name}.csv").query("panel == 'base'")
        both = base.merge(theirs, on=KEY)
        near = np.where(both["head"] == "mlp", 0.05, 1e-3)  # another processor rounds otherwise; mlp makes more of it
        near = np.where(both["versions_x"] == both["versions_y"], 1e-9, near)
        for metric in PANEL_METRICS: assert ((both[f"{metric}_x"] - both[f"{metric}_y"]).abs() <= near).all()
