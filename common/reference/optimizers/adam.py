"""Adam and its relatives."""

from __future__ import annotations

import math

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
from parity.common.spec.optimizers import Adam, Adamax, AdamBase, AdamW, Moments, Nadam

MOMENTS = like_weight("first_moment", "second_moment")


def moments(given: Update) -> tuple[Array, Array]:
    """Return the first and the second moment after the gradient of this step, each of the shape of the weight."""
    spec, slots, gradient = given.spec, given.slots, given.gradient
    assert isinstance(spec, Moments)
    first = spec.beta_1 * slots["first_moment"] + (1 - spec.beta_1) * gradient
    second = spec.beta_2 * slots["second_moment"] + (1 - spec.beta_2) * gradient**2
    return first, second


def _adam_slots(spec: AdamBase, shape: tuple[int, ...]) -> dict[str, InitialSlot]:
    largest = ["largest_second_moment"] if spec.amsgrad else []
    return like_weight("first_moment", "second_moment", *largest)(spec, shape)


def _adam_scalars(spec: AdamBase, step: int, rate: float) -> dict[str, float]:
    """Kingma and Ba, "Adam" (ICLR 2015), section 2.

    With epsilon outside the bias correction the step size is lr * sqrt(1 - b2^t) / (1 - b1^t) and the
    second moment stays as it is; inside, the step size is lr / (1 - b1^t) and the root of the second
    moment is divided by sqrt(1 - b2^t).
    """
    first = 1 - spec.beta_1 ** (step + 1)
    root = math.sqrt(1 - spec.beta_2 ** (step + 1))
    if spec.epsilon_place == "outside":
        return {"step_size": rate * root / first, "second_correction": 1.0}
    return {"step_size": rate / first, "second_correction": root}


@register(Adam, AdamW, slots=_adam_slots, scalars=_adam_scalars)
def adam(given: Update) -> tuple[Array, Slots]:
    """Return the change of the weight and the slots, of its shape: the corrected first moment over the root of the second.

    Kingma and Ba, "Adam" (ICLR 2015), algorithm 1; amsgrad: Reddi et al. (ICLR 2018), algorithm 2.
    """
    spec, scalars = given.spec, given.scalars
    assert isinstance(spec, AdamBase)
    first, second = moments(given)
    slots = {"first_moment": first, "second_moment": second}
    if spec.amsgrad:
        second = slots["largest_second_moment"] = np.maximum(given.slots["largest_second_moment"], second)
    root = np.sqrt(second) / scalars["second_correction"] + known(spec.epsilon)
    return -scalars["step_size"] * first / root, slots


@register(
    Adamax,
    slots=like_weight("first_moment", "infinity_norm"),
    scalars=lambda spec, step, rate: {"step_size": rate / (1 - spec.beta_1 ** (step + 1))},
)
def adamax(given: Update) -> tuple[Array, Slots]:
    """Return the change and the slots, of the weight's shape: the corrected first moment over the decayed maximum of |g|.

    Kingma and Ba, "Adam" (ICLR 2015), algorithm 2.
    """
    spec, gradient = given.spec, given.gradient
    assert isinstance(spec, Adamax)
    epsilon = known(spec.epsilon)
    first = spec.beta_1 * given.slots["first_moment"] + (1 - spec.beta_1) * gradient
    size = np.abs(gradient) + (epsilon if spec.epsilon_place == "norm" else 0.0)
    norm = np.maximum(spec.beta_2 * given.slots["infinity_norm"], size)
    divisor = norm + (epsilon if spec.epsilon_place == "denominator" else 0.0)
    return -given.scalars["step_size"] * first / divisor, {"first_moment": first, "infinity_norm": norm}


def _nadam_scalars(spec: Nadam, step: int, rate: float) -> dict[str, float]:
    """The shares of the gradient and of the first moment in the step, and the second's correction."""
    decay = known(spec.momentum_decay)

    def mu(t: int) -> float:
        return spec.beta_1 * (1 - 0.5 * math.pow(0.96, t * decay))

    product, t = 1.0, step + 1
    for past in range(1, t + 1):
        product *= mu(past)
        if product < 1e-30:  # 1 - product is 1 from here on
            break
    return {
        "gradient_step_size": rate * (1 - mu(t)) / (1 - product),
        "moment_step_size": rate * mu(t + 1) / (1 - product * mu(t + 1)),
        "second_correction": math.sqrt(1 - spec.beta_2**t),
    }


@register(Nadam, slots=MOMENTS, scalars=_nadam_scalars)
def nadam(given: Update) -> tuple[Array, Slots]:
    """Return the change and the slots, of the weight's shape: Adam with the momentum of the next step.

    Dozat, "Incorporating Nesterov Momentum into Adam" (ICLR workshop 2016), algorithm 2.
    """
    spec, scalars = given.spec, given.scalars
    assert isinstance(spec, Nadam)
    first, second = moments(given)
    direction = scalars["gradient_step_size"] * given.gradient + scalars["moment_step_size"] * first
    root = np.sqrt(second) / scalars["second_correction"] + known(spec.epsilon)
    return -direction / root, {"first_moment": first, "second_moment": second}
