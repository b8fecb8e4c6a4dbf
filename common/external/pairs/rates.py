"""Learning rates that follow a schedule: whether both optimizers have the same at every step.

They are read from Keras's schedule and from torch's scheduler before the training; all else that the optimizers do is
then compared at one rate, and both are trained by torch's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from parity.common.base.errors import ExternalModelError, SpecError
from parity.common.diagnosis import limits
from parity.common.diagnosis.result import Explanation, Finding, TensorComparison
from parity.common.external.pairs.bench import Bench
from parity.common.external.pairs.given_gradients import mapped_alone, moved_by, moves, scaled
from parity.common.parity.deviation import tensor_deviation
from parity.common.parity.pace import pace_in_words
from parity.common.spec.external.target import Target

# By so many is tried whether an optimizer follows a schedule of its own.
_UPDATES = 20


def settle_rates(
    bench: Bench, optimizers: tuple[Target, Target], steps: int
) -> tuple[Finding | None, str | None]:
    """Read the learning rates of all steps where an optimizer follows a schedule, and hold both at the highest.

    `bench.rates`, `bench.shares` and the outlines' settings are set; all stays where neither follows one.

    Args:
        bench: both models.
        optimizers: Keras's and torch's.
        steps: of the training.

    Returns:
        Where they differ, and what to report where they do not.

    Raises:
        ExternalModelError: torch's rates are not known before the training, as those that its step() sets.
        SpecError: one follows a schedule, and the other has no one rate; or torch's groups do not follow theirs alike.
    """
    sides = zip((bench.keras, bench.torch), optimizers, strict=True)
    read = [side.rates(optimizer, steps) for side, optimizer in sides]
    if read == [None, None]:
        return None, None
    ours, *_ = _by_group(bench, 0, read[0], steps)
    groups = _by_group(bench, 1, read[1], steps)
    # Keras has one rate, and what it multiplies that by for some tensors shows in the updates.
    theirs = min(groups, key=lambda rates: max(abs(a - b) for a, b in zip(ours, rates, strict=True)))
    highest = max(*ours, *theirs)
    held = {"learning_rate": max(theirs) or highest, "schedule": None}
    keras, torch = (
        outline.model_copy(
            update={"optimizer": info.model_copy(update={"settings": {**info.settings, **held}})}
        )
        for outline in bench.outlines
        if (info := outline.optimizer) is not None
    )
    bench.outlines, bench.rates = (keras, torch), tuple(theirs)
    bench.shares = _shares(optimizers[1], groups, theirs)
    apart = [abs(a - b) / (highest or 1.0) for a, b in zip(ours, theirs, strict=True)]
    step = next((n for n, off in enumerate(apart) if off > limits.SCHEDULED_RATE), None)
    if step is not None:
        torch_info = bench.outlines[1].optimizer
        own = read[1] is None and torch_info is not None and not torch_info.kind
        if own and _updates_agree(bench, optimizers, steps):
            raise ExternalModelError(
                f"{optimizers[1]}: moves its learning rate within step(), as Keras's schedule does, and cannot be asked for it before the"
                " training; have a scheduler move it, and give both, optimizer and scheduler"
            )
        found = _finding(step, apart[step], ours, theirs)
        if own and found.explanation is not None:
            # What its step() makes of the rate that it holds is not known.
            found = replace(found, explanation=replace(found.explanation, confidence="likely"))
        return found, None
    rounded = (
        f"; Keras computes it in float32, at most {max(apart):.2g} of the highest apart" if max(apart) else ""
    )
    return (
        None,
        f"learning rates: equal at each of {steps} steps, {theirs[0]:g} at first, {theirs[-1]:g} at last, {max(theirs):g} at most{rounded}",
    )


def _updates_agree(bench: Bench, optimizers: tuple[Target, Target], steps: int) -> bool:
    """Whether both make the same of the same gradients, each by its own rates, for some updates."""
    gradients = bench.reference(training=True).gradients
    gradients = moved_by(bench, gradients, mapped_alone(bench, bench.keras.read()))
    ours, theirs = moves(bench, optimizers, [scaled(gradients, n) for n in range(min(steps, _UPDATES))], None)
    return max(tensor_deviation(ours[name], theirs[name]) for name in ours) <= limits.SCHEDULED_RATE


def schedule_of(rates: Sequence[float]) -> dict[str, Any]:
    """A schedule of given rates, as a spec has it, for an optimizer with the highest of them."""
    changes = [step for step in range(1, len(rates)) if rates[step] != rates[step - 1]]
    if not changes:
        return {"kind": "constant"}
    fractions = [rates[step] / max(rates) for step in (0, *changes)]
    return {"kind": "piecewise", "boundaries": changes, "fractions": fractions, "at_boundary": "after"}


def _by_group(
    bench: Bench, side: int, read: Sequence[Sequence[float]] | None, steps: int
) -> list[list[float]]:
    """Of each parameter group of a side its rates, step by step."""
    return (
        [[_constant(bench, side)] * steps]
        if read is None
        else [[*rates] for rates in zip(*read, strict=True)]
    )


def _shares(target: Target, groups: Sequence[Sequence[float]], of: Sequence[float]) -> tuple[float, ...]:
    """What each group's rates are of those of one of them; raises SpecError where that is no one number."""
    at = max(range(len(of)), key=lambda step: of[step])
    shares = tuple(rates[at] / (of[at] or 1.0) for rates in groups)
    for share, rates in zip(shares, groups, strict=True):
        for step, (one, rate) in enumerate(zip(of, rates, strict=True)):
            if abs(rate - share * one) > limits.SCHEDULED_RATE * share * max(of):
                raise SpecError(
                    f"{target}: the scheduler moves the learning rates of the parameter groups by several factors: to {rate:g} of {rates[at]:g}"
                    f" and to {one:g} of {of[at]:g} at step {step}; have it move them by one, or give one rate for all"
                )
    return shares


def _constant(bench: Bench, side: int) -> float:
    info = bench.outlines[side].optimizer
    rate = None if info is None else info.settings.get("learning_rate")
    if not isinstance(rate, float):
        raise SpecError(
            f"one optimizer follows a schedule, and the learning rate of the other is {rate}: give both one rate for all tensors"
        )
    return rate


def _finding(step: int, off: float, ours: Sequence[float], theirs: Sequence[float]) -> Finding:
    ahead = pace_in_words(ours, theirs, limits.SCHEDULED_RATE * max(*ours, *theirs), ("Keras's", "torch's"))
    text = f"the learning rate of step {step} is {ours[step]:.6g} in Keras and {theirs[step]:.6g} in torch{ahead}"
    fix = "make torch's scheduler, whose step() is called after every update, give Keras's rates"
    highest = max(*ours, *theirs)
    evidence = f"read from both, for each of {len(ours)} steps, before the training; the deviation is of the highest, {highest:.6g}"
    why = Explanation("schedule", text, "confirmed", fix, evidence)
    name = "update/learning_rate"
    tensor = TensorComparison(name, None, off, limits.SCHEDULED_RATE)
    return Finding(step, "update", name, (), (tensor,), (), explanation=why)
