"""Tests on one figure of the seeds of two arms: whether it differs, and whether it differs by less than a margin.

Reference `a` and candidate `b` hold one number for each seed, in their last axis; axes before it are studies. With
`paired`, seed i of both began alike, so that only b[i] - a[i] counts (Student's t); else the two means (Welch 1947).

Equivalence is shown by two one-sided tests (Schuirmann 1987): that b - a is above -margin, and that it is below margin.
Both must be shown, so that no correction is needed, and the larger p-value is that of equivalence.

A margin that is known only from the seeds is not taken for exact. That b - a is below r |mean of a| is tested as
b - (1 + r) a < 0, and that it is below k standard deviations of a with the jackknife's pseudo-values of these (Miller 1974),
so that what margin and difference have in common counts.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from parity.common.base.errors import SpecError
from parity.common.spec.base import Spec

Numbers = NDArray[np.float64]
_RESAMPLES = 9999
_EXACT = 60  # pairs whose ranks are counted out
_SEED = 20_240_623


class Margin(Spec):
    """The difference that is too small to matter: absolute, of the reference's mean, or in its standard deviations."""

    kind: Literal["absolute", "relative", "sd"]
    value: float

    @classmethod
    def of(cls, text: str) -> Margin:
        """Return the margin of '0.2', '2%' or '0.5sd'; raises SpecError for another text."""
        match = re.fullmatch(r"([0-9.eE+-]+)(%|sd|)", text.strip())
        try:
            value = float(match.group(1)) if match else -1.0
        except ValueError:
            value = -1.0
        if match is None or not 0 < value < float("inf"):
            raise SpecError(
                f"--margin {text!r}: expected a number above 0, alone or with % (of the reference's mean) or sd (of the"
                " reference's seeds), e.g. 0.2, 2% or 0.5sd"
            )
        kinds: dict[str, Literal["absolute", "relative", "sd"]] = {
            "%": "relative",
            "sd": "sd",
            "": "absolute",
        }
        return cls(kind=kinds[match.group(2)], value=value / 100 if match.group(2) == "%" else value)

    @property
    def text(self) -> str:
        """What `of` makes this of."""
        shown = {"relative": f"{100 * self.value:g}%", "sd": f"{self.value:g}sd"}
        return shown.get(self.kind, f"{self.value:g}")

    def of_seeds(self, a: Numbers) -> Numbers:
        """Return numbers, float64 (..., seeds), one for each seed of the reference, whose mean estimates the margin.

        Of standard deviations these are the jackknife's pseudo-values (Miller 1974).
        """
        if self.kind == "absolute":
            return np.full(a.shape, self.value)
        if self.kind == "relative":
            shares: Numbers = self.value * a * np.where(a.mean(-1, keepdims=True) < 0, -1.0, 1.0)
            return shares
        n, mean = a.shape[-1], a.mean(-1, keepdims=True)
        squares = ((a - mean) ** 2).sum(-1, keepdims=True)
        # Without one seed, the squares are fewer by its own and by what the mean moves.
        left = np.maximum(squares - (a - mean) ** 2 * n / (n - 1), 0) / (n - 2)
        values: Numbers = self.value * (n * np.sqrt(squares / (n - 1)) - (n - 1) * np.sqrt(left))
        return values


class Tested(NamedTuple):
    """What tests say of some studies; each float64 (studies...).

    above, below: p-values of 'b - a is above -margin' and of 'b - a is below margin'. difference: two-sided.
    estimate: of mean(b) - mean(a), with its standard error and degrees of freedom.
    """

    above: Numbers
    below: Numbers
    difference: Numbers
    estimate: Numbers
    error: Numbers
    df: Numbers

    @property
    def equivalence(self) -> Numbers:
        """The p-value of both one-sided tests together."""
        return np.maximum(self.above, self.below)

    def interval(self, outside: float | Numbers) -> tuple[Numbers, Numbers]:
        """Return the ends, float64 (studies...) each, of the interval that leaves `outside` on either side."""
        from scipy import special

        reach = special.stdtrit(self.df, 1 - np.asarray(outside)) * self.error
        return self.estimate - reach, self.estimate + reach


