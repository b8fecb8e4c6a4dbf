"""The tests of a study: against SciPy and published figures, and their errors and power in simulated studies."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import special, stats

from parity.common.base.errors import SpecError
from parity.common.study.curves import compare_curves
from parity.common.study.decision import decide
from parity.common.study.equivalence import Margin, beside, holm, rank_tests, saving, t_tests
from parity.common.study.power import Spread, draw, formula, power_of, seeds_for, seeds_to_differ
from parity.common.study.question import looks_of
from parity.common.study.sequential import levels, spent, study_p_value
from parity_tests.tables.study import CASES, Case, at_most, errors_of, power_rows

HALF = Margin(kind="absolute", value=0.5)


def seeds(count: int, difference: float = 0.0, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Figures of two arms that share most of what a seed brings."""
    return tuple(
        each[0] for each in draw(Spread(10, 1, 1, 0.8), difference, (1, count), np.random.default_rng(seed))
    )


@pytest.mark.parametrize("paired", [True, False])
def test_t_tests_are_scipys(paired: bool) -> None:
    a, b = seeds(9, 0.3)
    found = t_tests(a, b, HALF, paired)
    test = stats.ttest_rel if paired else (lambda x, y, **k: stats.ttest_ind(x, y, equal_var=False, **k))
    assert found.difference == pytest.approx(test(b, a).pvalue)
    assert found.above == pytest.approx(test(b + 0.5, a, alternative="greater").pvalue)
    assert found.below == pytest.approx(test(b - 0.5, a, alternative="less").pvalue)
    assert found.equivalence == max(found.above, found.below)
    ends = test(b, a).confidence_interval(0.9)
    assert found.interval(0.05) == pytest.approx((ends.low, ends.high))


def test_a_relative_margin_moves_with_the_reference() -> None:
    a, b = seeds(9, 0.3)
    found = t_tests(a, b, Margin.of("5%"), True)
    assert found.below == pytest.approx(stats.ttest_rel(b, 1.05 * a, alternative="less").pvalue)
    assert found.above == pytest.approx(stats.ttest_rel(b, 0.95 * a, alternative="greater").pvalue)
    # Of a figure below 0 the margin is as wide on either side.
    mirrored = t_tests(-a, -b, Margin.of("5%"), True)
    assert (mirrored.above, mirrored.below) == pytest.approx((found.below, found.above))


def test_a_margin_in_standard_deviations_is_the_jackknifes() -> None:
    a, _ = seeds(7)
    values = Margin.of("2sd").of_seeds(a)
    whole = a.std(ddof=1)
    left = [np.delete(a, place).std(ddof=1) for place in range(7)]
    assert values == pytest.approx([2 * (7 * whole - 6 * each) for each in left])
    # It is known less well than a number: the same width, given as one, is shown sooner.
    many = draw(Spread(0, 1, 1, 0.99), 0.0, (2000, 6), np.random.default_rng(1))
    number, of_seeds = (
        decide(*many, m, (6,), 0.05, True).equivalent.mean() for m in (HALF, Margin.of("0.5sd"))
    )
    assert of_seeds < number - 0.1


def test_equal_seeds_are_equivalent_and_not_different() -> None:
    a, _ = seeds(5)
    found = t_tests(a, a.copy(), HALF, True)
    assert (found.equivalence, found.difference) == (0, 1)
    assert t_tests(np.ones(5), np.ones(5), HALF, False).difference == 1
    moved = t_tests(np.zeros(5), np.full(5, 0.75), HALF, True)
    assert (moved.equivalence, moved.difference) == (1, 0)


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [("0.2", "absolute", 0.2), ("2%", "relative", 0.02), ("0.5sd", "sd", 0.5), ("1e-3", "absolute", 0.001)],
)
def test_margins_as_they_are_typed(text: str, kind: str, value: float) -> None:
    margin = Margin.of(text)
    assert (margin.kind, margin.value) == (kind, pytest.approx(value))
    assert Margin.of(margin.text) == margin


@pytest.mark.parametrize("text", ["", "0", "-1", "two", "2 sd x", "inf", "nan", "1%%", "e", "%"])
def test_what_is_no_margin(text: str) -> None:
    with pytest.raises(SpecError, match="expected a number above 0"):
        Margin.of(text)


