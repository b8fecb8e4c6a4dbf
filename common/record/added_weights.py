"""Of a followed step, how many times its weights one script has added to its gradients itself, where the other has not.

Weight decay may be a line of the script's (`g + k * w`), a penalty in its loss (k / 2 times the squares of the weights), or its
optimizer's. Gradients differ then by k w, and the training need not: the update says that.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

# Of a gradient, with all others together, rounding makes no more: a hundred units.
_UNITS = 100.0
# What is k w is so up to this share of it.
_CLOSE = 1e-2
# A tensor of fewer elements may be a number times its weights by chance.
_ELEMENTS = 8


def added_weights(
    reference: Mapping[str, Any], candidate: Mapping[str, Any], weights: Mapping[str, Any], eps: float
) -> dict[str, float]:
    """By tensor k, where the candidate's gradient is the reference's plus k times the weights, one k for all; nothing where some
    tensor differs otherwise.

    Args:
        reference, candidate: gradients by name.
        weights: with which both were made, by name.
        eps: of the precision.
    """
    both = [name for name in reference if name in candidate and name in weights]
    apart, values = {}, {}
    for name in both:
        one, other, weight = (np.asarray(s[name], np.float64) for s in (reference, candidate, weights))
        if not one.shape == other.shape == weight.shape:
            return {}
        apart[name], values[name] = other - one, weight
    total = float(np.sqrt(sum(float(np.square(reference[name], dtype=np.float64).sum()) for name in both)))
    noise = _UNITS * eps * total
    off = [name for name in both if not float(np.linalg.norm(apart[name])) <= noise]
    fits = [name for name in off if values[name].size >= _ELEMENTS and np.any(values[name])]
    if not fits:
        return {}
    clearest = max(fits, key=lambda name: float(np.linalg.norm(apart[name])))
    factor = float(np.vdot(apart[clearest], values[clearest]) / np.vdot(values[clearest], values[clearest]))
    left = {name: float(np.linalg.norm(apart[name] - factor * values[name])) for name in both}
    if any(not left[name] <= noise + _CLOSE * float(np.linalg.norm(apart[name])) for name in off):
        return {}
    # Of what is within rounding with it and without, that which is closer; of weights that are zero nothing is known yet.
    return {name: factor for name in both if left[name] <= float(np.linalg.norm(apart[name]))}
