"""The layers and the tensors of a user's model by the names of its outline; tensors read, written, and updated."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch
from torch import Tensor, nn

from parity.common.base.errors import ExternalModelError
from parity.common.external.process.pass_result import Array, Arrays
from parity.common.state.canonical import without_ties


def layers(model: nn.Module) -> dict[str, nn.Module]:
    """Every module below the model by its path, parents before their children; a shared one has its first path.

    More than the outline lists: also what only holds others, and the insides of layers of a known kind.
    """
    return {path: module for path, module in model.named_modules() if path}


def tensors(model: nn.Module) -> dict[str, Tensor]:
    """The live weights and buffers by the names of the outline; a tied one under each of its names."""
    found = model.state_dict(keep_vars=True)
    # A module may keep plain data beside them (get_extra_state).
    return {name: tensor for name, tensor in found.items() if isinstance(tensor, Tensor)}


def trained(model: nn.Module) -> dict[str, Tensor]:
    """The tensors that are trained, each once, by the first of its names."""
    found = without_ties(tensors(model)).items()
    return {name: each for name, each in found if isinstance(each, nn.Parameter) and each.requires_grad}


def stored(model: nn.Module) -> dict[str, Tensor]:
    """Return all weights and buffers by native name; raises ExternalModelError where some have no shape yet.

    A complex one is given as its two parts.
    """
    found = {}
    for name, tensor in tensors(model).items():
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
    optimizer: torch.optim.Optimizer,
    trained: Mapping[str, Tensor],
    gradients: Sequence[Arrays],
    begin: Callable[[int], None],
) -> None:
    """Make one update by each set of gradients.

    Args:
        optimizer: a new one.
        trained: the trained tensors by native name, which are changed.
        gradients: by native name, of the tensor's shape; a tensor that a set leaves out has no gradient in that update.
        begin: called before each update, with its number.
    """
    try:
        for number, given in enumerate(gradients):
            begin(number)
            for name, tensor in trained.items():
                array = given.get(name)
                tensor.grad = None if array is None else torch.from_numpy(np.array(array)).to(tensor.dtype)
            optimizer.step()
    finally:
        for tensor in trained.values():
            tensor.grad = None
