"""What a recorder observes of a model and its optimizer for `ScriptChecks`."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DistributedSampler

from parity.common.record.script_checks import (
    SEVERAL,
    GradientCoverage,
    Observer,
    StepObservation,
    frozen_names,
)
from parity.common.record.script_taps import is_tapped
from parity.torch_impl.external import names
from parity.torch_impl.private_names import DTensor


class ModelObserver(Observer):
    """Observes a model and its optimizer without changing them."""

    def __init__(
        self, model: nn.Module, optimizer: torch.optim.Optimizer | None, frozen: Sequence[str]
    ) -> None:
        """Begin.

        Args:
            model: itself, not a wrapper.
            optimizer: its own, if it has one.
            frozen: names of tensors, or prefixes of names, that must not change.

        Raises:
            RecordError: the model has no tensor of such a name.
        """
        self._model, self._optimizer = model, optimizer
        self.has_modes = any(map(_has_modes, model.modules()))
        tensors = names.tensors(model)
        self._frozen = {name: tensors[name].detach().clone() for name in frozen_names(tensors, frozen)}
        self._step, self._updates = 0, 0
        smallest = sorted(names.trained(model).values(), key=Tensor.numel)[:1]
        self._first = [(tensor, tensor.detach().clone()) for tensor in smallest]
        self._now = StepObservation()
        # In the first updates: which tensors had gradients, by identity, and which of the model's, by name.
        self._with_gradient, self._named = set[int](), set[str]()
        # By name, with a copy of what they were at first; and which had gradients.
        self._unregistered: dict[str, tuple[Tensor, Tensor]] = {}
        self._unregistered_named: set[str] = set()
        # Tensors of the optimizer without requires_grad, with copies from before the update.
        self._without_grad: list[tuple[Tensor, Tensor]] = []
        # A small tensor that stands for all: at it backward passes are seen to begin, and changes between updates.
        self._probe: Tensor | None = None
        self._hook: Any = None
        self._after_update: Tensor | None = None  # a copy of it
        self._stepped = False  # whether there was an update since the last step ended
        self._without = 0  # consecutive steps at whose end it was another without an update
        # Whether a backward pass since the last update found its gradient zero (None: there was no pass), and that gradient.
        self._zeroed: bool | None = None
        self._found: Tensor | None = None

    def before_update(self) -> None:
        """Observe gradients that are there, and parameters that are not updated yet."""
        held = self._held()
        if self._updates < SEVERAL:
            self._cover(held)
        if self._probe is not None:
            # A script may put other gradients in the place of what a pass has added up.
            replaced = self._zeroed is False and self._probe.grad is not self._found
            self._now.zeroed = None if replaced else self._zeroed
            if self._after_update is not None and not self._waits():
                self._now.changed_between = not torch.equal(self._after_update, self._probe)
        self._after_update = None
        self._now.training = self._model.training if self.has_modes else None
        still = sorted((tensor for tensor in held if not tensor.requires_grad), key=Tensor.numel)[:SEVERAL]
        self._without_grad = [(tensor, tensor.detach().clone()) for tensor in still]
        self._updates += 1

    def after_update(self) -> None:
        """Observe parameters that are updated."""
        changed = next((tensor for tensor, was in self._without_grad if not torch.equal(tensor, was)), None)
        if changed is not None:
            named = names.tensors(self._model).items()
            self._now.updated_frozen = next((n for n, tensor in named if tensor is changed), "a tensor")
        self._without_grad.clear()
        if self._probe is not None:
            self._after_update = self._probe.detach().clone()
        self._zeroed = self._found = None
        self._stepped = True

    def observe(self) -> StepObservation:
        """Return what was observed in the step that ends."""
        observed, self._now = self._now, StepObservation()
        if self._optimizer is not None and not self._updates and not self._waits():
            observed.idle = all(torch.equal(tensor, was) for tensor, was in self._first)
        if self._stepped:
            self._without = 0
        elif self._probe is not None and self._after_update is not None and not self._waits():
            if not torch.equal(self._after_update, self._probe):
                self._without += 1
                self._after_update = self._probe.detach().clone()
            observed.replaced = self._without if self._without >= SEVERAL else 0
        self._stepped = False
        if self._updates == SEVERAL:
            observed.coverage = self.coverage()
        if is_tapped(self._step, None):
            tensors = names.tensors(self._model)
            changed = (n for n, was in self._frozen.items() if not torch.equal(was, tensors[n]))
            observed.dtypes = {name: str(tensor.dtype) for name, tensor in tensors.items()}
            observed.changed = next(changed, None)
        self._step += 1
        return observed

    def coverage(self) -> GradientCoverage | None:
        """Return which tensors had gradients in the first updates; None without updates."""
        if not self._updates:
            return None
        held = {id(tensor) for tensor in self._held()}
        own = {name: id(tensor) for name, tensor in names.trained(self._model).items()}
        known = held | {*own.values()}
        return GradientCoverage(
            updates=min(self._updates, SEVERAL),
            tensors=len(held),
            with_gradient=len(held & self._with_gradient),
            stale=len(held - {*own.values()} - self._with_gradient),
            without_gradient=[name for name, tensor in own.items() if tensor in held - self._with_gradient],
            missing=[name for name, tensor in own.items() if name in self._named and tensor not in held],
            unregistered=[
                name
                for name in sorted(self._unregistered_named)
                if id(self._unregistered[name][0]) not in known and torch.equal(*self._unregistered[name])
            ],
        )

    def repeats_epochs(self) -> bool:
        """Return whether a DistributedSampler shuffles and `set_epoch` was never called."""
        # Not by isinstance, which asks what a proxy stands for.
        samplers = [each for each in gc.get_objects() if issubclass(type(each), DistributedSampler)]
        return any(sampler.shuffle and not sampler.epoch for sampler in samplers)

    def close(self) -> None:
        """Leave the model as it was."""
        if self._hook is not None:
            self._hook.remove()

    def _held(self) -> list[Tensor]:
        groups = [] if self._optimizer is None else self._optimizer.param_groups
        return [tensor for group in groups for tensor in group["params"]]

    def _cover(self, held: Sequence[Tensor]) -> None:
        """Note which tensors have gradients, and choose the probe."""
        trained = names.trained(self._model)
        if not self._updates:
            self._unregistered = {name: (t, t.detach().clone()) for name, t in _unregistered(self._model)}
        self._unregistered_named |= {n for n, (t, _) in self._unregistered.items() if t.grad is not None}
        self._with_gradient |= {id(tensor) for tensor in held if tensor.grad is not None}
        self._named |= {name for name, tensor in trained.items() if tensor.grad is not None}
        if self._probe is None:
            updated = {id(tensor) for tensor in held}
            self._choose([tensor for tensor in trained.values() if id(tensor) in updated])

    def _choose(self, tensors: Sequence[Tensor]) -> None:
        """Choose the probe among tensors: one of the smallest whose gradient is not zero."""
        dense = [t for t in tensors if t.grad is not None and t.grad.layout == torch.strided]
        whole = [tensor for tensor in dense if not isinstance(tensor, DTensor)]
        for tensor in sorted(whole, key=Tensor.numel)[:SEVERAL]:
            if bool(tensor.grad.any()):
                self._probe = tensor
                self._hook = tensor.register_hook(self._begins)
                return

    def _waits(self) -> bool:
        """Whether reading the probe would wait for a device, at a step at which nothing is read."""
        return (
            self._probe is not None and self._probe.device.type != "cpu" and not is_tapped(self._step, None)
        )

    @torch.no_grad()
    def _begins(self, gradient: Tensor) -> None:
        """A backward pass is about to add to the probe's gradient."""
        assert self._probe is not None
        if not self._zeroed:
            self._found = self._probe.grad
            self._zeroed = self._found is None or self._waits() or not bool(self._found.any())


def _unregistered(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Yield the trainable tensors of modules in plain lists and dicts of a model, with names: the model does not know them."""
    own = {id(tensor) for tensor in model.parameters()}
    for path, module in model.named_modules():
        for attribute, value in vars(module).items():
            registered = attribute in ("_parameters", "_buffers", "_modules")
            if registered or not isinstance(value, list | tuple | dict):
                continue
            for place, each in value.items() if isinstance(value, dict) else enumerate(value):
                tensors = each.named_parameters() if isinstance(each, nn.Module) else [("", each)]
                for name, tensor in tensors:
                    if isinstance(tensor, nn.Parameter) and tensor.requires_grad and id(tensor) not in own:
                        yield ".".join(filter(None, (path, f"{attribute}[{place!r}]", name))), tensor


def _has_modes(module: nn.Module) -> bool:
    """Whether a module acts otherwise in training than in evaluation."""
    if isinstance(module, nn.modules.batchnorm._NormBase):
        return module.track_running_stats
    if isinstance(module, nn.modules.dropout._DropoutNd):
        return module.p > 0
    return isinstance(module, nn.RNNBase | nn.MultiheadAttention) and module.dropout > 0
