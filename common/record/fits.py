"""What the difference of two tensors of a followed step is made of, where that is one number times what is known.

Weight decay may be a line of a script's (`g + k * w`), a penalty in its loss (k / 2 times the squares of the weights), or its
optimizer's. Gradients differ then by k w, and the training need not: the update says that. An update itself that differs by a number times the
weights is decayed on one side alone. A running average that moves by a number times as far has another momentum.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

# Within as many units of rounding updates and slots agree, which are elementwise: see `parity.common.parity.rounding`.
ELEMENTWISE_ULPS = 512.0
# Of a gradient, with all others together, rounding makes no more: a hundred units.
_UNITS = 100.0
# What a number is read off is so many times beyond rounding.
_CLEARLY = 4.0
# What is k w is so up to this share of it.
_CLOSE = 1e-2
# What is left of a fit is rounding, of an average or an update, in units of its norm.
_LEFT = 64.0
# What rounding makes of the shares of an average.
_UNITS_OF_SHARE = 2.0
# A tensor of fewer elements may be a number times its weights by chance.
_ELEMENTS = 8
# A tensor of as many is none, where this share of what it differs by is left at most.
_MANY, _MOSTLY = 64, 0.5
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
    if any(not np.shape(reference[n]) == np.shape(candidate[n]) == np.shape(weights[n]) for n in both):
        return {}
    apart = {n: _exact(candidate[n]) - _exact(reference[n]) for n in both}
    far = {name: _norm(array) for name, array in apart.items()}
    noise = _noise((reference[name] for name in both), eps)
    off = [name for name in both if not far[name] <= noise]

    def left(name: str, factor: float) -> float:
        return _norm(apart[name] - factor * _exact(weights[name]))

    def explains(name: str, factor: float) -> bool:
        return left(name, factor) <= noise + _CLOSE * far[name]

    times = {
        name: _times(apart[name], weights[name])
        for name in both
        if np.size(weights[name]) >= _ELEMENTS and np.any(weights[name])
    }
    alone = [n for n, factor in times.items() if far[n] > _CLEARLY * noise and explains(n, factor)]
    # Rounding of many elements goes along no weights.
    clear = [
        name
        for name, factor in times.items()
        if np.size(weights[name]) >= _MANY and left(name, factor) <= _MOSTLY * far[name]
    ]
    if not alone and not clear:
        return {}
    factor = times[max(alone or clear, key=far.__getitem__)]
    if not alone and sum(left(name, factor) <= _MOSTLY * far[name] for name in clear) < _SEVERAL:
        return {}
    agreed = [name for name in off if explains(name, factor)]
    if len(agreed) < len(off) and sum(name in alone for name in agreed) < _SEVERAL:
        return {}
    axes = {np.ndim(weights[name]) for name in agreed}

    def may_have(name: str) -> bool:
        """Whether a tensor that is off otherwise is by as much as that alone would make, as of another network's it is not."""
        return far[name] >= _MOSTLY * abs(factor) * _norm(weights[name])

    # Of what is within rounding with it and without, that which is closer; of weights that are zero nothing is known yet.
    return {
        name: factor
        for name in both
        if name in agreed
        or (name in off and np.ndim(weights[name]) in axes and may_have(name))
        or (name not in off and left(name, factor) <= far[name])
    }


def differ(reference: Mapping[str, Any], candidate: Mapping[str, Any], eps: float) -> bool:
    """Whether gradients by name differ by more than rounding to `eps` makes of them."""
    noise = _noise(reference.values(), eps)
    both = ((reference[name], candidate[name]) for name in reference.keys() & candidate.keys())
    return any(np.shape(a) != np.shape(b) or not _norm(_exact(b) - _exact(a)) <= noise for a, b in both)


def carried_gradients(
    reference: Mapping[str, Any], candidate: Mapping[str, Any], before: Mapping[str, Any], eps: float
) -> list[str]:
    """The tensors whose gradient is the reference's plus that of the step before, which was not zeroed.

    Args:
        reference, candidate: gradients by name.
        before: those that the step before was given, by name.
        eps: of the precision.
    """
    noise = _noise(reference.values(), eps)
    return [
        name
        for name in reference.keys() & candidate.keys() & before.keys()
        if np.shape(reference[name]) == np.shape(candidate[name]) == np.shape(before[name])
        and (carried := _norm(before[name])) > _CLEARLY * noise
        and _norm(_exact(candidate[name]) - _exact(reference[name]) - _exact(before[name]))
        <= noise + _CLOSE * carried
    ]


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
    for name in sorted(names, key=lambda name: (-np.size(reference[name]), name)):
        due, made, of = (_exact(s[name]) for s in (reference, candidate, what))
        few = of.size < _ELEMENTS
        if not due.shape == made.shape == of.shape or (few and not found):
            continue
        apart = made - due
        rounding, far = 2 * eps * _norm(weights[name]) + _LEFT * eps * _norm(due), _norm(apart)
        if not far > _LEFT * rounding or not np.any(of):
            continue
        times = next(iter(found.values())) if few else _times(apart, of)
        if _norm(apart - times * of) <= rounding + _CLOSE * far:
            found[name] = times
    return found


