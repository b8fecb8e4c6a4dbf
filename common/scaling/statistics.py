"""Throughputs with their uncertainty: warm-up, bootstrap intervals, and when a figure is too noisy.

A timing run is one long, autocorrelated series of steps, and runs of different minutes differ by more
than their steps do. So both are resampled: steps in blocks within each run, and rounds.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from parity.common.record import RunRecord
from parity.common.scaling.result import Conclusion, Interval

Numbers = NDArray[np.float64]

DRAWS = 1000
CONFIDENCE = 0.95
_SEED = 20_150_101

# MSER-5's batches, and the bound on what it may leave out.
WARM_UP_BATCH = 5
LARGEST_WARM_UP = 0.5
_FEWEST_BATCHES = 50
# What is left still drifts where its second half differs from the first by more than this share.
DRIFT = 0.05
# Points that a run is thinned to: batches of the warm-up rule, and medians that are resampled.
_MOST_BATCHES = 2000
_MOST_POINTS = 256
_ENOUGH = 20_000  # values to know a spread by

# An interval as wide as this share of its median says too little about a speedup.
WIDEST = 0.10
FEWEST_ROUNDS = 3
_MOST_ROUNDS_ADVISED = 50
NOISE_RULE = f"conclusive: at least {FEWEST_ROUNDS} rounds, and a 95 % interval no wider than {WIDEST:.0%} of its median"


@dataclass(frozen=True)
class Timing:
    """One run's speed, reduced to what is resampled.

    rates: samples per second after the warm-up: of every call of the step, or medians of as many
        equal stretches as fit where there are many calls. warm_up, timed: in steps. settled: False
        where the run was still changing at the bound on the warm-up.
    """

    rates: Numbers
    warm_up: int
    timed: int
    settled: bool

    @property
    def median(self) -> float:
        """Samples per second; NaN where nothing was timed."""
        return float(np.median(self.rates)) if len(self.rates) else math.nan


def timing_of(record: RunRecord) -> Timing:
    """The speed of a record: samples of a call over its seconds, data and recording included.

    Several steps that one call takes are one measurement.
    """
    calls = record.placement.steps_per_call
    counts, seconds = record.columns["count"], record.columns["seconds"]
    whole = len(seconds) // calls * calls
    with np.errstate(divide="ignore", invalid="ignore"):
        rates = counts[:whole].reshape(-1, calls).sum(1) / seconds[:whole].reshape(-1, calls).sum(1)
    # A clock too coarse for a step, or a step without samples, times nothing.
    rates = rates[np.isfinite(rates) & (rates > 0)]
    warm_up, settled = find_warm_up(1 / rates)
    steady = rates[warm_up:]
    return Timing(_thinned(steady), warm_up * calls, len(steady) * calls, settled)


def _thinned(values: Numbers) -> Numbers:
    """Medians of equal stretches, so that a stall moves neither a stretch nor the whole."""
    length = math.ceil(len(values) / _MOST_POINTS)
    if length <= 1:
        return values
    stretches = len(values) // length
    medians: Numbers = np.median(
        values[len(values) - stretches * length :].reshape(stretches, length), axis=1
    )
    return medians


def find_warm_up(values: Numbers) -> tuple[int, bool]:
    """(how many values to leave out, whether the rest is steady), by the rule MSER-5.

    White, Cobb and Spratt 2000, "A comparison of five steady-state truncation heuristics for
    simulation": of the means of batches of 5, leave out the first d that make the standard error of
    the rest, sum((y - mean)^2) / (n - d)^2, smallest. Few batches make a poor variance, so that short
    series are taken value by value (White 1997, "An effective truncation heuristic for bias reduction
    in simulation output"), and long ones in longer batches. Stalls are clipped at five deviations
    first, else one late stall would pass for an end of the warm-up.

    At most half is left out. A series has not settled where d is at that bound, or where the rest
    still drifts.
    """
    size = max(WARM_UP_BATCH, math.ceil(len(values) / _MOST_BATCHES))
    size = size if len(values) >= _FEWEST_BATCHES * WARM_UP_BATCH else 1
    batches = len(values) // size
    if batches < 2:
        return 0, False
    # Whole batches at the end: odd values are at the start, where they may be warm-up.
    odd = len(values) - batches * size
    whole = values[odd:].reshape(batches, size)
    means = np.mean(_clipped(whole), axis=1)
    kept = np.arange(batches, 0, -1.0)
    centred = means - means[-1]
    sums, squares = (np.cumsum(part[::-1])[::-1] for part in (centred, centred**2))
    scores = (squares - sums**2 / kept) / kept**2
    bound = int(batches * LARGEST_WARM_UP)
    least = int(np.argmin(scores[: bound + 1]))
    return (odd + least * size if least else 0), least < bound and not _drifts(np.mean(whole[least:], axis=1))


def _drifts(values: Numbers) -> bool:
    """Whether the halves' medians differ by more than a share, and by more than their noise explains."""
    first, second = np.array_split(values, 2)
    middles = float(np.median(first)), float(np.median(second))
    difference = abs(middles[1] - middles[0])
    # The standard error of a median is 1.25 times that of the mean; two of them differ.
    spread = max(_deviation(first), _deviation(second))
    error = 1.25 * spread * math.sqrt(2 / max(1, len(first)))
    return bool(difference > DRIFT * middles[0] and difference > 4 * error)


def _deviation(values: Numbers) -> float:
    """The normal deviation, by the median of absolute deviations."""
    return 1.4826 * float(np.median(np.abs(values - np.median(values))))


def _clipped(values: Numbers) -> Numbers:
    """Values no further from the median than five normal deviations, by the median deviation."""
    some = values.ravel()[:: math.ceil(values.size / _ENOUGH)]
    middle, reach = np.median(some), 5 * _deviation(some)
    clipped: Numbers = np.clip(values, middle - reach, middle + reach)
    return clipped


def block_length(values: Numbers) -> int:
    """How long blocks must be to keep a series' autocorrelation, for the circular block bootstrap.

    Politis and White 2004, "Automatic block-length selection for the dependent bootstrap" (as
    corrected by Patton, Politis and White 2009), of an autoregression with the lag-1 correlation r:
    (6 r^2 / (1 - r^2)^2)^(1/3) n^(1/3); at most a quarter of the series.
    """
    n = len(values)
    centred = values - values.mean()
    total = float(centred @ centred)
    r = float(centred[1:] @ centred[:-1]) / total if n > 2 and total > 0 else 0.0
    r = min(max(r, 0.0), 0.95)
    length = math.pow(6 * r**2 / (1 - r**2) ** 2 * n, 1 / 3)
    return max(1, min(n // 4, round(length)))


def resampled_medians(values: Numbers, name: str, draws: int = DRAWS) -> Numbers:
    """Medians of `draws` circular block bootstrap samples of one run's rates.

    `name` seeds the draws, so that the same run always gives the same figures.
    """
    if not len(values):
        return np.full(draws, np.nan)
    random = np.random.default_rng([_SEED, zlib.crc32(name.encode())])
    n, block = len(values), block_length(values)
    starts = random.integers(0, n, (draws, math.ceil(n / block)))
    rows = (starts[:, :, None] + np.arange(block)).reshape(draws, -1)[:, :n] % n
    medians: Numbers = np.median(values[rows], axis=1)
    return medians


@dataclass(frozen=True)
class Rounds:
    """The throughputs of interleaved rounds, resampled: what every interval comes from.

    medians: by configuration, of every round. resampled: by configuration, [rounds, draws].
    """

    medians: dict[str, Numbers]
    resampled: dict[str, Numbers]

    @classmethod
    def of(cls, rounds: Sequence[dict[str, Timing]]) -> Rounds:
        """From the timings of each round, by configuration; every round has the same ones."""
        names = list(rounds[0])
        medians = {name: np.array([round_[name].median for round_ in rounds]) for name in names}
        resampled = {
            name: [resampled_medians(r[name].rates, f"{name} round {n}") for n, r in enumerate(rounds)]
            for name in names
        }
        return cls(medians, {name: np.array(draws) for name, draws in resampled.items()})

    @property
    def count(self) -> int:
        return len(next(iter(self.medians.values())))

    @cached_property
    def draws(self) -> dict[str, Numbers]:
        """[draws, rounds] throughputs by configuration: rounds drawn with replacement, the same for all.

        A round that is drawn twice brings two resamples of its steps. What the steps of n rounds vary by
        is already seen between the rounds, but for an n-th of its variance (Davison and Hinkley 1997,
        "Bootstrap methods and their application", section 3.8): only that much is added.
        """
        random = np.random.default_rng([_SEED, *(zlib.crc32(name.encode()) for name in sorted(self.medians))])
        rounds = random.integers(0, self.count, (DRAWS, self.count))
        samples = random.integers(0, DRAWS, (DRAWS, self.count))
        drawn = {}
        for name, values in self.resampled.items():
            medians = self.medians[name][rounds]
            drawn[name] = medians * (values[rounds, samples] / medians) ** (1 / math.sqrt(self.count))
        return drawn

    def ratio_draws(self, above: str, below: str) -> Numbers:
        """The bootstrap draws behind `ratio`."""
        draws: Numbers = np.median(self.draws[above] / self.draws[below], axis=-1)
        return draws

    def throughput(self, name: str) -> Interval:
        """Samples per second of a configuration: the median over rounds with its interval."""
        median = float(np.median(self.medians[name]))
        return widened(median, np.median(self.draws[name], axis=-1), self.count)

    def ratio(self, above: str, below: str) -> Interval:
        """The throughput of one configuration over another's, round by round: the median with its interval."""
        median = float(np.median(self.medians[above] / self.medians[below]))
        return widened(median, self.ratio_draws(above, below), self.count)


def widened(median: float, draws: Numbers, rounds: int) -> Interval:
    """The percentile interval of bootstrap draws of a positive figure, widened for few rounds.

    A bootstrap of n values is too narrow by sqrt((n - 1) / n), and by the normal's quantile where
    Student's belongs (Hesterberg 2015, "What teachers should know about the bootstrap", section 5.3).
    The distances from the median are widened by both, as ratios.
    """
    if not math.isfinite(median) or median <= 0 or not np.isfinite(draws).any():
        return Interval(median, math.nan, math.nan)
    low, high = (end / median for end in percentiles(draws))
    factor = small_sample_factor(rounds)
    return Interval(median, median * min(1.0, low) ** factor, median * max(1.0, high) ** factor)


def percentiles(draws: Numbers) -> tuple[float, float]:
    """The ends of the middle 95 % of the finite draws."""
    ends = np.quantile(draws[np.isfinite(draws)], [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return float(ends[0]), float(ends[1])


def small_sample_factor(rounds: int) -> float:
    """Return sqrt(n / (n - 1)) x Student's 0.975 quantile over the normal's; 1 for a single round."""
    if rounds < 2:
        return 1.0
    from scipy import special  # here: a comparison of single runs starts without it

    upper = (1 + CONFIDENCE) / 2
    student, normal = special.stdtrit(rounds - 1, upper), special.ndtri(upper)
    return math.sqrt(rounds / (rounds - 1)) * float(student / normal)


def conclude(interval: Interval, rounds: int) -> tuple[Conclusion, str]:
    """Whether a ratio is known well enough, by NOISE_RULE, and what to do where it is not."""
    noisy: Conclusion = "too noisy to conclude"
    width = (interval.high - interval.low) / interval.median
    if not math.isfinite(width):
        return noisy, "no step was timed; take more steps"
    if rounds < FEWEST_ROUNDS:
        few = f"{rounds} of at least {FEWEST_ROUNDS} rounds"
        return noisy, f"{few}: how far rounds differ is not known; take more rounds"
    if width <= WIDEST:
        return "conclusive", f"known to {width / 2:.1%}"
    needed = math.ceil(rounds * (width / WIDEST) ** 2)
    possible = needed <= _MOST_ROUNDS_ADVISED
    advice = f"take about {needed} rounds" if possible else "leave the machine to the runs"
    return noisy, f"the 95 % interval is {width:.0%} of the median wide, more than {WIDEST:.0%}; {advice}"
