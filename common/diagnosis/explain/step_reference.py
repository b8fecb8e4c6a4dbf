"""What a step's parts come to by the NumPy formulas, made of the tensors that a run was given."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from parity.common import reference
from parity.common.diagnosis.explain.case import Case, TracedStep
from parity.common.diagnosis.explain.signatures.base import Tensors, below
from parity.common.record.taps import layers_of
from parity.common.record.trace import Array
from parity.common.reference.losses import penalty_gradient
from parity.common.spec.optimizers import OptimizerBase
from parity.common.state.canonical import slot_name


def penalties(case: Case, state: Tensors) -> dict[str, Array]:
    """The gradient of the loss's penalties, by parameter in its shape, for the weights in a state before a step."""
    weights = below(state, "before/parameters/")
    return {name: penalty_gradient(case.spec.loss, weight) for name, weight in weights.items()}


def local_gradients(step: TracedStep) -> list[dict[str, Array]] | None:
    """Of each replica its share of the global mean's gradient, by parameter in its shape, without penalties.

    None where replicas have none to show.
    """
    count = float(step.given["total/count"])
    each = [below(state, "local_gradient/") for state in step.made.replicas]
    return [{name: value / count for name, value in own.items()} for own in each] if all(each) else None


def due_gradients(case: Case, step: TracedStep) -> dict[str, Array]:
    """The global mean gradient by parameter, in its shape: of the suspect's own local ones, else the reference's."""
    local = local_gradients(step)
    if local is None:
        return below(step.given, "gradient/")
    added = penalties(case, step.given)
    return {name: np.sum([own[name] for own in local], axis=0) + added[name] for name in local[0]}


def slots_of(state: Tensors, name: str, head: str) -> dict[str, Array]:
    """The slots of a parameter, by slot in its shape, in a trace's `before` or `after`."""
    named = {key.partition("/"): value for key, value in below(state, f"{head}/slots/").items()}
    return {slot: value for (slot, _, parameter), value in named.items() if parameter == name}


def updated(
    case: Case,
    replica: int,
    optimizer: OptimizerBase | None = None,
    scalars: Mapping[str, float] | None = None,
    gradients: Tensors | None = None,
    only: str | None = None,
) -> dict[str, Array]:
    """`after/parameters/...` and `after/slots/...` of one of the suspect's replicas by `parity.common.reference`.

    Slots go by the names that the spec's own optimizer gives them, whatever the other one calls its.
    gradients: by parameter, in its shape; None: as clipped. only: the parameter to be updated; None: all.
    """
    optimizer = case.spec.optimizer if optimizer is None else optimizer
    scalars = scalars_of(case.given) if scalars is None else scalars
    before: Tensors = case.made.replicas[replica]
    found: dict[str, Array] = {}
    for name, gradient in below(case.given, "clipped/").items():
        if only not in (None, name):
            continue
        weight = np.asarray(before[f"before/parameters/{name}"], np.float64)
        gradient = np.asarray((gradients or {}).get(name, gradient), np.float64)
        slots = slots_of(before, name, "before")
        theirs = list(reference.initial_slots(optimizer, name, weight.shape))
        ours = list(reference.initial_slots(case.spec.optimizer, name, weight.shape))
        renamed = dict(zip(theirs, ours, strict=False)) if len(theirs) == len(ours) else {}
        at_hand = {slot: slots.get(slot, slots.get(renamed.get(slot, slot))) for slot in theirs}
        known = {s: np.zeros(weight.shape) if v is None else v for s, v in at_hand.items()}
        new, new_slots = reference.update(optimizer, scalars, weight, gradient, known, name)
        found[f"after/parameters/{name}"] = new
        for slot, value in new_slots.items():
            found[f"after/{slot_name(slot if slot in ours else renamed.get(slot, slot), name)}"] = value
    return found


def scalars_of(state: Tensors) -> dict[str, float]:
    """The scalars of a step, float64 numbers by name."""
    return {name: float(value) for name, value in below(state, "scalar/").items()}


def implied_gradients(case: Case, state: Tensors, scalars: Mapping[str, float]) -> dict[str, Array]:
    """The gradient that each parameter was updated with, in its shape, read off its slots or its change.

    Only those of optimizers that keep it in a slot linearly, or use it as it is.
    """
    found: dict[str, Array] = {}
    rate = scalars.get("learning_rate", 0.0)
    for name, old in below(state, "before/parameters/").items():
        old_slots, new_slots = slots_of(state, name, "before"), slots_of(state, name, "after")
        rule: Any = case.spec.optimizer.rule_for(name, old.shape)
        gradient: Array | None = None
        decays = rule.weight_decay_mode if rule.weight_decay else ""
        if "first_moment" in new_slots and hasattr(rule, "beta_1"):
            beta = rule.beta_2 if rule.kind == "lion" else rule.beta_1
            gradient = (new_slots["first_moment"] - beta * old_slots["first_moment"]) / (1 - beta)
        elif "momentum_buffer" in new_slots and rule.kind == "sgd":
            gradient = new_slots["momentum_buffer"] - rule.momentum * old_slots["momentum_buffer"]
        elif "momentum_velocity" in new_slots and rule.kind == "sgd":
            moved = rule.momentum * old_slots["momentum_velocity"] - new_slots["momentum_velocity"]
            gradient = moved / rate if rate else None
        elif rule.kind == "sgd" and rate:
            gradient = (old - np.asarray(state[f"after/parameters/{name}"], np.float64)) / rate
            gradient = gradient - rule.weight_decay * old if decays == "decoupled" else gradient
        if gradient is not None:
            found[name] = gradient - rule.weight_decay * old if decays == "coupled" else gradient
    return found


def last_layer(case: Case) -> str:
    """Path of the layer whose output the loss is taken of."""
    return layers_of(case.tree)[-1].path
