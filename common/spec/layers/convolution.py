"""Convolutions over HWC images and (steps, features) sequences."""

from __future__ import annotations

import math
from typing import ClassVar, Literal

from pydantic import Field, model_validator

from parity.common.spec.base import NonNegativeInt, PositiveInt
from parity.common.spec.layers.base import Initializer, LayerSpec, ParameterSpec, Shape
from parity.common.spec.layers.core import Dense
from parity.common.spec.layers.windows import (
    MEANING,
    Padding,
    Pairs,
    Sizes,
    Windowed,
    dilated,
    per_axis,
    same_pads,
)

_COMMON = {**Dense.conventions, "same_by": ("stride", "kernel")}


class _Kernel(Windowed):
    """Base of all convolutions: a kernel that slides over the input."""

    sized: ClassVar[tuple[str, ...]] = ("kernel_size", "strides", "dilation")
    kernel_size: Sizes = Field(
        default=3, description="cells of the kernel along each axis; one number stands for all axes"
    )
    strides: Sizes = Field(default=1, description="how far the window moves along each axis")
    padding: Padding = Field(
        default="same",
        description="same, valid, or zeros around the input: one number, or (before, after) for each axis",
    )
    dilation: Sizes = Field(
        default=1, description="distance of neighbouring cells of the kernel along each axis"
    )
    use_bias: bool = Field(default=True, description="add a bias")
    bias_initializer: Initializer | None = Field(default=None, description="initial values of the bias")

    def kernel(self) -> tuple[int, ...]:
        """Weights along each axis."""
        return per_axis(self.kernel_size, self.rank)

    def steps(self) -> tuple[int, ...]:
        return per_axis(self.strides, self.rank)

    def dilations(self) -> tuple[int, ...]:
        """Distance of neighbouring weights along each axis."""
        return per_axis(self.dilation, self.rank)

    def window(self) -> tuple[int, ...]:
        return tuple(dilated(k, d) for k, d in zip(self.kernel(), self.dilations(), strict=True))

    def with_bias(self, *kernels: ParameterSpec, channels: int) -> tuple[ParameterSpec, ...]:
        """Return the kernels, and the bias where there is one; its fan-in is that of the last kernel."""
        last = kernels[-1]
        initializer = self.bias_initializer or "zeros"
        bias = ParameterSpec("bias", (channels,), initializer, last.fan_in, last.fan_out)
        return (*kernels, bias) if self.use_bias else kernels


