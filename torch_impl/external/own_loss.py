"""A loss of the user's own, called as loops of torch call it."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from parity.common.base.errors import ExternalModelError
from parity.common.external.process.resolve import function_of, takes
from parity.common.spec.external.target import Target
from parity.torch_impl.external.calling import is_tensor

_WANTED = "a loss: a module, or a function of outputs and targets"


def mean(target: Target, outputs: Any, targets: Any, weights: Tensor | None) -> Tensor:
    """Return the mean of a loss over a batch, a scalar.

    Args:
        target: what names the loss, called as `loss(outputs, targets)`, and with weights as a third argument where
            there are some. It gives a mean.
        outputs: a tensor, or what a model gives.
        targets: a tensor, or several in a list or dict, (batch, ...).
        weights: of the samples, (batch,), or None.

    Raises:
        ExternalModelError: the loss cannot be imported, takes no weights, or gives no scalar of floats.
    """
    loss = function_of(target, "torch", _WANTED)
    if weights is not None and not takes(loss, 3):
        raise ExternalModelError(
            f"{target} takes no sample weights; give it a third parameter, to which they are given"
        )
    value = loss(outputs, targets) if weights is None else loss(outputs, targets, weights)
    if not is_tensor(value) or value.ndim or not value.is_floating_point():
        what = f"the shape {tuple(value.shape)}" if is_tensor(value) else type(value).__name__
        raise ExternalModelError(f"{target} gives {what}; it must give one number, the mean over the batch")
    return value


def added(model: nn.Module) -> float:
    """Return what a model itself adds to the mean loss of the latest pass: torch's add nothing."""
    del model
    return 0.0
