"""The bootstrap against formulas, coverage and exact small cases; Holm, Nemenyi and Friedman against printed ones."""
import itertools

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binom, chi2

from rolebregman.study import (
    MARGIN,
    RankTest,
    Shares,
    Store,
    Task,
    bootstrap_differences,
    bootstrap_together,
    critical_difference,
    difference_line,
    head_shares,
    hierarchical_bootstrap,
    holm,
    mean_table,
    rank_figure,
    rank_finding,
    rank_test,
    run_grid,
    verdicts,
)


def shares(*tables, crossed):
    "Shares of heads 0, 1, ... from tables (k, m), one for each seed"
    heads = tuple(f"head {k}" for k in range(len(tables[0])))
    return Shares(heads, tuple(range(len(tables))), tuple(map(np.asarray, tables)), crossed)


def outcomes(directions, hashes=None, dataset="d"):
    "Lines of `Store.pairs` from head -> list over seeds of directions"
    return pd.DataFrame([
        dict(dataset=dataset, head=head, seed=seed, pairs=hashes[seed] if hashes else "all", candidates=100,
             rank=np.ones(len(row)), direction=np.asarray(row, float))
        for head, rows in directions.items() for seed, row in enumerate(rows)])


def noise(seed, S=10, P=200, of_seed=0.0, of_pair=0.0, of_cell=1.0, crossed=True):
    "Differences without any difference: a table (2, P) for each seed, the second head at zero"
    draw = np.random.default_rng(seed)
    pair, tables = draw.normal(0, of_pair, P), []
    for _ in range(S):
        if not crossed: pair = draw.normal(0, of_pair, P)
        row = draw.normal(0, of_seed) + pair + draw.normal(0, of_cell, P)
        tables.append(np.stack([row, np.zeros(P)]))
    return shares(*tables, crossed=crossed)


def variance(of):
    "What the draws' variance is, by formula: seeds drawn S - 1 times, pairs P times"
    d = [table[0] - table[1] for table in of.tables]
    S, own = len(d), np.array([row.mean() for row in d])
    first = ((own - own.mean()) ** 2).sum() / (S * (S - 1))
    if not of.crossed: return first + sum(row.var() / len(row) for row in d) / (S * (S - 1))
    d = np.stack(d)
    rest = d - d.mean(1, keepdims=True) - d.mean(0) + d.mean()
    return first + d.mean(0).var() / d.shape[1] + (rest**2).sum() / (S * (S - 1) * d.shape[1] ** 2)


SIZES = [dict(of_pair=1.0), dict(of_seed=0.3), dict(of_seed=0.1, of_pair=0.5, of_cell=0.5),
         dict(S=3, P=40, of_pair=0.3)]


@pytest.mark.parametrize("crossed", [True, False])
@pytest.mark.parametrize("sizes", SIZES)
def test_the_spread_is_that_of_the_formula(crossed, sizes):
    of = noise(1, **sizes, crossed=crossed)
    drawn = hierarchical_bootstrap(of, 20_000) @ [1, -1]
    assert drawn.var() == pytest.approx(variance(of), rel=0.04)  # four standard errors of a variance of 20,000
    assert drawn.mean() == pytest.approx(of.means() @ [1, -1], abs=5 * (variance(of) / 20_000) ** 0.5)


def test_the_formulas_are_expectations_over_all_draws():
    "Two seeds, so one is drawn; three pairs, so there are 27 draws: every resample, counted out"
    d = np.array([[0.0, 1.0, 5.0], [2.0, 2.0, -3.0]])
    of = [np.stack([row, np.zeros(3)]) for row in d]
    every = [d[i, list(j)].mean() for i in range(2) for j in itertools.product(range(3), repeat=3)]
    for crossed in (True, False):
        assert np.var(every) == pytest.approx(variance(shares(*of, crossed=crossed)))


def test_seeds_alone_do_not_see_the_pairs_that_they_share():
    "One effect of each pair, the same for all seeds: its spread is sd / sqrt(P), over seeds it is nothing"
    pair = np.random.default_rng(0).normal(size=400)
    row = np.stack([pair, np.zeros(400)])
    crossed, nested = (hierarchical_bootstrap(shares(*[row] * 10, crossed=how)) @ [1, -1] for how in (True, False))
    assert crossed.std() == pytest.approx(pair.std() / 20, rel=0.04)
    assert nested.std() == pytest.approx(pair.std() / 20 / 3, rel=0.04)  # nine drawn seeds, each with pairs of its own


