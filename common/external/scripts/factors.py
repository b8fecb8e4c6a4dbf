"""Whether two sets of numbers differ by one factor, and what the factor is known as."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from parity.common.diagnosis import limits


def factor_between(ours: NDArray[np.float64], theirs: NDArray[np.float64], allowed: float) -> float | None:
    """k where theirs [n] = k ours [n] up to a relative `allowed`, in each element; None where there is none, or it is 1."""
    if not len(ours) or not (np.isfinite(ours).all() and np.isfinite(theirs).all()) or (ours == 0).any():
        return None
    ratios = theirs / ours
    factor = float(np.median(ratios))
    same = np.abs(ratios - factor) <= allowed * abs(factor)
    return factor if factor and same.all() and abs(factor - 1) > allowed else None


def named(factor: float, known: dict[str, float]) -> str | None:
    """Which of some numbers, or one over it, a factor is."""
    for name, value in known.items():
        for number in (value, 1 / value):
            if abs(factor - number) <= limits.SCRIPT_FACTOR * abs(number):
                return name
    return None


def in_words(factor: float, name: str | None) -> str:
    """'32 times (the number of samples)', '1/4 of'."""
    inverse = 1 / factor if factor else 0.0
    whole = abs(inverse - round(inverse)) <= limits.SCRIPT_FACTOR * abs(inverse) and abs(inverse) > 1.5
    text = f"1/{round(inverse)} of" if whole else f"{factor:.9g} times"
    return text if name is None else f"{text} ({name})"
