"""A user's model in a precision: built in it, or converted where it has fixed its own."""

from __future__ import annotations

import torch
from torch import nn

_DTYPES = {"float64": torch.float64, "float32": torch.float32}


def set_default(precision: str) -> None:
    """What torch makes tensors of, unless told otherwise: also what a module computes while it is built."""
    torch.set_default_dtype(_DTYPES[precision])


def convert(model: nn.Module, precision: str) -> None:
    """Have every floating tensor of a model in a precision, whatever its code has fixed, and complex ones alike."""
    dtype = _DTYPES[precision]

    def converted(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.is_complex():
            return tensor.to(dtype.to_complex())
        return tensor.to(dtype) if tensor.is_floating_point() else tensor

    model._apply(converted)


def exact_constants(on: bool) -> None:
    """Nothing to do: torch takes Python's numbers as they are. See the twin."""
    del on
