"""What a live PyTorch model, and its optimizer, consist of, as an Outline."""

from __future__ import annotations

import inspect
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FunctionType
from typing import Any

import torch
from torch import nn, optim
from torch.overrides import TorchFunctionMode

from parity.common.base.errors import ExternalModelError
from parity.common.external.process.calls import Calls, Owned, qualified
from parity.common.external.process.pass_result import tensors_in
from parity.common.spec.external.outline import OptimizerInfo, Outline, Setting, Settings, Shape, positive
from parity.torch_impl.external import names, settings
from parity.torch_impl.external.calling import call, is_tensor
from parity.torch_impl.external.settings import function_of, kind_of
from parity.torch_impl.private_names import tree_leaves

# Holders of tensors or layers that no one calls.
_LISTS = (nn.ModuleList, nn.ModuleDict, nn.ParameterList, nn.ParameterDict)

# Class -> canonical kind; by canonical name of a number the group's key for it; settings that are always so.
_KINDS: dict[type[optim.Optimizer], tuple[str, dict[str, str], Settings]] = {
    optim.SGD: ("sgd", {"momentum": "momentum", "dampening": "dampening"}, {"momentum_form": "buffer"}),
    optim.Adam: ("adam", {"epsilon": "eps"}, {"epsilon_place": "inside"}),
    optim.AdamW: ("adamw", {"epsilon": "eps"}, {"epsilon_place": "inside"}),
    optim.RMSprop: (
        "rmsprop",
        {"rho": "alpha", "epsilon": "eps", "momentum": "momentum"},
        {"epsilon_place": "after_root", "momentum_form": "buffer"},
    ),
    optim.Adagrad: (
        "adagrad",
        {"initial_accumulator": "initial_accumulator_value", "epsilon": "eps", "rate_decay": "lr_decay"},
        {"epsilon_place": "after_root"},
    ),
    optim.Adadelta: ("adadelta", {"rho": "rho", "epsilon": "eps"}, {}),
    optim.Adamax: ("adamax", {"epsilon": "eps"}, {"epsilon_place": "norm"}),
    optim.NAdam: ("nadam", {"epsilon": "eps", "momentum_decay": "momentum_decay"}, {}),
}
_SWITCHES = ("nesterov", "amsgrad", "centered")


