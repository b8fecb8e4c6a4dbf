"""Which layer's output is the first that differs between two recorded scripts, by what their recorders tapped."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from parity.common.diagnosis.result import StageSummary
from parity.common.record import RunRecord

_SQUARES, _PROJECTION, _MOVED = range(3)
# Which projection of one is which of the other: as they lie, or the channels of one moved.
_LAYOUTS = ((_PROJECTION, _PROJECTION), (_MOVED, _PROJECTION), (_PROJECTION, _MOVED))


def layers_stage(
    reference: RunRecord,
    candidate: RunRecord,
    allowed: Callable[[int], float],
    among: Sequence[int] | None = None,
) -> StageSummary:
    """The stage of the layers' outputs, over the steps at which both were tapped.

    Args:
        allowed: of a step, the largest deviation relative to an output's norm.
        among: only of these steps; None: of all.
    """
    ours, theirs = reference.script_taps, candidate.script_taps
    if ours is None or theirs is None:
        why = "give both recorders taps=True to have their outputs compared"
        return StageSummary("layers", "not recorded", why)
    names = [name for name in ours.fingerprints if name in theirs.fingerprints]
    steps = np.intersect1d(ours.steps, theirs.steps)
    if among is not None:
        steps = np.intersect1d(steps, np.asarray(among, np.int64))
    if not names or not len(steps):
        why = "at no step that both have: give both recorders the same every="
        if among is not None and not len(among):
            why = "at no followed step with the same samples"
        if not names:
            why = "by other names in each: `layers` of a mapping says which are which"
        return StageSummary("layers", "not recorded", why)
    rows = [np.searchsorted(taps.steps, steps) for taps in (ours, theirs)]
    found = {n: deviations(ours.fingerprints[n][rows[0]], theirs.fingerprints[n][rows[1]]) for n in names}
    table = np.stack(list(found.values()))  # [layers, steps]
    taken = ~np.isnan(table)
    limits = np.array([allowed(int(step)) for step in steps])
    off = taken & (table > limits)
    if not off.any():
        text = f"{len(names)} outputs at {len(steps)} steps, within {np.where(taken, table, 0.0).max():.1e}"
        return StageSummary("layers", "agrees", text)
    row = int(np.flatnonzero(off.any(0))[0])
    place = int(np.flatnonzero(off[:, row])[0])
    text = f"{names[place]} is the first that differs, by {table[place, row]:.2g} of its norm"
    if place:
        text += f"; the {place} before it agree, {names[place - 1]} the last of them"
    deviation, limit = float(table[place, row]), float(limits[row])
    return StageSummary("layers", "differs", text, int(steps[row]), deviation, limit)


def deviations(ours: NDArray[np.float64], theirs: NDArray[np.float64]) -> NDArray[np.float64]:
    """[rows]: how far fingerprints [rows, 3] are apart, relative to the larger norm; NaN where one was not taken.

    The larger of the differences of norms and of projections, these in the layout in which they are closest.
    An output that is infinite or no number deviates infinitely from one that is not, and not at all from another.
    """
    with np.errstate(invalid="ignore"):
        norms = np.sqrt(np.stack([ours[:, _SQUARES], theirs[:, _SQUARES]]))
        projections = np.stack([np.abs(ours[:, a] - theirs[:, b]) for a, b in _LAYOUTS])
        apart = np.where(np.isnan(projections), np.inf, projections).min(0)
        # Of an output without a known size there is only the norm.
        apart = np.where(np.isinf(apart), 0.0, apart)
        largest = np.maximum(norms.max(0), np.finfo(float).tiny)
        found: NDArray[np.float64] = np.maximum(np.abs(norms[0] - norms[1]), apart) / largest
    whole = np.isfinite(norms)
    found = np.where(whole.all(0), found, np.where(whole.any(0), np.inf, 0.0))
    found[np.isnan(ours[:, _SQUARES]) | np.isnan(theirs[:, _SQUARES])] = np.nan
    return found
