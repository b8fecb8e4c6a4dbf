"""Signatures of clipping."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from parity.common import reference
from parity.common.diagnosis import limits
from parity.common.diagnosis.explain.signatures.base import Case, Match, Tensors, farthest, ratio_of
from parity.common.diagnosis.explain.spec_variants import neighbours, said
from parity.common.record.trace import Array, Trace
from parity.common.spec.optimizers import OptimizerBase


def _whole(given: Trace) -> dict[str, Array]:
    """The whole gradient that clipping was given, by parameter."""
    named = given.replicas[0].items()
    return {n.partition("/")[2]: np.asarray(v, np.float64) for n, v in named if n.startswith("gradient/")}


def _clipped(made: Trace) -> list[dict[str, Array]]:
    """What became of it, of each replica."""
    return [
        {n.partition("/")[2]: np.asarray(v, np.float64) for n, v in state.items() if n.startswith("clipped/")}
        for state in made.replicas
    ]


def _left(case: Case, made: Trace, expected: Sequence[Tensors]) -> float:
    """How far what the replicas made is from what is expected of each."""
    pairs = zip(expected, _clipped(made), strict=True)
    return max(farthest({n: own[n] for n in own if n not in case.zero_gradients}, of) for own, of in pairs)


def _norm(tensors: Tensors) -> float:
    return float(np.sqrt(sum(np.sum(value**2) for value in tensors.values())))


def _clip_match(case: Case, expected: Sequence[Tensors], tried: str, **facts: str) -> Match | None:
    """Where the suspect's clipped gradients are as expected of each replica: a match, with what was due."""
    due = reference.clip(case.spec.optimizer, _whole(case.given))
    before = _left(case, case.made, [due] * case.replicas)
    after = _left(case, case.made, expected)
    if after > case.allowed or before <= case.allowed:
        return None
    corrected: list[Tensors] = [{f"clipped/{n}": v for n, v in due.items()}] * case.replicas
    return Match(facts, before, after, tried, corrected if case.suspect == "candidate" else ())


def clipping_off(case: Case) -> Match | None:
    """The gradient is as long after as before, at every traced step."""
    for _, given, made in case.traced():
        if _left(case, made, [_whole(given)] * len(made.replicas)) > case.allowed:
            return None
    whole = _whole(case.given)
    norm = _norm(whole)
    tried = f"at every traced step the clipped gradients are the unclipped ones, here of norm {norm:.6g}"
    return _clip_match(case, [whole] * case.replicas, tried, norm=f"{norm:.6g}")


def clipped_by_share(case: Case) -> Match | None:
    """Each replica clips the whole gradient by the norm of its own share of it."""
    optimizer = case.spec.optimizer
    if optimizer.clip_global_norm is None or case.replicas == 1:
        return None

    def expected(given: Trace, made: Trace, unit: Callable[[float, float], float]) -> list[Tensors] | None:
        whole = _whole(given)
        found: list[Tensors] = []
        count = float(given.replicas[0]["total/count"])
        for state in made.replicas:
            own = {
                n: np.asarray(state[f"local_gradient/{n}"]) for n in whole if f"local_gradient/{n}" in state
            }
            if len(own) < len(whole):
                return None
            norm = _norm(own) / unit(count, max(float(state["count"]), 1.0))
            times = reference.clip_factor(optimizer.clip_global_norm, optimizer.clip_epsilon, norm)
            found.append({n: times * value for n, value in whole.items()})
        return found

    units: list[Callable[[float, float], float]] = [lambda n, _: n, lambda _, own: own, lambda *_: 1.0]
    for unit in units:
        here = expected(case.given, case.made, unit)
        others = [(made, expected(given, made, unit)) for _, given, made in case.traced()]
        if here is None or any(e is None or _left(case, made, e) > case.allowed for made, e in others):
            continue
        norms = ", ".join(f"{_norm(own):.6g}" for own in _clipped(case.made))
        tried = (
            f"each replica's gradient is clipped by the norm of its own share of it; left with norms {norms}"
        )
        found = _clip_match(case, here, tried, norms=norms)
        if found is not None:
            return found
    return None


def clipped_by_part(case: Case) -> Match | None:
    """Elements fall into a few parts, each clipped by its own norm instead of the whole one's."""
    whole, optimizer = _whole(case.given), case.spec.optimizer
    limit = optimizer.clip_global_norm
    if limit is None:
        return None
    for made in _clipped(case.made):
        flat = np.concatenate([whole[n].ravel() for n in made])
        mine = np.concatenate([made[n].ravel() for n in made])
        some = np.abs(flat) > np.abs(flat).max() * limits.FITS_READ_OFF
        ratios = np.where(some, mine / np.where(some, flat, 1.0), 0.0)
        factors = np.unique(np.round(ratios[some], 6))
        if not 1 <= len(factors) <= max(case.replicas, 2):
            continue
        if len(factors) == 1 and case.replicas == 1:
            continue
        norms, expected = [], {n: np.array(v) for n, v in whole.items()}
        for factor in factors:
            inside = {n: _near(whole[n], made[n], factor) for n in made}
            norm = float(np.sqrt(sum(np.sum(whole[n][inside[n]] ** 2) for n in made)))
            norms.append(norm)
            times = reference.clip_factor(limit, optimizer.clip_epsilon, norm)
            for n in made:
                expected[n] = np.where(inside[n], whole[n] * times, expected[n])
        tried = "parts of the gradient are clipped by their own norms, " + ", ".join(
            f"{n:.6g}" for n in norms
        )
        found = _clip_match(
            case, [expected] * case.replicas, tried, norms=", ".join(f"{n:.6g}" for n in norms)
        )
        if found is not None:
            return found
    return None


def _near(whole: Array, made: Array, factor: float) -> Array:
    inside: Array = np.abs(made - factor * whole) <= limits.FITS_SPEC_NORM * np.abs(whole)
    return inside


def clipped_to_another_limit(case: Case) -> tuple[str, Match] | None:
    """(field, match): every gradient is scaled by one number, or as with another setting."""
    whole = _whole(case.given)
    for field, value, optimizer in _clippings(case):
        expected = reference.clip(optimizer, whole)
        words = said(value)
        tried = f"NumPy's clipping with {field} {words} gives these gradients"
        own = said(getattr(case.spec.optimizer, field))
        found = _clip_match(
            case, [expected] * case.replicas, tried, field=field, value=words, own=own, where="optimizer"
        )
        if found is not None:
            return field, found
    return None


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
    whole = float(np.sqrt(sum(np.sum(v**2) for v in _whole(case.given).values())))
    ratio = ratio_of(list(_whole(case.given).values()), list(_clipped(case.made)[0].values()))
    if ratio is not None and 0 < ratio < 1 and own == "clip_global_norm":
        limit = float(f"{ratio * (whole + (optimizer.clip_epsilon or 0.0)):.12g}")
        yield own, limit, optimizer.model_copy(update={own: limit})
