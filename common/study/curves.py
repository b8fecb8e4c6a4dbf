"""Training curves of two arms: bands of their difference, at each point and over all points together.

The band for all points takes its width from the largest of the points' t-values where the signs of the pairs, or the arms of
the seeds, are drawn at random (Westfall and Young 1993), so that what neighbouring points share is counted once.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from parity.common.study.equivalence import Margin, Numbers, Tested, t_tests

_DRAWS = 1999
_SEED = 20_240_717


@dataclass(frozen=True)
class Band:
    """Curves of two arms over seeds; arrays are float64 (points,).

    reference, candidate: means over the seeds, and standard deviations of a seed. difference: of the means, with the ends of a 90 % band at each point
    (`low`, `high`) and those of a band that holds at all points together (`lowest`, `highest`). margin: at each point.
    seeds: those whose curves are finite in both arms.
    """

    label: str
    middles: Numbers
    reference: Numbers
    candidate: Numbers
    reference_spread: Numbers
    candidate_spread: Numbers
    difference: Numbers
    low: Numbers
    high: Numbers
    lowest: Numbers
    highest: Numbers
    margin: Numbers
    seeds: int


@dataclass(frozen=True)
class CurveTest:
    """P-values of whole curves: of equivalence at every point, and of a difference at any."""

    equivalence: float
    difference: float
    tested: Tested
    margin: Numbers


def compare_curves(a: Numbers, b: Numbers, margin: Margin, paired: bool) -> CurveTest:
    """Return what tests say of curves a and b, float64 (seeds, points) each, all finite.

    That all points are equivalent needs each of them to be, and no correction (Berger 1982).
    """
    tested = t_tests(a.T, b.T, margin, paired)
    largest = float(np.abs(_t(tested.estimate, tested.error)).max(initial=0.0))
    drawn = _largest_t(a, b, paired)  # where there is no difference, signs and arms could be any
    difference = (1 + int((drawn >= largest).sum())) / (1 + len(drawn)) if largest > 0 else 1.0
    return CurveTest(float(tested.equivalence.max()), difference, tested, margin.of_seeds(a.T).mean(-1))


def band_of(
    label: str, middles: Numbers, a: Numbers, b: Numbers, margin: Margin, paired: bool, outside: float
) -> Band | None:
    """Return the bands of curves, float64 (seeds, points) each; None where fewer than 3 seeds have finite ones."""
    fine = [np.isfinite(each).all(1) for each in (a, b)]
    if paired:
        fine = [fine[0] & fine[1]] * 2
    a, b = a[fine[0]], b[fine[1]]
    if min(len(a), len(b)) < 3:
        return None
    found = compare_curves(a, b, margin, paired)
    estimate, error = found.tested.estimate, found.tested.error
    low, high = found.tested.interval(outside)
    drawn = float(np.quantile(_largest_t(a - a.mean(0), b - b.mean(0), paired), 1 - 2 * outside))
    reach = np.maximum(drawn * error, (high - low) / 2)
    return Band(
        label,
        middles,
        a.mean(0),
        b.mean(0),
        a.std(0, ddof=1),
        b.std(0, ddof=1),
        estimate,
        low,
        high,
        estimate - reach,
        estimate + reach,
        found.margin,
        len(a),
    )


def _t(estimate: Numbers, error: Numbers) -> Numbers:
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.nan_to_num(estimate / error, nan=0.0, posinf=0.0, neginf=0.0)


def _largest_t(a: Numbers, b: Numbers, paired: bool) -> Numbers:
    """The largest absolute t-value of all points, (draws,), where chance alone decides on signs or arms."""
    random = np.random.default_rng(_SEED)
    if paired:
        d, n = b - a, len(a)
        means = random.choice([-1.0, 1.0], (_DRAWS, n)) @ d / n
        # Signs leave the squares as they are.
        variance = ((d**2).sum(0) - n * means**2) / (n - 1)
        found = _t(means, np.sqrt(np.maximum(variance, 0) / n))
    else:
        both, n, m = np.concatenate([a, b]), len(a), len(b)
        chosen = random.permuted(np.tile(np.arange(n + m) < n, (_DRAWS, 1)), axis=1).astype(float)
        arms = (chosen, n), (1 - chosen, m)
        ours, theirs = (rows @ both / count for rows, count in arms)
        squares = (rows @ both**2 / count for rows, count in arms)
        parts = zip(squares, (ours, theirs), (n, m), strict=True)
        variance = sum((square - mean**2) / (count - 1) for square, mean, count in parts)
        found = _t(theirs - ours, np.sqrt(np.maximum(variance, 0)))
    largest: Numbers = np.abs(found).max(axis=1, initial=0.0)
    return largest