def test_pairs_of_no_variety_leave_the_seeds():
    values = np.arange(5.0)
    for crossed in (True, False):
        drawn = hierarchical_bootstrap(shares(*[np.full((1, 30), v) for v in values], crossed=crossed))[:, 0]
        assert drawn.var() == pytest.approx(values.var() / 4, rel=0.05)
        np.testing.assert_allclose(drawn * 4, np.round(drawn * 4), atol=1e-9)  # means of four of them


@pytest.mark.parametrize("crossed", [True, False])
@pytest.mark.parametrize("sizes", [dict(of_pair=1.0), dict(of_seed=0.3), dict()])
def test_coverage_of_the_interval_and_size_of_the_test(crossed, sizes):
    "200 studies without a difference: not more false findings than 5 % and what ten seeds cost allow"
    lines = [difference_line(hierarchical_bootstrap(of, 399) @ [1, -1], of.means() @ [1, -1])
             for of in (noise(seed, P=40, **sizes, crossed=crossed) for seed in range(200))]
    false = sum(line["low"] > 0 or line["high"] < 0 for line in lines)
    assert false <= binom.ppf(0.999, 200, 0.085)  # 8.5 % is P(|t| > 1.96) with nine degrees of freedom
    assert sum(line["p"] < 0.05 for line in lines) <= false


def test_power_where_there_is_a_difference():
    of = noise(0, of_seed=0.05, of_pair=0.5)
    moved = shares(*[table + [[0.3], [0.0]] for table in of.tables], crossed=True)
    line = difference_line(hierarchical_bootstrap(moved) @ [1, -1], moved.means() @ [1, -1])
    assert line["low"] > 0 and line["p"] < 0.001 and line["p_margin"] > 0.99


def test_direction_is_a_ratio_over_the_pairs_that_count():
    "Those that are annotated both ways change nothing but the number of draws: with them all the means stay the same"
    draw = np.random.default_rng(2)
    table = draw.random((3, 50)).round()
    for crossed in (True, False):
        wide = np.concatenate([table, np.full((3, 30), np.nan)], axis=1)
        of = shares(wide, wide, crossed=crossed)
        np.testing.assert_allclose(of.means(), table.mean(axis=1))
        drawn = hierarchical_bootstrap(of, 4000)
        assert drawn.min() >= 0 and drawn.max() <= 1
        np.testing.assert_allclose(drawn.mean(axis=0), table.mean(axis=1), atol=0.006)
        np.testing.assert_allclose(drawn.std(axis=0), (table.var(axis=1) / 50) ** 0.5, rtol=0.06)


def test_a_metric_that_is_one_everywhere_stays_one():
    of = shares(np.where(np.arange(60) % 3, 1.0, np.nan)[None], crossed=True)
    np.testing.assert_allclose(hierarchical_bootstrap(of, 200), 1)


def test_the_same_seed_gives_the_same_numbers_and_heads_do_not_disturb_each_other():
    draw = np.random.default_rng(3)
    tables = draw.random((5, 4, 60))
    for crossed in (True, False):
        of = shares(*tables, crossed=crossed)
        drawn = hierarchical_bootstrap(of, 700, seed=4)
        np.testing.assert_array_equal(drawn, hierarchical_bootstrap(of, 700, seed=4))
        assert not np.allclose(drawn, hierarchical_bootstrap(of, 700, seed=5))
        some = hierarchical_bootstrap(shares(*tables[:, [2, 0]], crossed=crossed), 700, seed=4)
        np.testing.assert_allclose(some, drawn[:, [2, 0]], atol=1e-12)


