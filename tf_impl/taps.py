"""Intermediate tensors of a step under their canonical names."""

from __future__ import annotations

from typing import Any

import numpy as np

from common.state import State
from tf_impl.model import Model


def reduced_gradients(model: Model, gradients: list[Any]) -> State:
    """Copies of a step's global gradients, given in the order of `model.parameters`."""
    return {name: np.array(gradient) for name, gradient in zip(model.parameters, gradients, strict=True)}
