"""A user's model or optimizer, imported and built in a precision; what is wrong is one line of ExternalModelError."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.optim.lr_scheduler import LRScheduler
from torch.overrides import handle_torch_function, has_torch_function

from parity.common.base.errors import ExternalModelError
from parity.common.external.process.calls import qualified
from parity.common.external.process.exact import ExactFunctions
from parity.common.external.process.resolve import made, resolve
from parity.common.spec.external.target import Target
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
        exact: float64 also where its code asks for float32 while it is built.

    Raises:
        ExternalModelError: it cannot be imported, fails, or is no module.
    """
    # A trainer's process has made no model of this precision before: tables that code makes are to be as in every process.
    set_default(precision)
    seed_all(seed)
    # Constants that code makes float32 are rounded so in each framework, by NumPy too.
    with WIDE.without():
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


def _exact_batch_norm(
    input: torch.Tensor,
    running_mean: torch.Tensor | None,
    running_var: torch.Tensor | None,
    weight: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> torch.Tensor:
    """As the stock function, (batch, channels, ...), with sums by halves.

    Stock torch adds up the values of a channel one after another on a CPU: of pictures, with areas of one colour, each
    addition rounds the same way, so that statistics of some thousand values lose two digits, whatever their order is.
    """
    tensors = input, running_mean, running_var, weight, bias
    if has_torch_function(tensors):
        # As the stock function has itself seen: as one call.
        options = {"weight": weight, "bias": bias, "training": training, "momentum": momentum, "eps": eps}
        found: torch.Tensor = handle_torch_function(_exact_batch_norm, tensors, *tensors[:3], **options)
        return found
    if not training or input.dtype != torch.float64 or input.numel() == input.shape[1]:
        return _batch_norm(*tensors, training, momentum, eps)
    axes = [axis for axis in range(input.dim()) if axis != 1]
    shape = [-1 if axis == 1 else 1 for axis in range(input.dim())]
    mean = input.mean(axes, keepdim=True)
    centered = input - mean
    variance = centered.square().mean(axes, keepdim=True)
    count = input.numel() // input.shape[1]
    with torch.no_grad():
        if running_mean is not None:
            running_mean.lerp_(mean.flatten(), momentum)
        if running_var is not None:
            running_var.lerp_(variance.flatten() * (count / (count - 1)), momentum)
    result = centered * (variance + eps).rsqrt()
    result = result if weight is None else result * weight.view(shape)
    return result if bias is None else result + bias.view(shape)


# What experiments on functions call it by.
_exact_batch_norm.__name__ = "batch_norm"
_batch_norm = F.batch_norm
EXACT.replacements = (
    (F, "hardsigmoid", _exact_hardsigmoid),
    (F, "hardswish", _exact_hardswish),
    (F, "batch_norm", _exact_batch_norm),
)
