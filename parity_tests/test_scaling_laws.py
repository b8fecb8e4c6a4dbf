"""The laws against independent referees: their closed forms, scipy's fits, and data drawn from them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import optimize

from parity.common.scaling.laws import (
    Speedups,
    amdahl,
    fit_laws,
    gustafson,
    karp_flatt,
    scaled_serial_fraction,
    serial_fraction,
    universal,
)
from parity.common.scaling.result import Interval, LawFit, Mode

SOME = settings(max_examples=40, deadline=None)
fractions = st.floats(0, 1)
counts = st.integers(2, 1024)


def fits(
    replicas: tuple[int, ...], speedups: Any, mode: Mode = "strong", noise: float = 0.0, rounds: int = 5
) -> dict[str, LawFit]:
    """The laws fitted to some speedups, whose bootstrap draws differ by some noise."""
    medians = np.array(speedups, float)
    draws = medians * (1 + noise * np.random.default_rng(0).standard_normal((300, len(medians))))
    found = fit_laws(Speedups("torch", "ddp", mode, rounds, replicas, medians, draws))
    return {fit.law: fit for fit in found}


@given(counts, fractions)
@SOME
def test_the_serial_fraction_inverts_the_laws(replicas: int, serial: float) -> None:
    assert karp_flatt(amdahl(replicas, serial), replicas) == pytest.approx(serial, abs=1e-9)
    assert scaled_serial_fraction(gustafson(replicas, serial), replicas) == pytest.approx(serial, abs=1e-9)


@given(counts)
@SOME
def test_perfect_scaling_has_no_serial_fraction(replicas: int) -> None:
    assert karp_flatt(replicas, replicas) == pytest.approx(0, abs=1e-12)
    assert scaled_serial_fraction(replicas, replicas) == 0
    assert karp_flatt(1, replicas) == pytest.approx(1)
    assert universal(replicas, 0, 0) == replicas
    assert karp_flatt(1.1 * replicas, replicas) < 0, "more than perfect is negative, not hidden"


def test_karp_and_flatts_own_example() -> None:
    # Their first table: a speedup of 1.95 on 2, 3.88 on 4 and 7.61 on 8 processors.
    for replicas, speedup, expected in ((2, 1.95, 0.026), (4, 3.88, 0.010), (8, 7.61, 0.007)):
        assert karp_flatt(speedup, replicas) == pytest.approx(expected, abs=6e-4)


@given(st.integers(2, 512), fractions, st.floats(0, 0.1))
@SOME
def test_without_coherency_the_universal_law_is_amdahls(replicas: int, sigma: float, kappa: float) -> None:
    assert universal(replicas, sigma, 0) == pytest.approx(amdahl(replicas, sigma))
    assert universal(replicas, sigma, kappa) <= amdahl(replicas, sigma) * (1 + 1e-12)


def test_the_interval_of_the_serial_fraction_is_the_right_way_round() -> None:
    fraction = serial_fraction(Interval(1.8, 1.7, 1.9), 2, "strong")
    assert fraction is not None
    assert fraction.low < fraction.median < fraction.high
    assert fraction.median == pytest.approx(1 / 9)
    assert serial_fraction(Interval(1, 1, 1), 1, "strong") is None


# --- fits ---


@given(st.floats(0, 0.5))
@SOME
def test_amdahls_law_is_recovered(serial: float) -> None:
    replicas = (2, 4, 8)
    fit = fits(replicas, [amdahl(n, serial) for n in replicas])["Amdahl"]
    assert fit.parameters["serial"].median == pytest.approx(serial, abs=1e-9)
    assert fit.rms < 1e-9 and not fit.why_not
    assert 1 / fit.limit == pytest.approx(serial, abs=1e-9)


@given(st.floats(0, 0.3), st.floats(0, 0.02))
@SOME
def test_the_universal_law_is_recovered(sigma: float, kappa: float) -> None:
    replicas = (2, 4, 8, 16, 32)
    fit = fits(replicas, [universal(n, sigma, kappa) for n in replicas])["Universal Scalability Law"]
    found = [fit.parameters[name].median for name in ("sigma", "kappa")]
    assert found == pytest.approx([sigma, kappa], abs=1e-7)
    assert [r.replicas for r in fit.residuals] == list(replicas)


@given(st.floats(0, 1))
@SOME
def test_gustafsons_law_is_recovered(serial: float) -> None:
    fit = fits((2, 4, 8), [gustafson(n, serial) for n in (2, 4, 8)], "weak")
    assert set(fit) == {"Gustafson", "Universal Scalability Law"}
    assert fit["Gustafson"].parameters["serial"].median == pytest.approx(serial, abs=1e-9)


def noisy(replicas: tuple[int, ...], seed: int) -> NDArray[np.float64]:
    truth = np.array([universal(n, 0.08, 0.002) for n in replicas])
    return truth * (1 + 0.03 * np.random.default_rng(seed).standard_normal(len(replicas)))


@pytest.mark.parametrize("seed", range(4))
def test_fits_are_scipys(seed: int) -> None:
    replicas = (2, 4, 8, 16, 32)
    p = np.array(replicas, float)
    measured = noisy(replicas, seed)
    ours = fits(replicas, measured)

    def referee(law: Any, count: int) -> NDArray[np.float64]:
        # The step time over the single replica's, with relative errors.
        found, _ = optimize.curve_fit(
            lambda n, *a: 1 / law(n, *a), p, 1 / measured, [0.01] * count, 1 / measured, bounds=(0, 1)
        )
        return np.asarray(found)

    assert ours["Amdahl"].parameters["serial"].median == pytest.approx(referee(amdahl, 1)[0], rel=1e-4)
    found = [ours["Universal Scalability Law"].parameters[name].median for name in ("sigma", "kappa")]
    assert found == pytest.approx(referee(universal, 2), rel=1e-3, abs=1e-6)


def test_parameters_are_not_negative() -> None:
    # Faster than perfect, and a curve that bends the other way.
    for speedups in ([2.2, 4.4, 8.8], [1.5, 3.4, 7.9]):
        found = fits((2, 4, 8), speedups)
        values = [interval for fit in found.values() for interval in fit.parameters.values()]
        assert all(value.low >= 0 and value.median >= 0 for value in values)
        assert found["Amdahl"].rms > 0.05, "what does not fit shows"
    p, measured = np.array([2.0, 4, 8]), np.array([1.5, 3.4, 7.9])
    rows = np.stack([measured / p * (p - 1), measured * (p - 1)], 1)
    expected = optimize.lsq_linear(rows, 1 - measured / p, (0, np.inf), tol=1e-14).x
    universals = fits((2, 4, 8), measured)["Universal Scalability Law"].parameters
    assert [universals["sigma"].median, universals["kappa"].median] == pytest.approx(expected, abs=1e-9)


def test_intervals_follow_the_draws_and_the_rounds() -> None:
    replicas = (2, 4, 8)
    truth = [amdahl(n, 0.1) for n in replicas]
    exact, quiet, loud = (
        fits(replicas, truth, noise=noise)["Amdahl"].parameters["serial"] for noise in (0, 0.01, 0.03)
    )
    assert exact.low == pytest.approx(exact.high)
    assert quiet.low < 0.1 < quiet.high
    assert loud.high - loud.low == pytest.approx(3 * (quiet.high - quiet.low), rel=0.2)
    few = fits(replicas, truth, noise=0.01, rounds=3)["Amdahl"].parameters["serial"]
    assert few.high - few.low > 1.3 * (quiet.high - quiet.low)


def test_too_few_points_say_so() -> None:
    one = fits((2,), [1.8])
    assert "2 replica counts beyond 1" in one["Amdahl"].why_not and "there are 1 (2)" in one["Amdahl"].why_not
    two = fits((2, 4), [1.8, 3.2])
    assert not two["Amdahl"].why_not
    assert "3 replica counts" in two["Universal Scalability Law"].why_not


def test_the_limits_of_the_laws() -> None:
    # Gunther's largest speedup is at sqrt((1 - sigma) / kappa).
    fit = fits((2, 4, 8, 16), [universal(n, 0.05, 0.01) for n in (2, 4, 8, 16)])["Universal Scalability Law"]
    best = max(universal(n / 100, 0.05, 0.01) for n in range(100, 3000))
    assert fit.limit == pytest.approx(best, rel=1e-4)
    straight = fits((2, 4), [2, 4])["Amdahl"]
    assert straight.limit == math.inf
