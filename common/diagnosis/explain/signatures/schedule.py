"""Signatures of the scalars of a step: learning rate, bias corrections."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from parity.common import reference
from parity.common.diagnosis import limits
from parity.common.diagnosis.explain.signatures.base import Case, Match, named_ratio
from parity.common.diagnosis.explain.signatures.optimizer import without_correction
from parity.common.diagnosis.explain.spec_variants import neighbours, rounded_fields, said
from parity.common.record.trace import Trace
from parity.common.reference.schedules import StepScalars
from parity.common.spec import TrainSpec

_SCALAR = "scalar/"

Scalars = dict[str, float]


def scalars_of(trace: Trace) -> list[Scalars]:
    """The scalars that each replica's own schedule gave."""
    return [
        {n.removeprefix(_SCALAR): float(v) for n, v in state.items() if n.startswith(_SCALAR)}
        for state in trace.replicas
    ]


def due_scalars(case: Case, step: int | None = None, spec: TrainSpec | None = None) -> Scalars | None:
    """The scalars of a step; None where they depend on what came before."""
    spec = case.spec if spec is None else spec
    at = case.step if step is None else step
    if at is None or at < 0 or spec.loss_scale is not None or spec.schedule.kind == "reduce_on_plateau":
        return None
    return StepScalars(spec).scalars(at)


def _apart(one: Mapping[str, float] | None, other: Mapping[str, float]) -> float:
    if one is None or one.keys() != other.keys():
        return float("inf")
    pairs = [(one[name], other[name]) for name in one]
    return max((abs(a - b) / max(abs(a), abs(b)) for a, b in pairs if a != b), default=0.0)


def _match(case: Case, tried: str, **facts: str) -> Match:
    due = due_scalars(case)
    far = max(_apart(due, own) for own in scalars_of(case.made))
    corrected = [{_SCALAR + n: np.array(v) for n, v in (due or {}).items()}] * case.replicas
    return Match(facts, far, 0.0, tried, corrected if case.suspect == "candidate" else ())


def _steps(case: Case) -> list[tuple[int, list[Scalars]]]:
    """(step, scalars of the replicas) of all traced steps."""
    here = [] if case.step is None else [(case.step, scalars_of(case.made))]
    return here + [(step, scalars_of(made)) for step, _, made in case.traced()]


def _wrong_here(case: Case) -> bool:
    due = due_scalars(case)
    return due is not None and any(_apart(due, own) > limits.FITS_SCALAR for own in scalars_of(case.made))


def _always(case: Case, of: Any) -> bool:
    """Whether scalars are at every traced step what a function of the step says."""
    if not _wrong_here(case):
        return False
    for step, replicas in _steps(case):
        expected = of(step)
        if expected is None or any(_apart(expected, own) > limits.FITS_SCALAR for own in replicas):
            return False
    return True


def per_replica(case: Case) -> Match | None:
    """The schedule is as many times as far as there are replicas."""
    return _times(case, case.replicas, "replicas")


def per_micro_batch(case: Case) -> Match | None:
    """The schedule is as many times as far as there are micro-batches."""
    return _times(case, case.micro_batches, "micro-batches")


def _times(case: Case, factor: int, what: str) -> Match | None:
    if factor == 1:
        return None
    for shift in (0, factor - 1):
        if _always(case, lambda step, shift=shift: _either(case, step, step * factor + shift)):
            tried = f"at every traced step the scalars are those of step {factor} s{f' + {shift}' if shift else ''}"
            return _match(case, tried, factor=str(factor), what=what)
    return None


def _either(case: Case, step: int, other: int) -> Scalars | None:
    """All scalars of the other step, or only the rate where corrections go by updates."""
    theirs, due = due_scalars(case, other), due_scalars(case, step)
    own = next((found for at, replicas in _steps(case) for found in replicas if at == step), None)
    if theirs is None or due is None or own is None:
        return None
    rates = reference.step_scalars(case.spec.optimizer, step, theirs["learning_rate"])
    return min((theirs, rates), key=lambda scalars: _apart(scalars, own))


def shifted(case: Case) -> Match | None:
    """The schedule is some steps ahead or behind."""
    for shift in (1, -1, 2, -2):
        if _always(case, lambda step, shift=shift: _either(case, step, max(0, step + shift))):
            words = f"{abs(shift)} step{'s' if abs(shift) > 1 else ''} {'ahead' if shift > 0 else 'behind'}"
            return _match(
                case, f"at every traced step the scalars are those of step s{shift:+d}", words=words
            )
    return None