def test_boundaries_are_those_of_the_literature() -> None:
    """Five equal looks: Lan and DeMets's own program, as in Jennison and Turnbull 2000 and in R's ldbounds."""
    shares = (0.2, 0.4, 0.6, 0.8, 1.0)
    published = [4.8769, 3.3569, 2.6803, 2.2898, 2.0310]
    for alpha, sides in ((0.05, 2), (0.025, 1)):
        found = levels(shares, alpha, sides)
        assert [-special.ndtri(level / sides) for level in found] == pytest.approx(published, abs=2e-4)
    assert levels((1.0,), 0.05, 2) == pytest.approx((0.05,))
    assert spent(1.0, 0.05, 1) == pytest.approx(0.05) and spent(0.0, 0.05, 1) == 0
    # Bonferroni's would be a fifth of it at each look.
    assert sum(levels(shares, 0.05, 2)) > 0.05


def test_the_p_value_of_a_study_crosses_where_its_boundary_does() -> None:
    shares = (0.4, 0.7, 1.0)
    bounds = levels(shares, 0.05, 1)
    for place in range(3):
        p = [0.9, 0.9, 0.9]
        p[place] = bounds[place] * 0.999
        assert study_p_value(shares, p, 1) <= 0.05
        p[place] = bounds[place] * 1.1
        assert study_p_value(shares, p, 1) > 0.05
    assert study_p_value((1.0,), (0.0321,), 2) == 0.0321
    assert study_p_value(shares, (0.9, 0.9, 0.9), 1) == 1.0


def test_holm() -> None:
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.9, 0.8]) == [1.0, 1.0]


@pytest.mark.parametrize("paired", [True, False])
def test_other_methods_beside(paired: bool) -> None:
    a, b = seeds(12, 0.1)
    found = beside(a, b, HALF, paired, 0.05)
    if paired:
        expected = stats.wilcoxon(b - a).pvalue, stats.wilcoxon(b - a - 0.5, alternative="less").pvalue
    else:
        expected = stats.mannwhitneyu(b, a).pvalue, stats.mannwhitneyu(b - 0.5, a, alternative="less").pvalue
    assert found.rank_difference == pytest.approx(expected[0])
    assert found.rank_equivalence >= expected[1]
    low, high = found.bootstrap
    assert low < (b - a).mean() < high
    t_low, t_high = t_tests(a, b, HALF, paired).interval(0.05)
    assert high - low == pytest.approx(t_high - t_low, rel=0.4)


def test_a_run_that_is_lost_is_the_worst_of_all_ranks() -> None:
    a, _ = seeds(8)
    b = a + 0.1 * np.array([1, -1, 2, -2, 3, -3, 4, -4])
    lost = b.copy()
    lost[1:7] = np.inf
    _, before = rank_tests(a, b, 0.5, True)
    equivalent, after = rank_tests(a, lost, 0.5, True)
    assert after < before and equivalent > 0.05
    # A seed that is lost in both arms is no difference.
    both = a.copy()
    both[1:7] = np.inf
    assert rank_tests(both, lost, 0.5, True)[1] > 0.4
    assert rank_tests(a, lost, 0.5, False)[1] < 1
    assert rank_tests(a, lost, float("nan"), True)[0] == 1


def test_what_pairing_saves() -> None:
    a, b = draw(Spread(0, 1, 1, 0.9), 0.0, (400, 30), np.random.default_rng(2))
    found = [saving(x, y) for x, y in zip(a, b, strict=True)]
    # (1 + 1) / (2 - 2 0.9)
    assert np.median([each.factor for each in found]) == pytest.approx(10, rel=0.1)
    covered = np.mean([each.low <= 10 <= each.high for each in found])
    assert 0.91 < covered < 0.99
    assert saving(a[0], a[0]).factor == np.inf
    unrelated = saving(a[0], b[1])
    assert unrelated.low < 1 < unrelated.high


