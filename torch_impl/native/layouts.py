"""Where a layer keeps its tensors, with which axes first, and the state of an imported module by its own names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from parity.common.spec import Node
from parity.common.spec.optimizers import OptimizerBase
from parity.common.state.canonical import State

# By spec class: canonical tensor name -> (attribute of the module, axes that turn canonical into native layout).
LAYOUTS: dict[type, dict[str, tuple[str, tuple[int, ...]]]] = {}


def native_layout(node: Node, tensor: str) -> tuple[str, tuple[int, ...] | None]:
    """(attribute, axes from canonical to native) of one of a node's tensors; None leaves it as it is."""
    return LAYOUTS[type(node.spec)].get(tensor, (tensor, None))


class NativeState:
    """What a model's state is called where it is trained; for our own layers, as it is called everywhere."""

    # The adapter of an imported model (`parity.common.state.imported`).
    _exchange: Any = None

    def native(self, state: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
        """A canonical state, or a part of one, by the names and in the layouts of `tensors`."""
        return state if self._exchange is None else self._exchange.to_native(state)

    def canonical(self, state: State) -> State:
        """The inverse of `native`."""
        return state if self._exchange is None else self._exchange.to_canonical(state)

    def canonical_gradients(self, gradients: State) -> State:
        """Gradients by canonical name, from those by the names of `tensors`."""
        return gradients if self._exchange is None else self._exchange.gradients(gradients)

    def own_rules(self, optimizer: OptimizerBase) -> OptimizerBase:
        """The optimizer as it is meant for the names of `tensors`."""
        return optimizer if self._exchange is None else self._exchange.own_rules(optimizer)
