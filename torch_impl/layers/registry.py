"""How a spec class finds its function, and what every layer has in common."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn

from parity.common.execution.hooks import around
from parity.common.spec import Node
from parity.torch_impl.context import Context
from parity.torch_impl.native.layouts import LAYOUTS

_BUILDERS: dict[type, Callable[[Node], nn.Module]] = {}


def register(spec_class: type, **layout: tuple[str, tuple[int, ...]]) -> Callable:
    """Decorator: the function that turns a node of `spec_class` into a module.

    `layout` is needed only for tensors whose native name or layout is not the canonical one.
    """

    def remember(builder: Callable[[Node], nn.Module]) -> Callable:
        _BUILDERS[spec_class] = builder
        LAYOUTS[spec_class] = layout
        return builder

    return remember


def build_layer(node: Node) -> nn.Module:
    """The module of a node, its children included."""
    layer = around("layer", _BUILDERS[type(node.spec)])(node)
    layer.canonical_path = node.path
    return layer


class Contextual(nn.Module):
    """A module whose forward(x, context) also takes the Context of the step."""

    # Not isinstance: a strategy's wrapper passes on the attributes of what it wraps, not its class.
    takes_context = True


def call(layer: nn.Module, x: Tensor, context: Context) -> Tensor:
    """Apply a module, with the context where it takes one."""
    y = layer(x, context=context) if getattr(layer, "takes_context", False) else layer(x)
    if context.taps is None:
        return y
    path = getattr(layer, "canonical_path", None)
    # A wrapper has no place in the tree; what it wraps is called here too.
    return y if path is None else context.taps(path, x, y)


class Function(nn.Module):
    """A module without parameters."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)
