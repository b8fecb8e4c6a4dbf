"""Gradient descent and Lion; formulas as in `common/reference/optimizers/descent.py`."""

from __future__ import annotations

import torch
from torch import Tensor

from parity.common.spec.optimizers import SGD, Lion
from parity.torch_impl.optimizers.base import Update, register


@register(SGD)
def sgd(given: Update) -> list[Tensor]:
    """v = mu*v - lr*g, w += v; or b = mu*b + g, w -= lr*b."""
    spec, rate, gradients = given.spec, given.scalars["learning_rate"], given.gradients
    if not spec.momentum:
        return torch._foreach_mul(gradients, -rate)
    slot = given.slots[f"momentum_{spec.momentum_form}"]
    torch._foreach_mul_(slot, spec.momentum)
    if spec.momentum_form == "velocity":
        torch._foreach_add_(slot, gradients, alpha=-rate)
        if not spec.nesterov:
            return slot
        return torch._foreach_add(torch._foreach_mul(slot, spec.momentum), gradients, alpha=-rate)
    torch._foreach_add_(slot, gradients)
    direction = torch._foreach_add(gradients, slot, alpha=spec.momentum) if spec.nesterov else slot
    return torch._foreach_mul(direction, -rate)


@register(Lion)
def lion(given: Update) -> list[Tensor]:
    """The sign of the momentum moved towards the gradient."""
    spec, moment, gradients = given.spec, given.slots["first_moment"], given.gradients
    changes = torch._foreach_mul(moment, spec.beta_1)
    torch._foreach_add_(changes, gradients, alpha=1 - spec.beta_1)
    torch._foreach_sign_(changes)
    torch._foreach_mul_(changes, -given.scalars["learning_rate"])
    torch._foreach_mul_(moment, spec.beta_2)
    torch._foreach_add_(moment, gradients, alpha=1 - spec.beta_2)
    return changes
