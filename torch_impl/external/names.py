"""What the layers and the tensors of a user's model are called: as its outline calls them."""

from __future__ import annotations

import torch
from torch import nn

from parity.common.external.process.calls import without_ties


def layers(model: nn.Module) -> dict[str, nn.Module]:
    """Every module below the model by its path, parents before their children; a shared one has its first path.

    More than the outline lists: also what only holds others, and the insides of layers of a known kind.
    """
    return {path: module for path, module in model.named_modules() if path}


def tensors(model: nn.Module) -> dict[str, torch.Tensor]:
    """The live weights and buffers by the names of the outline; a tied one under each of its names."""
    found = model.state_dict(keep_vars=True)
    # A module may keep plain data beside them (get_extra_state).
    return {name: tensor for name, tensor in found.items() if isinstance(tensor, torch.Tensor)}


def trained(model: nn.Module) -> dict[str, torch.Tensor]:
    """The tensors that are trained, each once, by the first of its names."""
    found = without_ties(tensors(model)).items()
    return {name: each for name, each in found if isinstance(each, nn.Parameter) and each.requires_grad}
