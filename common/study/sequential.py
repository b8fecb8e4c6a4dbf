"""Looks at a study before its last seed, without more errors than one look at the end would make.

The error that may be spent by a share t of the seeds is O'Brien and Fleming's as Lan and DeMets 1983 have it,
4 - 4 Phi(z_(alpha/4) / sqrt t) for both sides together and 2 - 2 Phi(z_(alpha/2) / sqrt t) for one: early looks get little,
so that the last has nearly all. The boundaries follow by integrating the density of the standardised sums from look to look
(Armitage, McPherson and Rowe 1969). They are those of normal sums; the p-values of t-tests are held against
the levels that belong to them (Jennison and Turnbull 2000, section 3.8).
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Sides = Literal[1, 2]
_POINTS, _WIDEST = 401, 9.0
# Levels at which it is asked whether a boundary was crossed, for p-values of a whole study: those that are usually asked
# for, also divided among several figures, and others between them.
_USUAL = [alpha / count for alpha in (0.01, 0.025, 0.05, 0.1, 0.2) for count in range(1, 13)]
_LEVELS = np.unique([*np.geomspace(1e-6, 0.5, 121), *_USUAL])


def spent(share: float, alpha: float, sides: Sides) -> float:
    """Return how much of alpha is spent by a share of the seeds, from 0 to 1."""
    from scipy import special

    if share <= 0:
        return 0.0
    per_side = alpha / sides
    tail = special.ndtr(special.ndtri(per_side / 2) / np.sqrt(min(share, 1.0)))
    return float(2 * sides * tail)


@functools.lru_cache(maxsize=4096)
def levels(shares: tuple[float, ...], alpha: float, sides: Sides) -> tuple[float, ...]:
    """Return, for each look, the level that its p-value must not exceed.

    Args:
        shares: of the seeds, ascending, of all looks; the last need not be 1.
        alpha: the error of the whole study.
        sides: 1 for a one-sided test; 2: of one that is wrong on either side.
    """
    from scipy import optimize, special

    found: list[float] = []
    grid = density = np.empty(0)  # of the sum at the look before, where it has not crossed
    before = used = 0.0
    for share in shares:
        budget = spent(share, alpha, sides) - used
        used += budget
        step = float(np.sqrt(share - before))
        here = functools.partial(_crossing, np.sqrt(share), step, grid, density, sides)
        bound = _WIDEST
        if budget > here(_WIDEST):
            bound = float(
                optimize.brentq(lambda x, f=here, y=budget: f(x) - y, -_WIDEST, _WIDEST, xtol=1e-10)
            )
        found.append(float(sides * special.ndtr(-bound)))
        edge = bound * np.sqrt(share)
        ahead = np.linspace(-edge if sides == 2 else -_WIDEST * np.sqrt(share), edge, _POINTS)
        if not len(grid):
            density = _normal(ahead / step) / step
        else:
            density = _integral(grid, _normal((ahead[:, None] - grid) / step) / step * density)
        grid, before = ahead, share
    return tuple(found)


def _crossing(
    root: float,
    step: float,
    grid: NDArray[np.float64],
    density: NDArray[np.float64],
    sides: Sides,
    bound: float,
) -> float:
    """The probability of crossing a bound at a look, and at none before it.

    root: of the share of this look. step: the standard deviation of the sum since the look before.
    """
    from scipy import special

    if not len(grid):
        return float(sides * special.ndtr(-bound))
    beyond = special.ndtr((grid - bound * root) / step)
    if sides == 2:
        beyond = beyond + special.ndtr((-bound * root - grid) / step)
    return float(_integral(grid, density * beyond))


def _normal(x: NDArray[np.float64]) -> NDArray[np.float64]:
    density: NDArray[np.float64] = np.exp(-0.5 * x * x) / np.sqrt(2 * np.pi)
    return density


def _integral(grid: NDArray[np.float64], values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Simpson's rule along the last axis, over an odd number of equally spaced points."""
    weights = np.full(len(grid), 2.0)
    weights[1::2] = 4.0
    weights[0] = weights[-1] = 1.0
    total: NDArray[np.float64] = values @ weights * (grid[1] - grid[0]) / 3
    return total


def study_p_value(shares: Sequence[float], p_values: Sequence[float], sides: Sides) -> float:
    """Return the p-value of all looks so far: the least alpha at which one of them would have ended the study.

    So several figures of one study can be corrected for being several, whatever look they are decided at (Maurer and
    Bretz 2013). Of one look at the end it is that look's own; else it is rounded up to one of some 180 levels.
    """
    if len(shares) == 1 and shares[0] == 1:
        return float(p_values[0])
    looks = tuple(float(share) for share in shares)

    def crossed(alpha: float) -> bool:
        return any(p <= level for p, level in zip(p_values, levels(looks, alpha, sides), strict=True))

    low, high = -1, len(_LEVELS) - 1
    if not crossed(float(_LEVELS[high])):
        return 1.0
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if crossed(float(_LEVELS[middle])) else (middle, high)
    return float(_LEVELS[high])
