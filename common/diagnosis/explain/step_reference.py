"""What a step's parts come to by the NumPy formulas, made of the tensors that a run was given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from parity.common import reference
from parity.common.diagnosis import limits
from parity.common.diagnosis.explain.signatures.base import Case, Tensors
from parity.common.record.taps import layers_of
from parity.common.record.trace import Array
from parity.common.reference.losses import loss_sum_and_count
from parity.common.spec.losses import LossBase
from parity.common.spec.optimizers import OptimizerBase
from parity.common.state.canonical import slot_name


def penalties(case: Case) -> dict[str, Array]:
    """The gradient of the loss's penalties on the weights, by parameter."""
    return penalties_of(case.spec.loss, case.given.replicas[0])


def penalties_of(loss: LossBase, state: Tensors) -> dict[str, Array]:
    """The same for the weights in any state before a step."""
    found = {}
    for name, value in state.items():
        if name.startswith("before/parameters/"):
            weight = np.asarray(value, np.float64)
            penalized = loss.penalize == "all" or weight.ndim >= 2
            found[name.removeprefix("before/parameters/")] = (
                loss.l1 * np.sign(weight) + 2 * loss.l2 * weight if penalized else np.zeros_like(weight)
            )
    return found


def has_local_gradients(case: Case) -> bool:
    """Whether each replica's own gradients are known."""
    return all(any(n.startswith("local_gradient/") for n in state) for state in case.made.replicas)


def local_gradients(case: Case) -> list[dict[str, Array]]:
    """Of each of the suspect's replicas its share of the global mean's gradient, without penalties."""
    count = float(case.given.replicas[0]["total/count"])
    found = []
    for tensors in case.made.replicas:
        own = {n.partition("/")[2]: v for n, v in tensors.items() if n.startswith("local_gradient/")}
        found.append({name: np.asarray(value, np.float64) / count for name, value in own.items()})
    return found


def due_gradients(case: Case) -> dict[str, Array]:
    """The global mean gradient by parameter: of the suspect's own local ones, else the reference's."""
    if not has_local_gradients(case):
        named = case.given.replicas[0].items()
        return {n.partition("/")[2]: v for n, v in named if n.startswith("gradient/")}
    added, local = penalties(case), local_gradients(case)
    return {name: np.sum([own[name] for own in local], axis=0) + added[name] for name in local[0]}


def slots_of(state: Mapping[str, Array], name: str, head: str) -> dict[str, Array]:
    """The slots of a parameter, by slot, in a trace's `before` or `after`."""
    found = {}
    for key, value in state.items():
        if key.startswith(f"{head}/slots/"):
            slot, _, parameter = key.removeprefix(f"{head}/slots/").partition("/")
            if parameter == name:
                found[slot] = np.asarray(value, np.float64)
    return found


def updated(
    case: Case,
    replica: int,
    optimizer: OptimizerBase | None = None,
    scalars: Mapping[str, float] | None = None,
    gradients: Mapping[str, Array] | None = None,
    only: str | None = None,
) -> dict[str, Array]:
    """`after/parameters/...` and `after/slots/...` of one of the suspect's replicas by `parity.common.reference`.

    Slots go by the names that the spec's own optimizer gives them, whatever the other one calls its.
    only: the parameter to be updated; None: all.
    """
    optimizer = case.spec.optimizer if optimizer is None else optimizer
    scalars = case_scalars(case) if scalars is None else scalars
    before: Tensors = case.made.replicas[replica]
    found: dict[str, Array] = {}
    for key in case.given.names:
        if not key.startswith("clipped/"):
            continue
        name = key.partition("/")[2]
        if only not in (None, name):
            continue
        weight = np.asarray(before[f"before/parameters/{name}"], np.float64)
        gradient = np.asarray((gradients or {}).get(name, case.given.replicas[0][key]), np.float64)
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