@pytest.mark.parametrize("crossed", [True, False])
def test_columns_that_are_drawn_together_are_those_that_are_drawn_alone(crossed):
    "Also where other pairs, and other heads, count in the second: the difference of two columns has the same draw"
    draw = np.random.default_rng(6)
    first, second = draw.random((5, 3, 60)), draw.random((5, 2, 60))
    second[:, :, ::2] = np.nan
    both = [shares(*tables, crossed=crossed) for tables in (first, second)]
    for one, drawn in zip(both, bootstrap_together(both, 700, seed=4), strict=True):
        np.testing.assert_allclose(drawn, hierarchical_bootstrap(one, 700, seed=4), rtol=1e-13)
    same, shifted = bootstrap_together([both[0], shares(*first + 0.25, crossed=crossed)], 700)
    np.testing.assert_allclose(shifted - same, 0.25, rtol=1e-12)
    with pytest.raises(ValueError, match="of different seeds or pairs"):
        bootstrap_together([both[0], shares(*second[1:], crossed=crossed)])


def test_others_beside_several_metrics_are_refused():
    with pytest.raises(TypeError, match="others= beside a dict of metrics"):
        bootstrap_differences(outcomes(dict(a=[[0] * 30], b=[[1] * 30])), "a", ["b"], dict(mrr=None))


def test_names_and_order_of_heads_mean_nothing():
    draw = np.random.default_rng(5)
    of = {name: list(draw.integers(0, 2, (4, 50))) for name in "abc"}
    lines = bootstrap_differences(outcomes(of), "a", resamples=500)
    names = dict(a="z", b="y", c="x")
    other = bootstrap_differences(outcomes({names[name]: of[name] for name in "cba"}), "z", resamples=500)
    other = other.assign(against=other["against"].map({new: old for old, new in names.items()}))
    pd.testing.assert_frame_equal(lines, other.sort_values("against", ignore_index=True), atol=1e-12)
    turned = bootstrap_differences(outcomes(of), "b", ["a"], resamples=500).iloc[0]
    assert (turned["p"], turned["p_margin"]) == (lines["p"][0], lines["p_margin"][0])
    assert turned["difference"] == pytest.approx(-lines["difference"][0])


def test_two_heads_that_are_one_tie_and_are_equivalent():
    rows = list(np.random.default_rng(6).integers(0, 2, (5, 60)))
    line = verdicts(bootstrap_differences(outcomes(dict(a=rows, b=rows)), "a")).iloc[0]
    assert (line["difference"], line["low"], line["high"], line["p"], line["verdict"]) == (0, 0, 0, 1, "equivalent")


def test_p_values_by_hand():
    "Of nine resamples two are at or below zero, eight at or above; eight below the margin, three at or above it"
    drawn = np.array([-0.5, 0.0, 0.1, 0.1, 0.1, 0.1, 0.2, 0.2, 0.3])
    line = difference_line(drawn, 0.1, margin=0.2)
    assert line["p"] == pytest.approx(2 * 3 / 10) and line["p_margin"] == pytest.approx(4 / 10)
    assert difference_line(-drawn, -0.1, margin=0.2)["p"] == line["p"]
    assert difference_line(np.zeros(9), 0.0)["p"] == 1 and difference_line(np.zeros(9), 0.0)["p_margin"] == 0.1
    assert difference_line(np.ones(99), 1.0)["p"] == 0.02, "never nought"


@pytest.mark.parametrize("value", [-0.02, 0.0, 0.004, 0.02])
def test_the_interval_and_the_p_value_say_the_same(value):
    for seed in range(20):
        drawn = np.random.default_rng(seed).normal(value, 0.01, 9999)
        line = difference_line(drawn, value)
        assert (line["p"] < 0.05) == (line["low"] > 0 or line["high"] < 0)
        assert (line["p_margin"] < 0.025) == (-MARGIN < line["low"] and line["high"] < MARGIN)


def test_crossed_and_nested_are_told_by_the_pairs():
    of = dict(a=[[1, 0] * 10] * 3, b=[[0, 1] * 10] * 3)
    assert head_shares(outcomes(of), "mrr").crossed and not head_shares(outcomes(of, "xyz"), "mrr").crossed
    with pytest.raises(ValueError, match="d: 3 seeds have 2 test sets"): head_shares(outcomes(of, "xyy"), "mrr")


def test_too_few_pairs_are_refused():
    of = dict(a=[[1] * 19 + [np.nan] * 40] * 3, b=[[1] * 19 + [np.nan] * 40] * 3)
    with pytest.raises(ValueError, match="only 19 pairs of a seed count"): bootstrap_differences(outcomes(of), "a")
    assert len(bootstrap_differences(outcomes(of), "a", metric="mrr", resamples=9)) == 1


