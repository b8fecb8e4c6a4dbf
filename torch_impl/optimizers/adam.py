"""Adam and its relatives; formulas as in `common/reference/optimizers/adam.py`."""

from __future__ import annotations

import torch
from torch import Tensor

from parity.common.spec.optimizers import Adam, Adamax, AdamW, Nadam
from parity.torch_impl.optimizers.base import Update, register

# A step at which beta ** step is zero.
_LATE = torch.tensor(1e12)


def moments(given: Update) -> tuple[list[Tensor], list[Tensor]]:
    """The two moments after this step's gradient; sets their slots."""
    spec, gradients = given.spec, given.gradients
    first, second = given.slots["first_moment"], given.slots["second_moment"]
    torch._foreach_mul_(first, spec.beta_1)
    torch._foreach_add_(first, gradients, alpha=1 - spec.beta_1)
    torch._foreach_mul_(second, spec.beta_2)
    torch._foreach_addcmul_(second, gradients, gradients, 1 - spec.beta_2)
    return first, second


@register(Adam, AdamW)
def adam(given: Update) -> list[Tensor]:
    """The corrected first moment over the root of the second."""
    return _fused(given) if given.gradients[0].device.type == "cpu" else _in_passes(given)


def _in_passes(given: Update) -> list[Tensor]:
    spec, scalars = given.spec, given.scalars
    first, second = moments(given)
    if spec.amsgrad:
        largest = given.slots["largest_second_moment"]
        torch._foreach_maximum_(largest, second)
        second = largest
    root = torch._foreach_sqrt(second)
    torch._foreach_div_(root, scalars["second_correction"])
    torch._foreach_add_(root, spec.epsilon)
    changes = torch._foreach_mul(first, -scalars["step_size"])
    torch._foreach_div_(changes, root)
    return changes


def _fused(given: Update) -> list[Tensor]:
    """As `_in_passes`, in one pass over the memory instead of nine.

    PyTorch's kernel updates zeros, which gives the change alone, at a step so late that its own corrections are one:
    S m / (sqrt(v) / C + epsilon) = S C m / (sqrt(v) + epsilon C), with our step size S and correction C.
    """
    spec, slots, correction = given.spec, given.slots, given.scalars["second_correction"]
    changes = list(map(torch.zeros_like, given.gradients))
    torch._fused_adam_(
        changes,
        given.gradients,
        slots["first_moment"],
        slots["second_moment"],
        slots["largest_second_moment"] if spec.amsgrad else [],
        [_LATE] * len(changes),
        lr=given.scalars["step_size"] * correction,
        beta1=spec.beta_1,
        beta2=spec.beta_2,
        weight_decay=0.0,
        eps=spec.epsilon * correction,
        amsgrad=spec.amsgrad,
        maximize=False,
    )
    return changes


@register(Adamax)
def adamax(given: Update) -> list[Tensor]:
    """The corrected first moment over the decayed maximum of |g|."""
    spec, gradients = given.spec, given.gradients
    first, norm = given.slots["first_moment"], given.slots["infinity_norm"]
    torch._foreach_mul_(first, spec.beta_1)
    torch._foreach_add_(first, gradients, alpha=1 - spec.beta_1)
    size = torch._foreach_abs(gradients)
    if spec.epsilon_place == "norm":
        torch._foreach_add_(size, spec.epsilon)
    torch._foreach_mul_(norm, spec.beta_2)
    torch._foreach_maximum_(norm, size)
    divisor = norm if spec.epsilon_place == "norm" else torch._foreach_add(norm, spec.epsilon)
    changes = torch._foreach_mul(first, -given.scalars["step_size"])
    torch._foreach_div_(changes, divisor)
    return changes


@register(Nadam)
def nadam(given: Update) -> list[Tensor]:
    """Adam with the next step's momentum and this step's gradient in place of the first moment."""
    scalars = given.scalars
    first, second = moments(given)
    root = torch._foreach_sqrt(second)
    torch._foreach_div_(root, scalars["second_correction"])
    torch._foreach_add_(root, given.spec.epsilon)
    changes = torch._foreach_mul(given.gradients, -scalars["gradient_step_size"])
    torch._foreach_add_(changes, first, alpha=-scalars["moment_step_size"])
    torch._foreach_div_(changes, root)
    return changes
