"""What a live PyTorch model, and its optimizer, consist of, as an Outline."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

from parity.common.base.errors import ExternalModelError
from parity.common.external.process.calls import Calls
from parity.common.external.process.pass_result import tensors_in
from parity.common.spec.external.outline import LayerInfo, Outline, Shape, TensorInfo
from parity.torch_impl.external.calling import call, is_tensor
from parity.torch_impl.external.functions import function_of
from parity.torch_impl.external.optimizers import describe
from parity.torch_impl.external.settings import is_overridden, is_stochastic, kind_of, role_of, settings_of

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
    closed = frozenset(path for path, module in layers.items() if kind_of(module))
    leaves = frozenset(path for path, module in layers.items() if not list(module.children()))
    calls = Calls(frozenset(layers), closed, leaves)
    given: dict[str, Shape] = {}
    outputs: dict[str, Shape] = {}
    touched: set[int] = set()
    if inputs is not None:
        named = inputs if isinstance(inputs, dict) else {"inputs": inputs}
        given = {name: np.shape(value) for name, value in named.items()}
        with _traced(model, calls, touched):
            result = call(model, inputs, training=False)
        outputs = {name: tuple(value.shape) for name, value in tensors_in(result, is_tensor).items()}
    tensors = _tensors(model, layers, target)
    infos = calls.placed([_layer(path, module, tensors) for path, module in layers.items()])
    state = variables_of(model)
    dropped = [info.path for info in infos if is_stochastic(layers[info.path])]
    dropped += [info.path for info in calls.operations if info.kind == "dropout" and info.settings["rate"]]
    return Outline(
        framework="torch",
        target=target,
        type=_name(type(model)),
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
        is_leaf = not isinstance(module, _LISTS) and not list(module.children())
        if kind_of(module):
            inside.append(f"{path}." if path else "")
            found[path] = module
        elif _owns(module) or is_leaf:
            found[path] = module
    return found


def variables_of(model: nn.Module) -> dict[str, torch.Tensor]:
    """Every weight and buffer of the model by its name in the outline, ties under each of their names."""
    state = model.state_dict(keep_vars=True)
    return {name: value for name, value in state.items() if isinstance(value, torch.Tensor)}


def _name(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"


def _owns(module: nn.Module) -> bool:
    own = [*module.parameters(recurse=False), *module.buffers(recurse=False)]
    return bool(own)


def _layer(path: str, module: nn.Module, tensors: tuple[TensorInfo, ...]) -> LayerInfo:
    return LayerInfo(
        path=path,
        kind=kind_of(module),
        type=_name(type(module)),
        settings=settings_of(module, [info for info in tensors if info.layer == path]),
        overridden=is_overridden(module),
    )


def _tensors(model: nn.Module, layers: dict[str, nn.Module], target: str) -> tuple[TensorInfo, ...]:
    found: list[TensorInfo] = []
    first: dict[int, str] = {}
    # A layer that is registered more than once has its tensors under each of its paths.
    by_module = {id(module): path for path, module in layers.items()}
    owners = {
        path: by_module[id(module)]
        for path, module in model.named_modules(remove_duplicate=False)
        if id(module) in by_module
    }
    for name, value in variables_of(model).items():
        if nn.parameter.is_lazy(value):
            raise ExternalModelError(
                f"{target}: {name} has no shape yet; give inputs, so that lazy layers are built"
            )
        path = max((path for path in owners if name.startswith(f"{path}." if path else "")), key=len)
        owner = owners[path]
        tied = first.get(id(value))
        if tied is None:
            first[id(value)] = name
        found.append(
            TensorInfo(
                name=name,
                layer=owner,
                role=role_of(layers[owner], name[len(path) :].lstrip(".")),
                shape=tuple(value.shape),
                dtype=str(value.dtype).removeprefix("torch."),
                trainable=value.requires_grad,
                buffer=not isinstance(value, nn.Parameter),
                tied_to=tied,
            )
        )
    return tuple(found)


@contextmanager
def _traced(model: nn.Module, calls: Calls, touched: set[int]) -> Iterator[None]:
    """One pass in inference, reported to `calls`; `touched` gathers the ids of the tensors it was given."""
    training = {module: module.training for module in model.modules()}
    fast = torch.backends.mha.get_fastpath_enabled()
    with ExitStack() as stack:
        for path, module in model.named_modules():
            stack.callback(module.register_forward_pre_hook(_entering(calls, path)).remove)
            hook = module.register_forward_hook(_leaving(calls, path), with_kwargs=True)
            stack.callback(hook.remove)
        # The fast path of transformers does not call the layers inside.
        torch.backends.mha.set_fastpath_enabled(False)
        stack.callback(torch.backends.mha.set_fastpath_enabled, fast)
        for module, mode in training.items():
            stack.callback(setattr, module, "training", mode)
        model.eval()
        stack.enter_context(torch.no_grad())
        stack.enter_context(_Functions(calls, touched))
        yield


def _entering(calls: Calls, path: str) -> Any:
    return lambda module, args: calls.enter(path)


def _leaving(calls: Calls, path: str) -> Any:
    return lambda module, args, given, result: calls.leave(path, shapes((args, given)), shapes(result))


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
        if self.calls.hidden or not isinstance(result, torch.Tensor) or _is_attribute(func):
            return result
        self.calls.function()
        found = function_of(func, args, kwargs, result)
        if found is not None:
            name, kind, settings = found
            self.calls.operation(
                name, _function_name(func), kind, settings, shapes((args, kwargs)), shapes(result)
            )
        return result


def _is_attribute(func: Any) -> bool:
    return getattr(func, "__name__", "") in ("__get__", "__set__")


def _function_name(func: Any) -> str:
    return f"{getattr(func, '__module__', None) or 'torch.Tensor'}.{getattr(func, '__name__', func)}"
