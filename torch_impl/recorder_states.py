"""What a recorder reads and sets where a script's states are kept or followed: weights, buffers, slots."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from parity.common.record.live import Live
from parity.common.record.trace import Array
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

    def __init__(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        self._model, self._optimizer = model, optimizer
        self._kind, table = next((SLOTS[cls] for cls in type(optimizer).__mro__ if cls in SLOTS), ("", {}))
        self._canonical = {theirs: ours for ours, theirs in table.items()}

    def tensors(self) -> dict[str, Tensor]:
        """Those of the module."""
        return names.tensors(self._model)

    def slots(self) -> dict[str, dict[str, Tensor]]:
        """Those of a class that is not known by its own words."""
        found: dict[str, dict[str, Tensor]] = {}
        for name, parameter in names.trained(self._model).items():
            for slot, value in self._optimizer.state.get(parameter, {}).items():
                if isinstance(value, Tensor) and value.is_floating_point() and slot != "step":
                    found.setdefault(self._canonical.get(slot, slot), {})[name] = value
        return found

    def slot_factor(self, slot: str) -> float:
        """By which Keras's slot is multiplied to be torch's."""
        if not self._kind:
            return float("nan")
        if slot != "momentum_velocity":
            return 1.0
        rate = float(self._optimizer.param_groups[0]["lr"])
        return (-1 if self._kind == "sgd" else 1) / rate if rate else float("nan")
