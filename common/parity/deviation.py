"""Relative differences of curves and tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from parity.common.record import RunRecord
from parity.common.state.canonical import State
from parity.common.state.zero_gradient import rounding_elements

Curve = NDArray[np.float64]

# A number that masks is at least this, and so many times larger than all others.
_MASK, _MASKED = 1e4, 1e3
# The columns that a recorded script may not leave out.
ALWAYS_RECORDED = ("loss_sum", "count")


def curve_deviation(reference: Curve, candidate: Curve) -> Curve:
    """|a - b| / max(|a|, |b|) by step; 0 where both are 0, infinite where either is not finite."""
    scale = np.maximum(np.abs(reference), np.abs(candidate))
    with np.errstate(invalid="ignore", divide="ignore"):
        result = np.where(scale == 0, 0.0, np.abs(reference - candidate) / scale)
    return np.where(np.isfinite(reference) & np.isfinite(candidate), result, np.inf)


def skipped(record: RunRecord) -> NDArray[np.bool_]:
    """Return bool (steps,): the steps whose gradients overflowed float16, so that nothing was updated."""
    overflowed: NDArray[np.bool_] = ~np.isfinite(record.columns["gradient_norm"])
    return overflowed & (record.run_info.loss_scale is not None)


def column_deviation(name: str, reference: RunRecord, candidate: RunRecord) -> Curve:
    """The deviation of two recorded curves.

    Where both runs skipped a step, numbers that are finite in neither agree: one overflow is like
    another. Where only one run skipped it, its gradient norm is infinitely far from the other's.
    Where either is a script's, and left the number out, there is nothing to judge: 0.
    """
    ours, theirs = reference.columns[name], candidate.columns[name]
    overflowed = skipped(reference) & skipped(candidate) & ~np.isfinite(ours) & ~np.isfinite(theirs)
    left_out = ~recorded_rows(name, reference) | ~recorded_rows(name, candidate)
    return np.where(overflowed | left_out, 0.0, curve_deviation(ours, theirs))


def recorded_rows(name: str, record: RunRecord) -> NDArray[np.bool_]:
    """Return bool (steps,): the steps at which a column was recorded.

    A run of a spec records all columns or none; scripts write NaN for a number that is not known.
    """
    if record.train_spec is not None or name in ALWAYS_RECORDED:
        return np.ones(len(record.steps), np.bool_)
    found: NDArray[np.bool_] = ~np.isnan(record.columns[name])
    return found


def unmasked(values: NDArray[Any]) -> NDArray[np.bool_] | None:
    """Where the numbers of an array are that holds others a thousand times larger, as masked scores of -1e9 are; else None.

    Beside such ones a difference of all others looks like rounding.
    """
    sizes = np.abs(np.asarray(values, np.float64))
    largest = sizes.max(initial=0.0)
    if not np.isfinite(largest) or largest < _MASK:
        return None
    found: NDArray[np.bool_] = sizes < largest / 2
    return found if found.any() and largest > _MASKED * sizes[found].max() > 0 else None


def tensor_deviation(
    reference: NDArray[np.generic],
    candidate: NDArray[np.generic],
    *,
    largest: float = 0.0,
    overflow_agrees: bool = False,
) -> float:
    """Return max |a - b| / max(|a|, |b|), the relative deviation of two tensors of any shape and dtype.

    The largest difference over the largest element: sees a permutation, which a comparison of means
    or of norms would not. Infinite where shapes differ, or where an element is not finite.

    Args:
        largest: the largest absolute value of the whole tensor, where these two are parts of one.
        overflow_agrees: leave out elements that are finite in neither: one overflow is like another.
    """
    a, b = np.asarray(reference, np.float64), np.asarray(candidate, np.float64)
    if a.shape != b.shape:
        return float("inf")
    finite = np.isfinite(a)
    if not finite.all() and overflow_agrees and np.array_equal(finite, np.isfinite(b)):
        a, b, finite = a[finite], b[finite], finite[finite]
    if not (finite.all() and np.isfinite(b).all()):
        return float("inf")
    scale = max(np.abs(a).max(initial=0.0), np.abs(b).max(initial=0.0), largest)
    return float(np.abs(a - b).max(initial=0.0) / scale) if scale else 0.0


def compared_states(
    which: str, reference: RunRecord, candidate: RunRecord
) -> tuple[State, State, dict[str, float]]:
    """A recorded state of both as it is compared.

    Of the first gradients without tensors that no update was of; of the final state of float64 scripts with the reference's elements in both where
    the first gradients are rounding, as of an attention's key bias.

    Returns:
        The reference's, the candidate's, and by tensor how far apart such elements were.
    """
    ours, theirs = reference.state(which), candidate.state(which)
    if which == "first_gradients":
        return *without_unused(ours, theirs), {}
    records = reference, candidate
    scripts = all(r.train_spec is None and r.has("first_gradients") for r in records)
    if which != "final" or not scripts or any(r.run_info.precision != "float64" for r in records):
        return ours, theirs, {}
    left_out = {}
    for name, rounding in rounding_elements(*(r.state("first_gradients") for r in records)).items():
        if rounding.any() and name in ours and name in theirs and ours[name].shape == theirs[name].shape:
            settled = np.where(rounding, ours[name], theirs[name])
            if apart := tensor_deviation(settled, theirs[name]):
                left_out[name], theirs[name] = apart, settled
    return ours, theirs, left_out


def without_unused(ours: State, theirs: State) -> tuple[State, State]:
    """Two states of gradients without the tensors that are zero in one and not in the other: what no update was of has no gradient in torch, and
    in Keras zeros.
    """
    first, second = (
        {name: array for name, array in state.items() if name in other or np.any(array)}
        for state, other in ((ours, theirs), (theirs, ours))
    )
    return first, second


def state_deviations(reference: State, candidate: State) -> dict[str, float]:
    """Deviation of every tensor of either state; infinite for one that only one side has."""
    return {
        name: tensor_deviation(reference[name], candidate[name])
        if name in reference and name in candidate
        else float("inf")
        for name in sorted({*reference, *candidate})
    }
