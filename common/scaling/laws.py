"""Scaling laws: what a speedup says of the part of the work that does not scale.

S is the speedup on p replicas, throughput over the single replica's.

Karp and Flatt 1990, "Measuring parallel processor performance":  e = (1/S - 1/p) / (1 - 1/p)
Amdahl 1967:                          S = 1 / (s + (1 - s) / p)               strong scaling
Gustafson 1988, "Reevaluating Amdahl's law":  S = p - s (p - 1)               weak scaling
Gunther 1993, the Universal Scalability Law:  S = p / (1 + sigma (p - 1) + kappa p (p - 1))

All are linear in their parameters once multiplied out, so that a linear least-squares fit makes the sum of
squared relative errors of the step time smallest. Parameters are kept from being negative (`scipy.optimize.nnls`):
a speedup of more than p fits as 0, with its residual.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from parity.common.scaling.result import Interval, LawFit, Mode, Residual
from parity.common.scaling.statistics import Numbers, percentiles, small_sample_factor


@dataclass(frozen=True)
class Speedups:
    """The speedups of one strategy on p > 1 replicas, with their bootstrap draws, [draws, points].

    left_out: replica counts that the machine has too few cores for; what they show is not scaling.
    """

    framework: str
    strategy: str
    mode: Mode
    rounds: int
    replicas: tuple[int, ...]
    medians: Numbers
    draws: Numbers
    left_out: tuple[int, ...] = ()


def karp_flatt(speedup: float, replicas: int) -> float:
    """The experimentally determined serial fraction; 0 at the ideal, 1 where nothing is gained."""
    return (1 / speedup - 1 / replicas) / (1 - 1 / replicas)


def scaled_serial_fraction(speedup: float, replicas: int) -> float:
    """Gustafson's serial fraction, of weak scaling; 0 at the ideal, 1 where nothing is gained."""
    return (replicas - speedup) / (replicas - 1)


def serial_fraction(speedup: Interval, replicas: int, mode: Mode) -> Interval | None:
    """Karp and Flatt's for strong scaling, Gustafson's for weak; None of a single replica."""
    if replicas < 2:
        return None
    fraction = karp_flatt if mode == "strong" else scaled_serial_fraction
    # It falls as the speedup rises.
    return Interval(*(fraction(s, replicas) for s in (speedup.median, speedup.high, speedup.low)))


def amdahl(replicas: float, serial: float) -> float:
    """The speedup of a fixed amount of work of which a fraction is serial."""
    return 1 / (serial + (1 - serial) / replicas)


def gustafson(replicas: float, serial: float) -> float:
    """The speedup of an amount of work that grows with the replicas."""
    return replicas - serial * (replicas - 1)


def universal(replicas: float, sigma: float, kappa: float) -> float:
    """The speedup under contention (sigma) and coherency (kappa): what each pair must exchange."""
    return replicas / (1 + sigma * (replicas - 1) + kappa * replicas * (replicas - 1))


def fit_laws(speedups: Speedups) -> list[LawFit]:
    """Fit the laws of a mode; a law that cannot be fitted has the reason in `why_not`."""
    return [_fit(law, speedups) for law in _LAWS if speedups.mode in law.modes]


def _fit(law: _Law, speedups: Speedups) -> LawFit:
    # A fit that can fail needs one replica count more than it has parameters.
    count, needed = len(speedups.replicas), 1 + len(law.parameters)
    whose = (speedups.framework, speedups.strategy, speedups.mode, law.name)
    if count < needed:
        seen = ", ".join(map(str, speedups.replicas)) or "none"
        crowded = ", ".join(map(str, speedups.left_out))
        why_not = f"{law.name} needs {needed} replica counts beyond 1 for a fit that can fail; there are {count} ({seen})"
        why_not += f", and {crowded} with more threads than cores" if crowded else ""
        return LawFit(*whose, {}, (), math.nan, math.nan, why_not)
    p = np.array(speedups.replicas, float)
    best = _nonnegative(*law.linear(p, speedups.medians))
    draws = np.array([_nonnegative(*law.linear(p, draw)) for draw in speedups.draws])
    fitted = [law.speedup(n, *best.tolist()) for n in speedups.replicas]
    residuals = map(Residual, speedups.replicas, speedups.medians.tolist(), fitted)
    rms = float(np.sqrt(np.mean((np.array(fitted) / speedups.medians - 1) ** 2)))
    return LawFit(
        *whose,
        {name: _interval(best[k], draws[:, k], speedups.rounds) for k, name in enumerate(law.parameters)},
        tuple(residuals),
        rms,
        law.limit(*best.tolist()),
    )


def _nonnegative(rows: Sequence[Numbers], wanted: Numbers) -> Numbers:
    """Parameters, at least 0, whose sum of rows comes closest to `wanted`; NaN where something is not finite."""
    from scipy import optimize

    columns = np.stack(rows, -1)
    if not (np.isfinite(columns).all() and np.isfinite(wanted).all()):
        return np.full(len(rows), np.nan)
    found: Numbers = optimize.nnls(columns, wanted)[0]
    return found


def _interval(best: float, draws: Numbers, rounds: int) -> Interval:
    """The percentile interval, widened for few rounds as in `statistics.widened`, but by differences."""
    low, high = percentiles(draws)
    factor = small_sample_factor(rounds)
    below, above = factor * max(0.0, best - low), factor * max(0.0, high - best)
    return Interval(float(best), max(0.0, best - below), float(best + above))


def _largest_amdahl(serial: float) -> float:
    return 1 / serial if serial > 0 else math.inf


def _largest_universal(sigma: float, kappa: float) -> float:
    if kappa == 0:
        return _largest_amdahl(sigma)
    return max(1.0, universal(math.sqrt(max(0.0, 1 - sigma) / kappa), sigma, kappa)) if sigma < 1 else 1.0


@dataclass(frozen=True)
class _Law:
    """A law of `modes` with its parameters.

    linear: (rows, wanted) from replica counts and speedups; the sum of parameter x row, less `wanted`, is the
        relative error of the step time. speedup: from replicas and parameters. limit: the largest speedup.
    """

    name: str
    modes: tuple[Mode, ...]
    parameters: tuple[str, ...]
    linear: Callable[[Numbers, Numbers], tuple[Sequence[Numbers], Numbers]]
    speedup: Callable[..., float]
    limit: Callable[..., float]


_LAWS = (
    _Law(
        "Amdahl",
        ("strong",),
        ("serial",),
        lambda p, s: ([s * (1 - 1 / p)], 1 - s / p),
        amdahl,
        _largest_amdahl,
    ),
    _Law(
        "Gustafson",
        ("weak",),
        ("serial",),
        lambda p, s: ([(p - 1) / s], p / s - 1),
        gustafson,
        lambda serial: math.inf if serial < 1 else 1.0,
    ),
    _Law(
        "Universal Scalability Law",
        ("strong", "weak"),
        ("sigma", "kappa"),
        lambda p, s: ([s / p * (p - 1), s * (p - 1)], 1 - s / p),
        universal,
        _largest_universal,
    ),
)
