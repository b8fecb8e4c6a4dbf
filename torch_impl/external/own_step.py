"""A training step of the user's own, called as a loop of theirs calls it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from parity.common.base.errors import ExternalModelError
from parity.common.external.process.resolve import function_of
from parity.common.spec.external.target import Target
from parity.torch_impl.external.calling import is_tensor

_WANTED = "a training step: a function of a model and a batch"


def loss(target: Target, model: nn.Module, batch: Any, iterations: Any = 0, compiled: Any = None) -> Tensor:
    """Return the loss that a step computes, a scalar.

    Args:
        target: what names the step, called as `step(model, batch)`. It gives the loss, a dict with 'loss', or a tuple
            that begins with it, and updates nothing.
        model: the user's.
        batch: as `process.objective.batch_of` makes it.
        iterations: how many updates were made; a step of torch's counts them itself.
        compiled: of Keras's steps alone.

    Raises:
        ExternalModelError: the step cannot be imported, or gives no scalar of floats.
    """
    del iterations, compiled
    # A step may take gradients itself, as of an energy, in an evaluation too.
    with torch.enable_grad():
        given = function_of(target, "torch", _WANTED)(model, batch)
    value = given.get("loss") if isinstance(given, dict) else given[0] if isinstance(given, tuple) else given
    if not is_tensor(value) or value.ndim or not value.is_floating_point():
        what = f"the shape {tuple(value.shape)}" if is_tensor(value) else type(value).__name__
        raise ExternalModelError(f"{target} gives {what}; a step gives one number, the loss to be minimised")
    return value
