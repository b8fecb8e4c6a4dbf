"""Passes through a user's model: tapped and fed, forward and backward. The model is left as it was."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from parity.common.execution.pass_context import Context
from parity.common.external.process import tapping
from parity.common.external.process.calling import check_target, chosen_outputs
from parity.common.external.process.pass_result import Array, Arrays, PassResult, same, tensors_in
from parity.common.external.process.tapping import Tapped, Taps
from parity.common.spec.losses import LossBase
from parity.torch_impl.external import load, names
from parity.torch_impl.external.calling import array_of, call, is_tensor, tensor_of
from parity.torch_impl.losses import loss_sum_and_count

# What a visitor is given of a call: the module's path, the call's number, the outputs; gives those to go on with.
_Visit = Callable[[str, int, Any], Any]


def forward(
    model: nn.Module,
    inputs: Array | Arrays,
    *,
    training: bool = False,
    taps: Taps = True,
    inject: Arrays | None = None,
    seed: int = 0,
    keep: bool = False,
) -> PassResult:
    """Return outputs and activations.

    Args:
        model: in any mode; it is left in the one that it was in.
        inputs: one array or arrays by name, (batch, ...); `calling.call` says how they are handed over.
        training: the mode of the pass.
        taps: whether to give activations, or the names of those wanted.
        inject: what takes the place of outputs, by tap name, in the model's own layout; gradients go on to the
            layer as if it had given that.
        seed: of the random numbers of the pass.
        keep: whether buffers keep what the pass made of them; else they are restored.

    Raises:
        ExternalModelError: the model does not take these inputs, or a name in `inject` is of no call.
    """
    finish(model, inputs)
    tapped = _Tapped(taps, inject, False)
    with torch.no_grad(), _pass(model, training, seed, keep) as changed, _visited(model, tapped.visit):
        outputs = tensors_in(call(model, inputs), is_tensor)
    tapped.check_used()
    return PassResult(
        outputs={name: array_of(tensor) for name, tensor in outputs.items()},
        activations=tapped.activations,
        buffers=changed(),
    )


def gradients(
    model: nn.Module,
    inputs: Array | Arrays,
    targets: Array | Arrays,
    loss: LossBase,
    *,
    training: bool = True,
    taps: Taps = True,
    inject: Arrays | None = None,
    seed: int = 0,
    keep: bool = False,
    penalties: bool = False,
) -> PassResult:
    """Return a forward pass, its loss, and the gradients of loss_sum / count; arguments as of `forward`.

    Args:
        targets: (batch, ...), for the one output, or by output; the losses of several are added up.
        loss: resolved, without l1 and l2.
        penalties: whether gradients are also of what the model itself adds to the loss; torch models add nothing.

    Raises:
        ExternalModelError: as `forward`; or no output suits the targets or the loss.
    """
    del penalties
    finish(model, inputs)
    tapped = _Tapped(taps, inject, True)
    trained = names.trained(model)
    with torch.enable_grad(), _pass(model, training, seed, keep) as changed, _visited(model, tapped.visit):
        outputs = tensors_in(call(model, inputs), is_tensor)
        pairs = chosen_outputs(outputs, targets)
        for name, target in pairs:
            check_target(loss, name, tuple(outputs[name].shape), target)
        context = Context(training=training)
        sums = [loss_sum_and_count(loss, outputs[name], _target(t), context) for name, t in pairs]
        total, count = (torch.stack(each).sum() for each in zip(*sums, strict=True))
        wanted = {**trained, **tapped.live}
        found = [None] * len(wanted)
        # What a checkpointed part computes once more is no call of its own.
        tapped.repeating = True
        if total.requires_grad:
            found = torch.autograd.grad(total / count, list(wanted.values()), allow_unused=True)
    tapped.check_used()
    by_name = dict(zip(wanted, found, strict=True))
    reached = {name: array_of(value) for name, value in by_name.items() if value is not None}
    return tapped.gradients_result(
        {name: array_of(tensor) for name, tensor in outputs.items()},
        trained,
        reached,
        loss_sum=float(total),
        count=float(count),
        buffers=changed(),
    )


def stochastic(model: nn.Module, inputs: Array | Arrays) -> list[str]:
    """Return the tap names of the calls that draw random numbers in training; see `tapping.stochastic`."""
    return tapping.stochastic(partial(forward, model, inputs, training=True))


def unregistered_parameters(model: nn.Module, inputs: Array | Arrays) -> list[str]:
    """Trained tensors that a pass uses and that the model does not own (kept in a plain list, say), in words."""
    finish(model, inputs)
    watched = _Watched({id(parameter) for parameter in model.parameters()})
    with torch.enable_grad(), _pass(model, False, 0, False), watched:
        call(model, inputs)
    return list(watched.unregistered_parameters.values())


class _Watched(TorchFunctionMode):
    """Looks for leaves that need gradients among what functions are given."""

    def __init__(self, owned: set[int]) -> None:
        super().__init__()
        self._owned = owned
        self.unregistered_parameters: dict[int, str] = {}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        for tensor in tensors_in([*args, *(kwargs or {}).values()], is_tensor).values():
            if tensor.requires_grad and tensor.is_leaf and id(tensor) not in self._owned:
                name = getattr(func, "__name__", str(func))
                self.unregistered_parameters.setdefault(
                    id(tensor), f"a tensor of the shape {tuple(tensor.shape)}, used by {name}"
                )
        return func(*args, **(kwargs or {}))


def finish(model: nn.Module, inputs: Array | Arrays) -> None:
    """Build what is built by its first call, by one pass in inference on `inputs` (batch, ...); nothing where all is built."""
    if any(nn.parameter.is_lazy(tensor) for tensor in (*model.parameters(), *model.buffers())):
        load.seed_all(0)
        with torch.no_grad(), _mode(model, False):
            call(model, inputs)


class _Tapped(Tapped):
    """Keeps what calls give, as nodes of their own where gradients are taken, and puts injected values in its place."""

    def __init__(self, taps: Taps, inject: Arrays | None, differentiable: bool) -> None:
        super().__init__(taps, inject, is_tensor)
        self._differentiable = differentiable
        self.repeating = False
        self._calls: dict[str, int] = {}

    def visit(self, path: str, call: int, output: Any) -> Any:
        if self.repeating:
            call %= self._calls.get(path, 1)
        else:
            self._calls[path] = call + 1
        return super().visit(path, call, output)

    def replaced(self, name: str, tensor: Tensor) -> Tensor:
        wanted = self.wants(name)
        if wanted and not self.repeating:
            self.activations[name] = array_of(tensor)
        if name in self.inject:
            array = self.injected(name, tensor.shape, tensor.is_complex())
            tensor = _Replaced.apply(tensor, torch.from_numpy(np.array(array)).to(tensor.dtype))
        if not self._differentiable or not (wanted and tensor.is_floating_point()):
            return tensor
        if tensor.grad_fn is None:
            tensor = tensor.detach().clone().requires_grad_()
        # A node of its own: a module may give back its input, or what is changed in place later.
        node = tensor.clone()
        if not self.repeating:
            self.live[name] = node
        return node.clone()


class _Replaced(torch.autograd.Function):
    """Another value; gradients go on to the layer as if it had given that."""

    @staticmethod
    def forward(ctx: Any, own: Tensor, other: Tensor) -> Tensor:
        # A tensor of its own, which may be changed in place.
        return other.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return gradient, None


@contextmanager
def _visited(model: nn.Module, visit: _Visit) -> Iterator[None]:
    """Have `visit` called at the end of each call of a module below the model."""
    counts: dict[str, int] = {}
    handles = []

    def hook_of(path: str) -> Callable[..., Any]:
        def hook(module: nn.Module, args: Any, kwargs: Any, output: Any) -> Any:
            number = counts[path] = counts.get(path, -1) + 1
            return visit(path, number, output)

        return hook

    try:
        for path, module in names.layers(model).items():
            handles.append(module.register_forward_hook(hook_of(path), with_kwargs=True))
        yield
    finally:
        for handle in handles:
            handle.remove()


@contextmanager
def _mode(model: nn.Module, training: bool) -> Iterator[None]:
    before = [(module, module.training) for module in model.modules()]
    model.train(training)
    try:
        yield
    finally:
        for module, mode in before:
            module.training = mode


@contextmanager
def _pass(model: nn.Module, training: bool, seed: int, keep: bool) -> Iterator[Callable[[], Arrays]]:
    """Mode and random numbers of a pass. Gives a function for the buffers that it changed, with their values."""
    before = {name: tensor.detach().clone() for name, tensor in model.named_buffers() if _built(tensor)}
    changes: Arrays = {}
    load.seed_all(seed)
    try:
        with _mode(model, training):
            yield lambda: changes
            for name, tensor in model.named_buffers():
                if name in before and not same(array_of(tensor), array_of(before[name])):
                    changes[name] = array_of(tensor)
    finally:
        if not keep:
            _restore(model, before)


@torch.no_grad()
def _restore(model: nn.Module, before: Mapping[str, Tensor]) -> None:
    for name, tensor in model.named_buffers():
        if name in before and tensor.shape == before[name].shape:
            tensor.copy_(before[name])


def _target(array: Array) -> Tensor:
    tensor = tensor_of(array)
    return tensor if tensor.is_floating_point() else tensor.to(torch.int64)


def _built(tensor: Tensor) -> bool:
    return not isinstance(tensor, nn.parameter.UninitializedTensorMixin)
