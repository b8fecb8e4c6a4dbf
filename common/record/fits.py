"""What the difference of two tensors of a followed step is made of, where that is one number times what is known.

Weight decay may be a line of a script's (`g + k * w`), a penalty in its loss (k / 2 times the squares of the weights), or its
optimizer's. Gradients differ then by k w, and the training need not: the update says that. An update itself that differs by a number times the
weights is decayed on one side alone. A running average that moves by a number times as far has another momentum.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

# Of a gradient, with all others together, rounding makes no more: a hundred units.
_UNITS = 100.0
# What a number is read off is so many times beyond rounding.
_CLEARLY = 4.0
# What is k w is so up to this share of it.
_CLOSE = 1e-2
# What is left of a fit is rounding, of an average or an update, in units of its norm.
_LEFT = 64.0
# A tensor of fewer elements may be a number times its weights by chance.
_ELEMENTS = 8
# So many tensors that differ by that alone show it, though others differ in something else, too.
_SEVERAL = 2


def added_weights(
    reference: Mapping[str, Any], candidate: Mapping[str, Any], weights: Mapping[str, Any], eps: float
) -> dict[str, float]:
    """By tensor k, where the candidate's gradient is the reference's plus k times the weights, one k for all; nothing where no tensor of
    some elements differs by that alone, or one of several does. Of one that differs in something else, too, what is left then is that.

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
    times = {n: float(np.vdot(apart[n], values[n]) / np.vdot(values[n], values[n])) for n in fits}

    def left(name: str, factor: float) -> float:
        return float(np.linalg.norm(apart[name] - factor * values[name]))

    def explains(name: str, factor: float) -> bool:
        return left(name, factor) <= noise + _CLOSE * float(np.linalg.norm(apart[name]))

    alone = [
        name
        for name in fits
        if explains(name, times[name]) and float(np.linalg.norm(apart[name])) > _CLEARLY * noise
    ]
    if not alone:
        return {}
    factor = times[max(alone, key=lambda name: float(np.linalg.norm(apart[name])))]
    agreed = [name for name in off if explains(name, factor)]
    if len(agreed) < len(off) and sum(name in alone for name in agreed) < _SEVERAL:
        return {}
    axes = {values[name].ndim for name in agreed}
    # Of what is within rounding with it and without, that which is closer; of weights that are zero nothing is known yet.
    return {
        name: factor
        for name in both
        if name in agreed
        or (name in off and values[name].ndim in axes)
        or (name not in off and left(name, factor) <= float(np.linalg.norm(apart[name])))
    }


def along(
    reference: Mapping[str, Any],
    candidate: Mapping[str, Any],
    what: Mapping[str, Any],
    weights: Mapping[str, Any],
    eps: float,
) -> dict[str, float]:
    """By tensor c, where the candidate's update is the reference's plus c times something that is known: its weights, or its momentum.

    Args:
        reference, candidate: updates by name.
        what: by name, before the updates.
        weights: before them, by name.
        eps: of the precision, to which weights are rounded.
    """
    found: dict[str, float] = {}
    names = reference.keys() & candidate.keys() & weights.keys() & what.keys()
    # Of few elements, whose fit may be chance, those that it takes as often as a larger one.
    for name in sorted(names, key=lambda name: -np.size(reference[name])):
        due, made, of = (np.asarray(s[name], np.float64) for s in (reference, candidate, what))
        few = of.size < _ELEMENTS
        if not due.shape == made.shape == of.shape or not np.any(of) or (few and not found):
            continue
        apart = made - due
        times = next(iter(found.values())) if few else float(np.vdot(apart, of) / np.vdot(of, of))
        norms = [float(np.linalg.norm(np.asarray(a, np.float64))) for a in (weights[name], due, apart)]
        rounding = 2 * eps * norms[0] + _LEFT * eps * norms[1]
        if norms[2] > _LEFT * rounding and np.linalg.norm(apart - times * of) <= rounding + _CLOSE * norms[2]:
            found[name] = times
    return found


def averaged(before: Any, due: Any, made: Any, eps: float) -> tuple[str, float] | None:
    """How a running average came out that should have been `due`: ('momentum', b) where it has moved b times as far, ('variance', n / (n - 1))
    where the batch's variance that it takes in is that of n values divided by n - 1; None where it is neither.

    Args:
        before, due, made: of one shape; before the step, and after it in the reference and the candidate.
        eps: of the precision.
    """
    start, right, wrong = (np.asarray(array, np.float64).ravel() for array in (before, due, made))
    rounding = _LEFT * eps * float(np.linalg.norm(right))
    moved, apart = right - start, wrong - right
    if not float(np.linalg.norm(apart)) > 4 * rounding or not np.any(moved):
        return None
    times = float(np.vdot(wrong - start, moved) / np.vdot(moved, moved))
    if float(np.linalg.norm(wrong - start - times * moved)) <= rounding:
        return "momentum", times
    (kept, share), *_ = np.linalg.lstsq(np.stack([start, right], 1), wrong, rcond=None)
    if float(np.linalg.norm(wrong - kept * start - share * right)) > rounding or not share > 1:
        return None
    values, momentum = share / (share - 1), kept / (1 - share)
    whole = abs(values - round(values)) <= _CLOSE * values
    return ("variance", float(share)) if whole and 0 <= momentum <= 1 else None


def averaged_weights(
    name: str,
    before: Mapping[str, Any],
    due: Mapping[str, Any],
    made: Any,
    trained: Sequence[str],
    eps: float,
) -> str:
    """The trained tensor of which another is a running average, where the candidate's took in its weights before the update, and not those after; ''
    where it is not so.

    Args:
        name: of the average.
        before, due: all tensors before the step, and after it in the reference.
        made: the average after it in the candidate.
        trained: names of tensors that the step updates.
        eps: of the precision.
    """
    start, right, wrong = (np.asarray(a, np.float64).ravel() for a in (before[name], due[name], made))
    rounding = _LEFT * eps * float(np.linalg.norm(right))

    for other in trained:
        if before[other].shape != before[name].shape:
            continue
        taken = [
            np.stack([start, np.asarray(state[other], np.float64).ravel()], 1) for state in (due, before)
        ]
        shares, *_ = np.linalg.lstsq(taken[0], right, rcond=None)
        off = [
            float(np.linalg.norm(found - each @ shares))
            for found, each in zip((right, wrong), taken, strict=True)
        ]
        if max(off) <= rounding and abs(shares.sum() - 1) <= _CLOSE:
            return other
    return ""
