"""A user's model or optimizer, imported and built in a precision; what is wrong is one line of ExternalModelError."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch import nn
from torch.optim.lr_scheduler import LRScheduler

from parity.common.base.errors import ExternalModelError
from parity.common.external.process.calls import qualified
from parity.common.external.process.float64_code import CODE
from parity.common.external.process.resolve import made, resolve
from parity.common.spec.external.target import Target
from parity.torch_impl.external.exact import EXACT
from parity.torch_impl.external.widening import WIDE

_DTYPES = {"float64": torch.float64, "float32": torch.float32}


def prepare(precision: str) -> None:
    """Settings of this process, made before any of the user's code is imported: one thread, and a precision."""
    torch.set_num_threads(1)
    # The fast path of transformers does not call the layers inside.
    torch.backends.mha.set_fastpath_enabled(False)
    WIDE.switch(precision == "float64")
    set_default(precision)


def build(target: Target, precision: str, seed: int, exact: bool = False) -> nn.Module:
    """The model that a target names: a module, or what a function or class gives when it is called.

    Args:
        target: imported here; its arguments are passed on.
        precision: 'float64' or 'float32', of all floating tensors.
        seed: of the initial values.
        exact: float64 also where its code asks for float32, while it is imported and built.

    Raises:
        ExternalModelError: it cannot be imported, fails, or is no module.
    """
    # A trainer's process has made no model of this precision before: tables that code makes are to be as in every process.
    set_default(precision)
    seed_all(seed)
    CODE.switch(exact)
    # Constants that code makes float32 are rounded so in each framework, by NumPy too.
    with WIDE.within() if exact else WIDE.without():
        resolve(target, "torch")
    # Importing the user's code may have changed it.
    set_default(precision)
    with WIDE.within() if exact else WIDE.without():
        model: nn.Module = made(target, "torch", nn.Module, "a torch.nn.Module")
    # What torch.compile gives: it computes what the module in it does.
    model = getattr(model, "_orig_mod", model)
    if isinstance(model, torch.jit.ScriptModule):
        raise ExternalModelError(
            f"{target} gives TorchScript, whose layers nobody can see; give the nn.Module that it was made of"
        )
    tensors = (*model.named_parameters(), *model.named_buffers())
    if empty := next((name for name, tensor in tensors if tensor.is_meta), None):
        raise ExternalModelError(
            f"{target}: {empty} is on the meta device and holds no numbers; build the model without torch.device('meta')"
        )
    set_default(precision)
    convert(model, precision)
    return model


def build_optimizer(target: Target, model: nn.Module) -> torch.optim.Optimizer:
    """Return the optimizer that a target names; see `with_scheduler`."""
    return with_scheduler(target, model)[0]


def with_scheduler(target: Target, model: nn.Module) -> tuple[torch.optim.Optimizer, LRScheduler | None]:
    """Return the optimizer that a target names, and the scheduler that comes with it.

    A function or class is called with the model's parameters, or with the model where its first parameter is
    called 'model', 'module' or 'net', and with the target's arguments.

    Raises:
        ExternalModelError: the target cannot be imported, fails, gives no torch.optim.Optimizer, or one without a learning rate.
    """
    wanted = "a torch.optim.Optimizer, or one with its scheduler"
    cls = torch.optim.Optimizer
    found = made(target, "torch", (cls, tuple, list), wanted, model, (list(model.parameters()),))
    alone = isinstance(found, cls)
    if alone or (len(found) == 2 and isinstance(found[0], cls) and isinstance(found[1], LRScheduler)):
        optimizer, scheduler = (found, None) if alone else found
        if any(group.get("lr") is None for group in optimizer.param_groups):
            raise ExternalModelError(
                f"{target}: its parameter groups have no 'lr', and nothing else tells the learning rate of each step; keep it in"
                " group['lr'], and have a scheduler move it"
            )
        return optimizer, scheduler
    given = ", ".join(qualified(type(each)) for each in found)
    raise ExternalModelError(f"{target} gives ({given}); it must give {wanted}")


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
    """Whether constants of float64 models are in float64 too, from now on, and sums in batch norms are accurate.

    Stock torch takes a sixth through float32 in the backward passes of two functions, and no other constant.

    Returns:
        What it would have rounded since it was switched on, each once.
    """
    return EXACT.switch(on)


@contextmanager
def in_float64() -> Iterator[None]:
    """Within, whatever a float64 model computes is float64: constants, and what its code asks float32 for."""
    with WIDE.within(), EXACT.within():
        yield
