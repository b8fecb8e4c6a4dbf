"""Updates of a user's model by given gradients, with the user's optimizer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from parity.common.external.process.calling import check_tensors
from parity.common.external.process.pass_result import Arrays
from parity.common.spec.external.target import Target
from parity.torch_impl.external import load, names
from parity.torch_impl.external.calling import array_of


def update(
    model: nn.Module, optimizer: Target, gradients: Sequence[Arrays], keep: bool = False
) -> dict[str, Any]:
    """Make a new optimizer, and one update for each set of gradients.

    Args:
        optimizer: what makes it; see `load.build_optimizer`.
        gradients: by native name; a trained tensor that a set leaves out has no gradient in that update.
        keep: whether the model stays updated; else its tensors are restored.

    Returns:
        'tensors': the trained tensors after the last update by name; 'slots': slot -> name -> array.

    Raises:
        ExternalModelError: the optimizer cannot be made, a name or a shape is wrong.
    """
    trained = names.trained(model)
    for given in gradients:
        check_tensors({name: tuple(tensor.shape) for name, tensor in trained.items()}, given)
    made = load.build_optimizer(optimizer, model)
    before = {name: tensor.detach().clone() for name, tensor in trained.items()}
    try:
        for given in gradients:
            for name, tensor in trained.items():
                array = given.get(name)
                tensor.grad = None if array is None else torch.from_numpy(np.array(array)).to(tensor.dtype)
            made.step()
        slots: dict[str, Arrays] = {}
        for name, tensor in trained.items():
            for slot, value in made.state.get(tensor, {}).items():
                if isinstance(value, torch.Tensor):
                    slots.setdefault(slot, {})[name] = array_of(value)
        return {"tensors": {name: array_of(tensor) for name, tensor in trained.items()}, "slots": slots}
    finally:
        for name, tensor in trained.items():
            tensor.grad = None
            if not keep:
                with torch.no_grad():
                    tensor.copy_(before[name])
