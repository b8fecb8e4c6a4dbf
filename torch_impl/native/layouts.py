"""Where a layer keeps its tensors, and with which axes first."""

from __future__ import annotations

from parity.common.spec import Node

# Canonical tensor name -> (attribute of the module, axes that turn canonical into native layout).
Layout = dict[str, tuple[str, tuple[int, ...]]]
LAYOUTS: dict[type, tuple[str, tuple[int, ...] | None]] = {}


def native_layout(node: Node, tensor: str) -> tuple[str, tuple[int, ...] | None]:
    """(attribute, axes from canonical to native) of one of a node's tensors; None leaves it as it is."""
    return LAYOUTS[type(node.spec)].get(tensor, (tensor, None))
