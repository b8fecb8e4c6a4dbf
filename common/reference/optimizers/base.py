"""One optimizer step on one tensor: clipping, decay, the rule, the average. And what all of it needs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from parity.common.spec.optimizers import OptimizerBase

Array = NDArray[np.floating]
Slots = dict[str, Array]
Scalars = Mapping[str, float]

# The slot of the weights' moving average.
AVERAGE = "average"


class InitialSlot(NamedTuple):
    """A slot before the first step: a canonical shape filled with one value."""

    shape: tuple[int, ...]
    value: float


@dataclass(frozen=True)
class Update:
    """What a rule is given.

    weight: before the decay. decayed: after it. gradient: clipped, coupled decay added.
    """

    spec: OptimizerBase
    scalars: Scalars
    weight: Array
    decayed: Array
    gradient: Array
    slots: Slots


# (change of the decayed weight, new slots)
Rule = Callable[[Update], tuple[Array, Slots]]
SlotsOf = Callable[..., dict[str, InitialSlot]]
ScalarsOf = Callable[..., dict[str, float]]


class _Family(NamedTuple):
    rule: Rule
    slots: SlotsOf
    scalars: ScalarsOf | None


_FAMILIES: dict[type[OptimizerBase], _Family] = {}


def register(
    *kinds: type[OptimizerBase], slots: SlotsOf, scalars: ScalarsOf | None = None
) -> Callable[[Rule], Rule]:
    """Make a function the rule of some optimizers.

    slots(spec, shape): the slots of one tensor. scalars(spec, step, rate): what else changes from
    step to step, so that it is computed here, in float64, for both frameworks.
    """

    def take(rule: Rule) -> Rule:
        for kind in kinds:
            _FAMILIES[kind] = _Family(rule, slots, scalars)
        return rule

    return take


def known(value: float | None) -> float:
    """Return a number of a resolved spec.

    Raises:
        ValueError: it is None, so the convention of the spec is not resolved.
    """
    if value is None:
        raise ValueError("the optimizer's convention is not resolved")
    return value


def initial_slots(optimizer: OptimizerBase, name: str, shape: tuple[int, ...]) -> dict[str, InitialSlot]:
    """The slots of one tensor by slot name; the name is the canonical one below `parameters/`."""
    rule = optimizer.rule_of(name, shape)
    slots = _FAMILIES[type(rule)].slots(rule, shape)
    if optimizer.ema is not None:
        slots = {**slots, AVERAGE: InitialSlot(shape, 0.0)}
    return slots


def step_scalars(optimizer: OptimizerBase, step: int, rate: float) -> dict[str, float]:
    """All that changes from step to step, by name and in a fixed order; the learning rate comes first.

    A name means the same in every rule, so those of a rule and of its fallback go together.
    """
    scalars = {"learning_rate": rate}
    fallback = optimizer.rule_of("", ())
    for rule, rule_rate in {type(o): (o, _rate(optimizer, o, rate)) for o in (optimizer, fallback)}.values():
        family = _FAMILIES[type(rule)]
        if family.scalars is not None:
            scalars |= family.scalars(rule, step, rule_rate)
    if optimizer.ema is not None:
        every = optimizer.ema.overwrite_every
        scalars["average_decay"] = optimizer.ema.decay if step else 0.0
        scalars["overwrite"] = 1.0 if every is not None and (step + 1) % every == 0 else 0.0
    return scalars


def _rate(optimizer: OptimizerBase, rule: OptimizerBase, rate: float) -> float:
    """The learning rate of a rule: a fallback has its own share of it."""
    own, whole = known(rule.learning_rate), known(optimizer.learning_rate)
    return rate if own == whole else rate * (own / whole)


def clip_factor(limit: float | None, epsilon: float | None, norm: float) -> float:
    """What a gradient of norm `norm` is multiplied by to keep it at `limit`."""
    if limit is None:
        return 1.0
    total = norm + known(epsilon)
    return 1.0 if total <= limit else limit / total


def clip(optimizer: OptimizerBase, gradients: Mapping[str, Array]) -> dict[str, Array]:
    """Return the gradients of all tensors after clipping, by name, each in its own shape."""
    epsilon = optimizer.clip_epsilon
    if optimizer.clip_value is not None:
        limit = optimizer.clip_value
        return {name: np.clip(g, -limit, limit) for name, g in gradients.items()}
    norms = {name: float(np.linalg.norm(g)) for name, g in gradients.items()}
    whole = clip_factor(optimizer.clip_global_norm, epsilon, float(np.linalg.norm(list(norms.values()))))
    return {
        n: g * (whole * clip_factor(optimizer.clip_norm, epsilon, norms[n])) for n, g in gradients.items()
    }


def update(
    optimizer: OptimizerBase,
    scalars: Scalars,
    weight: Array,
    gradient: Array,
    slots: Slots,
    name: str = "",
) -> tuple[Array, Slots]:
    """One optimizer step on one tensor: (new weight, new slots). The gradient is already clipped."""
    rule = optimizer.rule_for(name, weight.shape)
    decay, decayed = known(rule.weight_decay), weight
    if decay and rule.weight_decay_mode == "coupled":
        gradient = gradient + decay * weight
    elif decay and rule.weight_decay_mode == "decoupled":
        decayed = weight - scalars["learning_rate"] * decay * weight
    given = Update(rule, scalars, weight, decayed, gradient, slots)
    change, new_slots = _FAMILIES[type(rule)].rule(given)
    new = decayed + change
    if optimizer.ema is None:
        return new, new_slots
    kept = scalars["average_decay"]
    average = kept * slots[AVERAGE] + (1 - kept) * new
    return (average if scalars["overwrite"] else new), {**new_slots, AVERAGE: average}


def like_weight(*names: str) -> SlotsOf:
    """Slots of the weight's shape that start at zero."""
    return lambda spec, shape: {name: InitialSlot(shape, 0.0) for name in names}
