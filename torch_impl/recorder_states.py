"""What a recorder reads and sets where a script's states are kept or followed: weights, buffers, slots."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from parity.common.record.live import Live
from parity.common.record.trace import Array
from parity.common.state.canonical import without_ties
from parity.torch_impl.external import names
from parity.torch_impl.external.calling import array_of
from parity.torch_impl.external.checkpoints import SLOTS
from parity.torch_impl.sharding.tensors import tensor_like, whole


class LiveState(Live):
    """Torch's. Momentum of SGD and RMSprop is Keras's divided by the learning rate: see `parity.common.external.checkpoints`."""

    @staticmethod
    def read(tensor: Tensor) -> Array:
        return array_of(whole(tensor))

    @staticmethod
    @torch.no_grad()
    def assign(tensor: Tensor, array: Array) -> None:
        tensor.copy_(tensor_like(array, tensor))

    def __init__(self, model: nn.Module, optimizers: Sequence[torch.optim.Optimizer]) -> None:
        self._model, self._optimizers = model, optimizers

    def tensors(self) -> dict[str, Tensor]:
        """Those of the module."""
        return names.tensors(self._model)

    def slots(self) -> dict[str, dict[str, Tensor]]:
        """Those of a class that is not known by its own words."""
        found: dict[str, dict[str, Tensor]] = {}
        named = self._named().items()
        for optimizer in self._optimizers:
            canonical = {theirs: ours for ours, theirs in _known(optimizer)[1].items()}
            for parameter, name in named:
                for slot, value in optimizer.state.get(parameter, {}).items():
                    if isinstance(value, Tensor) and value.is_floating_point() and slot != "step":
                        found.setdefault(canonical.get(slot, slot), {})[name] = value
        return found

    def updates_by_itself(self) -> bool:
        """By its step()."""
        return any(type(each).step is not _base(each).step for each in self._optimizers)

    def groups(self) -> list[list[str]]:
        """Those of each optimizer that the model has."""
        named = self._named()
        held = ([p for group in each.param_groups for p in group["params"]] for each in self._optimizers)
        return [[named[p] for p in each if p in named] for each in held]

    def slot_factors(self, slot: str) -> dict[str, float]:
        """By which Keras's slot is multiplied to be torch's."""
        found = {}
        named = self._named()
        for optimizer in self._optimizers:
            kind = _known(optimizer)[0]
            for group in optimizer.param_groups:
                rate, factor = float(group["lr"]), 1.0 if kind else math.nan
                if kind and slot == "momentum_velocity":
                    factor = (-1 if kind == "sgd" else 1) / rate if rate else math.nan
                found |= {named[p]: factor for p in group["params"] if p in named}
        return found

    def _named(self) -> dict[Tensor, str]:
        """The model's parameters with their names: a script may have one need no gradient while another optimizer has its turn."""
        found = without_ties(names.tensors(self._model)).items()
        return {tensor: name for name, tensor in found if isinstance(tensor, nn.Parameter)}


def _known(optimizer: torch.optim.Optimizer) -> tuple[str, dict[str, str]]:
    """An optimizer's kind and torch's names of its slots by ours; "" of a class that is not known."""
    return SLOTS.get(_base(optimizer), ("", {}))


def _base(optimizer: torch.optim.Optimizer) -> type[torch.optim.Optimizer]:
    """The class that is known of those that an optimizer's derives from."""
    return next((cls for cls in type(optimizer).__mro__ if cls in SLOTS), torch.optim.Optimizer)
