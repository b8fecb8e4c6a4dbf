"""What a recorder reads and sets where a script's states are kept or followed: weights, buffers, gradients, slots."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from parity.common.external.process.calls import without_ties
from parity.common.state.canonical import State
from parity.torch_impl.external import names
from parity.torch_impl.external.calling import array_of
from parity.torch_impl.external.checkpoints import SLOTS


class LiveState:
    """A model and its optimizer, as `parity.common.record.followed.Live`. Momentum of SGD and RMSprop is Keras's
    divided by the learning rate: see `parity.common.external.checkpoints`."""

    def __init__(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        self._model, self._optimizer = model, optimizer
        self._kind, table = next((SLOTS[cls] for cls in type(optimizer).__mro__ if cls in SLOTS), ("", {}))
        self._canonical = {theirs: ours for ours, theirs in table.items()}

    def tensors_now(self) -> State:
        """Weights and buffers by the first of their names, copied."""
        return {name: array_of(tensor) for name, tensor in self._once().items()}

    def slots_now(self) -> dict[str, State]:
        """By canonical slot where the optimizer's class is known, else by its own word; copied."""
        found: dict[str, State] = {}
        for slot, of_slot in self._slots().items():
            found[slot] = {name: array_of(tensor) for name, tensor in of_slot.items()}
        return found

    def first_names(self) -> dict[str, str]:
        """Of each name of a tied tensor the first one."""
        first = {id(tensor): name for name, tensor in self._once().items()}
        return {name: first[id(tensor)] for name, tensor in names.tensors(self._model).items()}

    def put(self, tensors: State) -> None:
        """Set weights and buffers."""
        live = self._once()
        for name, array in tensors.items():
            names.assign(live[name], array)

    def put_slots(self, slots: dict[str, State]) -> None:
        """Set slots that there are."""
        live = self._slots()
        for slot, of_slot in slots.items():
            for name, array in of_slot.items():
                names.assign(live[slot][name], array)

    def slot_factor(self, slot: str) -> float:
        """By which Keras's slot is multiplied to be torch's; NaN where that is not known."""
        if not self._kind:
            return float("nan")
        if slot != "momentum_velocity":
            return 1.0
        rate = float(self._optimizer.param_groups[0]["lr"])
        return (-1 if self._kind == "sgd" else 1) / rate if rate else float("nan")

    def _once(self) -> dict[str, Tensor]:
        return without_ties(names.tensors(self._model))

    def _slots(self) -> dict[str, dict[str, Tensor]]:
        found: dict[str, dict[str, Tensor]] = {}
        for name, parameter in names.trained(self._model).items():
            for slot, value in self._optimizer.state.get(parameter, {}).items():
                if isinstance(value, Tensor) and value.is_floating_point() and slot != "step":
                    found.setdefault(self._canonical.get(slot, slot), {})[name] = value
        return found
