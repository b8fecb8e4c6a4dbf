"""Pooling, padding, and images as tokens."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from parity.common.spec import Node
from parity.common.spec import layers as spec
from parity.torch_impl.layers.registry import Function, register


def _for_f_pad(pads: tuple[tuple[int, int], ...]) -> tuple[int, ...]:
    """(before, after) of each axis in the order of F.pad, which begins with the last axis."""
    return tuple(cells for pad in reversed(pads) for cells in pad)


@register(spec.MaxPool2D, spec.MaxPool1D)
def max_pool(node: Node) -> nn.Module:
    layer, pool = node.spec, F.max_pool1d if node.spec.rank == 1 else F.max_pool2d
    pads = layer.pads(node.input_shape)
    # PyTorch's own padding is symmetric and at most half a window.
    own = all(a == b and 2 * a <= k for (a, b), k in zip(pads, layer.window(), strict=True))
    padding = tuple(before for before, _ in pads) if own else 0

    def apply(x: Tensor) -> Tensor:
        x = x.movedim(-1, 1)
        if not own:
            x = F.pad(x, _for_f_pad(pads), value=-torch.inf)
        return pool(x, layer.window(), layer.steps(), padding).movedim(1, -1)

    return Function(apply)


@register(spec.AveragePool2D, spec.AveragePool1D)
class AveragePool(nn.Module):
    """Mean over padded windows, put right where fewer cells count."""

    def __init__(self, node: Node) -> None:
        super().__init__()
        layer = node.spec
        self.pool = F.avg_pool1d if layer.rank == 1 else F.avg_pool2d
        self.window, self.steps = layer.window(), layer.steps()
        pads = layer.pads(node.input_shape)
        self.padding = _for_f_pad(pads) if any(map(any, pads)) else None
        counts = layer.counts(node.input_shape)
        cells = math.prod(self.window)
        # Not a buffer: those are cast with the module, and it must reach float64 unrounded.
        self.correction = None if (counts == cells).all() else torch.from_numpy(cells / counts)

    def forward(self, x: Tensor) -> Tensor:
        x = x.movedim(-1, 1)
        if self.padding is not None:
            x = F.pad(x, self.padding)
        y = self.pool(x, self.window, self.steps).movedim(1, -1)
        return y if self.correction is None else y * self.correction.to(y)


@register(spec.GlobalAveragePool)
def global_average_pool(node: Node) -> nn.Module:
    return Function(lambda x: x.mean(tuple(range(1, x.ndim - 1))))


@register(spec.GlobalMaxPool)
def global_max_pool(node: Node) -> nn.Module:
    return Function(lambda x: x.amax(tuple(range(1, x.ndim - 1))))


@register(spec.ZeroPad2D)
def zero_pad2d(node: Node) -> nn.Module:
    pads = _for_f_pad((*node.spec.pads(), (0, 0)))
    return Function(lambda x: F.pad(x, pads))


@register(spec.Patchify)
def patchify(node: Node) -> nn.Module:
    size = node.spec.size
    height, width, channels = node.input_shape

    def apply(x: Tensor) -> Tensor:
        x = x.reshape(-1, height // size, size, width // size, size, channels)
        return x.permute(0, 1, 3, 2, 4, 5).reshape(-1, *node.output_shape)

    return Function(apply)