def test_heads_are_compared_over_the_seeds_that_both_have():
    of = dict(a=[[1] * 30] * 4, b=[[0] * 30] * 4, c=[[0] * 30] * 2)
    lines = bootstrap_differences(outcomes(of), "a", resamples=50).set_index("against")
    assert lines["seeds"].to_dict() == dict(b=4, c=2) and (lines["difference"] == 1).all()


@pytest.mark.parametrize("S", [1, 2])
def test_one_seed_leaves_its_pairs(S):
    row = np.random.default_rng(0).integers(0, 2, 100)
    line = bootstrap_differences(outcomes(dict(a=[row] * S, b=[row * 0] * S)), "a").iloc[0]
    assert line["high"] - line["low"] == pytest.approx(2 * 1.96 * (row.var() / 100) ** 0.5, abs=0.02)


def test_means_are_those_of_the_rows(tmp_path):
    "The difference that is tested is the difference of the tables, to the last digits"
    store = Store(tmp_path / "rows.csv", outcomes=True)
    plan = [Task("toy", head, seed, train=dict(epochs=1)) for seed in (0, 1) for head in ("cosine", "order", "mlp")]
    rows = run_grid(plan, store, progress=False)
    for metric in ("ranking_accuracy", "direction_accuracy", "mrr"):
        table = mean_table(rows, metric)["toy"]
        lines = bootstrap_differences(store.pairs(), "mlp", metric=metric, resamples=20).set_index("against")
        for other in ("cosine", "order"):
            assert lines.loc[other, "difference"] == pytest.approx(table["mlp"] - table[other], abs=1e-12)
    assert not lines["crossed"].any()


def test_holm_on_the_textbook_example():
    "R's p.adjust(c(0.01, 0.02, 0.03, 0.04), 'holm') is 0.04 0.06 0.06 0.06; and in another order"
    np.testing.assert_allclose(holm([0.01, 0.02, 0.03, 0.04]), [0.04, 0.06, 0.06, 0.06])
    np.testing.assert_allclose(holm([0.03, 0.01, 0.04, 0.02]), [0.06, 0.04, 0.06, 0.06])
    np.testing.assert_allclose(holm([0.9, 0.5]), [1, 1])
    assert len(holm([])) == 0


def page(*lines):
    return pd.DataFrame(lines, columns=["difference", "p", "p_margin"])


def test_the_four_verdicts():
    found = verdicts(page((0.1, 0.0004, 1.0), (-0.1, 0.0004, 1.0), (0.001, 0.6, 0.0004), (0.02, 0.2, 0.8),
                          (0.003, 0.0004, 0.0004)))
    assert found["verdict"].tolist() == ["better", "worse", "equivalent", "open", "better"]


def test_a_page_of_many_questions_asks_more_of_each():
    one = page((0.1, 0.02, 1.0))
    assert verdicts(one)["verdict"][0] == "better"
    many = verdicts(pd.concat([one, *[page((0.0, 0.5, 1.0))] * 9], ignore_index=True))
    assert many["verdict"][0] == "open" and many["p_holm"][0] == pytest.approx(0.2)


def test_a_page_too_large_for_its_resamples_is_refused():
    lines = pd.concat([page((0.0, 0.5, 1.0))] * 250)
    with pytest.raises(ValueError, match="250 questions, 9,999 resamples"): verdicts(lines)
    assert len(verdicts(lines, resamples=99_999)) == 250


# Demsar 2006, table 5 (a): critical values of the two-tailed Nemenyi test after dividing by the square root of 2
DEMSAR = {0.05: [1.960, 2.343, 2.569, 2.728, 2.850, 2.949, 3.031, 3.102, 3.164],
          0.10: [1.645, 2.052, 2.291, 2.459, 2.589, 2.693, 2.780, 2.855, 2.920]}


@pytest.mark.parametrize("alpha", DEMSAR)
def test_nemenyis_critical_values_are_demsars(alpha):
    for heads, q in enumerate(DEMSAR[alpha], 2):
        got = critical_difference(heads, 6, alpha) / (heads * (heads + 1) / 36) ** 0.5
        assert got == pytest.approx(q, abs=0.0011), heads  # his are rounded; one of them down


