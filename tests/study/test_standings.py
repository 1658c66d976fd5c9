"Where a head stands: verdicts from outcomes that are known, counted, named and drawn"
import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_rgb

from rolebregman.common import BLUE, ORANGE
from rolebregman.study import (
    CONTROL_METRICS,
    MAIN_METRICS,
    STANDING,
    Question,
    ask_all,
    enough_pairs,
    head_sizes,
    metric_words,
    run_standing,
    standing_counts,
    standing_figure,
    standing_findings,
    standings,
)
from rolebregman.study.standings import FEWEST

RIGHT = dict(ours=0.8, level=0.8, better=0.97, worse=0.4)  # chance that a head has a pair right


def outcomes(dataset, seeds=3, pairs=600, heads=RIGHT, kinds=True):
    "A line for each head and seed: all seeds have one test set, and a head's luck with a pair is that of all heads"
    lines = []
    for seed in range(seeds):
        draw = np.random.default_rng([seed, len(dataset)])
        luck, kind = draw.random(pairs), draw.integers(0, 4, pairs)
        for head, chance in heads.items():
            right = (luck < chance).astype(float)
            line = dict(dataset=dataset, head=head, seed=seed, scale="paper", config="c", pairs="p", candidates=100,
                        rank=np.where(right, 1.0, 51.0), direction=right)
            lines.append(line | dict(kind=kind.astype(float) if kinds else ""))
    return pd.DataFrame(lines)


@pytest.fixture(scope="module")
def lines():
    return ask_all(pd.concat([outcomes("one"), outcomes("other")]), Question("ours"))


def test_every_question_is_asked_once_and_answered_as_it_was_made(lines):
    assert len(lines) == 2 * len(STANDING) * 3 and not lines.duplicated(["dataset", "metric", "against"]).any()
    verdicts = lines.groupby("against")["verdict"].agg(set).to_dict()
    assert verdicts == {"level": {"equivalent"}, "better": {"worse"}, "worse": {"better"}}
    some = lines.query("dataset == 'one' and metric == 'direction_accuracy'").set_index("against")["difference"]
    assert some["level"] == 0 and some["better"] == pytest.approx(-0.17, abs=0.02)
    assert some["worse"] == pytest.approx(0.4, abs=0.03)


def test_one_correction_for_all_of_them():
    "Holm by hand: the smallest p times the number of questions, over datasets and columns alike"
    pairs = pd.concat([outcomes("one"), outcomes("other")])
    lines = ask_all(pairs, Question("ours", metrics=MAIN_METRICS))
    assert lines["p_holm"].min() == pytest.approx(lines["p"].min() * len(lines))
    alone = ask_all(pairs[pairs["dataset"] == "one"], Question("ours", ["worse"], MAIN_METRICS[:1]), resamples=9999)
    assert len(alone) == 1 and alone["p_holm"].item() == alone["p"].item()


def test_two_questions_are_one_family():
    pairs = outcomes("one")
    lines = ask_all(pairs, Question("ours", ["worse"], MAIN_METRICS), Question("worse", ["level"], MAIN_METRICS[:1]))
    assert lines[["head", "against"]].value_counts().to_dict() == {("ours", "worse"): 3, ("worse", "level"): 1}
    assert lines["p_holm"].min() == pytest.approx(4 * lines["p"].min())
    assert lines.query("head == 'worse'")["verdict"].tolist() == ["worse"]


def test_the_harder_columns_are_not_asked_of_heads_without_a_direction_nor_of_the_control():
    heads = dict(ours=0.8, order=0.7, cosine=0.5, direction_prior=0.6) | {"order, 5 apart": 0.7, "cosine, 5 apart": 0.5}
    lines = ask_all(outcomes("one", heads=heads), Question("ours"))
    asked = lines.groupby("metric")["against"].agg(list).to_dict()
    assert all(set(asked[name]) == set(heads) - {"ours"} for name in MAIN_METRICS)
    assert all(set(asked[name]) == {"order", "order, 5 apart"} for name in CONTROL_METRICS)


def test_the_answers_are_kept_to_the_last_digit_that_is_written(tmp_path, monkeypatch, capsys):
    pairs = pd.concat([outcomes("one"), outcomes("one", heads=dict(role_bregman=0.9, icnn_bregman=0.5))])
    monkeypatch.setattr(standings.Store, "pairs", lambda store: pairs)
    run_standing("rows.csv", tmp_path / "a.csv", "ours")
    lines = run_standing("rows.csv", tmp_path / "new" / "b.csv", "ours")
    assert (tmp_path / "a.csv").read_bytes() == (tmp_path / "new" / "b.csv").read_bytes()
    kept = pd.read_csv(tmp_path / "a.csv")
    assert set(kept["head"]) == {"ours", "role_bregman"} and kept["verdict"].tolist() == lines["verdict"].tolist()
    np.testing.assert_allclose(kept["difference"], lines["difference"], rtol=1e-5, atol=1e-9)
    assert kept.query("head == 'role_bregman'")["verdict"].tolist() == ["better"] * 3
    assert "ours is clearly better in" in capsys.readouterr().out


