"""The tensors of a user's model as arrays by native name, and back."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from parity.common.base.errors import ExternalModelError
from parity.common.external.process.calling import check_tensors
from parity.common.external.process.pass_result import Arrays
from parity.torch_impl.external import names
from parity.torch_impl.external.calling import array_of


def read(model: nn.Module) -> Arrays:
    """All weights and buffers; raises ExternalModelError where some have no shape yet."""
    found = names.tensors(model)
    lazy = [name for name, tensor in found.items() if nn.parameter.is_lazy(tensor)]
    if lazy:
        raise ExternalModelError(
            f"{lazy[0]} has no shape before the first pass; ask for the outline with inputs first"
        )
    return {name: array_of(tensor) for name, tensor in found.items()}


@torch.no_grad()
def write(model: nn.Module, state: Arrays) -> None:
    """Set the tensors that are named; raises ExternalModelError, and sets none, where a name or a shape is wrong."""
    found = names.tensors(model)
    # A complex one is given and taken as its two parts.
    parts = {
        name: torch.view_as_real(tensor) if tensor.is_complex() else tensor
        for name, tensor in found.items()
        if not nn.parameter.is_lazy(tensor)
    }
    check_tensors({name: tuple(tensor.shape) for name, tensor in parts.items()}, state)
    for name, array in state.items():
        parts[name].copy_(torch.from_numpy(np.array(array)))
