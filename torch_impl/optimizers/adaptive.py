"""RMSprop, Adagrad and Adadelta; formulas as in `common/reference/optimizers/adaptive.py`."""

from __future__ import annotations

import torch
from torch import Tensor

from parity.common.spec.optimizers import Adadelta, Adagrad, RMSprop
from parity.torch_impl.optimizers.base import Update, register


def _root(spec: RMSprop | Adagrad, square: list[Tensor]) -> list[Tensor]:
    if spec.epsilon_place == "in_root":
        return torch._foreach_sqrt(torch._foreach_add(square, spec.epsilon))
    root = torch._foreach_sqrt(square)
    torch._foreach_add_(root, spec.epsilon)
    return root


@register(RMSprop)
def rmsprop(given: Update) -> list[Tensor]:
    """The gradient over the root of its mean square, with momentum."""
    spec, rate, gradients, slots = given.spec, given.scalars["learning_rate"], given.gradients, given.slots
    fresh = 1 - spec.rho
    square = slots["second_moment"]
    torch._foreach_mul_(square, spec.rho)
    torch._foreach_addcmul_(square, gradients, gradients, fresh)
    if spec.centered:
        first = slots["first_moment"]
        torch._foreach_mul_(first, spec.rho)
        torch._foreach_add_(first, gradients, alpha=fresh)
        square = torch._foreach_addcmul(square, first, first, -1.0)
    scaled = torch._foreach_div(gradients, _root(spec, square))
    if not spec.momentum:
        return torch._foreach_mul(scaled, -rate)
    slot = slots[f"momentum_{spec.momentum_form}"]
    torch._foreach_mul_(slot, spec.momentum)
    if spec.momentum_form == "velocity":
        torch._foreach_add_(slot, scaled, alpha=rate)
        return torch._foreach_neg(slot)
    torch._foreach_add_(slot, scaled)
    return torch._foreach_mul(slot, -rate)


@register(Adagrad)
def adagrad(given: Update) -> list[Tensor]:
    """The gradient over the root of the sum of its squares."""
    accumulator = given.slots["accumulator"]
    torch._foreach_addcmul_(accumulator, given.gradients, given.gradients, 1.0)
    changes = torch._foreach_mul(given.gradients, -given.scalars["step_size"])
    torch._foreach_div_(changes, _root(given.spec, accumulator))
    return changes


@register(Adadelta)
def adadelta(given: Update) -> list[Tensor]:
    """The gradient in units of past changes."""
    spec, gradients = given.spec, given.gradients
    square, past = given.slots["second_moment"], given.slots["squared_change"]
    torch._foreach_mul_(square, spec.rho)
    torch._foreach_addcmul_(square, gradients, gradients, 1 - spec.rho)
    changes = torch._foreach_sqrt(torch._foreach_add(past, spec.epsilon))
    torch._foreach_div_(changes, torch._foreach_sqrt(torch._foreach_add(square, spec.epsilon)))
    torch._foreach_mul_(changes, gradients)
    torch._foreach_mul_(past, spec.rho)
    torch._foreach_addcmul_(past, changes, changes, 1 - spec.rho)
    torch._foreach_mul_(changes, -given.scalars["learning_rate"])
    return changes
