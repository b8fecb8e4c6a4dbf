"""Intermediate tensors of a step under their canonical names."""

from __future__ import annotations

from typing import Any

from common.state import State
from torch_impl.model import Model


def reduced_gradients(model: Model, gradients: list[Any]) -> State:
    """Copies of a step's global gradients, given in the order of `model.parameters`."""
    return {
        name: tensor.to_canonical(tensor.gather(gradient))
        for (name, tensor), gradient in zip(model.parameters.items(), gradients, strict=True)
    }
