"""Signatures of clipping."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import wraps
from typing import Any

import numpy as np

from parity.common import reference
from parity.common.diagnosis import limits
from parity.common.diagnosis.explain.case import Case
from parity.common.diagnosis.explain.signatures.base import Match, Tensors, below, farthest, ratio_of
from parity.common.diagnosis.explain.spec_variants import neighbours, said
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


def _said(norms: Sequence[float]) -> str:
    return ", ".join(f"{norm:.6g}" for norm in norms)


# What is expected of each replica; what is tried, in words; facts.
Other = tuple[Sequence[Tensors], str, dict[str, str]]


def clip_signature(others: Callable[[Case], Iterator[Other]]) -> Callable[[Case], Match | None]:
    """Make a signature of wrong clipping: the first of these that gives the clipped gradients of the step."""

    @wraps(others)
    def signature(case: Case) -> Match | None:
        due = reference.clip(case.spec.optimizer, below(case.given, "gradient/"))
        before = _left(case, case.made, [due] * case.replicas)
        if before <= case.allowed:
            return None
        corrected = [{f"clipped/{n}": v for n, v in due.items()}] * case.replicas
        for expected, tried, facts in others(case):
            after = _left(case, case.made, expected)
            if after <= case.allowed:
                return Match(facts, before, after, tried, corrected if case.suspect == "candidate" else ())
        return None

    return signature


@clip_signature
def clipping_off(case: Case) -> Iterator[Other]:
    """The gradient is as long after as before, at every traced step."""
    for _, given, made in case.traced():
        if _left(case, made, [below(given.replicas[0], "gradient/")] * len(made.replicas)) > case.allowed:
            return
    whole = below(case.given, "gradient/")
    norm = f"{_norm(whole):.6g}"
    tried = f"at every traced step the clipped gradients are the unclipped ones, here of norm {norm}"
    yield [whole] * case.replicas, tried, {"norm": norm}


@clip_signature
def clipped_by_share(case: Case) -> Iterator[Other]:
    """Each replica clips the whole gradient by the norm of its own share of it."""
    if case.spec.optimizer.clip_global_norm is None or case.replicas == 1:
        return
    # What the share was divided by, of the counts of the global batch and of the replica.
    units: list[Callable[[float, float], float]] = [lambda n, _: n, lambda _, own: own, lambda *_: 1.0]
    norms = _said([_norm(below(state, "clipped/")) for state in case.made.replicas])
    tried = f"each replica's gradient is clipped by the norm of its own share of it; left with norms {norms}"
    for unit in units:
        expected = _by_share(case, case.ref, case.made, unit)
        others = [(made, _by_share(case, given, made, unit)) for _, given, made in case.traced()]
        if expected and all(theirs and _left(case, made, theirs) <= case.allowed for made, theirs in others):
            yield expected, tried, {"norms": norms}


def _by_share(case: Case, given: Trace, made: Trace, unit: Callable[[float, float], float]) -> list[Tensors]:
    """The whole gradient of a step, clipped by each replica's own norm; nothing where shares are not known."""
    optimizer, whole = case.spec.optimizer, below(given.replicas[0], "gradient/")
    count, found = float(given.replicas[0]["total/count"]), list[Tensors]()
    for state in made.replicas:
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
        tried = f"parts of the gradient are clipped by their own norms, {_said(norms)}"
        yield [expected] * case.replicas, tried, {"norms": _said(norms)}


def _near(whole: Array, made: Array, factor: float) -> Array:
    inside: Array = np.abs(made - factor * whole) <= limits.FITS_SPEC_NORM * np.abs(whole)
    return inside


@clip_signature
def clipped_to_another_limit(case: Case) -> Iterator[Other]:
    """Every gradient is scaled by one number, or as with another setting."""
    whole = below(case.given, "gradient/")
    for field, value, optimizer in _clippings(case):
        own = said(getattr(case.spec.optimizer, field))
        facts = {"field": field, "value": said(value), "own": own, "where": "optimizer"}
        tried = f"NumPy's clipping with {field} {said(value)} gives these gradients"
        yield [reference.clip(optimizer, whole)] * case.replicas, tried, facts


def _clippings(case: Case) -> Iterator[tuple[str, Any, OptimizerBase]]:
    optimizer = case.spec.optimizer
    fields = ("clip_global_norm", "clip_norm", "clip_value")
    own = next((f for f in fields if getattr(optimizer, f) is not None), None)
    for field, value, changed in neighbours(optimizer):
        if field.startswith("clip"):
            yield field, value, changed
    if own is None:
        return
    limit = getattr(optimizer, own)
    for field in fields:
        if field != own:
            yield field, limit, optimizer.model_copy(update={own: None, field: limit})
    whole, clipped = below(case.given, "gradient/"), below(case.made.replicas[0], "clipped/")
    ratio = ratio_of(whole.values(), clipped.values())
    if ratio is not None and 0 < ratio < 1 and own == "clip_global_norm":
        limit = float(f"{ratio * (_norm(whole) + (optimizer.clip_epsilon or 0.0)):.12g}")
        yield own, limit, optimizer.model_copy(update={own: limit})
