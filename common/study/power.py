"""How many seeds a study takes: from what a few of them show of the spread, the power of the very rule that decides.

The formula is that of two one-sided t-tests (noncentral t; Phillips 1990), for one look at the end. Studies with several looks
are simulated with `decision.decide`, under a normal distribution.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from parity.common.study.decision import decide
from parity.common.study.equivalence import Margin, Numbers
from parity.common.study.question import FEWEST_SEEDS, looks_of

MOST_SEEDS = 10_000
_SIMULATED = 400  # seeds up to which studies are simulated
_STUDIES, _CHUNK = 10_000, 2_000_000
_SEED = 20_240_707


class Spread(NamedTuple):
    """What a pilot shows of one figure: the reference's mean, both standard deviations, and their correlation over seeds."""

    mean: float
    reference: float
    candidate: float
    correlation: float

    @classmethod
    def of(cls, a: Numbers, b: Numbers, paired: bool) -> Spread:
        """From the figures of both arms, float64 (seeds,)."""
        spreads = float(a.std(ddof=1)), float(b.std(ddof=1))
        r = float(np.corrcoef(a, b)[0, 1]) if paired and min(spreads) > 0 else 0.0
        return cls(float(a.mean()), *spreads, r)

    def times(self, factor: float, paired: bool) -> Spread:
        """The same with a larger spread: of pairs that of their difference, else that of both arms."""
        if not paired:
            return self._replace(reference=self.reference * factor, candidate=self.candidate * factor)
        own = self.reference**2
        shared = (
            self.correlation * self.reference * self.candidate - own
        )  # covariance of reference and difference
        varies = own + self.candidate**2 - 2 * (shared + own)
        candidate = math.sqrt(max(0.0, own + factor**2 * varies + 2 * factor * shared))
        together = self.reference * candidate
        r = (own + factor * shared) / together if together > 0 else 0.0
        return self._replace(candidate=candidate, correlation=min(1.0, max(-1.0, r)))


class Power(NamedTuple):
    """With what probability a study ends as equivalent, as different, and after how many seeds on average."""

    equivalent: float
    different: float
    seeds: float


def draw(
    spread: Spread, difference: float, shape: tuple[int, int], random: np.random.Generator
) -> tuple[Numbers, Numbers]:
    """Return made-up figures of reference and candidate, float64 of a shape (studies, seeds), normally distributed."""
    first, second = random.standard_normal(shape), random.standard_normal(shape)
    r = spread.correlation
    a = spread.mean + spread.reference * first
    b = spread.mean + difference + spread.candidate * (r * first + np.sqrt(max(0.0, 1 - r * r)) * second)
    return a, b


def power_of(
    spread: Spread,
    margin: Margin,
    looks: tuple[int, ...],
    alpha: float,
    paired: bool,
    difference: float = 0.0,
    studies: int = _STUDIES,
) -> Power:
    """Return the power of a design by simulating studies in which the means differ by `difference`."""
    random = np.random.default_rng(_SEED)
    found: list[NDArray[np.float64]] = []
    left = studies
    while left > 0:
        count = min(left, max(1, _CHUNK // looks[-1]))
        a, b = draw(spread, difference, (count, looks[-1]), random)
        made = decide(a, b, margin, looks, alpha, paired)
        found.append(np.array([made.equivalent.sum(), made.different.sum(), made.seeds.sum()], float))
        left -= count
    return Power(*(np.sum(found, axis=0) / studies).tolist())


def formula(
    spread: Spread, margin: Margin, seeds: int, alpha: float, paired: bool, difference: float = 0.0
) -> float:
    """Return the power of "equivalent" with one look at the end."""
    from scipy import special

    size = {
        "absolute": margin.value,
        "relative": margin.value * abs(spread.mean),
        "sd": margin.value * spread.reference,
    }[margin.kind]
    missed = 0.0
    for side in (-1.0, 1.0):
        error, df = _error(spread, margin, seeds, paired, side)
        bound = special.stdtrit(df, alpha)
        if error > 0:
            missed += 1 - float(special.nctdtr(df, (side * difference - size) / error, bound))
    return max(0.0, 1 - missed)


def _error(spread: Spread, margin: Margin, seeds: int, paired: bool, side: float) -> tuple[float, float]:
    """The standard error of side (b - a) - margin, and its degrees of freedom."""
    a, b, r = spread.reference, spread.candidate, spread.correlation if paired else 0.0
    # A relative margin moves with the reference.
    factor = side + (margin.value * np.sign(spread.mean or 1.0) if margin.kind == "relative" else 0.0)
    ours, theirs = factor**2 * a**2, b**2
    # A standard deviation varies by itself divided by sqrt(2 n).
    own = (margin.value * a) ** 2 / 2 if margin.kind == "sd" else 0.0
    variance = ours + theirs - 2 * side * factor * r * a * b + own
    df = (
        seeds - 1.0
        if paired
        else (seeds - 1.0) * (ours + theirs + own) ** 2 / ((ours + own) ** 2 + theirs**2)
    )
    return float(np.sqrt(max(variance, 0.0) / seeds)), df


def seeds_for(
    spread: Spread, margin: Margin, wanted: float, alpha: float, paired: bool, difference: float = 0.0
) -> int | None:
    """Return with how many seeds, looked at as usual, "equivalent" has the power wanted; None: more than MOST_SEEDS."""
    seeds = seeds_at_once(spread, margin, wanted, alpha, paired, difference)
    if seeds is None or seeds > _SIMULATED:
        return None if seeds is None else round(1.02 * seeds)  # what several looks cost
    while power_of(spread, margin, looks_of(seeds), alpha, paired, difference).equivalent < wanted:
        seeds = max(seeds + 1, round(1.03 * seeds))
    return seeds


def seeds_at_once(
    spread: Spread, margin: Margin, wanted: float, alpha: float, paired: bool, difference: float = 0.0
) -> int | None:
    """As `seeds_for`, looked at once."""
    low, high = FEWEST_SEEDS - 1, FEWEST_SEEDS
    while formula(spread, margin, high, alpha, paired, difference) < wanted:
        low, high = high, high * 2
        if low >= MOST_SEEDS:
            return None
    while high - low > 1:
        middle = (low + high) // 2
        enough = formula(spread, margin, middle, alpha, paired, difference) >= wanted
        low, high = (low, middle) if enough else (middle, high)
    return high


def seeds_to_differ(
    spread: Spread, wanted: float, alpha: float, paired: bool, difference: float
) -> int | None:
    """Return with how many seeds a difference would be shown with the power wanted; None: more than MOST_SEEDS."""
    from scipy import special

    error, _ = _error(spread, Margin(kind="absolute", value=1.0), 1, paired, 1.0)
    if difference == 0:
        return None
    needed = (error / difference * (special.ndtri(1 - alpha / 2) + special.ndtri(wanted))) ** 2
    # What Student's t takes more than the normal distribution (Guenther 1981).
    needed += special.ndtri(1 - alpha / 2) ** 2 / 2
    return None if needed > MOST_SEEDS else max(FEWEST_SEEDS, int(np.ceil(needed)))
