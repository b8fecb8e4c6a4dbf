"""Signatures of the scalars of a step: learning rate, bias corrections.

What is tried is a function of the step that says what the scalars of each traced step would be.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from parity.common import reference
from parity.common.diagnosis import limits
from parity.common.diagnosis.explain.case import Case
from parity.common.diagnosis.explain.signatures.base import (
    Match,
    is_claimed,
    named_ratio,
    signature_of,
)
from parity.common.diagnosis.explain.signatures.optimizer import without_correction
from parity.common.diagnosis.explain.spec_variants import changed_to, neighbours, rounded_fields, setting
from parity.common.diagnosis.explain.step_reference import scalars_of
from parity.common.reference.schedules import StepScalars
from parity.common.spec import TrainSpec
from parity.common.spec.base import Spec

Scalars = dict[str, float]


@dataclass(frozen=True)
class Other:
    """Another schedule. tried: in words. of: of each step its scalars, None where they cannot be known.

    value: a free number that was fitted.
    """

    tried: str
    of: Callable[[int], Scalars | None]
    facts: dict[str, str] = field(default_factory=dict)
    value: float | None = None


@signature_of
def schedule_signature(case: Case, others: Callable[[Case], Iterator[Other]]) -> Iterator[Match]:
    """Other schedules that give the scalars of all traced steps."""
    due, made = due_scalars(case, case.step), [scalars_of(state) for state in case.made.replicas]
    far = 0.0 if due is None else max(_apart(due, own) for own in made)
    if due is None or far <= limits.FITS_SCALAR:
        return
    corrected = [{f"scalar/{n}": np.array(v) for n, v in due.items()}] * case.replicas
    for other in others(case):
        if is_claimed(case, other.facts) and _always(case, other.of):
            yield Match(other.facts, far, 0.0, other.tried, corrected, value=other.value)


def due_scalars(case: Case, step: int | None, spec: TrainSpec | None = None) -> Scalars | None:
    """The scalars of a step; None where they depend on what came before."""
    spec = spec or case.spec
    if step is None or step < 0 or spec.loss_scale is not None or spec.schedule.kind == "reduce_on_plateau":
        return None
    return StepScalars(spec).scalars(step)


def _apart(one: Mapping[str, float] | None, other: Mapping[str, float]) -> float:
    if one is None or one.keys() != other.keys():
        return float("inf")
    pairs = [(one[name], other[name]) for name in one]
    return max((abs(a - b) / max(abs(a), abs(b)) for a, b in pairs if a != b), default=0.0)


def _always(case: Case, of: Callable[[int], Scalars | None]) -> bool:
    """Whether scalars are at every traced step what a function of the step says."""
    made = [(traced.step, scalars_of(state)) for traced in case.steps for state in traced.made.replicas]
    return all(_apart(of(step), own) <= limits.FITS_SCALAR for step, own in made)


def _with_rate(case: Case, step: int, rate: float) -> Scalars:
    """The scalars of a step with another rate."""
    return reference.step_scalars(case.spec.optimizer, step, rate)


def _of_step(case: Case, factor: int, shift: int, step: int) -> Scalars | None:
    """All scalars of another step, or only the rate where corrections go by updates."""
    theirs = due_scalars(case, max(0, factor * step + shift))
    if theirs is None:
        return None
    own = next(scalars_of(traced.made.replicas[0]) for traced in case.steps if traced.step == step)
    both = theirs, _with_rate(case, step, theirs["learning_rate"])
    return min(both, key=lambda scalars: _apart(scalars, own))


@schedule_signature
def per_replica(case: Case) -> Iterator[Other]:
    """The schedule is as many times as far as there are replicas."""
    return _times(case, case.replicas)


@schedule_signature
def per_micro_batch(case: Case) -> Iterator[Other]:
    """The schedule is as many times as far as there are micro-batches."""
    return _times(case, case.micro_batches)


def _times(case: Case, factor: int) -> Iterator[Other]:
    for shift in (0, factor - 1) if factor > 1 else ():
        more = f" + {shift}" if shift else ""
        tried = f"at every traced step the scalars are those of step {factor} s{more}"
        farther = partial(_of_step, case, factor, shift)
        yield Other(tried, farther, {"factor": str(factor)})


@schedule_signature
def shifted(case: Case) -> Iterator[Other]:
    """The schedule is some steps ahead or behind."""
    for shift in (1, -1, 2, -2):
        tried = f"at every traced step the scalars are those of step s{shift:+d}"
        words = f"{abs(shift)} step{'s' if abs(shift) > 1 else ''} {'ahead' if shift > 0 else 'behind'}"
        later = partial(_of_step, case, 1, shift)
        yield Other(tried, later, {"words": words})


def _changed(case: Case, change: Callable[[int, Scalars], Scalars]) -> Callable[[int], Scalars | None]:
    """The due scalars of a step, changed."""

    def of(step: int) -> Scalars | None:
        due = due_scalars(case, step)
        return None if due is None else change(step, due)

    return of


@schedule_signature
def corrections_shifted(case: Case) -> Iterator[Other]:
    """The rate is right, but the bias corrections are those of another step."""
    for shift in (1, -1):

        def later(step: int, due: Scalars, shift: int = shift) -> Scalars:
            return due if step + shift < 0 else _with_rate(case, step + shift, due["learning_rate"])

        tried = f"at every traced step the corrections are those of step s{shift:+d}"
        words = f"1 step {'ahead' if shift > 0 else 'behind'}, in the bias corrections only,"
        yield Other(tried, _changed(case, later), {"words": words})


@schedule_signature
def scaled(case: Case) -> Iterator[Other]:
    """The rate is one multiple of the due one at every traced step."""
    due, made = due_scalars(case, case.step), scalars_of(case.made.replicas[0])
    if not due or not due["learning_rate"]:
        return
    ratio = made.get("learning_rate", 0.0) / due["learning_rate"]
    if abs(ratio - 1) <= limits.FITS_SCALAR:
        return

    def whole(step: int, due: Scalars) -> Scalars:
        return _with_rate(case, step, due["learning_rate"] * ratio)

    def only_rate(_: int, due: Scalars) -> Scalars:
        return {**due, "learning_rate": due["learning_rate"] * ratio}

    tried = f"at every traced step the rate is {ratio:.9g} times the due one"
    _, words, free = named_ratio(case, ratio)
    for change in (whole, only_rate):
        yield Other(tried, _changed(case, change), {"factor": words}, free)


@schedule_signature
def uncorrected(case: Case) -> Iterator[Other]:
    """The scalars are those of moments that are not corrected."""
    tried = "at every traced step the scalars are those without bias correction"
    yield Other(tried, _changed(case, lambda _, due: without_correction(due)))


@schedule_signature
def other_setting(case: Case) -> Iterator[Other]:
    """The scalars are those of a spec with one field changed."""
    for part in ("schedule", "optimizer"):
        own: Any = getattr(case.spec, part)
        for name, value, changed in _neighbours(own):
            spec = case.spec.model_copy(update={part: changed})
            yield _respecified(case, spec, setting(own, name, value, part))
        warmup = getattr(own, "warmup", None)
        if warmup is None:
            continue
        for name, value, changed in _neighbours(warmup):
            spec = case.spec.model_copy(update={part: own.model_copy(update={"warmup": changed})})
            yield _respecified(case, spec, setting(warmup, name, value, "schedule.warmup"))


def _respecified(case: Case, spec: TrainSpec, facts: dict[str, str]) -> Other:
    tried = "at every traced step the scalars are those with {where}.{field} {value}".format_map(facts)
    return Other(tried, partial(due_scalars, case, spec=spec), facts)


def _neighbours(spec: Spec) -> Iterator[tuple[str, Any, Any]]:
    yield from neighbours(spec)
    # Numbers of steps, by one and by a factor of two.
    for name in type(spec).model_fields:
        value = getattr(spec, name)
        if isinstance(value, int) and not isinstance(value, bool):
            for other in {value - 1, value + 1, value * 2, value // 2, 0} - {value}:
                changed = changed_to(spec, name, other)
                if changed is not None:
                    yield name, other, changed


@schedule_signature
def rounded(case: Case) -> Iterator[Other]:
    """The scalars are the due ones rounded to float32, or made of numbers that were."""

    def narrow(_: int, due: Scalars) -> Scalars:
        return {n: float(np.float32(v)) for n, v in due.items()}

    def rate(step: int, due: Scalars) -> Scalars:
        return _with_rate(case, step, float(np.float32(due["learning_rate"])))

    others = [("the learning rate of every step", _changed(case, of)) for of in (narrow, rate)]
    for part in ("schedule", "optimizer"):
        for name, _, changed in rounded_fields(getattr(case.spec, part)):
            spec = case.spec.model_copy(update={part: changed})
            others.append((f"{part}.{name}", partial(due_scalars, case, spec=spec)))
    for what, of in others:
        yield Other(f"the scalars are those with {what} rounded to float32", of, {"what": what})