def test_demsars_example():
    """Table 6: four versions of C4.5 on 14 datasets. He gives mean ranks, chi-squared 9.28, CD 1.25 at 0.05 and 1.12 at
    0.10, and at 0.10 pure C4.5 is worse than the two with m. (`voting`: 0.975 twice, but of ranks 2 and 3.)"""
    auc = np.array([
        [.763, .768, .771, .798], [.599, .591, .590, .569], [.954, .971, .968, .967], [.628, .661, .654, .657],
        [.882, .888, .886, .898], [.936, .931, .916, .931], [.661, .668, .609, .685], [.583, .583, .563, .625],
        [.775, .838, .866, .875], [1.0, 1.0, 1.0, 1.0], [.940, .962, .965, .962], [.619, .666, .614, .669],
        [.972, .981, .975, .9749], [.957, .978, .946, .970]])
    names = ["C4.5", "C4.5+m", "C4.5+cf", "C4.5+m+cf"]
    found = rank_test(pd.DataFrame(auc.T, index=names), alpha=0.10)
    assert found.ranks.round(3).to_dict() == {"C4.5": 3.143, "C4.5+m": 2.0, "C4.5+cf": 2.893, "C4.5+m+cf": 1.964}
    assert found.critical == pytest.approx(1.12, abs=0.005)
    assert critical_difference(4, 14) == pytest.approx(1.25, abs=0.006)
    squares = 12 * 14 / 20 * ((found.ranks**2).sum() - 4 * 25 / 4)
    assert squares == pytest.approx(9.28, abs=0.01) and found.p_value < chi2.sf(9.28, 3)  # ours takes ties into account
    assert isinstance(found, RankTest) and str(found).endswith("critical difference 1.12 ranks at 0.1")
    apart = {pair for pair in itertools.combinations(names, 2) if found.nemenyi.loc[pair] < 0.10}
    assert apart == {("C4.5", "C4.5+m"), ("C4.5", "C4.5+m+cf")}
    renamed = rank_test(pd.DataFrame(auc.T[::-1], index=list("dcba")), alpha=0.10)
    assert renamed.p_value == pytest.approx(found.p_value)
    assert sorted(renamed.ranks) == pytest.approx(sorted(found.ranks))


def test_friedman_holds_its_size_where_all_heads_are_alike():
    draw = np.random.default_rng(0)
    p = [rank_test(pd.DataFrame(draw.normal(size=(4, 12)))).p_value for _ in range(300)]
    assert sum(value < 0.05 for value in p) <= binom.ppf(0.999, 300, 0.05)


def test_a_gap_in_the_table_is_named():
    means = pd.DataFrame(np.eye(3), index=list("abc"), columns=list("xyz"))
    means.loc["b", "y"] = np.nan
    with pytest.raises(ValueError, match="rank_test: b has no value on y; leave it out"): rank_test(means)
    with pytest.raises(ValueError, match="2 heads on 3 datasets; expected at least 3 on 2"): rank_test(means[:2])


@pytest.mark.parametrize("rows, said", [
    ([[3, 3, 3], [2, 2, 1], [1, 1, 2]], "In x a has the best mean rank"),  # ranks 1, 2 1/3, 2 2/3
    ([[3, 2, 1], [2, 3, 1], [1, 1, 3]], "In x a and b share the best mean rank"),  # 11/6, 11/6, 7/3
    ([[3, 2, 1], [2, 1, 3], [1, 3, 2]], "In x a, b and c share the best mean rank")])  # 2 each
def test_a_best_mean_rank_that_is_shared_is_no_one_head_s(rows, said):
    found = rank_test(pd.DataFrame(rows, index=list("abc"), columns=list("xyz")))
    assert rank_finding(found, "x").split(";")[0] == said


def test_the_diagram_has_every_head_and_a_bar_for_those_alike():
    draw = np.random.default_rng(0)
    means = pd.DataFrame(draw.normal(0, 0.01, (4, 12)) + np.array([[0.0], [0.0], [1.0], [1.0]]), index=list("abcd"))
    figure = rank_figure(rank_test(means), "two and two")
    text = " ".join(part.get_text() for part in figure.axes[0].texts)
    assert all(name in text for name in "abcd") and figure.get_suptitle() == "two and two"
    bars = [line for line in figure.axes[0].lines if line.get_linewidth() == 2]
    assert len(bars) == 2