def corrections_shifted(case: Case) -> Match | None:
    """The rate is right, but the bias corrections are those of another step."""
    for shift in (1, -1):

        def of(step: int, shift: int = shift) -> Scalars | None:
            due = due_scalars(case, step)
            if due is None or step + shift < 0:
                return due
            return reference.step_scalars(case.spec.optimizer, step + shift, due["learning_rate"])

        if _always(case, of):
            words = f"1 step {'ahead' if shift > 0 else 'behind'}, in the bias corrections only,"
            return _match(
                case, f"at every traced step the corrections are those of step s{shift:+d}", words=words
            )
    return None


def scaled(case: Case) -> tuple[str, Match] | None:
    """(words, match): the rate is one multiple of the due one at every traced step."""
    due = due_scalars(case)
    if due is None or not _wrong_here(case) or not due["learning_rate"]:
        return None
    ratio = scalars_of(case.made)[0].get("learning_rate", 0.0) / due["learning_rate"]
    if abs(ratio - 1) <= limits.FITS_SCALAR:
        return None

    def of(step: int) -> Scalars | None:
        found = due_scalars(case, step)
        if found is None:
            return None
        return reference.step_scalars(case.spec.optimizer, step, found["learning_rate"] * ratio)

    def only_rate(step: int) -> Scalars | None:
        found = due_scalars(case, step)
        return found if found is None else {**found, "learning_rate": found["learning_rate"] * ratio}

    if not (_always(case, of) or _always(case, only_rate)):
        return None
    _, words = named_ratio(case, ratio)
    return words, _match(
        case, f"at every traced step the rate is {ratio:.9g} times the due one", factor=words
    )


def uncorrected(case: Case) -> Match | None:
    """The scalars are those of moments that are not corrected."""

    def of(step: int) -> Scalars | None:
        due = due_scalars(case, step)
        return None if due is None else without_correction(due)

    if not _always(case, of):
        return None
    return _match(case, "at every traced step the scalars are those without bias correction")


def _changed(case: Case) -> Iterator[tuple[str, str, Any, Any, TrainSpec]]:
    """(part of the spec, field, value, own value, changed spec) of schedule and optimizer."""
    for part in ("schedule", "optimizer"):
        own = getattr(case.spec, part)
        for field, value, changed in _neighbours(own):
            yield part, field, value, getattr(own, field), case.spec.model_copy(update={part: changed})
        warmup = getattr(own, "warmup", None)
        for field, value, changed in _neighbours(warmup) if warmup is not None else ():
            spec = case.spec.model_copy(update={part: own.model_copy(update={"warmup": changed})})
            yield "schedule.warmup", field, value, getattr(warmup, field), spec


def _neighbours(spec: Any) -> Iterable[tuple[str, Any, Any]]:
    yield from neighbours(spec)
    # Numbers of steps, by one and by a factor of two.
    for name in type(spec).model_fields:
        value = getattr(spec, name)
        if isinstance(value, int) and not isinstance(value, bool):
            for other in {value - 1, value + 1, value * 2, value // 2, 0} - {value}:
                try:
                    yield name, other, type(spec).parse({**spec.to_dict(), name: other})
                except ValueError:
                    continue


def other_setting(case: Case) -> tuple[str, Match] | None:
    """(field, match): the scalars are those of a spec with one field changed."""
    if not _wrong_here(case):
        return None
    for part, field, value, own, spec in _changed(case):
        if _always(case, lambda step, spec=spec: due_scalars(case, step, spec)):
            tried = f"at every traced step the scalars are those with {part}.{field} {said(value)}"
            facts = {"field": field, "value": said(value), "own": said(own), "where": part}
            return field, _match(case, tried, **facts)
    return None


def rounded(case: Case) -> Match | None:
    """The scalars are the due ones rounded to float32, or made of numbers that were."""

    def of(step: int) -> Scalars | None:
        due = due_scalars(case, step)
        return None if due is None else {n: float(np.float32(v)) for n, v in due.items()}

    def rate(step: int) -> Scalars | None:
        due = due_scalars(case, step)
        if due is None:
            return None
        return reference.step_scalars(case.spec.optimizer, step, float(np.float32(due["learning_rate"])))

    what = "the learning rate of every step" if _always(case, of) or _always(case, rate) else ""
    for part in ("schedule", "optimizer"):
        for field, _, changed in rounded_fields(getattr(case.spec, part)):
            spec = case.spec.model_copy(update={part: changed})
            if not what and _always(case, lambda step, spec=spec: due_scalars(case, step, spec)):
                what = f"{part}.{field}"
    return _match(case, f"the scalars are those with {what} rounded to float32", what=what) if what else None
