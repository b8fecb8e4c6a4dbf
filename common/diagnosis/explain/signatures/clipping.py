"""Signatures of clipping."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from parity.common import reference
from parity.common.diagnosis import limits
from parity.common.diagnosis.explain.case import Case, TracedStep
from parity.common.diagnosis.explain.signatures.base import (
    Match,
    Tensors,
    below,
    farthest,
    is_claimed,
    numbers,
    ratio_of,
    signature_of,
)
from parity.common.diagnosis.explain.spec_variants import neighbours, said, setting
from parity.common.record.trace import Array, Trace
from parity.common.spec.optimizers import OptimizerBase


def _left(case: Case, made: Trace, expected: Sequence[Tensors]) -> float:
    """How far what the replicas made is from what is expected of each."""
    clipped = [below(state, "clipped/") for state in made.replicas]
    return max(
        farthest({n: own[n] for n in own if n not in case.zero_gradients}, of)
        for own, of in zip(expected, clipped, strict=True)
    )


def _norm(tensors: Tensors) -> float:
    return float(np.sqrt(sum(np.sum(value**2) for value in tensors.values())))


# What is expected of each replica of a case; what is tried, in words; facts; a free number that was fitted.
Other = tuple[Callable[[Case], Sequence[Tensors]], str, dict[str, str], float | None]


@signature_of
def clip_signature(case: Case, others: Callable[[Case], Iterator[Other]]) -> Iterator[Match]:
    """Other clippings that give the clipped gradients of the step; none where the spec has no clipping."""
    due = reference.clip(case.spec.optimizer, below(case.given, "gradient/"))
    before = _left(case, case.made, [due] * case.replicas)
    corrected = [{f"clipped/{n}": v for n, v in due.items()}] * case.replicas
    if _own_field(case.spec.optimizer) is None or (before <= case.allowed and case.claim is None):
        return
    for expected, tried, facts, value in others(case):
        if not is_claimed(case, facts):
            continue
        after = _left(case, case.made, expected(case))
        if after <= case.allowed or case.claim is not None:
            yield Match(facts, before, after, tried, corrected, value=value)


def _own_field(optimizer: OptimizerBase) -> str | None:
    """The field that the spec clips by; None: it does not clip."""
    return next((field for field in _FIELDS if getattr(optimizer, field) is not None), None)


_FIELDS = ("clip_global_norm", "clip_norm", "clip_value")


@clip_signature
def clipping_off(case: Case) -> Iterator[Other]:
    """The gradient is as long after as before."""
    norm = f"{_norm(below(case.given, 'gradient/')):.6g}"
    tried = f"the clipped gradients are the unclipped ones, here of norm {norm}"
    yield lambda at: [below(at.given, "gradient/")] * at.replicas, tried, {"norm": norm}, None


@clip_signature
def clipped_by_share(case: Case) -> Iterator[Other]:
    """Each replica clips the whole gradient by the norm of its own share of it."""
    if case.spec.optimizer.clip_global_norm is None or case.replicas == 1:
        return
    # What the share was divided by, of the counts of the global batch and of the replica.
    units: list[Callable[[float, float], float]] = [lambda n, _: n, lambda _, own: own, lambda *_: 1.0]
    norms = numbers([_norm(below(state, "clipped/")) for state in case.made.replicas])
    tried = f"each replica's gradient is clipped by the norm of its own share of it; left with norms {norms}"
    for unit in units:
        found = [(step.made, _by_share(case, step, unit)) for step in case.steps]
        if all(expected and _left(case, made, expected) <= case.allowed for made, expected in found):
            yield partial(_here, found[0][1]), tried, {"norms": norms}, None


def _by_share(case: Case, step: TracedStep, unit: Callable[[float, float], float]) -> list[Tensors]:
    """The whole gradient of a step, clipped by each replica's own norm; nothing where shares are not known."""
    optimizer, whole = case.spec.optimizer, below(step.given, "gradient/")
    count, found = float(step.given["total/count"]), list[Tensors]()
    for state in step.made.replicas:
        share = below(state, "local_gradient/")
        if not whole.keys() <= share.keys():
            return []
        norm = _norm({n: share[n] for n in whole}) / unit(count, max(float(state["count"]), 1.0))
        times = reference.clip_factor(optimizer.clip_global_norm, optimizer.clip_epsilon, norm)
        found.append({n: times * value for n, value in whole.items()})
    return found


