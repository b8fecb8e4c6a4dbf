"""What a pass through a user's model needs of torch: taps, modes, gradients. The model is left as it was."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from parity.common.external.process.pass_result import Array, Arrays, same, tensors_in
from parity.common.external.process.tapping import Tapped
from parity.torch_impl.external import load, names
from parity.torch_impl.external.calling import array_of, call, is_tensor
from parity.torch_impl.private_names import is_transformed, transformed_as, untransformed


class LiveTaps(Tapped):
    """Taps of a pass in torch; gradients are taken of nodes of their own."""

    is_tensor, array_of = staticmethod(is_tensor), staticmethod(array_of)

    def replaced(self, tensor: Tensor, injected: Array | None, sent: Array | None) -> Tensor:
        if injected is not None or sent is not None:
            other, gradient = (
                None if array is None else torch.from_numpy(np.array(array)).to(tensor.dtype)
                for array in (injected, sent)
            )
            if is_transformed(tensor):
                # What `torch.func` derives takes no function with a backward pass of its own.
                return tensor if other is None else tensor + (transformed_as(other, tensor) - tensor).detach()
            return _Replaced.apply(tensor, other, gradient)  # type: ignore[no-any-return]
        return tensor

    def shape_of(self, tensor: Tensor) -> tuple[int, ...]:
        return tuple(untransformed(tensor).shape if is_transformed(tensor) else tensor.shape)

    def watched(self, name: str, tensor: Tensor) -> Tensor:
        if not tensor.is_floating_point() or is_transformed(tensor):
            return tensor
        if tensor.grad_fn is None:
            tensor = tensor.detach().clone().requires_grad_()
        # A node of its own: a module may give back its input, or what is changed in place later.
        node = tensor.clone()
        # Within no_grad it has no gradient.
        if not self.repeating and node.requires_grad:
            self.live[name] = node
        return node.clone()

    def is_differentiable(self, tensor: Tensor) -> bool:
        return tensor.requires_grad

    def derivatives(self, mean: Tensor, wanted: Sequence[Any]) -> Sequence[Any]:
        if not mean.requires_grad:
            return [None] * len(wanted)
        return torch.autograd.grad(mean, wanted, allow_unused=True)


class _Replaced(torch.autograd.Function):
    """Another value; gradients go on to the layer as if it had given that, or another gradient does."""

    @staticmethod
    def forward(ctx: Any, own: Tensor, other: Tensor | None, sent: Tensor | None) -> Tensor:
        ctx.sent = sent
        # A tensor of its own, which may be changed in place.
        return (own if other is None else other).clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        return gradient if ctx.sent is None else ctx.sent, None, None


@contextmanager
def visited(model: nn.Module, taps: Tapped, training: bool) -> Iterator[None]:
    """Have `taps.visit` called at the end of each call of a module below the model.

    training: the mode. In it all is computed as for gradients, taken or not: without any, torch takes other kernels.
    """

    def hook_of(path: str) -> Any:
        def visit(module: nn.Module, args: Any, kwargs: Any, output: Any) -> Any:
            # What a tap computes is no call of the model's.
            with torch._C.DisableTorchFunction():
                return taps.visit(path, output)

        return visit

    with ExitStack() as stack:
        stack.enter_context(torch.set_grad_enabled(training or taps.differentiable))
        for path, module in names.layers(model).items():
            stack.callback(module.register_forward_hook(hook_of(path), with_kwargs=True).remove)
        yield


@contextmanager
def watched(taps: Tapped, tensors: Sequence[Tensor]) -> Iterator[None]:
    """Have gradients of frozen tensors taken too, within `visited`."""
    del taps
    frozen = [tensor for tensor in tensors if not tensor.requires_grad]
    for tensor in frozen:
        tensor.requires_grad_(True)
    try:
        yield
    finally:
        for tensor in frozen:
            tensor.requires_grad_(False)


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
def prepared(model: nn.Module, training: bool, seed: int, keep: bool) -> Iterator[Arrays]:
    """Set the mode of a pass, and begin its random numbers.

    Args:
        training: the mode.
        seed: of the random numbers.
        keep: whether buffers, frozen weights, and numbers and tensors that the code holds keep what the pass made of them; else they are
        restored, and with them what the modules hold.

    Yields:
        The buffers and frozen weights that the pass changed by name, with their new values; filled at its end.
    """
    before = {
        name: tensor.detach().clone()
        for name, tensor in _not_trained(model)
        if not nn.parameter.is_lazy(tensor)
    }
    changes: Arrays = {}
    kinds = (int, float) if _REMEMBERED else (int, float, Tensor)
    held = [
        (module, _Plain(module, kinds), [dict(each) for each in _registered(module)])
        for module in model.modules()
    ]
    load.seed_all(seed)
    try:
        with _mode(model, training):
            yield changes
            for name, tensor in _not_trained(model):
                if name in before and not same(array_of(tensor), array_of(before[name])):
                    changes[name] = array_of(tensor)
    finally:
        if not keep:
            for module, plain, registered in held:
                # An edit of `self.seen = [None]` may have made a module of it.
                for names, before_pass in zip(_registered(module), registered, strict=True):
                    if names.keys() != before_pass.keys():
                        names.clear()
                        names.update(before_pass)
                plain.restore()
            with torch.no_grad():
                for name, tensor in _not_trained(model):
                    if name in before and tensor.shape == before[name].shape:
                        tensor.copy_(before[name])


@contextmanager
def remembering(model: nn.Module) -> Iterator[None]:
    """Within, passes leave the tensors behind that the code holds and that are no buffers; then these are as they were."""
    before = [_Plain(module, (Tensor,)) for module in model.modules()]
    _REMEMBERED.append(True)
    try:
        yield
    finally:
        _REMEMBERED.pop()
        for each in before:
            each.restore()


# Whether passes leave such tensors as they are then.
_REMEMBERED: list[bool] = []


class _Plain:
    """What a module may count its calls by, and tensors of a state that are no buffers, as they are now."""

    def __init__(self, module: nn.Module, kinds: tuple[type, ...]) -> None:
        self._module = module
        self._held = {name: value for name, value in vars(module).items() if type(value) in kinds}
        tensors = [
            each for each in self._held.values() if isinstance(each, Tensor) and not each.is_inference()
        ]
        # By its version a tensor says whether it was written into.
        self._copies = [(each, each._version, each.detach().clone()) for each in tensors]

    def restore(self) -> None:
        """Have the module hold them again."""
        vars(self._module).update(self._held)
        with torch.no_grad():
            for tensor, version, copy in self._copies:
                if tensor._version != version:
                    tensor.copy_(copy)


def _registered(module: nn.Module) -> tuple[dict[str, Any], ...]:
    return module._modules, module._parameters, module._buffers


def _not_trained(model: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Buffers and frozen weights, such as those of a teacher that follows, by native name."""
    yield from model.named_buffers()
    yield from ((name, weight) for name, weight in model.named_parameters() if not weight.requires_grad)