class Convolution(_Kernel):
    """Base of the convolutions that do not enlarge: cross-correlation with a zero-padded input.

    `padding: same` keeps ceil(side / stride) cells and puts the odd cell of the padding at the end.
    `same_by: stride` is TensorFlow's amount, which depends on the stride: max(0, (ceil(n/s) - 1) s + k - n),
    with k the dilated kernel. `same_by: kernel` is always k - 1, which PyTorch's padding='same' adds at
    stride 1 and its users write out as padding=k//2 at any other (DIFFERENCES row 33). The two differ only
    with a stride above 1.
    """

    same_by: Literal["stride", "kernel"] | None = Field(
        default=None,
        description="what padding 'same' adds depends on: stride, as in TensorFlow, or kernel, as in PyTorch",
    )

    def same_padding(self, side: int, axis: int = 0) -> tuple[int, int]:
        if self.padding != "same" or self.same_by != "kernel":
            return super().same_padding(side, axis)
        total = self.window()[axis] - 1
        return (total // 2, total - total // 2)

    def channels(self, input_shape: Shape) -> int:
        """Channels that come out."""
        raise NotImplementedError

    def output_shape(self, input_shape: Shape) -> Shape:
        return (*self.sides(input_shape), self.channels(input_shape))


def _check_groups(layer: LayerSpec, groups: int, channels: int, filters: int) -> None:
    if channels % groups or filters % groups:
        raise layer.error(
            f"groups {groups} must divide the {channels} channels that come in and the {filters} filters"
        )


class _Filters(Convolution):
    """Convolution in which every filter sees all channels of its group; kernel (*sides, in / groups, out)."""

    conventions = _COMMON
    filters: PositiveInt = Field(description="channels that come out")
    groups: PositiveInt = Field(default=1, description="groups of channels that are convolved apart")
    kernel_initializer: Initializer | None = Field(default=None, description="initial values of the kernel")

    def channels(self, input_shape: Shape) -> int:
        _check_groups(self, self.groups, input_shape[-1], self.filters)
        return self.filters

    def parameters(self, input_shape: Shape) -> tuple[ParameterSpec, ...]:
        window, seen = math.prod(self.kernel()), input_shape[-1] // self.groups
        shape = (*self.kernel(), seen, self.filters)
        initializer = self.kernel_initializer or "zeros"
        kernel = ParameterSpec("kernel", shape, initializer, window * seen, window * self.filters)
        return self.with_bias(kernel, channels=self.filters)


class Conv2D(_Filters):
    """Cross-correlation of an HWC image with an HWIO kernel; see `Convolution` for the padding."""

    kind: Literal["conv2d"] = "conv2d"


class Conv1D(_Filters):
    """Cross-correlation of a (steps, features) sequence with a (width, in, out) kernel."""

    rank = 1
    kind: Literal["conv1d"] = "conv1d"


class DepthwiseConv2D(Convolution):
    """Every channel on its own, with `depth_multiplier` filters each: channel c gives c * multiplier + m.

    Kernel (height, width, channels, multiplier). `fan_in_counts` decides the fans that scale the initial
    values: Keras counts all channels (window * channels, window * multiplier), PyTorch the one that a
    filter sees (window, window * channels * multiplier).
    """

    conventions = {**_COMMON, "fan_in_counts": ("all_channels", "one_channel")}
    kind: Literal["depthwise_conv2d"] = "depthwise_conv2d"
    depth_multiplier: PositiveInt = Field(default=1, description="filters of each channel")
    kernel_initializer: Initializer | None = Field(default=None, description="initial values of the kernel")
    fan_in_counts: Literal["all_channels", "one_channel"] | None = Field(
        default=None,
        description="fan-in of the initial values: all_channels, as in Keras, or one_channel, as in PyTorch",
    )

    def channels(self, input_shape: Shape) -> int:
        return input_shape[-1] * self.depth_multiplier

    def parameters(self, input_shape: Shape) -> tuple[ParameterSpec, ...]:
        kernel = _depthwise_kernel(self, "kernel", self.kernel_initializer, input_shape[-1])
        return self.with_bias(kernel, channels=self.channels(input_shape))


def _depthwise_kernel(
    layer: DepthwiseConv2D | SeparableConv2D, name: str, initializer: str | None, channels: int
) -> ParameterSpec:
    window, multiplier = math.prod(layer.kernel()), layer.depth_multiplier
    fans = (window * channels, window * multiplier)
    if layer.fan_in_counts == "one_channel":
        fans = (window, window * channels * multiplier)
    shape = (*layer.kernel(), channels, multiplier)
    return ParameterSpec(name, shape, initializer or "zeros", *fans)


class SeparableConv2D(Convolution):
    """A depthwise convolution without bias, then a 1x1 convolution (Chollet, CVPR 2017).

    Kernels as in `DepthwiseConv2D` and (1, 1, channels * multiplier, filters).
    """

    conventions = {
        "depthwise_initializer": ("glorot_uniform", "uniform_fan_in"),
        "pointwise_initializer": ("glorot_uniform", "uniform_fan_in"),
        "bias_initializer": ("zeros", "uniform_fan_in"),
        "same_by": ("stride", "kernel"),
        "fan_in_counts": ("all_channels", "one_channel"),
    }
    kind: Literal["separable_conv2d"] = "separable_conv2d"
    filters: PositiveInt = Field(description="channels that come out")
    depth_multiplier: PositiveInt = Field(default=1, description="depthwise filters of each channel")
    depthwise_initializer: Initializer | None = Field(
        default=None, description="initial values of the depthwise kernel"
    )
    pointwise_initializer: Initializer | None = Field(
        default=None, description="initial values of the 1x1 kernel"
    )
    fan_in_counts: Literal["all_channels", "one_channel"] | None = Field(
        default=None,
        description="fan-in of the depthwise kernel's initial values: all_channels, as in Keras, or one_channel, as in PyTorch",
    )

    def channels(self, input_shape: Shape) -> int:
        return self.filters

    def parameters(self, input_shape: Shape) -> tuple[ParameterSpec, ...]:
        between = input_shape[-1] * self.depth_multiplier
        depthwise = _depthwise_kernel(self, "depthwise_kernel", self.depthwise_initializer, input_shape[-1])
        initializer, shape = self.pointwise_initializer or "zeros", (1, 1, between, self.filters)
        pointwise = ParameterSpec("pointwise_kernel", shape, initializer, between, self.filters)
        return self.with_bias(depthwise, pointwise, channels=self.filters)


class _Transposed(_Kernel):
    """The gradient of a convolution with respect to its input, used forwards; kernel (*sides, out / groups, in).

    Without cropping, n cells become (n - 1) stride + k, with k the dilated kernel; `crops` says what is
    taken off before and after (a negative number adds cells that only the bias reaches).

    An explicit `padding` p with `output_padding` o is PyTorch's: crops (p, p - o). `valid` and `same` are
    Keras's: lengths (n - 1) s + max(k, s) and n s, or with an output_padding o (n - 1) s + k + o and
    (n - 1) s + k mod 2 + o; `same` crops both sides, the odd cell after.
    """

    conventions = Dense.conventions
    sized = ("kernel_size", "strides", "dilation", "output_padding")
    filters: PositiveInt = Field(description="channels that come out")
    output_padding: NonNegativeInt | tuple[NonNegativeInt, ...] | None = Field(
        default=None,
        description="cells added at the end of each axis; null: none, or what padding 'same' needs",
    )
    groups: PositiveInt = Field(default=1, description="groups of channels that are convolved apart")
    kernel_initializer: Initializer | None = Field(default=None, description="initial values of the kernel")

    @model_validator(mode="after")
    def _output_padding_is_small(self) -> _Transposed:
        extra = per_axis(self.output_padding or 0, self.rank)
        limits = zip(self.steps(), self.dilations(), strict=True)
        if any(o >= max(limit) for o, limit in zip(extra, limits, strict=True)):
            raise ValueError(
                f"output_padding must be smaller than the stride or the dilation, received {self.output_padding}"
            )
        return self

    def passes_shift(self, input_shape: Shape) -> bool:
        # Fewer weights reach the cells at the edge.
        return False

    def crops(self) -> Pairs:
        """Cells taken off (before, after) along each axis."""
        extra = None if self.output_padding is None else per_axis(self.output_padding, self.rank)
        return tuple(self._crop(axis, None if extra is None else extra[axis]) for axis in range(self.rank))

    def _crop(self, axis: int, extra: int | None) -> tuple[int, int]:
        window, stride = self.window()[axis], self.steps()[axis]
        if self.padding == "valid":
            return (0, -(max(stride - window, 0) if extra is None else extra))
        if self.padding != "same":
            before, after = self.same_padding(0, axis)
            return (before, after - (extra or 0))
        # How far the full length (n - 1) stride + window exceeds the one that is asked for.
        total = window - (stride if extra is None else window % 2 + extra)
        before = max(total, 0) // 2
        return (before, total - before)

    def is_same(self, input_shape: Shape) -> bool:
        """Whether the cropping is what TensorFlow's SAME takes off."""
        sides = zip(input_shape, self.output_shape(input_shape), strict=True)
        axes = zip(sides, self.window(), self.steps(), self.crops(), strict=False)
        return all(
            (before, max(after, 0)) == same_pads(out, window, stride) and -(-out // stride) == side
            for (side, out), window, stride, (before, after) in axes
        )

    def output_shape(self, input_shape: Shape) -> Shape:
        self.expect_rank(input_shape, self.rank + 1, MEANING[self.rank])
        _check_groups(self, self.groups, input_shape[-1], self.filters)
        sides = tuple(
            (side - 1) * stride + window - before - after
            for side, stride, window, (before, after) in zip(
                input_shape[:-1], self.steps(), self.window(), self.crops(), strict=True
            )
        )
        if min(sides) < 1:
            raise self.error(f"padding {self.padding!r} leaves nothing of an input of shape {input_shape}")
        return (*sides, self.filters)

    def parameters(self, input_shape: Shape) -> tuple[ParameterSpec, ...]:
        window, made = math.prod(self.kernel()), self.filters // self.groups
        # Both frameworks take the kernel's out axis for the fan-in.
        fans = (window * made, window * input_shape[-1])
        shape = (*self.kernel(), made, input_shape[-1])
        kernel = ParameterSpec("kernel", shape, self.kernel_initializer or "zeros", *fans)
        return self.with_bias(kernel, channels=self.filters)


class Conv2DTranspose(_Transposed):
    """Transposed convolution of an HWC image; kernel (height, width, out / groups, in)."""

    kind: Literal["conv2d_transpose"] = "conv2d_transpose"


class Conv1DTranspose(_Transposed):
    """Transposed convolution of a (steps, features) sequence; kernel (width, out / groups, in)."""

    rank: ClassVar[int] = 1
    kind: Literal["conv1d_transpose"] = "conv1d_transpose"
