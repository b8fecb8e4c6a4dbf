"""A user's model or optimizer, imported and built; what is wrong is one line of ExternalModelError."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import torch
from torch import nn

from parity.common.base.errors import ExternalModelError
from parity.common.external.process.resolve import call, resolve, wants
from parity.common.spec.external.target import Target
from parity.torch_impl.external import floating_point


def prepare(precision: str, threads: int) -> None:
    """Settings of this process, made before any of the user's code is imported."""
    torch.set_num_threads(threads)
    # The fast path of transformers does not call the layers inside.
    torch.backends.mha.set_fastpath_enabled(False)
    floating_point.set_default(precision)


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
    found = resolve(target, "torch")
    model = found if isinstance(found, nn.Module) else call(found, target, (), "a torch.nn.Module")
    if not isinstance(model, nn.Module):
        raise ExternalModelError(
            f"{target} gives an object of type {_type(model)}; it must give a torch.nn.Module"
        )
    # The user's code may have changed it.
    floating_point.set_default(precision)
    floating_point.convert(model, precision)
    return model


def build_optimizer(target: Target, model: nn.Module) -> torch.optim.Optimizer:
    """Return the optimizer that a target names.

    A function or class is called with the model's parameters, or with the model where its first parameter is
    called 'model', 'module' or 'net', and with the target's arguments.

    Raises:
        ExternalModelError: the target cannot be imported, fails, or gives no torch.optim.Optimizer.
    """
    found = resolve(target, "torch")
    first = model if wants(found, ("model", "module", "net")) else list(model.parameters())
    optimizer = found if _is_optimizer(found) else call(found, target, (first,), "a torch.optim.Optimizer")
    if not _is_optimizer(optimizer):
        raise ExternalModelError(
            f"{target} gives an object of type {_type(optimizer)}; it must give a torch.optim.Optimizer"
        )
    return optimizer


def seed_all(seed: int) -> None:
    """Begin all streams of random numbers anew."""
    torch.manual_seed(seed)
    np.random.seed(seed % 2**32)
    random.seed(seed)


def _is_optimizer(value: Any) -> bool:
    return isinstance(value, torch.optim.Optimizer)


def _type(value: Any) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}"
