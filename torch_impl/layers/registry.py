"""How a spec class finds its function, and what every layer has in common."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from parity.common.base.registry import Registry
from parity.common.execution.hooks import around
from parity.common.execution.pass_context import Context
from parity.common.spec import Node
from parity.torch_impl.native.layouts import LAYOUTS, native_layout

_BUILDERS: Registry[Callable[[Node], nn.Module]] = Registry()


def register(*spec_classes: type, **layout: tuple[str, tuple[int, ...]]) -> Callable:
    """Decorator: the class or function that makes a module of a node of these specs.

    `layout` is needed only for tensors whose native name or layout is not the canonical one.
    """
    LAYOUTS.update(dict.fromkeys(spec_classes, layout))
    return _BUILDERS.register(*spec_classes)


def build_layer(node: Node) -> nn.Module:
    """The module of a node, its children included."""
    layer = around("layer", _BUILDERS[type(node.spec)])(node)
    layer.canonical_path = node.path
    return layer


class NodeLayer(nn.Module):
    """A module of a node. The node's tensors are parameters, or buffers, in the layouts of `register`."""

    def __init__(self, node: Node) -> None:
        super().__init__()
        self.node = node
        for tensor in node.parameters:
            attribute, axes = native_layout(node, tensor.name)
            value = torch.zeros([tensor.shape[axis] for axis in axes or range(len(tensor.shape))])
            if tensor.trainable:
                self.register_parameter(attribute, nn.Parameter(value))
            else:
                self.register_buffer(attribute, value)


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
