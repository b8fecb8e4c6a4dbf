"""A user's model or optimizer, imported and built in a precision; what is wrong is one line of ExternalModelError."""

from __future__ import annotations

import random

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from parity.common.external.process.exact import ExactFunctions
from parity.common.external.process.resolve import made
from parity.common.spec.external.target import Target

_DTYPES = {"float64": torch.float64, "float32": torch.float32}


def prepare(precision: str) -> None:
    """Settings of this process, made before any of the user's code is imported: one thread, and a precision."""
    torch.set_num_threads(1)
    # The fast path of transformers does not call the layers inside.
    torch.backends.mha.set_fastpath_enabled(False)
    set_default(precision)


def build(target: Target, precision: str, seed: int) -> nn.Module:
    """The model that a target names: a module, or what a function or class gives when it is called.

    Args:
        target: imported here; its arguments are passed on.
        precision: 'float64' or 'float32', of all floating tensors.
        seed: of the initial values.

    Raises:
        ExternalModelError: it cannot be imported, fails, or is no module.
    """
    seed_all(seed)
    model: nn.Module = made(target, "torch", nn.Module, "a torch.nn.Module")
    # The user's code may have changed it.
    set_default(precision)
    convert(model, precision)
    return model


def build_optimizer(target: Target, model: nn.Module) -> torch.optim.Optimizer:
    """Return the optimizer that a target names.

    A function or class is called with the model's parameters, or with the model where its first parameter is
    called 'model', 'module' or 'net', and with the target's arguments.

    Raises:
        ExternalModelError: the target cannot be imported, fails, or gives no torch.optim.Optimizer.
    """
    cls = torch.optim.Optimizer
    first = (list(model.parameters()),)
    return made(target, "torch", cls, "a torch.optim.Optimizer", model, first)


def seed_all(seed: int) -> None:
    """Begin all streams of random numbers anew."""
    torch.manual_seed(seed)
    np.random.seed(seed % 2**32)
    random.seed(seed)


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


def exact_constants(on: bool) -> list[str]:
    """Whether constants of float64 models are in float64 too, from now on.

    Stock torch takes a sixth through float32 in the backward passes of two functions, and no other constant.

    Returns:
        What it would have rounded since it was switched on, each once.
    """
    return EXACT.switch(on)


EXACT = ExactFunctions()
_hardsigmoid, _hardswish = F.hardsigmoid, F.hardswish


def _exact_hardsigmoid(input: torch.Tensor, inplace: bool = False) -> torch.Tensor:
    if input.dtype != torch.float64:
        return _hardsigmoid(input, inplace)
    EXACT.note("the gradient of hardsigmoid")
    return F.relu6(input + 3) / 6


def _exact_hardswish(input: torch.Tensor, inplace: bool = False) -> torch.Tensor:
    if input.dtype != torch.float64:
        return _hardswish(input, inplace)
    EXACT.note("the gradient of hardswish")
    return input * (F.relu6(input + 3) / 6)


EXACT.replacements = ((F, "hardsigmoid", _exact_hardsigmoid), (F, "hardswish", _exact_hardswish))
