"""A number in a call of a live model that is another in Keras's: found by trials, each a pass."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

from parity.common.diagnosis import limits

# How far the first trial goes, relative; of a number that is zero, absolute.
_STEP = 0.02
# So many trials at most; each must leave less than this share of what was left before.
_TRIALS, _SHRINKS = 12, 0.8
_FARTHEST = 1e6
_USUAL_EPSILONS = (*(10.0**-power for power in (3, 4, 5, 6, 7, 8, 9, 10, 12)), 0.0)
_LARGEST_EPSILON = 0.02
_DIGITS = 4


def fitted(deviation: Callable[[float], float], value: float) -> tuple[float, bool] | None:
    """Return the number with which a deviation vanishes, and whether it is one that a person would write; None: there is none.

    Args:
        deviation: with a number in place of `value`; infinite where that cannot be.
        value: as it is.
    """
    if 0 < abs(value) < _LARGEST_EPSILON:
        # What is added lest something be zero may change little: then no slope is seen.
        usual = next((e for e in _USUAL_EPSILONS if e != value and deviation(e) <= limits.LIVE_FLOAT64), None)
        if usual is not None:
            return usual, True
    # A deviation is relative, and far off hardly changes: the search begins at the best of some likely ones.
    left = {number: deviation(number) for number in (value, *_likely(value))}
    best = min(left, key=lambda number: left[number])
    if left[best] <= limits.LIVE_FLOAT64:
        return best, True
    root = _root(deviation, best)
    if root is None:
        return None
    for number in _written(root):
        if number != value and deviation(number) <= limits.LIVE_FLOAT64:
            return number, True
    return (root, False) if deviation(root) <= limits.LIVE_FLOAT64 else None


def _likely(value: float) -> list[float]:
    """What may be meant instead of a number."""
    others = [
        value / 2,
        2 * value,
        value - 1,
        value + 1,
        value * value,
        -value,
        1 - value,
        value / 10,
        10 * value,
        0.0,
        1.0,
    ]
    others += [1 / value, math.sqrt(value)] if value > 0 else []
    return [number for number in dict.fromkeys(others) if number != value]


def _root(deviation: Callable[[float], float], value: float) -> float | None:
    """Where a deviation vanishes, by secants: near there it is as good as linear, and only its sign is not known."""
    before, at = value, value + (_STEP * abs(value) or _STEP)
    of_before, size = deviation(before), deviation(at)
    if not (math.isfinite(of_before) and math.isfinite(size)):
        return None
    for _ in range(_TRIALS):
        least = min(abs(of_before), size)
        # Beyond the root the sign is the other.
        for of in (size, -size):
            after = at - of * (at - before) / (of - of_before) if of != of_before else at
            found = deviation(after) if abs(after) < _FARTHEST * max(1.0, abs(value)) else math.inf
            if found < _SHRINKS * least:
                break
        else:
            return None
        if found <= limits.LIVE_FLOAT64:
            return after
        before, of_before, at, size = at, of, after, found
    return None


def _written(number: float) -> Iterator[float]:
    """Numbers near to one that a person would write: of few digits; a fraction, a root or a power of few."""
    for digits in range(1, _DIGITS + 1):
        yield float(f"{number:.{digits}g}")
    near = limits.SAME_CONSTANT * abs(number)
    for whole in range(1, 1025):
        for form in (1 / whole, math.sqrt(whole), 1 / math.sqrt(whole)):
            for signed in (form, -form):
                if abs(signed - number) <= near:
                    yield signed
    for form in (1 / 127.5, math.sqrt(2 / math.pi), math.log(2), math.pi, 2 * math.pi, math.e):
        if abs(form - number) <= near:
            yield form