def test_curves_need_every_point() -> None:
    random = np.random.default_rng(3)
    a = random.standard_normal((10, 20)).cumsum(1) + 50
    b = a + 0.05 * random.standard_normal((10, 20))
    fine = compare_curves(a, b, HALF, True)
    assert fine.equivalence < 0.01 and fine.difference > 0.05
    apart = b.copy()
    apart[:, 7] += 0.75
    wrong = compare_curves(a, apart, HALF, True)
    assert wrong.equivalence > 0.9 and wrong.difference < 0.01
    assert compare_curves(a, apart, HALF, False).difference > wrong.difference


@pytest.mark.parametrize("paired", [True, False])
@pytest.mark.parametrize("text", ["0.5", "5%", "0.5sd"])
def test_power_is_as_planned(text: str, paired: bool) -> None:
    """At the seeds that are planned, in studies that were not used to plan them: within 3 points."""
    margin, spread = Margin.of(text), Spread(10, 1, 1, 0.9 if paired else 0.0)
    if not paired:
        margin = margin.model_copy(update={"value": 1.5 * margin.value})
    for wanted in (0.8, 0.9):
        planned = seeds_for(spread, margin, wanted, 0.05, paired)
        assert planned is not None
        looks = looks_of(planned)
        a, b = draw(spread, 0.0, (4000, planned), np.random.default_rng(5))
        reached = float(decide(a, b, margin, looks, 0.05, paired).equivalent.mean())
        fewer = float(
            decide(a[:, :-3], b[:, :-3], margin, looks_of(planned - 3), 0.05, paired).equivalent.mean()
        )
        assert wanted - 0.03 < reached < wanted + 0.06, (planned, reached)
        assert fewer < reached
        assert formula(spread, margin, planned, 0.05, paired) == pytest.approx(reached, abs=0.04)


def test_seeds_to_show_a_difference() -> None:
    spread = Spread(10, 1, 1, 0.8)
    planned = seeds_to_differ(spread, 0.8, 0.05, True, 0.5)
    assert planned is not None
    found = power_of(spread, Margin.of("0.1"), (planned,), 0.05, True, 0.5)
    assert 0.77 < found.different < 0.87
    assert seeds_to_differ(spread, 0.8, 0.05, True, 0.0) is None
    assert seeds_for(spread, Margin.of("1e-6"), 0.8, 0.05, True) is None
    # More spread of the difference needs more seeds; of what both share it needs none.
    assert Spread(10, 1, 1, 0.8).times(2, True).reference == 1
    first, second = (seeds_for(each, HALF, 0.8, 0.05, True) for each in (spread, spread.times(2, True)))
    assert first is not None and second is not None and 3 < second / first < 5


QUICK = [case for case in CASES if case.quick]


@pytest.mark.parametrize("case", QUICK, ids=str)
def test_errors_of_simulated_studies(case: Case) -> None:
    """A part of docs/evidence/study_errors.md: neither error is above 5 %, as far as so many studies can tell."""
    found = errors_of(case, 2500)
    assert at_most(found.at_upper_margin, 2500) and at_most(found.at_lower_margin, 2500), found
    assert at_most(found.different, 2500) and at_most(found.shown, 2500), found


def test_errors_of_too_bold_a_rule_are_seen() -> None:
    """The control: looks that each take all of the error, and a margin a tenth too wide, are found out."""
    a, b = draw(Spread(10, 1, 1, 0.8), 0.5, (2500, 20), np.random.default_rng(6))
    eager = np.any([t_tests(a[:, :n], b[:, :n], HALF, True).equivalence < 0.05 for n in range(4, 21)], axis=0)
    assert not at_most(float(eager.mean()), 2500)
    wide = decide(a, b, Margin.of("0.6"), (20,), 0.05, True)
    assert not at_most(float(wide.equivalent.mean()), 2500)
    skewed = next(case for case in CASES if case.noise == "of one arm")
    assert not at_most(errors_of(skewed, 2500).at_upper_margin, 2500), "one-sided t-tests are known to be"


@pytest.mark.slow
def test_errors_and_power_of_all_designs() -> None:
    """10,000 studies of each: what docs/evidence/study_errors.md shows."""
    for case in CASES:
        found = errors_of(case, 10_000)
        if case.noise != "of one arm":
            assert at_most(max(found), 10_000), (case, found)
    for row in power_rows(10_000):
        assert abs(row.reached - row.wanted) < 0.03 or row.reached > row.wanted, row