def test_parts_of_ours_are_asked_once_whether_the_head_is_one_of_them_or_not(tmp_path, monkeypatch):
    heads = dict(feature_bregman=0.9, directed_bregman=0.6, tversky=0.9)
    monkeypatch.setattr(standings.Store, "pairs", lambda store: outcomes("one", heads=heads))
    lines = run_standing("rows.csv", tmp_path / "a.csv", "tversky")
    own = lines[lines["head"] == "feature_bregman"].groupby("against")["verdict"].agg(list).to_dict()
    assert own == dict(directed_bregman=["better"] * 3, tversky=["equivalent"] * 3)
    again = run_standing("rows.csv", tmp_path / "b.csv")
    assert set(again["head"]) == {"feature_bregman"} and not again.duplicated(["against", "metric"]).any()


def test_as_many_resamples_as_the_questions_need():
    many = outcomes("one", 2, 40, {f"head{i}": 0.5 for i in range(230)} | dict(ours=0.5), kinds=False)
    question = Question("ours", metrics=MAIN_METRICS[:2])
    lines = ask_all(many, question)  # 460 differences: 9,999 resamples would be too few
    assert len(lines) == 460 and lines["p"].min() >= 2 / 36800
    with pytest.raises(ValueError, match="take more resamples"): ask_all(many, question, resamples=9999)


def test_a_column_without_pairs_enough_is_left_out():
    few = outcomes("few", pairs=FEWEST - 1)
    assert not enough_pairs(few, "mrr") and enough_pairs(outcomes("just", pairs=FEWEST), "mrr")
    assert not enough_pairs(outcomes("old", kinds=False), "direction_matched")
    some = outcomes("some", pairs=4 * FEWEST)  # half of them are matched, half of them are wrong
    some["kind"] = [np.where(np.arange(len(kind)) < FEWEST - 1, 1.0, 2.0) for kind in some["kind"]]
    lines = ask_all(pd.concat([some, outcomes("old", kinds=False)]), Question("ours", ["worse"]))
    asked = set(lines[["dataset", "metric"]].itertuples(index=False, name=None))
    assert asked == {(name, metric) for name in ("some", "old") for metric in MAIN_METRICS} | {
        ("some", "direction_prior_wrong")}


def test_a_head_without_outcomes_is_named(tmp_path, monkeypatch):
    pairs = outcomes("one")
    with pytest.raises(ValueError, match="no outcomes of gone; there are those of better, level, ours, worse"):
        ask_all(pairs, Question("ours", ["gone"]))
    monkeypatch.setattr(standings.Store, "pairs", lambda store: pairs)
    with pytest.raises(ValueError, match="no outcomes of gone"): run_standing("rows.csv", tmp_path / "a.csv", "gone")
    assert not list(tmp_path.iterdir())


def test_what_was_not_asked_is_said(lines):
    some = lines[(lines["dataset"] == "one") | (lines["metric"] != "direction_matched")]
    assert "Not asked, for fewer than 20 pairs count: direction, matched on other." in standing_findings(some, "ours")
    assert not any("Not asked" in said for said in standing_findings(lines, "ours"))


def test_counts_and_sentences(lines):
    counts = standing_counts(lines)
    assert list(counts.index) == ["better", "level", "worse"], "the hardest rival first"
    assert counts.loc["better", "worse"] == counts.loc["worse", "better"] == 2 * len(STANDING)
    first, *columns, last = standing_findings(lines, "ours")
    assert first == ("30 questions: ours is clearly better in 10, clearly worse in 10, equivalent within 0.01 in 10; 0 "
                     "are open.")
    assert [said.split(" clearly")[0] for said in columns] == [f"In {metric_words(name)}" for name in STANDING]
    assert all("one: better (+0.1" in said and "other: better (+0.1" in said for said in columns if "direction" in said)
    assert last == "It is clearly better on most questions than 1 of 3 heads; not than level (0%), better (0%)."


def test_no_head_that_is_better_is_said_so(lines):
    said = standing_findings(lines[lines["against"] == "worse"], "ours")
    assert all(part.endswith("clearly better than it are no heads.") for part in said[1:-1])
    assert said[-1].endswith("than 1 of 1 heads; not than none.")


def test_a_cell_has_the_colour_of_its_verdict_and_the_difference_in_hundredths(lines):
    figure = standing_figure(lines, "how ours stands")
    assert [ax.get_title().replace("\n", " ") for ax in figure.axes] == [metric_words(name) for name in STANDING]
    ax = figure.axes[1]
    heads = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    image = ax.images[0].get_array()
    for head, color in dict(better=ORANGE, worse=BLUE).items():
        np.testing.assert_allclose(image[heads.index(head), 0, :3], to_rgb(color))
    shown = {text.get_position(): text.get_text() for text in ax.texts}
    line = lines.query("dataset == 'one' and metric == 'direction_accuracy' and against == 'better'")
    assert shown[0, heads.index("better")] == f"{100 * line['difference'].item():+.1f}"


def test_sizes_are_those_of_the_rows():
    rows = pd.DataFrame([dict(dataset=dataset, head=head, seed=seed, error="", parameters=count, seconds=2.0 + seed)
                         for dataset, counts in dict(a=(10, 2000), b=(10, 3000)).items()
                         for head, count in zip(("small", "large"), counts) for seed in range(2)])
    rows.loc[1, "seconds"] = 1000.0  # of a machine that paused meanwhile
    table = head_sizes(rows.assign(error=["", "", "", "", "", "", "", "broke down"]))
    assert table["parameters"].to_dict() == dict(small="10", large="2,000 to 3,000")
    assert table["seconds"].to_dict() == dict(small=2.5, large=2.0)