@clip_signature
def clipped_by_part(case: Case) -> Iterator[Other]:
    """Elements fall into a few parts, each clipped by its own norm instead of the whole one's."""
    optimizer, whole = case.spec.optimizer, below(case.given, "gradient/")
    for made in [below(state, "clipped/") for state in case.made.replicas]:
        if optimizer.clip_global_norm is None:
            return
        flat = np.concatenate([whole[n].ravel() for n in made])
        mine = np.concatenate([made[n].ravel() for n in made])
        some = np.abs(flat) > np.abs(flat).max() * limits.FITS_READ_OFF
        factors = np.unique(np.round(mine[some] / flat[some], 6))
        if not 1 <= len(factors) <= max(case.replicas, 2) or (len(factors) == 1 and case.replicas == 1):
            continue
        norms, expected = [], {n: np.array(v) for n, v in whole.items()}
        for factor in factors:
            inside = {n: _near(whole[n], made[n], factor) for n in made}
            norms.append(_norm({n: whole[n][inside[n]] for n in made}))
            times = reference.clip_factor(optimizer.clip_global_norm, optimizer.clip_epsilon, norms[-1])
            for n in made:
                expected[n] = np.where(inside[n], whole[n] * times, expected[n])
        tried = f"parts of the gradient are clipped by their own norms, {numbers(norms)}"
        yield partial(_here, [expected] * case.replicas), tried, {"norms": numbers(norms)}, None


def _here(expected: Sequence[Tensors], _: Case) -> Sequence[Tensors]:
    """What was computed for the case itself; of another step it is computed anew."""
    return expected


def _near(whole: Array, made: Array, factor: float) -> Array:
    inside: Array = np.abs(made - factor * whole) <= limits.FITS_SPEC_NORM * np.abs(whole)
    return inside


@clip_signature
def clipped_to_another_limit(case: Case) -> Iterator[Other]:
    """Every gradient is scaled by one number, or as with another setting."""
    for field, value, optimizer, fitted in _clippings(case):
        facts = setting(case.spec.optimizer, field, value, "optimizer")
        tried = f"NumPy's clipping with {field} {said(value)} gives these gradients"

        def clipped(at: Case, optimizer: OptimizerBase = optimizer) -> Sequence[Tensors]:
            return [reference.clip(optimizer, below(at.given, "gradient/"))] * at.replicas

        yield clipped, tried, facts, fitted


def _clippings(case: Case) -> Iterator[tuple[str, Any, OptimizerBase, float | None]]:
    """(field, value, the optimizer with it, the value where it was fitted)."""
    optimizer = case.spec.optimizer
    own = _own_field(optimizer)
    assert own is not None
    for field, value, changed in neighbours(optimizer):
        if field.startswith("clip"):
            yield field, value, changed, None
    limit = getattr(optimizer, own)
    for field in _FIELDS:
        if field != own:
            yield field, limit, optimizer.model_copy(update={own: None, field: limit}), None
    whole, clipped = below(case.given, "gradient/"), below(case.made.replicas[0], "clipped/")
    ratio = ratio_of(whole.values(), clipped.values())
    if ratio is not None and (0 < ratio < 1 or case.claim) and own == "clip_global_norm":
        fitted = float(f"{ratio * (_norm(whole) + (optimizer.clip_epsilon or 0.0)):.12g}")
        limit = case.fitted(fitted)
        yield own, limit, optimizer.model_copy(update={own: limit}), limit
