"""Warm-up, bootstrap intervals and the noise rule, on series whose truth is known."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats

from parity.common.scaling.result import Interval
from parity.common.scaling.statistics import (
    DRAWS,
    FEWEST_ROUNDS,
    LARGEST_WARM_UP,
    WIDEST,
    Rounds,
    Timing,
    block_length,
    conclude,
    find_warm_up,
    resampled_medians,
    small_sample_factor,
    widened,
)

Series = NDArray[np.float64]


def noise(steps: int, seed: int, share: float = 0.03) -> Series:
    """Steps of about 10 ms."""
    return 0.01 * (1 + share * np.random.default_rng(seed).standard_normal(steps))


def autoregression(steps: int, seed: int, r: float) -> Series:
    random = np.random.default_rng(seed)
    values = [0.0]
    for shock in random.standard_normal(steps - 1):
        values.append(r * values[-1] + math.sqrt(1 - r * r) * shock)
    return np.array(values)


def rounds_of(rates: dict[str, list[Series]]) -> Rounds:
    count = len(next(iter(rates.values())))
    return Rounds.of(
        [{name: Timing(r[n], 0, len(r[n]), True) for name, r in rates.items()} for n in range(count)]
    )


def noisy_rounds(rounds: int, between: float, within: float, seed: int) -> Rounds:
    """A configuration of 100 samples/s and one of 180: rounds and steps differ by these shares."""
    random = np.random.default_rng([7, seed])
    return rounds_of(
        {
            name: [
                rate
                * np.exp(
                    between / math.sqrt(2) * random.standard_normal() + within * random.standard_normal(24)
                )
                for _ in range(rounds)
            ]
            for name, rate in (("one", 100.0), ("two", 180.0))
        }
    )


# --- warm-up ---


@pytest.mark.parametrize("steps", [40, 200, 3000])
def test_a_steady_run_has_no_warm_up_to_speak_of(steps: int) -> None:
    found = [find_warm_up(noise(steps, seed)) for seed in range(20)]
    assert np.median([left_out for left_out, _ in found]) <= 0.05 * steps
    assert all(settled for _, settled in found)


@pytest.mark.parametrize(("steps", "slow"), [(40, 3), (40, 10), (200, 30), (3000, 600)])
def test_slow_steps_at_the_start_are_left_out(steps: int, slow: int) -> None:
    found = []
    for seed in range(10):
        series = noise(steps, seed)
        series[:slow] *= 2
        left_out, settled = find_warm_up(series)
        assert left_out >= slow and settled
        found.append(left_out)
    assert np.median(found) <= slow + 0.1 * steps, "what is slow, and little more"


def test_a_warm_up_that_fades_is_left_out_until_it_is_noise() -> None:
    for seed in range(10):
        series = noise(300, seed) * (1 + 2 * np.exp(-np.arange(300) / 15))
        left_out, settled = find_warm_up(series)
        # After 5 time constants 1.3 % are left, less than the noise.
        assert 40 <= left_out <= 110 and settled


def test_a_run_that_never_settles_says_so_and_keeps_half() -> None:
    for seed in range(10):
        drifting = noise(400, seed) * (1 + np.linspace(0, 1, 400))
        left_out, settled = find_warm_up(drifting)
        assert not settled
        assert left_out <= LARGEST_WARM_UP * 400
        late = noise(400, seed)
        late[:280] *= 3
        assert not find_warm_up(late)[1], "the warm-up is longer than may be left out"


def test_one_stall_is_not_the_end_of_a_warm_up() -> None:
    for seed in range(10):
        series = noise(200, seed)
        series[80] *= 50
        assert find_warm_up(series)[0] <= 20
    # The control: the same at the start is.
    series[0] *= 50
    assert 1 <= find_warm_up(series)[0] <= 20


@pytest.mark.parametrize("steps", [0, 1, 2, 3, 7])
def test_short_runs_keep_something(steps: int) -> None:
    left_out, _ = find_warm_up(noise(steps, 0))
    assert 0 <= left_out <= steps / 2


# --- the bootstrap ---


def test_the_bootstrap_of_independent_steps_is_scipys() -> None:
    values = noise(120, 3, 0.2)
    ours = np.quantile(resampled_medians(values, "a", 4000), [0.025, 0.975])
    random = np.random.default_rng(0)
    theirs = stats.bootstrap(
        (values,), np.median, method="percentile", n_resamples=4000, random_state=random, vectorized=True
    ).confidence_interval
    width = theirs.high - theirs.low
    assert block_length(values) <= 2
    assert ours == pytest.approx([theirs.low, theirs.high], abs=0.15 * width)


def test_blocks_are_as_long_as_the_memory_of_the_series() -> None:
    independent, sticky = (
        float(np.mean([block_length(autoregression(400, seed, r)) for seed in range(10)])) for r in (0.0, 0.8)
    )
    assert independent <= 2
    assert sticky == pytest.approx((6 * 0.64 / (1 - 0.64) ** 2 * 400) ** (1 / 3), rel=0.3)
    assert block_length(np.ones(50)) == 1
    assert block_length(np.arange(40.0)) <= 10, "at most a quarter of the series"


def test_blocks_see_the_noise_that_single_steps_do_not() -> None:
    values = 100 + 5 * autoregression(200, 4, 0.9)
    shuffled = np.random.default_rng(0).permutation(values)
    spread = [np.std(resampled_medians(v, "a")) for v in (values, shuffled)]
    assert spread[0] > 1.7 * spread[1]


def test_the_same_records_give_the_same_figures() -> None:
    first, second = (noisy_rounds(4, 0.02, 0.02, 1).ratio("two", "one") for _ in range(2))
    assert first == second
    assert first != noisy_rounds(4, 0.02, 0.02, 2).ratio("two", "one")


def test_coverage_is_near_nominal() -> None:
    """95 % intervals of simulated sessions hold the truth about as often; coarse, since sessions are few."""
    for rounds, between, within in ((3, 0.03, 0.01), (5, 0.03, 0.05), (5, 0.0, 0.05)):
        intervals = [noisy_rounds(rounds, between, within, seed).ratio("two", "one") for seed in range(40)]
        held = np.mean([i.low <= 1.8 <= i.high for i in intervals])
        assert held >= 0.85, (rounds, between, within, held)
        # Nor does an interval hold everything: it misses a ratio that is off by four deviations.
        off = 1.8 * math.exp(4 * math.hypot(between, within))
        assert np.mean([i.low <= off <= i.high for i in intervals]) < 0.6


def test_steps_alone_would_not_cover_what_rounds_differ_by() -> None:
    """The negative control of resampling rounds: steps of one round know nothing of the others."""
    held = 0
    for seed in range(30):
        (one, *_), (two, *_) = noisy_rounds(3, 0.05, 0.005, seed).resampled.values()
        low, high = np.quantile(two / one, [0.025, 0.975])
        held += low <= 1.8 <= high
    assert held < 15


# Student's 0.975 quantiles as statistical tables print them.
STUDENT = {1: 12.706, 2: 4.303, 4: 2.776, 5: 2.571, 6: 2.447, 9: 2.262, 30: 2.042}


@pytest.mark.parametrize("freedom", STUDENT)
def test_few_rounds_widen_by_students_quantile(freedom: int) -> None:
    rounds = freedom + 1
    expected = math.sqrt(rounds / freedom) * STUDENT[freedom] / 1.95996
    assert small_sample_factor(rounds) == pytest.approx(expected, rel=3e-4)
    assert small_sample_factor(rounds + 1) != pytest.approx(expected, rel=3e-4)


def test_a_single_round_is_not_widened() -> None:
    assert small_sample_factor(1) == 1.0


def test_few_rounds_widen_the_interval() -> None:
    draws = np.random.default_rng(0).lognormal(0, 0.01, DRAWS)
    widths = [i.high - i.low for i in (widened(1.0, draws, n) for n in (2, 3, 5, 20))]
    assert widths == sorted(widths, reverse=True)
    plain = widened(1.0, draws, 1)
    assert [plain.low, plain.high] == pytest.approx(np.quantile(draws, [0.025, 0.975]))
    assert small_sample_factor(3) == pytest.approx(math.sqrt(1.5) * 4.3027 / 1.96, rel=1e-3)


@given(st.floats(0.1, 10), st.floats(0.1, 10), st.integers(2, 6))
@settings(max_examples=15, deadline=None)
def test_steps_without_noise_have_no_width(first: float, second: float, rounds: int) -> None:
    found = rounds_of({"a": [np.full(12, first)] * rounds, "b": [np.full(12, second)] * rounds}).ratio(
        "b", "a"
    )
    assert [found.low, found.median, found.high] == pytest.approx([second / first] * 3, rel=1e-9)


# --- the rule ---


def test_noisy_sessions_are_called_noisy_and_quiet_ones_are_not() -> None:
    noisy = [conclude(noisy_rounds(5, 0.15, 0.05, s).ratio("two", "one"), 5) for s in range(20)]
    quiet = [conclude(noisy_rounds(5, 0.005, 0.02, s).ratio("two", "one"), 5) for s in range(20)]
    assert sum(word == "conclusive" for word, _ in noisy) <= 1
    assert sum(word == "conclusive" for word, _ in quiet) >= 19
    assert "rounds" in noisy[0][1] or "machine" in noisy[0][1]


def test_the_rule_is_as_it_says() -> None:
    for width, expected in ((WIDEST * 0.99, "conclusive"), (WIDEST * 1.01, "too noisy to conclude")):
        interval = Interval(2.0, 2.0 - width, 2.0 + width)
        assert conclude(interval, 5)[0] == expected
    sharp = Interval(2.0, 2.0, 2.0)
    assert conclude(sharp, FEWEST_ROUNDS)[0] == "conclusive"
    word, advice = conclude(sharp, FEWEST_ROUNDS - 1)
    assert word == "too noisy to conclude" and "more rounds" in advice
    # 1.9 times as wide as allowed: 1.9^2 times the rounds.
    assert "take about 19 rounds" in conclude(Interval(1.0, 0.91, 1.1), 5)[1]
    assert "leave the machine" in conclude(Interval(1.0, 0.1, 1.9), 5)[1]
    assert conclude(Interval(math.nan, math.nan, math.nan), 5)[0] == "too noisy to conclude"