def averaged(before: Any, due: Any, made: Any, eps: float) -> tuple[str, float] | None:
    """How a running average came out that should have been `due`: ('momentum', b) where it has moved b times as far, ('variance', n / (n - 1))
    where the batch's variance that it takes in is that of n values divided by n - 1; None where it is neither.

    Args:
        before, due, made: of one shape; before the step, and after it in the reference and the candidate.
        eps: of the precision.
    """
    start, right, wrong = (_exact(array).ravel() for array in (before, due, made))
    rounding, moved = _LEFT * eps * _norm(right), right - start
    if not _norm(wrong - right) > 4 * rounding or not np.any(moved):
        return None
    times = _times(wrong - start, moved)
    if _norm(wrong - start - times * moved) <= rounding:
        return "momentum", times
    (kept, share), *_ = np.linalg.lstsq(np.stack([start, right], 1), wrong, rcond=None)
    if _norm(wrong - kept * start - share * right) > rounding or not share > 1:
        return None
    values, momentum = share / (share - 1), kept / (1 - share)
    whole = abs(values - round(values)) <= _CLOSE * values
    return ("variance", float(share)) if whole and 0 <= momentum <= 1 else None


def averaged_weights(
    name: str,
    before: Mapping[str, Any],
    due: Mapping[str, Any],
    made: Mapping[str, Any],
    trained: Sequence[str],
    eps: float,
) -> tuple[str, float] | None:
    """How a running average of a trained tensor's weights comes out, and the norm of what it is made of; None where it is no such average.

    'old' where the candidate's takes in its weights before the update, and the reference's those after it, 'new' where it is the other way round,
    'otherwise' where it is neither, and 'right' where it comes out as it should.

    Args:
        name: of the average.
        before, due, made: all tensors before the step, and after it in the reference and in the candidate.
        trained: names of tensors that the step updates.
        eps: of the precision.
    """
    start, right, wrong = (_exact(state[name]).ravel() for state in (before, due, made))
    rounding = _LEFT * eps * _norm(right)
    for other in (each for each in trained if before[each].shape == before[name].shape):
        old, new, own = (np.stack([start, _exact(state[other]).ravel()], 1) for state in (before, due, made))
        for taken, here, contrary, how in ((new, own, old, "old"), (old, old, own, "new")):
            shares, *_ = np.linalg.lstsq(taken, right, rcond=None)
            # Of what begins at zero nothing says what is kept of it.
            adds_up = abs(shares.sum() - 1) <= _CLOSE if np.any(start) else 0 < shares[1] <= 1
            if _norm(right - taken @ shares) > rounding or not adds_up:
                continue
            size, off = _norm(taken), _norm(wrong - here @ shares)
            # Of 1 - 0.999 in float32 a share has few digits.
            least = rounding + _UNITS_OF_SHARE * eps * size
            if off > _UNITS_OF_SHARE * eps * size and _norm(wrong - contrary @ shares) <= min(
                rounding, off / _CLEARLY
            ):
                return how, size
            # A line through few elements may fit by chance.
            return "otherwise" if off > least and right.size >= _ELEMENTS else "right", size
    return None


def _noise(gradients: Iterable[Any], eps: float) -> float:
    """What rounding makes of one of some gradients at most, as a norm."""
    return _UNITS * eps * math.sqrt(sum(_norm(array) ** 2 for array in gradients))


def _exact(array: Any) -> NDArray[np.float64]:
    return np.asarray(array, np.float64)


def _norm(array: Any) -> float:
    return float(np.linalg.norm(_exact(array)))


def _times(array: Any, of: Any) -> float:
    """The number by which another array comes closest to one."""
    exact = _exact(of)
    return float(np.vdot(array, exact) / np.vdot(exact, exact))