def t_tests(a: Numbers, b: Numbers, margin: Margin, paired: bool) -> Tested:
    """Return what t-tests say of a and b, float64 (..., seeds) each, 3 seeds or more; paired, of as many seeds."""
    from scipy import special

    estimate, error, df = _mean(-a, b, paired)
    difference = 2 * special.stdtr(df, -np.abs(_ratio(estimate, error)))
    above, below = (_tail(_mean(-side * a - margin.of_seeds(a), side * b, paired)) for side in (-1, 1))
    return Tested(above, below, difference, estimate, error, df)


def _tail(found: tuple[Numbers, Numbers, Numbers]) -> Numbers:
    """The p-value of 'a mean is below 0'; the mean, its standard error and degrees of freedom."""
    from scipy import special

    value, error, df = found
    tail: Numbers = special.stdtr(df, _ratio(value, error))
    return tail


def _mean(a: Numbers, b: Numbers, paired: bool) -> tuple[Numbers, Numbers, Numbers]:
    """The mean of a + b, its standard error and degrees of freedom."""
    if paired:
        both = a + b
        error = both.std(-1, ddof=1) / np.sqrt(both.shape[-1])
        return both.mean(-1), error, np.full(error.shape, both.shape[-1] - 1.0)
    ours, theirs = a.var(-1, ddof=1) / a.shape[-1], b.var(-1, ddof=1) / b.shape[-1]
    total = ours + theirs
    # Satterthwaite 1946. Of two arms without any spread there is nothing to divide.
    with np.errstate(invalid="ignore", divide="ignore"):
        df = total**2 / (ours**2 / (a.shape[-1] - 1) + theirs**2 / (b.shape[-1] - 1))
    least = float(min(a.shape[-1], b.shape[-1]) - 1)
    return a.mean(-1) + b.mean(-1), np.sqrt(total), np.where(np.isfinite(df), df, least)


def _ratio(value: Numbers, error: Numbers) -> Numbers:
    """value / error; of equal seeds, whose error is 0, infinite unless the value is 0 too."""
    with np.errstate(divide="ignore", invalid="ignore"):
        found = value / error
    return np.where(error > 0, found, np.where(value == 0, 0.0, np.where(value > 0, np.inf, -np.inf)))


@dataclass(frozen=True)
class Beside:
    """Answers by other methods to the same question: p-values, or an interval of the difference.

    rank_equivalence, rank_difference: Wilcoxon's signed ranks of the pairs, or Mann and Whitney's. bootstrap: ends of the
    BCa interval (Efron 1987) of the difference of means; NaN where there are too few different seeds for one.
    """

    rank_equivalence: float
    rank_difference: float
    bootstrap: tuple[float, float]


def beside(a: Numbers, b: Numbers, margin: Margin, paired: bool, outside: float) -> Beside:
    """Return the rank-based and the bootstrap answers for one study; a and b float64 (seeds,), `outside` as of `interval`.

    A value that is infinite is the worst of all ranks. Where a pair has two, its difference is 0.
    """
    known = margin.kind == "absolute" or np.isfinite(a).all()
    size = float(margin.of_seeds(a).mean()) if known else float("nan")
    equivalence, difference = rank_tests(a, b, size, paired)
    return Beside(equivalence, difference, _bootstrap(a, b, paired, outside))


def rank_tests(a: Numbers, b: Numbers, size: float, paired: bool) -> tuple[float, float]:
    """Return the rank-based p-values of equivalence and of difference; a and b float64 (seeds,), the margin in their unit.

    Of equivalence it is 1 where the margin is not known, since the reference has seeds that are not finite.
    """
    from scipy import stats

    if paired:
        with np.errstate(invalid="ignore"):
            d = np.nan_to_num(b - a, nan=0.0, posinf=np.inf, neginf=-np.inf)
        below, above = (
            _signed_ranks(d + shift, side) for shift, side in ((-size, "less"), (size, "greater"))
        )
        difference = _signed_ranks(d, "two-sided")
    else:
        below, above = (
            float(stats.mannwhitneyu(b + shift, a, alternative=side).pvalue)
            for shift, side in ((-size, "less"), (size, "greater"))
        )
        difference = float(stats.mannwhitneyu(b, a).pvalue)
    return (1.0 if np.isnan(size) else max(below, above)), difference


