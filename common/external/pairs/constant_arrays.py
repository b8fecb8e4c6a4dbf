"""What two constants of as many numbers are, and how they differ: a window of another kind, a scale, a range."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from parity.common.diagnosis import limits

_WINDOWS = {"Hamming": np.hamming, "Hann": np.hanning, "Blackman": np.blackman, "Bartlett": np.bartlett}
# Fewer numbers are of no kind.
_FEWEST = 4


def known_numbers(values: ArrayLike) -> str:
    """'a periodic Hann window', '0 to 7 in equal steps'; '' where numbers are of no kind that is known.

    Args:
        values: in any shape.
    """
    numbers = np.asarray(values, np.float64).ravel()
    count = len(numbers)
    if count < _FEWEST:
        return ""
    for name, window in _WINDOWS.items():
        for form, due in (("symmetric", window(count)), ("periodic", window(count + 1)[:-1])):
            if _alike(numbers, due):
                return f"a {form} {name} window"
    if np.ptp(numbers) and _alike(numbers, np.linspace(numbers[0], numbers[-1], count)):
        return f"{numbers[0]:.6g} to {numbers[-1]:.6g} in equal steps"
    return ""


def apart_in_words(torch: ArrayLike, keras: ArrayLike) -> str:
    """How torch's numbers are made of Keras's: '2 times Keras's', "Keras's in reverse order", 'up to 0.04 from Keras's'; '' where they are equal.

    Args:
        torch, keras: as many numbers, in any shapes.
    """
    own, due = (np.asarray(values, np.float64).ravel() for values in (torch, keras))
    if _alike(own, due):
        return ""
    if _alike(own, due[::-1]):
        return "Keras's in reverse order"
    if _alike(np.sort(own), np.sort(due)):
        return "Keras's in another order"
    scale = float(own @ due / (due @ due)) if due.any() else 0.0
    if scale and _alike(own, scale * due):
        return f"{scale:.6g} times Keras's"
    if _alike(own - due, np.full_like(due, (own - due)[0])):
        return f"Keras's plus {(own - due)[0]:.6g}"
    return f"up to {np.abs(own - due).max():.2g} from Keras's"


def _alike(one: NDArray[np.float64], other: NDArray[np.float64]) -> bool:
    largest = max(np.abs(one).max(initial=0.0), np.abs(other).max(initial=0.0))
    return bool(np.abs(one - other).max(initial=0.0) <= limits.SAME_NUMBER * largest)
