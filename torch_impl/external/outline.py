"""What a live PyTorch model, and its optimizer, consist of, as an Outline."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

from parity.common.base.errors import ExternalModelError
from parity.common.external.process.calls import Calls, Owned, qualified
from parity.common.external.process.pass_result import tensors_in
from parity.common.spec.external.outline import Outline, Shape
from parity.torch_impl.external import names, settings
from parity.torch_impl.external.calling import call, is_tensor
from parity.torch_impl.external.functions import function_of
from parity.torch_impl.external.optimizers import describe
from parity.torch_impl.external.settings import is_stochastic, kind_of

# Holders of tensors or layers that no one calls.
_LISTS = (nn.ModuleList, nn.ModuleDict, nn.ParameterList, nn.ParameterDict)


def outline(model: nn.Module, target: str, inputs: Any = None, optimizer: Any = None) -> Outline:
    """Describe a model, and where inputs are given, one forward pass of it, in inference and without gradients.

    The model is left as it was, but that lazy layers are built.

    Args:
        model: what the user's code built.
        target: its name, package.module:attribute.
        inputs: an array, or a dict of arrays by name, with the batch.
        optimizer: of torch.optim, over any tensors.

    Raises:
        ExternalModelError: what was built is no model; it needs inputs to be built; it takes other inputs. What the
            model's own code raises comes through as it is.
    """
    if not isinstance(model, nn.Module):
        raise ExternalModelError(f"{target}: expects an nn.Module, received {type(model).__name__}")
    began = time.perf_counter()
    layers = layers_of(model)
    calls = Calls(layers, settings, [path for path, layer in layers.items() if not list(layer.children())])
    given: dict[str, Shape] = {}
    outputs: dict[str, Shape] = {}
    touched: set[int] = set()
    if inputs is not None:
        named = inputs if isinstance(inputs, dict) else {"inputs": inputs}
        given = {name: np.shape(value) for name, value in named.items()}
        with _traced(model, calls, touched):
            result = call(model, inputs, training=False)
        outputs = {name: tuple(value.shape) for name, value in tensors_in(result, is_tensor).items()}
    state = names.tensors(model)
    for name, tensor in state.items():
        if nn.parameter.is_lazy(tensor):
            raise ExternalModelError(
                f"{target}: {name} has no shape yet; give inputs, so that lazy layers are built"
            )
    tensors = calls.tensors(owned(model), _purpose)
    infos = calls.placed(tensors)
    dropped = [info.path for info in infos if is_stochastic(layers[info.path])]
    dropped += [info.path for info in calls.operations if info.kind == "dropout" and info.settings["rate"]]
    return Outline(
        framework="torch",
        target=target,
        type=qualified(type(model)),
        versions={"torch": torch.__version__},
        layers=infos,
        operations=tuple(calls.operations),
        order=tuple(calls.order),
        tensors=tensors,
        inputs=given,
        outputs=outputs,
        stochastic=tuple(dropped),
        unused=tuple(
            info.name
            for info in tensors
            if inputs is not None
            and info.role != "num_batches_tracked"
            and id(state[info.name]) not in touched
        ),
        optimizer=None if optimizer is None else describe(optimizer),
        seconds=time.perf_counter() - began,
    )


def layers_of(model: nn.Module) -> dict[str, nn.Module]:
    """By path, in order of definition: layers of a known kind, and of the others leaves and owners of tensors."""
    found: dict[str, nn.Module] = {}
    inside: list[str] = []
    for path, module in model.named_modules():
        if any(path.startswith(closed) for closed in inside):
            continue
        owned_here = [*module.parameters(recurse=False), *module.buffers(recurse=False)]
        is_leaf = not isinstance(module, _LISTS) and not list(module.children())
        if kind_of(module):
            inside.append(f"{path}." if path else "")
            found[path] = module
        elif owned_here or is_leaf:
            found[path] = module
    return found


def owned(model: nn.Module) -> Iterator[Owned]:
    """Yield every weight and buffer of the model, ties under each of their names."""
    # A layer that is registered more than once has its tensors under each of its paths.
    by_module = {id(module): path for path, module in layers_of(model).items()}
    owners = {
        path: by_module[id(module)]
        for path, module in model.named_modules(remove_duplicate=False)
        if id(module) in by_module
    }
    for name, tensor in names.tensors(model).items():
        path = max((path for path in owners if name.startswith(f"{path}." if path else "")), key=len)
        yield owners[path], name[len(path) :].lstrip("."), name, tensor


def _purpose(layer: nn.Module, tensor: torch.Tensor) -> tuple[bool, bool]:
    return tensor.requires_grad, not isinstance(tensor, nn.Parameter)


@contextmanager
def _traced(model: nn.Module, calls: Calls, touched: set[int]) -> Iterator[None]:
    """One pass in inference, reported to `calls`; `touched` gathers the ids of the tensors it was given."""
    training = {module: module.training for module in model.modules()}
    fast = torch.backends.mha.get_fastpath_enabled()
    with ExitStack() as stack:
        for path, module in model.named_modules():
            enter, leave = partial(_entering, calls, path), partial(_leaving, calls, path)
            stack.callback(module.register_forward_pre_hook(enter).remove)
            stack.callback(module.register_forward_hook(leave, with_kwargs=True).remove)
        # The fast path of transformers does not call the layers inside.
        torch.backends.mha.set_fastpath_enabled(False)
        stack.callback(torch.backends.mha.set_fastpath_enabled, fast)
        for module, mode in training.items():
            stack.callback(setattr, module, "training", mode)
        model.eval()
        stack.enter_context(torch.no_grad())
        stack.enter_context(_Functions(calls, touched))
        yield


def _entering(calls: Calls, path: str, module: nn.Module, args: Any) -> None:
    calls.enter(path)


def _leaving(calls: Calls, path: str, module: nn.Module, args: Any, kwargs: Any, result: Any) -> None:
    calls.leave(path, shapes((args, kwargs)), shapes(result))


def shapes(values: Any) -> tuple[Shape, ...]:
    """The shapes of all tensors in nested lists and dicts."""
    return tuple(tuple(value.shape) for value in tree_leaves(values) if isinstance(value, torch.Tensor))


class _Functions(TorchFunctionMode):
    """Reports the functions that compute tensors."""

    def __init__(self, calls: Calls, touched: set[int]) -> None:
        super().__init__()
        self.calls, self.touched = calls, touched

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        self.touched.update(id(v) for v in tree_leaves((args, kwargs)) if isinstance(v, torch.Tensor))
        result = func(*args, **kwargs)
        name = getattr(func, "__name__", str(func))
        # Reading or setting an attribute computes nothing.
        if self.calls.hidden or not isinstance(result, torch.Tensor) or name in ("__get__", "__set__"):
            return result
        self.calls.function()
        found = function_of(func, args, kwargs, result)
        if found is not None:
            type_ = f"{getattr(func, '__module__', None) or 'torch.Tensor'}.{name}"
            self.calls.operation(found[0], type_, *found[1:], shapes((args, kwargs)), shapes(result))
        return result
