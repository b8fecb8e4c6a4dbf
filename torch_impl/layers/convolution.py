"""Convolutions over HWC images and (steps, features) sequences."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from parity.common.spec import Node
from parity.common.spec import layers as spec
from parity.torch_impl.layers.products import Products
from parity.torch_impl.layers.registry import register


def _padding(node: Node) -> tuple[tuple[int, ...], tuple[int, ...] | None]:
    """(symmetric padding for the convolution, None) or (zeros, padding for F.pad before it)."""
    pads = node.spec.pads(node.input_shape)
    if all(before == after for before, after in pads):
        return tuple(before for before, _ in pads), None
    return (0,) * len(pads), tuple(cells for pad in reversed(pads) for cells in pad)


class _Filters(Products):
    """A mixin for nn.ConvNd: channels last, and padding that need not be symmetric."""

    def __init__(self, node: Node) -> None:
        layer = node.spec
        padding, extra = _padding(node)
        channels, steps = node.input_shape[-1], layer.steps()
        # A window of one point with steps: oneDNN's AVX2 kernel for the gradient of the weights writes outside of its
        # memory where there are fewer than 8 channels (torch 2.13). The points are taken before, and the steps are 1.
        points = channels < 8 and set(layer.kernel()) == {1} and not any(padding)
        self.points = tuple(slice(None, None, step) for step in steps) if points and max(steps) > 1 else ()
        super().__init__(
            channels,
            layer.filters,
            layer.kernel(),
            (1,) * len(steps) if self.points else steps,
            padding,
            layer.dilations(),
            layer.groups,
            layer.use_bias,
        )
        self.extra = extra

    def forward(self, x: Tensor) -> Tensor:
        x = x.movedim(-1, 1)
        if self.extra is not None:
            x = F.pad(x, self.extra)
        if self.points:
            x = x[(..., *self.points)]
        if self.low is None:
            return super().forward(x).movedim(1, -1)
        return self.convolve(x, self.weight, self.bias, *_geometry(self)).movedim(1, -1)


def _geometry(module: nn.Module) -> tuple:
    """What torch.convolution asks of an nn.ConvNd or nn.ConvTransposeNd besides its tensors."""
    return (
        module.stride,
        module.padding,
        module.dilation,
        module.transposed,
        module.output_padding,
        module.groups,
    )


@register(spec.Conv2D, kernel=("weight", (3, 2, 0, 1)), bias=("bias", (0,)))
class Conv2D(_Filters, nn.Conv2d):
    """nn.Conv2d on NHWC, with TensorFlow's padding where it is not symmetric."""


@register(spec.Conv1D, kernel=("weight", (2, 1, 0)), bias=("bias", (0,)))
class Conv1D(_Filters, nn.Conv1d):
    """nn.Conv1d on (batch, steps, features), with TensorFlow's padding where it is not symmetric."""


@register(spec.DepthwiseConv2D, kernel=("kernel", (2, 3, 0, 1)))
class DepthwiseConv2D(Products):
    """Every channel on its own; the kernel is (channels, multiplier, height, width)."""

    kernel_name = "kernel"

    def __init__(self, node: Node) -> None:
        super().__init__()
        self.spec = node.spec
        self.padding, self.extra = _padding(node)
        channels, multiplier = node.input_shape[-1], node.spec.depth_multiplier
        self.register_parameter(
            self.kernel_name, nn.Parameter(torch.zeros(channels, multiplier, *node.spec.kernel()))
        )
        self.bias = nn.Parameter(torch.zeros(node.output_shape[-1])) if node.spec.use_bias else None

    def depthwise(self, x: Tensor, bias: Tensor | None) -> Tensor:
        """Depthwise convolution of NCHW images."""
        if self.extra is not None:
            x = F.pad(x, self.extra)
        kernel = getattr(self, self.kernel_name)
        geometry = (self.spec.steps(), self.padding, self.spec.dilations(), False, (0, 0), len(kernel))
        return self.convolve(x, kernel.flatten(0, 1)[:, None], bias, *geometry)

    def forward(self, x: Tensor) -> Tensor:
        return self.depthwise(x.movedim(-1, 1), self.bias).movedim(1, -1)


@register(
    spec.SeparableConv2D,
    depthwise_kernel=("depthwise_kernel", (2, 3, 0, 1)),
    pointwise_kernel=("pointwise_kernel", (3, 2, 0, 1)),
)
class SeparableConv2D(DepthwiseConv2D):
    """Depthwise, then 1x1."""

    kernel_name = "depthwise_kernel"

    def __init__(self, node: Node) -> None:
        super().__init__(node)
        between = node.input_shape[-1] * node.spec.depth_multiplier
        self.pointwise_kernel = nn.Parameter(torch.zeros(node.spec.filters, between, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        x = self.depthwise(x.movedim(-1, 1), None)
        geometry = ((1, 1), (0, 0), (1, 1), False, (0, 0), 1)
        return self.convolve(x, self.pointwise_kernel, self.bias, *geometry).movedim(1, -1)


def _cropping(before: int, after: int, limit: int) -> tuple[int, int, int, int]:
    """(padding, output padding, cells to cut off the start, off the end) that crop (before, after)."""
    if 0 <= before - after < limit:
        return before, before - after, 0, 0
    padding = max(min(before, after), 0)
    return padding, max(-after, 0), before - padding, max(after, 0) - padding


class _Transposed(Products):
    """A mixin for nn.ConvTransposeNd: channels last, and any cropping."""

    def __init__(self, node: Node) -> None:
        layer = node.spec
        limits = map(max, layer.steps(), layer.dilations())
        axes = [_cropping(*crop, limit) for crop, limit in zip(layer.crops(), limits, strict=True)]
        padding, output_padding, starts, stops = zip(*axes, strict=True)
        super().__init__(
            node.input_shape[-1],
            layer.filters,
            layer.kernel(),
            layer.steps(),
            padding,
            output_padding,
            layer.groups,
            layer.use_bias,
            layer.dilations(),
        )
        self.cuts = [(axis, *cut) for axis, cut in enumerate(zip(starts, stops, strict=True), 2) if any(cut)]

    def forward(self, x: Tensor) -> Tensor:
        x = x.movedim(-1, 1)
        if self.low is None:
            y = super().forward(x)
        else:
            y = self.convolve(x, self.weight, self.bias, *_geometry(self))
        for axis, start, stop in self.cuts:
            y = y.narrow(axis, start, y.shape[axis] - start - stop)
        return y.movedim(1, -1)


@register(spec.Conv2DTranspose, kernel=("weight", (3, 2, 0, 1)), bias=("bias", (0,)))
class Conv2DTranspose(_Transposed, nn.ConvTranspose2d):
    """nn.ConvTranspose2d on NHWC."""


@register(spec.Conv1DTranspose, kernel=("weight", (2, 1, 0)), bias=("bias", (0,)))
class Conv1DTranspose(_Transposed, nn.ConvTranspose1d):
    """nn.ConvTranspose1d on (batch, steps, features)."""
