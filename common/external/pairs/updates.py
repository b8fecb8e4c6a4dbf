"""The users' own optimizers, given the same gradients: what one makes of them that the other does not, and why.

Three updates by different gradients, so that slots and bias corrections are seen at work. The formulas of
`parity.common.reference` say which settings make the difference.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from pydantic import ValidationError

from parity.common import reference
from parity.common.base.errors import ExternalModelError
from parity.common.diagnosis import limits
from parity.common.diagnosis.result import Explanation, Finding, TensorComparison
from parity.common.external.lint.lint import Difference
from parity.common.external.pairs.bench import Bench, exact_constants, frozen_apart
from parity.common.external.pairs.explain import by_setting
from parity.common.external.process.pass_result import Array, Arrays
from parity.common.parity.deviation import tensor_deviation
from parity.common.spec.external.outline import OptimizerInfo
from parity.common.spec.external.target import Target
from parity.common.spec.optimizers import OptimizerBase, parse_optimizer
from parity.common.state.zero_gradient import measured_zero_gradients

Slots = dict[str, dict[str, Array]]
# By name of Keras's tensors the factors of their absolute values and of their squares in its loss.
Penalties = dict[str, tuple[float, float]]
_FACTOR = re.compile(r"l[12] [0-9.e+-]+")
_FACTORS = (1.0, -0.4, 0.7)  # of the gradients in each update


@dataclass(frozen=True)
class Updates:
    """What the optimizers made of the same gradients.

    tensors: of every tensor, the change after three updates. findings: why, one each. notes: what else was found.
    """

    tensors: tuple[TensorComparison, ...]
    findings: tuple[Finding, ...]
    notes: tuple[str, ...]


def compare_updates(
    bench: Bench,
    optimizers: tuple[Target, Target],
    gradients: Arrays,
    suspects: Sequence[Difference],
    penalties: Penalties | None = None,
) -> Updates:
    """Give both optimizers the same gradients.

    Args:
        bench: both models, with equal weights.
        optimizers: Keras's and torch's.
        gradients: canonical ones.
        suspects: differences of their settings.
        penalties: whose gradients Keras's optimizer is given too.

    Raises:
        ExternalModelError: an optimizer cannot be made or used.
    """
    before = _mapped(bench, bench.keras.read())
    # An optimizer that divides by a gradient's size makes steps of what is only rounding.
    zero = measured_zero_gradients(gradients).keys() | frozen_apart(bench).keys()
    named = {name: value for name, value in gradients.items() if name in before and name not in zero}
    sets = [_scaled(named, number) for number in range(len(_FACTORS))]
    rounded = bench.keras.update(optimizers[0], sets)
    with exact_constants(bench):
        ours = bench.keras.update(optimizers[0], sets if penalties is None else [])
        for number in range(len(sets) if penalties is not None else 0):
            # Of the weights as they are before each update.
            sets = [*sets[:number], _penalized(sets[number], ours, penalties or {}), *sets[number + 1 :]]
            ours = bench.keras.update(optimizers[0], sets[: number + 1])
    given = [bench.mapping.to_torch(_scaled(named, n), partial=True) for n in range(len(_FACTORS))]
    theirs = bench.mapping.to_keras(bench.torch.read() | bench.torch.update(optimizers[1], given))
    moved = {name: np.subtract(ours[name], before[name]) for name in named}
    other = {name: np.subtract(theirs[name], before[name]) for name in named}
    tensors = tuple(
        TensorComparison(
            f"update/{name}", None, tensor_deviation(moved[name], other[name]), limits.LIVE_FLOAT64
        )
        for name in named
    )
    off = [one for one in tensors if not one.agrees]
    infos = [outline.optimizer for outline in bench.outlines]
    notes: list[str] = []
    leak = max(tensor_deviation(np.subtract(rounded[name], before[name]), moved[name]) for name in named)
    if leak > limits.LIVE_FLOAT64:
        notes.append(
            f"Keras's optimizer takes constants through float32: in float64 its updates are off by {leak:.2g}, whatever"
            " its settings; compared without that"
        )
    if not off:
        return Updates(tensors, (), tuple(notes))
    causes: list[Explanation] = []
    specs = [None if info is None else spec_of(info) for info in infos]
    if specs[0] is not None and specs[1] is not None:
        formula = _Formula(specs[0], specs[1], before, sets)
        if formula.is_followed(moved, other):
            causes = formula.causes(suspects)
            notes += formula.notes
    finding = Finding(0, "update", off[0].name, (), tuple(off), ())
    findings = tuple(replace(finding, explanation=cause) for cause in causes) or (finding,)
    return Updates(tensors, findings, tuple(notes))


def penalties_of(bench: Bench, penalty: float) -> Penalties | None:
    """Of Keras's tensors the factors of L1 and L2, as settings say; None where these do not make up the penalty."""
    settings = {info.path: info.settings for info in bench.outlines[0].layers}
    state = bench.keras.read()
    found: Penalties = {}
    for info in bench.outlines[0].tensors:
        text = str(settings.get(info.layer, {}).get(f"{info.role}_regularizer") or "")
        factors = dict(part.split() for part in text.split(", ") if _FACTOR.fullmatch(part))
        if factors:
            found[info.name] = float(factors.get("l1", 0)), float(factors.get("l2", 0))
    values = ((l1, l2, state[name]) for name, (l1, l2) in found.items())
    total = sum(l1 * float(np.abs(w).sum()) + l2 * float(np.square(w).sum()) for l1, l2, w in values)
    return found if abs(total - penalty) <= limits.LIVE_FLOAT64 * penalty else None