def outline(model: nn.Module, target: str, inputs: Any = None, optimizer: Any = None) -> Outline:
    """Describe a model, and where inputs are given, one forward pass of it, in inference and without gradients.

    The model is left as it was, but that lazy layers are built.

    Args:
        model: what the user's code built.
        target: its name, package.module:attribute.
        inputs: an array, or a dict of arrays by name, with the batch.
        optimizer: of torch.optim, over any tensors.

    Raises:
        ExternalModelError: it needs inputs to be built; it takes other inputs. What the
            model's own code raises comes through as it is.
    """
    began = time.perf_counter()
    layers = layers_of(model)
    calls = Calls(layers, settings, [path for path, layer in layers.items() if not list(layer.children())])
    if inputs is not None:
        with _traced(model, calls):
            calls.end(inputs, tensors_in(call(model, inputs, training=False), is_tensor))
    for name, tensor in names.tensors(model).items():
        if nn.parameter.is_lazy(tensor):
            raise ExternalModelError(
                f"{target}: {name} has no shape yet; give inputs, so that lazy layers are built"
            )
    return calls.outline(
        model,
        owned(model),
        _purpose,
        framework="torch",
        target=target,
        versions={"torch": torch.__version__},
        optimizer=None if optimizer is None else describe(optimizer, model),
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
        if kind_of(module) or owned_here or is_leaf:
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
def _traced(model: nn.Module, calls: Calls) -> Iterator[None]:
    """One pass in inference, reported to `calls`, with the ids of the tensors that functions are given."""
    training = {module: module.training for module in model.modules()}
    fast = torch.backends.mha.get_fastpath_enabled()
    with ExitStack() as stack:
        stack.callback(model.register_forward_pre_hook(lambda module, args: calls.begin()).remove)
        for path, module in model.named_modules():
            enter, leave = _hooks(calls, path)
            stack.callback(module.register_forward_pre_hook(enter).remove)
            stack.callback(module.register_forward_hook(leave, with_kwargs=True).remove)
        # The fast path of transformers does not call the layers inside.
        torch.backends.mha.set_fastpath_enabled(False)
        stack.callback(torch.backends.mha.set_fastpath_enabled, fast)
        for module, mode in training.items():
            stack.callback(setattr, module, "training", mode)
        model.eval()
        stack.enter_context(torch.no_grad())
        stack.enter_context(_Functions(calls))
        yield


def _hooks(calls: Calls, path: str) -> tuple[Any, Any]:
    return (
        lambda module, args: calls.enter(path),
        lambda module, args, kwargs, result: calls.leave(path, shapes((args, kwargs)), shapes(result)),
    )


def shapes(values: Any) -> tuple[Shape, ...]:
    """The shapes of all tensors in nested lists and dicts."""
    return tuple(tuple(value.shape) for value in tree_leaves(values) if isinstance(value, torch.Tensor))


class _Functions(TorchFunctionMode):
    """Reports the functions that compute tensors."""

    def __init__(self, calls: Calls) -> None:
        super().__init__()
        self.calls = calls

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        self.calls.touched |= {id(v): None for v in tree_leaves((args, kwargs)) if is_tensor(v)}
        result = func(*args, **kwargs)
        name = getattr(func, "__name__", str(func))
        # Reading or setting an attribute computes nothing.
        if self.calls.hidden or not isinstance(result, torch.Tensor) or name in ("__get__", "__set__"):
            return result
        self.calls.function()
        found = function_of(func, args, kwargs, result)
        if found is not None:
            called, kind, settled = found
            type_ = f"{getattr(func, '__module__', None) or 'torch.Tensor'}.{name}"
            ends = {"inputs": shapes((args, kwargs)), "outputs": shapes(result)}
            self.calls.operation(called, kind=kind, type=type_, settings=settled, **ends)
        return result


def describe(optimizer: Any, model: nn.Module) -> OptimizerInfo:
    """The settings of an optimizer for a model; of a class of one's own, '' as kind, and the one that it is like as base.

    Clipping is no part of a torch optimizer: the loop does it, and nothing here tells how.
    """
    cls = type(optimizer)
    name = qualified(cls)
    groups = getattr(optimizer, "param_groups", [])
    if not groups:
        return OptimizerInfo(kind="", type=name)
    kind, numbers, always = _KINDS[_stock(cls, groups[0])]
    each = [{**_of_group(group, numbers), **always} for group in groups]
    counts = [len(group["params"]) for group in groups]
    # An optimizer of one's own may have groups of several rules.
    every = dict.fromkeys(setting for one in each for setting in one)
    settings = {setting: _together([one.get(setting) for one in each], counts) for setting in every}
    decays = [one["weight_decay"] for one in each]
    without: set[int] = set()
    if len(set(decays)) == 2 and 0.0 in decays:
        # Biases and norms without decay: one decay, over some of the tensors.
        settings["weight_decay"] = next(decay for decay in decays if decay)
        number = sum(count for count, decay in zip(counts, decays, strict=True) if decay)
        settings["decay_mask"] = f"{number} of {sum(counts)} tensors"
        without = {id(each) for group in groups if not group.get("weight_decay") for each in group["params"]}
    if kind == "adam" and groups[0].get("decoupled_weight_decay"):
        kind = "adamw"
    undecayed = tuple(name for name, tensor in names.tensors(model).items() if id(tensor) in without)
    info = OptimizerInfo(kind=kind, type=name, settings=settings, undecayed=undecayed)
    if cls in _KINDS:
        return info
    held = {"numbers": positive(vars(optimizer), *groups), "code": tuple(_begin(cls))}
    return info.model_copy(update={"kind": "", "base": kind, **held})


def _begin(cls: type) -> Iterator[str]:
    """Where the functions of a user's class begin that make its updates, and those of its file that these call."""
    own = [each for name, each in vars(cls).items() if name != "__init__" and callable(each)]
    functions = dict.fromkeys(each for each in map(inspect.unwrap, own) if hasattr(each, "__code__"))
    waiting = [*functions]
    for each in waiting:
        named = (each.__globals__.get(name) for name in each.__code__.co_names)
        called = [one for one in named if isinstance(one, FunctionType) and one not in functions]
        called = [one for one in called if one.__code__.co_filename == each.__code__.co_filename]
        functions |= dict.fromkeys(called)
        waiting += called
    for each in functions:
        code = each.__code__
        lines = [line for *_, line in code.co_lines() if line]
        # Behind the line that defines it, and its decorators.
        inside = [line for line in lines if line > code.co_firstlineno + 1] or lines[-1:]
        if inside:
            yield f"{Path(code.co_filename).name}:{min(inside)}"


def _stock(cls: type, group: dict[str, Any]) -> type[optim.Optimizer]:
    """The class of torch.optim that one is, derives from, or by its groups' keys looks like."""
    derived = next((base for base in cls.__mro__ if base in _KINDS), None)
    looks: type[optim.Optimizer] = optim.SGD
    if "betas" in group:
        looks = optim.Adam
    elif "alpha" in group:
        looks = optim.RMSprop
    return derived or looks


def _together(values: list[Setting], counts: list[int]) -> Setting:
    """One value for all groups, or what each of them has."""
    if all(value == values[0] for value in values):
        return values[0]
    told = [(value, count) for value, count in zip(values, counts, strict=True) if value is not None]
    return ", ".join(f"{value} for {count} tensors" for value, count in told)


def _of_group(group: dict[str, Any], numbers: dict[str, str]) -> Settings:
    """The settings of one parameter group."""
    found: Settings = {
        "learning_rate": float(group["lr"]),
        "schedule": f"a scheduler, from {group['initial_lr']:g}" if "initial_lr" in group else None,
        "weight_decay": float(group.get("weight_decay", 0.0)),
        "weight_decay_mode": "decoupled" if group.get("decoupled_weight_decay") else "coupled",
        "decay_mask": "all",
        "clip_global_norm": None,
        "clip_norm": None,
        "clip_value": None,
        "ema": None,
        "accumulation": 1,
        "maximize": bool(group.get("maximize", False)),
    }
    if "betas" in group:
        found |= {"beta_1": float(group["betas"][0]), "beta_2": float(group["betas"][1])}
    found |= {canonical: float(group[key]) for canonical, key in numbers.items() if key in group}
    return found | {switch: bool(group[switch]) for switch in _SWITCHES if switch in group}
