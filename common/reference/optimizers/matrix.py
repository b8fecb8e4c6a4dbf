"""Adafactor, Muon and LAMB."""

from __future__ import annotations

import math

import numpy as np

from parity.common.reference.optimizers.adam import MOMENTS, moments
from parity.common.reference.optimizers.base import Array, InitialSlot, Slots, Update, known, register
from parity.common.spec.optimizers import Adafactor, Lamb, Muon


def _adafactor_slots(spec: Adafactor, shape: tuple[int, ...]) -> dict[str, InitialSlot]:
    axes = spec.axes(shape)
    if axes is None:
        return {"second_moment": InitialSlot(shape, 0.0)}
    row, column = axes
    return {"row_moment": _without(shape, column), "column_moment": _without(shape, row)}


def _without(shape: tuple[int, ...], axis: int) -> InitialSlot:
    return InitialSlot(shape[:axis] + shape[axis + 1 :], 0.0)


def _adafactor_scalars(spec: Adafactor, step: int, rate: float) -> dict[str, float]:
    t = step + 1
    # 1 - b, b being the decay of the second moment.
    return {"relative_step": min(rate, 1 / math.sqrt(t)), "newest_share": t**spec.beta_2_decay}


@register(Adafactor, slots=_adafactor_slots, scalars=_adafactor_scalars)
def adafactor(given: Update) -> tuple[Array, Slots]:
    """Return the change, of the weight's shape, and the slots: the gradient over the root of a second moment of rank one.

    The step is relative to the weight. Shazeer and Stern (ICML 2018), algorithm 4; a row moment lacks the column axis,
    a column moment the row axis.
    """
    spec, gradient, share = given.spec, given.gradient, given.scalars["newest_share"]
    assert isinstance(spec, Adafactor)
    epsilon = float(np.finfo(gradient.dtype).eps) if spec.epsilon_1 is None else spec.epsilon_1
    added, floor = (epsilon, 0.0) if spec.epsilon_form == "add" else (0.0, epsilon)
    square = gradient**2 + added
    axes = spec.axes(gradient.shape)
    if axes is None:
        second = (1 - share) * given.slots["second_moment"] + share * square
        slots = {"second_moment": second}
    else:
        row_axis, column_axis = axes
        row = (1 - share) * given.slots["row_moment"] + share * square.mean(column_axis)
        column = (1 - share) * given.slots["column_moment"] + share * square.mean(row_axis)
        slots = {"row_moment": row, "column_moment": column}
        # row_axis is the smaller one, so it is where it was after column_axis has gone.
        mean = np.maximum(row.mean(row_axis, keepdims=True), floor)
        second = np.expand_dims(row / mean, column_axis) * np.expand_dims(column, row_axis)
    update = gradient / np.sqrt(np.maximum(second, floor**2))
    weight = given.decayed if spec.scaled_by == "decayed" else given.weight
    size = given.scalars["relative_step"] * max(spec.epsilon_2, _rms(weight))
    return -size / max(1.0, _rms(update) / spec.clip_threshold) * update, slots


def _rms(x: Array) -> float:
    return float(np.sqrt(np.mean(x**2)))


@register(Muon, slots=lambda spec, shape: {"momentum_buffer": InitialSlot(shape, 0.0)})
def muon(given: Update) -> tuple[Array, Slots]:
    """Return the change and the slots, of the weight's shape: the momentum, made orthogonal.

    Jordan et al., "Muon" (2024).
    """
    spec, gradient = given.spec, given.gradient
    assert isinstance(spec, Muon)
    fresh = 1.0 if spec.momentum_form == "sum" else 1 - spec.momentum
    buffer = spec.momentum * given.slots["momentum_buffer"] + fresh * gradient
    direction = fresh * gradient + spec.momentum * buffer if spec.nesterov else buffer
    step = given.scalars["learning_rate"] * spec.scale(gradient.shape)
    return -step * orthogonal(spec, direction), {"momentum_buffer": buffer}


def orthogonal(spec: Muon, matrix: Array) -> Array:
    """Return a matrix (rows, columns) with its singular values moved towards 1, by Newton-Schulz steps."""
    a, b, c = spec.newton_schulz
    rows, columns = matrix.shape
    norm = float(np.linalg.norm(matrix))
    x = matrix / (norm + spec.norm_epsilon if spec.norm_form == "add" else max(norm, spec.norm_epsilon))
    x = x.T if rows > columns else x
    for _ in range(spec.newton_schulz_steps):
        gram = x @ x.T
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x.T if rows > columns else x


def _lamb_scalars(spec: Lamb, step: int, rate: float) -> dict[str, float]:
    del rate
    return {
        "first_correction": 1 - spec.beta_1 ** (step + 1),
        "second_correction": math.sqrt(1 - spec.beta_2 ** (step + 1)),
    }


@register(Lamb, slots=MOMENTS, scalars=_lamb_scalars)
def lamb(given: Update) -> tuple[Array, Slots]:
    """Return the change and the slots, of the weight's shape: the direction of Adam with the norm of the weight.

    You et al. (ICLR 2020), algorithm 2.
    """
    spec, scalars = given.spec, given.scalars
    assert isinstance(spec, Lamb)
    first, second = moments(given)
    root = np.sqrt(second) / scalars["second_correction"] + known(spec.epsilon)
    update = first / scalars["first_correction"] / root
    if spec.weight_decay_mode == "update":
        update = update + known(spec.weight_decay) * given.weight
    norms = float(np.linalg.norm(given.decayed)), float(np.linalg.norm(update))
    ratio = norms[0] / norms[1] if min(norms) > 0 else 1.0
    return -scalars["learning_rate"] * ratio * update, {"first_moment": first, "second_moment": second}
