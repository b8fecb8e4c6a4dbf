"""What a recorder reads and sets where a script's states are kept or followed: weights, buffers, slots."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, distribute_tensor

from parity.common.record.live import Live
from parity.common.record.trace import Array
from parity.torch_impl.external import names
from parity.torch_impl.external.calling import array_of
from parity.torch_impl.external.checkpoints import SLOTS


def whole(tensor: Tensor) -> Tensor:
    """A tensor with the parts that the other ranks hold; all of them ask for it."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def placed(array: Array, like: Tensor) -> Tensor:
    """A new tensor of an array's values, of the type, on the device and sharded as another is."""
    tensor = torch.from_numpy(np.array(array)).to(like.device, like.dtype)
    if isinstance(like, DTensor):
        return distribute_tensor(tensor, like.device_mesh, like.placements)
    return tensor


class LiveState(Live):
    """Torch's. Momentum of SGD and RMSprop is Keras's divided by the learning rate: see `parity.common.external.checkpoints`."""

    @staticmethod
    def read(tensor: Tensor) -> Array:
        return array_of(whole(tensor))

    @staticmethod
    @torch.no_grad()
    def assign(tensor: Tensor, array: Array) -> None:
        tensor.copy_(placed(array, tensor))

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
