"""Named arrays handed to a user's model, and its tensors as arrays."""

from __future__ import annotations

import inspect
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from parity.common.external.process.calling import arrange, called
from parity.common.external.process.pass_result import Array, Arrays
from parity.common.spec.imported_loss import ALONE
from parity.torch_impl.private_names import has_no_numbers, is_transformed, transforms_off, untransformed


def call(model: nn.Module, inputs: Array | Arrays, training: bool | None = None) -> Any:
    """Return what the model gives for some inputs, as it gives it.

    Args:
        inputs: one array (batch, ...), or arrays by name; `process.calling.arrange` says how they are handed over.
        training: not needed here: a module has its mode; Keras's twin hands it over.

    Raises:
        ExternalModelError: the model does not take such inputs. What its own code raises comes as it is.
    """
    named = inputs if isinstance(inputs, dict) else {ALONE: inputs}
    return call_with(model, {name: tensor_of(array) for name, array in named.items()}, training)


def call_with(model: nn.Module, tensors: dict[str, Any], training: bool | None = None) -> Any:
    """Return what the model gives for tensors (batch, ...) by name; arguments and errors as of `call`."""
    del training
    args, kwargs = arrange(tensors, inspect.signature(model.forward), "forward")
    return called(partial(model, **kwargs), args)


def tensor_of(array: Array) -> Tensor:
    """Floating numbers in the process's precision; integers and booleans as they are."""
    tensor = torch.from_numpy(np.array(array))
    return tensor.to(torch.get_default_dtype()) if tensor.is_floating_point() else tensor


def array_of(tensor: Tensor) -> Array:
    """A copy of a tensor's values; bfloat16 as float32, which holds the same numbers; complex ones with the
    real and the imaginary part as the last axis."""
    if is_transformed(tensor):
        with transforms_off():
            return array_of(untransformed(tensor))
    tensor = torch.zeros(tensor.shape, dtype=tensor.dtype) if has_no_numbers(tensor) else tensor.detach()
    if tensor.layout != torch.strided:
        tensor = tensor.to_dense()
    if tensor.dtype == torch.bfloat16:
        return tensor.double().cpu().numpy().astype(np.float32)
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor.resolve_conj())
    return np.array(tensor.cpu().resolve_neg().numpy())


def as_given_to_loss(output: Tensor) -> Tensor:
    """An output as a tensor of its own, to which nothing but the loss sends a gradient back."""
    return output.view_as(output)


def is_tensor(value: Any) -> bool:
    """Whether a value is a tensor that holds numbers."""
    return isinstance(value, Tensor)