def _signed_ranks(differences: Numbers, side: str) -> float:
    """The p-value of Wilcoxon's signed ranks, exact up to many seeds, with ties; infinite differences have the largest ranks."""
    from scipy import stats

    if np.isnan(differences).any():
        return 1.0
    d = differences[differences != 0]
    if len(d) > _EXACT:
        size = np.where(np.isfinite(d), d, np.sign(d) * 2 * np.abs(d[np.isfinite(d)]).max(initial=1.0))
        return float(stats.wilcoxon(size, alternative=side).pvalue)
    # In halves of a rank, so that ties are whole numbers; how many of the 2^n choices of signs give each sum.
    ranks = np.rint(2 * stats.rankdata(np.abs(d))).astype(int)
    ways = np.zeros(ranks.sum() + 1)
    ways[0] = 1
    for rank in ranks:
        ways[rank:] = ways[rank:] + ways[: len(ways) - rank]
    above = int(ranks[d > 0].sum())
    greater, less = (float(part.sum() / ways.sum()) for part in (ways[above:], ways[: above + 1]))
    return {"greater": greater, "less": less}.get(side, min(1.0, 2 * min(greater, less)))


def _bootstrap(a: Numbers, b: Numbers, paired: bool, outside: float) -> tuple[float, float]:
    from scipy import stats

    if not (np.isfinite(a).all() and np.isfinite(b).all()):
        return (float("nan"), float("nan"))
    data = (b - a,) if paired else (b, a)
    if any(len(set(each.tolist())) < 3 for each in data):
        return (float("nan"), float("nan"))

    def mean(*parts: Numbers, axis: int) -> Numbers:
        means: list[Numbers] = [part.mean(axis) for part in parts]
        return means[0] if paired else means[0] - means[1]

    found = stats.bootstrap(
        data,
        mean,
        n_resamples=_RESAMPLES,
        confidence_level=1 - 2 * outside,
        random_state=np.random.default_rng(_SEED),
        method="BCa",
    ).confidence_interval
    return float(found.low), float(found.high)


def holm(p_values: list[float]) -> list[float]:
    """Return p-values adjusted for being several, by Holm 1979: no more than alpha of any is wrong with probability alpha."""
    order = np.argsort(p_values)
    adjusted, largest = [0.0] * len(p_values), 0.0
    for place, index in enumerate(order):
        largest = max(largest, min(1.0, (len(p_values) - place) * p_values[index]))
        adjusted[index] = largest
    return adjusted


class Saving(NamedTuple):
    """By what factor pairing saves seeds, with the ends of its interval: variance of the unpaired difference over the paired."""

    factor: float
    low: float
    high: float


def saving(a: Numbers, b: Numbers, confidence: float = 0.95) -> Saving:
    """Return how many times the seeds an unpaired study would take; a and b float64 (seeds,), paired.

    (var a + var b) / var(b - a), for two independent seeds differ by the sum of the variances. With s = a + b and d = b - a,
    that is (1 + var s / var d) / 2, and the ratio of two correlated variances has an exact interval under a normal
    distribution (Pitman 1939, Morgan 1939): of var s / var d, by the correlation of s and d.
    """
    from scipy import special

    unknown = float("nan")
    if len(a) < 3 or not (np.isfinite(a).all() and np.isfinite(b).all()):
        return Saving(unknown, unknown, unknown)
    n, s, d = len(a), a + b, b - a
    if d.var() == 0:
        return Saving(float("inf") if s.var() > 0 else unknown, unknown, unknown)
    ratio = float(s.var(ddof=1) / d.var(ddof=1))
    r = float(np.corrcoef(s, d)[0, 1]) if s.var() > 0 else 0.0
    t = special.stdtrit(n - 2, (1 + confidence) / 2)
    k = 1 + 2 * (1 - r**2) * t**2 / (n - 2)
    root = np.sqrt(k**2 - 1)
    low, high = ratio * (k - root), ratio * (k + root)
    return Saving((1 + ratio) / 2, (1 + low) / 2, (1 + high) / 2)
