"""The tensors of a user's model, read, written, and updated by the user's optimizer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor, nn

from parity.common.base.errors import ExternalModelError
from parity.common.external.process.pass_result import Array, Arrays
from parity.torch_impl.external import names


def stored(model: nn.Module) -> dict[str, Tensor]:
    """Return all weights and buffers by native name; raises ExternalModelError where some have no shape yet.

    A complex one is given as its two parts.
    """
    found = {}
    for name, tensor in names.tensors(model).items():
        if nn.parameter.is_lazy(tensor):
            raise ExternalModelError(
                f"{name} has no shape before the first pass; ask for the outline with inputs first"
            )
        found[name] = torch.view_as_real(tensor.detach()) if tensor.is_complex() else tensor
    return found


@torch.no_grad()
def assign(tensor: Tensor, array: Array) -> None:
    """Set a tensor to values of its shape."""
    tensor.copy_(torch.from_numpy(np.array(array)))


def update(
    optimizer: torch.optim.Optimizer, trained: Mapping[str, Tensor], gradients: Sequence[Arrays]
) -> None:
    """Make one update by each set of gradients.

    Args:
        optimizer: a new one.
        trained: the trained tensors by native name, which are changed.
        gradients: by native name, of the tensor's shape; a tensor that a set leaves out has no gradient in that update.
    """
    try:
        for given in gradients:
            for name, tensor in trained.items():
                array = given.get(name)
                tensor.grad = None if array is None else torch.from_numpy(np.array(array)).to(tensor.dtype)
            optimizer.step()
    finally:
        for tensor in trained.values():
            tensor.grad = None
