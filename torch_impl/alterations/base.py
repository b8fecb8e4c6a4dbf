"""What experiments on the functions of torch share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

Function = Callable[..., Any]
AXES_OF_SEQUENCES = 3  # batch, time, channels


def tensors_of(args: Any) -> list[Tensor]:
    """Return those of some arguments that are tensors."""
    return [value for value in args if isinstance(value, Tensor)]


def same(left: Any, right: Any) -> bool:
    """Return whether a tensor is another one, or a copy of it that a tap has made."""
    both = isinstance(left, Tensor) and isinstance(right, Tensor) and left.shape == right.shape
    return left is right or (both and torch.equal(left, right))