def finish(model: nn.Module, inputs: Array | Arrays) -> None:
    """Build what is built by its first call, by one pass in inference on `inputs` (batch, ...); nothing where all is built."""
    if any(nn.parameter.is_lazy(tensor) for tensor in (*model.parameters(), *model.buffers())):
        load.seed_all(0)
        with torch.no_grad(), _mode(model, False):
            call(model, inputs)


def unregistered_parameters(model: nn.Module, inputs: Array | Arrays) -> list[str]:
    """Name trained tensors that a pass on `inputs` (batch, ...) uses and the model does not own (in a list, say)."""
    owned = {id(parameter) for parameter in model.parameters()}
    first, again = _Watched(owned), _Watched(owned)
    for watched in (first, again):
        with torch.enable_grad(), prepared(model, training=False, seed=0, keep=False), watched:
            call(model, inputs)
        if not watched.leaves:
            return []
    # What a pass makes for itself, to take a derivative by it, is another tensor in the next one.
    return [text for key, (text, _) in first.leaves.items() if key in again.leaves]


class _Watched(TorchFunctionMode):
    """Looks for leaves that need gradients among what functions are given."""

    def __init__(self, owned: set[int]) -> None:
        super().__init__()
        self._owned = owned
        # With the tensors, so that no other one gets the number of one that is gone.
        self.leaves: dict[int, tuple[str, torch.Tensor]] = {}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        for tensor in tensors_in([*args, *(kwargs or {}).values()], is_tensor).values():
            if tensor.requires_grad and tensor.is_leaf and id(tensor) not in self._owned:
                name = getattr(func, "__name__", str(func))
                text = f"a tensor of the shape {tuple(tensor.shape)}, used by {name}"
                self.leaves.setdefault(id(tensor), (text, tensor))
        return func(*args, **(kwargs or {}))
