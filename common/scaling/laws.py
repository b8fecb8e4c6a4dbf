"""Scaling laws: what a speedup says of the part of the work that does not scale.

S is the speedup on p replicas, throughput over the single replica's.

Karp and Flatt 1990, "Measuring parallel processor performance":  e = (1/S - 1/p) / (1 - 1/p)
Amdahl 1967:                          S = 1 / (s + (1 - s) / p)               strong scaling
Gustafson 1988, "Reevaluating Amdahl's law":  S = p - s (p - 1)               weak scaling
Gunther 1993, the Universal Scalability Law:  S = p / (1 + sigma (p - 1) + kappa p (p - 1))

All are linear in their parameters once multiplied out, so that the fit that makes the sum of squared
relative errors of the step time smallest is a formula, also for a thousand bootstrap draws at once.
Parameters are kept from being negative: a speedup of more than p fits as 0, with its residual.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from parity.common.scaling.result import Interval, LawFit, Mode, Residual
from parity.common.scaling.statistics import Numbers, percentiles, small_sample_factor

# Speedups beyond the first replica that a fit needs: one more than it has parameters.
_NEEDED = {"Amdahl": 2, "Gustafson": 2, "Universal Scalability Law": 3}
_FORMS: dict[Mode, tuple[str, str]] = {
    "strong": ("Amdahl", "Universal Scalability Law"),
    "weak": ("Gustafson", "Universal Scalability Law"),
}
_PARAMETERS = {"Universal Scalability Law": ("sigma", "kappa")}


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
    """The laws of a mode, each fitted or with the reason why it is not."""
    return [_fit(law, speedups) for law in _FORMS[speedups.mode]]


def _fit(law: str, speedups: Speedups) -> LawFit:
    names = _PARAMETERS.get(law, ("serial",))
    count = len(speedups.replicas)
    if count < _NEEDED[law]:
        seen = ", ".join(map(str, speedups.replicas)) or "none"
        crowded = ", ".join(map(str, speedups.left_out))
        why_not = f"{law} needs {_NEEDED[law]} replica counts beyond 1 for a fit that can fail; there are {count} ({seen})"
        why_not += f", and {crowded} with more threads than cores" if crowded else ""
        return LawFit(
            speedups.framework, speedups.strategy, speedups.mode, law, {}, (), math.nan, math.nan, why_not
        )
    p = np.array(speedups.replicas, float)
    solve, speedup, limit = _SOLVERS[law]
    best = solve(p, speedups.medians[None])[0]
    draws = solve(p, speedups.draws)
    fitted = [speedup(n, *best.tolist()) for n in speedups.replicas]
    errors = np.array(fitted) / speedups.medians - 1
    return LawFit(
        speedups.framework,
        speedups.strategy,
        speedups.mode,
        law,
        {name: _interval(best[k], draws[:, k], speedups.rounds) for k, name in enumerate(names)},
        tuple(
            Residual(n, float(m), f)
            for n, m, f in zip(speedups.replicas, speedups.medians, fitted, strict=True)
        ),
        float(np.sqrt(np.mean(errors**2))),
        limit(*best.tolist()),
    )


def _interval(best: float, draws: Numbers, rounds: int) -> Interval:
    """The percentile interval, widened for few rounds as in `statistics.widened`, but by differences."""
    low, high = percentiles(draws)
    factor = small_sample_factor(rounds)
    below, above = factor * max(0.0, best - low), factor * max(0.0, high - best)
    return Interval(float(best), max(0.0, best - below), float(best + above))


# Fits take [draws, points] speedups and return [draws, parameters].


def _fit_amdahl(p: Numbers, speedups: Numbers) -> Numbers:
    # The relative error of the time: S (s (1 - 1/p) + 1/p) - 1.
    return _single(speedups * (1 - 1 / p), 1 - speedups / p)


def _fit_gustafson(p: Numbers, speedups: Numbers) -> Numbers:
    # (p - s (p - 1)) / S - 1, with the sign turned.
    return _single((p - 1) / speedups, p / speedups - 1)


def _fit_universal(p: Numbers, speedups: Numbers) -> Numbers:
    # S/p (1 + sigma (p - 1) + kappa p (p - 1)) - 1.
    one, two, wanted = speedups / p * (p - 1), speedups * (p - 1), 1 - speedups / p
    a, b, c = (one * one).sum(-1), (one * two).sum(-1), (two * two).sum(-1)
    u, v = (one * wanted).sum(-1), (two * wanted).sum(-1)
    determinant = a * c - b * b
    both = np.stack([(c * u - b * v) / determinant, (a * v - b * u) / determinant], -1)
    # Where one is negative the least squares lie on an edge: one of them alone, or neither.
    sigma = np.stack([np.maximum(u / a, 0), np.zeros_like(u)], -1)
    kappa = np.stack([np.zeros_like(v), np.maximum(v / c, 0)], -1)
    left = [((edge[:, :1] * one + edge[:, 1:] * two - wanted) ** 2).sum(-1) for edge in (sigma, kappa)]
    edge = np.where(np.expand_dims(left[0] <= left[1], -1), sigma, kappa)
    return np.where((both >= 0).all(-1, keepdims=True), both, edge)


def _single(factor: Numbers, wanted: Numbers) -> Numbers:
    fitted: Numbers = np.maximum((factor * wanted).sum(-1) / (factor**2).sum(-1), 0.0)
    return fitted[:, None]


def _largest_amdahl(serial: float) -> float:
    return 1 / serial if serial > 0 else math.inf


def _largest_gustafson(serial: float) -> float:
    return math.inf if serial < 1 else 1.0


def _largest_universal(sigma: float, kappa: float) -> float:
    if kappa == 0:
        return _largest_amdahl(sigma)
    return max(1.0, universal(math.sqrt(max(0.0, 1 - sigma) / kappa), sigma, kappa)) if sigma < 1 else 1.0


_SOLVERS: dict[
    str, tuple[Callable[[Numbers, Numbers], Numbers], Callable[..., float], Callable[..., float]]
] = {
    "Amdahl": (_fit_amdahl, amdahl, _largest_amdahl),
    "Gustafson": (_fit_gustafson, gustafson, _largest_gustafson),
    "Universal Scalability Law": (_fit_universal, universal, _largest_universal),
}
