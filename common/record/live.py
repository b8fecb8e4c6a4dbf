"""What a script trains with, while it runs: weights, buffers and optimizer slots, read and set by their native names."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from parity.common.record.trace import Array
from parity.common.state.canonical import State, without_ties

Slots = dict[str, State]


class Live(ABC):
    """A model and its optimizer in one framework. A tied tensor stands by the first of its names."""

    @staticmethod
    @abstractmethod
    def read(tensor: Any) -> Array:
        """Return a copy of a tensor of the framework, of its own shape and type."""

    @staticmethod
    @abstractmethod
    def assign(tensor: Any, array: Array) -> None:
        """Set a tensor of the framework to an array of its shape."""

    @abstractmethod
    def tensors(self) -> Mapping[str, Any]:
        """Return weights and buffers, a tied tensor by each of its names."""

    @abstractmethod
    def slots(self) -> Mapping[str, Mapping[str, Any]]:
        """Return the slots that there are, by canonical slot where the optimizer's class is known, then by tensor."""

    @abstractmethod
    def slot_factors(self, slot: str) -> Mapping[str, float]:
        """Return by tensor by which a slot of the other framework is multiplied to have this one's meaning; NaN where that is not known."""

    @abstractmethod
    def updates_by_itself(self) -> bool:
        """Return whether an optimizer's class makes its updates itself, so that its slots need not be those of the class it derives from."""

    @abstractmethod
    def groups(self) -> list[list[str]]:
        """Return the names of the tensors that each optimizer updates."""

    def first_names(self) -> dict[str, str]:
        """Return of each name of a tensor the first one of the same tensor."""
        first = {id(tensor): name for name, tensor in without_ties(self.tensors()).items()}
        return {name: first[id(tensor)] for name, tensor in self.tensors().items()}

    def tensors_now(self) -> State:
        """Return copies of weights and buffers."""
        return {name: self.read(tensor) for name, tensor in without_ties(self.tensors()).items()}

    def slots_now(self) -> Slots:
        """Return copies of the slots."""
        return {slot: {n: self.read(t) for n, t in of_slot.items()} for slot, of_slot in self.slots().items()}

    def put(self, tensors: State) -> None:
        """Set weights and buffers."""
        live = self.tensors()
        for name, array in tensors.items():
            self.assign(live[name], array)

    def put_slots(self, slots: Slots) -> None:
        """Set slots that there are."""
        live = self.slots()
        for slot, of_slot in slots.items():
            for name, array in of_slot.items():
                self.assign(live[slot][name], array)