def case_scalars(case: Case) -> dict[str, float]:
    """The scalars that the step was given."""
    named = case.given.replicas[0].items()
    return {n.partition("/")[2]: float(v) for n, v in named if n.startswith("scalar/")}


def implied_gradients(
    case: Case, before: Tensors, after: Tensors, scalars: Mapping[str, float]
) -> dict[str, Array]:
    """The gradient that each parameter was updated with, read off its slots or its change.

    Only those of optimizers that keep it in a slot linearly, or use it as it is.
    """
    found: dict[str, Array] = {}
    for key, old in before.items():
        if not key.startswith("before/parameters/"):
            continue
        name = key.removeprefix("before/parameters/")
        old_slots, new_slots = slots_of(before, name, "before"), slots_of(after, name, "after")
        rule: Any = case.spec.optimizer.rule_for(name, old.shape)
        gradient: Array | None = None
        if "first_moment" in new_slots and hasattr(rule, "beta_1"):
            beta = rule.beta_2 if rule.kind == "lion" else rule.beta_1
            gradient = (new_slots["first_moment"] - beta * old_slots["first_moment"]) / (1 - beta)
        elif "momentum_buffer" in new_slots and rule.kind == "sgd":
            gradient = new_slots["momentum_buffer"] - rule.momentum * old_slots["momentum_buffer"]
        elif "momentum_velocity" in new_slots and rule.kind == "sgd":
            moved = rule.momentum * old_slots["momentum_velocity"] - new_slots["momentum_velocity"]
            gradient = moved / scalars["learning_rate"] if scalars["learning_rate"] else None
        elif rule.kind == "sgd" and scalars["learning_rate"]:
            new = np.asarray(after[f"after/parameters/{name}"], np.float64)
            gradient = (np.asarray(old, np.float64) - new) / scalars["learning_rate"]
            if rule.weight_decay and rule.weight_decay_mode == "decoupled":
                gradient = gradient - rule.weight_decay * np.asarray(old, np.float64)
        if gradient is None:
            continue
        if rule.weight_decay and rule.weight_decay_mode == "coupled":
            gradient = gradient - rule.weight_decay * np.asarray(old, np.float64)
        found[name] = gradient
    return found


def last_layer(case: Case) -> str:
    """Path of the layer whose output the loss is taken of."""
    return layers_of(case.evidence.tree)[-1].path


def slopes_of_loss(
    case: Case, losses: Sequence[LossBase], outputs: Array, targets: Array
) -> tuple[list[Array], list[Array]]:
    """Directions, and of each loss the derivative of its sum along them, by the complex step.

    Exact to rounding: Squire and Trapp, SIAM Review 1998.
    """
    random, h = np.random.default_rng(0), limits.COMPLEX_STEP
    directions = [random.normal(size=outputs.shape) for _ in range(limits.DIRECTIONS)]
    slopes = []
    for loss in losses:
        found = []
        for direction in directions:
            moved = outputs + 1j * h * direction
            total, _ = loss_sum_and_count(loss, moved, targets, case.token_mask)
            found.append(np.imag(total) / h)
        slopes.append(np.array(found))
    return directions, slopes


def attended(
    query: Array,
    key: Array,
    value: Array,
    allowed: Array | None = None,
    scale: float | None = None,
    axis: int = -1,
    kept: Array | None = None,
) -> Array:
    """softmax(scale q k^T) v of (samples, heads, tokens, size); `allowed` (..., tokens, keys).

    kept: what dropout multiplies the weights by.
    """
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    scores = scale * query @ np.swapaxes(key, -1, -2)
    if allowed is not None:
        scores = np.where(allowed, scores, -np.inf)
    with np.errstate(invalid="ignore"):
        weights = np.exp(scores - scores.max(axis, keepdims=True))
        weights = weights / weights.sum(axis, keepdims=True)
    weights = np.where(np.isnan(weights), 0.0, weights)
    result: Array = (weights if kept is None else weights * kept) @ value
    return result
