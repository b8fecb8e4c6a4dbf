"""RMSprop, Adagrad and Adadelta."""

from __future__ import annotations

import numpy as np

from parity.common.reference.optimizers.base import (
    Array,
    InitialSlot,
    Slots,
    Update,
    known,
    like_weight,
    register,
)
from parity.common.spec.optimizers import Adadelta, Adagrad, RMSprop


def _root(spec: RMSprop | Adagrad, square: Array) -> Array:
    epsilon = known(spec.epsilon)
    return np.sqrt(square + epsilon) if spec.epsilon_place == "in_root" else np.sqrt(square) + epsilon


def _rmsprop_slots(spec: RMSprop, shape: tuple[int, ...]) -> dict[str, InitialSlot]:
    names = ["second_moment"]
    if spec.centered:
        names.append("first_moment")
    if spec.momentum:
        names.append(f"momentum_{spec.momentum_form}")
    return {name: InitialSlot(shape, 0.0) for name in names}


@register(RMSprop, slots=_rmsprop_slots)
def rmsprop(given: Update) -> tuple[Array, Slots]:
    """Return the change and the slots, of the weight's shape: the gradient over the root of its mean square, with momentum.

    Tieleman and Hinton (2012), lecture 6.5; centered: Graves, arXiv:1308.0850 (2013), equations 38 to 41.
    """
    spec, rate, gradient = given.spec, given.scalars["learning_rate"], given.gradient
    assert isinstance(spec, RMSprop)
    rho = known(spec.rho)
    square = rho * given.slots["second_moment"] + (1 - rho) * gradient**2
    slots = {"second_moment": square}
    if spec.centered:
        mean = slots["first_moment"] = rho * given.slots["first_moment"] + (1 - rho) * gradient
        square = square - mean**2
    scaled = gradient / _root(spec, square)
    if not spec.momentum:
        return -rate * scaled, slots
    name = f"momentum_{spec.momentum_form}"
    inside, outside = (rate, 1.0) if spec.momentum_form == "velocity" else (1.0, rate)
    slots[name] = spec.momentum * given.slots[name] + inside * scaled
    return -outside * slots[name], slots


@register(
    Adagrad,
    slots=lambda spec, shape: {"accumulator": InitialSlot(shape, known(spec.initial_accumulator))},
    scalars=lambda spec, step, rate: {"step_size": rate / (1 + step * spec.rate_decay)},
)
def adagrad(given: Update) -> tuple[Array, Slots]:
    """Return the change and the slots, of the weight's shape: the gradient over the root of the sum of its squares.

    Duchi, Hazan, Singer (JMLR 2011).
    """
    assert isinstance(given.spec, Adagrad)
    accumulator = given.slots["accumulator"] + given.gradient**2
    change = -given.scalars["step_size"] * given.gradient / _root(given.spec, accumulator)
    return change, {"accumulator": accumulator}


@register(Adadelta, slots=like_weight("second_moment", "squared_change"))
def adadelta(given: Update) -> tuple[Array, Slots]:
    """Return the change and the slots, of the weight's shape: the gradient in units of past changes.

    Zeiler, arXiv:1212.5701 (2012), algorithm 1.
    """
    spec, gradient = given.spec, given.gradient
    assert isinstance(spec, Adadelta)
    rho, epsilon = known(spec.rho), known(spec.epsilon)
    square = rho * given.slots["second_moment"] + (1 - rho) * gradient**2
    past = given.slots["squared_change"]
    change = np.sqrt(past + epsilon) / np.sqrt(square + epsilon) * gradient
    slots = {"second_moment": square, "squared_change": rho * past + (1 - rho) * change**2}
    return -given.scalars["learning_rate"] * change, slots