def _penalized(gradients: Arrays, state: Arrays, penalties: Penalties) -> Arrays:
    """Gradients of the mean loss with those of penalties at a state."""
    return gradients | {
        name: gradients[name] + l1 * np.sign(state[name]) + 2 * l2 * state[name]
        for name, (l1, l2) in penalties.items()
        if name in gradients
    }


def spec_of(info: OptimizerInfo) -> OptimizerBase | None:
    """A user's optimizer as a spec; None where ours have no such one."""
    if not info.kind:
        return None
    data: dict[str, object] = {"kind": info.kind}
    try:
        known = type(parse_optimizer({"kind": info.kind, "learning_rate": 1.0})).model_fields
        data |= {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in info.settings.items()
            if name in known and name != "ema" and value is not None
        }
        return parse_optimizer(data).resolve("keras")
    except (ValidationError, ExternalModelError):
        return None


def _mapped(bench: Bench, state: Arrays) -> Arrays:
    names = {name for pair in bench.mapping.tensors for name in pair.keras if pair.torch}
    return {name: value for name, value in state.items() if name in names}


def _scaled(gradients: Arrays, number: int) -> Arrays:
    """Gradients of another size in each update, by tensor and by element."""
    found: Arrays = {}
    for name, value in gradients.items():
        ramp = 1.0 + 0.1 * number * np.linspace(-1.0, 1.0, value.size).reshape(value.shape)
        found[name] = _FACTORS[number] * value * ramp
    return found


class _Formula:
    """Both optimizers as formulas, and between them those with some settings of one and some of the other."""

    def __init__(
        self, ours: OptimizerBase, theirs: OptimizerBase, before: Arrays, sets: Sequence[Arrays]
    ) -> None:
        self.ours, self.theirs, self.before, self.sets = ours, theirs, before, sets
        self.notes: list[str] = []

    def is_followed(self, moved: Arrays, other: Arrays) -> bool:
        """Whether both optimizers do what their settings say."""
        pairs = ((moved, self.ours), (other, self.theirs))
        return all(_off(found, self._changes(spec)) <= limits.LIVE_FLOAT64 for found, spec in pairs)

    def causes(self, suspects: Sequence[Difference]) -> list[Explanation]:
        """The settings without which the two would still differ."""
        if type(self.ours) is not type(self.theirs):
            return []
        fields = {s.setting: s for s in suspects if s.setting in type(self.ours).model_fields}
        due = self._changes(self.ours)
        found = []
        for setting, suspect in fields.items():
            without = _with(self.theirs, {f: getattr(self.ours, f) for f in fields if f != setting})
            if without is None:
                continue
            deviation = _off(due, self._changes(without))
            if deviation > limits.LIVE_FLOAT64:
                evidence = (
                    f"by formula: with Keras's value of all other settings the updates still differ by {deviation:.2g},"
                    " and with this one too they are equal"
                )
                found.append(by_setting(suspect, "confirmed", evidence))
            else:
                self.notes.append(f"{suspect.text}: of no consequence for these updates")
        every = _with(self.theirs, {field: getattr(self.ours, field) for field in fields})
        return found if every is not None and _off(due, self._changes(every)) <= limits.LIVE_FLOAT64 else []

    def _changes(self, spec: OptimizerBase) -> Arrays:
        """What the formula makes of the weights."""
        weights = {n: np.array(v, np.float64) for n, v in self.before.items() if n in self.sets[0]}
        slots = slots_of(spec, weights)
        for step, gradients in enumerate(self.sets):
            weights, slots = updated(spec, step, weights, gradients, slots)
        return {name: np.subtract(value, self.before[name]) for name, value in weights.items()}


def _off(due: Mapping[str, Any], own: Mapping[str, Any]) -> float:
    return max((tensor_deviation(due[name], own[name]) for name in due), default=0.0)


def _with(spec: OptimizerBase, values: Mapping[str, Any]) -> OptimizerBase | None:
    """A spec with some fields changed; None where it does not allow that."""
    try:
        return parse_optimizer({**spec.to_dict(), **values})
    except ValidationError:
        return None


# The formulas of `parity.common.reference`, on all tensors of a model at once.


def slots_of(optimizer: OptimizerBase, state: Arrays) -> Slots:
    """The slots of every tensor before the first step."""
    return {
        name: {
            slot: np.full(initial.shape, initial.value)
            for slot, initial in reference.initial_slots(optimizer, name, value.shape).items()
        }
        for name, value in state.items()
    }


def updated(
    optimizer: OptimizerBase, step: int, state: Arrays, gradients: Arrays, slots: Slots
) -> tuple[Arrays, Slots]:
    """State and slots after a step, at a learning rate that stays; tensors without a gradient as they are.

    Args:
        optimizer: resolved.
        step: its number, from 0.
        state: float64, by canonical name.
        gradients: of the mean loss, likewise; not clipped.
        slots: as `slots_of`, or as a step before has left them.
    """
    scalars = reference.step_scalars(optimizer, step, optimizer.learning_rate or 0.0)
    clipped = reference.clip(optimizer, {name: gradients[name] for name in state if name in gradients})
    found, kept = dict(state), dict(slots)
    for name, gradient in clipped.items():
        found[name], kept[name] = reference.update(
            optimizer, scalars, state[name], gradient, slots[name], name
        )
    return found, kept
