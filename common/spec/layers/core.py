"""Dense layers, activations, and changes of shape."""

from __future__ import annotations

import math
from typing import Literal

from pydantic import Field

from parity.common.spec.base import NonNegativeInt, Number, PositiveInt
from parity.common.spec.layers.base import Initializer, LayerSpec, ParameterSpec, Shape


class Dense(LayerSpec):
    """y = x @ kernel + bias over the last axis."""

    conventions = {
        "kernel_initializer": ("glorot_uniform", "uniform_fan_in"),
        "bias_initializer": ("zeros", "uniform_fan_in"),
    }
    kind: Literal["dense"] = "dense"
    units: PositiveInt = Field(description="features that come out")
    use_bias: bool = Field(default=True, description="add a bias")
    kernel_initializer: Initializer | None = Field(default=None, description="initial values of the kernel")
    bias_initializer: Initializer | None = Field(default=None, description="initial values of the bias")

    def output_shape(self, input_shape: Shape) -> Shape:
        return (*input_shape[:-1], self.units)

    def passes_shift(self, input_shape: Shape) -> bool:
        return True

    def parameters(self, input_shape: Shape) -> tuple[ParameterSpec, ...]:
        fan_in = input_shape[-1]
        kernel = ParameterSpec(
            "kernel", (fan_in, self.units), self.kernel_initializer or "zeros", fan_in, self.units
        )
        bias = ParameterSpec("bias", (self.units,), self.bias_initializer or "zeros", fan_in, self.units)
        return (kernel, bias) if self.use_bias else (kernel,)


class Activation(LayerSpec):
    """An elementwise function; `softmax` and `log_softmax` run over the last axis.

    gelu: x Phi(x), with the error function (Hendrycks and Gimpel 2016). gelu_tanh: their approximation
    x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))). quick_gelu: theirs with the sigmoid, x sigmoid(1.702 x).
    silu: x sigmoid(x). hard_swish: x min(max(x + 3, 0), 6) / 6 (Howard et al., ICCV 2019).
    elu: exp(x) - 1 below zero. softplus: log(1 + exp(x)), exact everywhere (PyTorch's own takes x above 20).
    leaky_relu: `negative_slope` x below zero (DIFFERENCES row 41); the field concerns no other function.
    """

    conventions = {"negative_slope": (0.3, 0.01)}
    kind: Literal["activation"] = "activation"
    function: Literal[
        "relu",
        "gelu",
        "tanh",
        "leaky_relu",
        "elu",
        "gelu_tanh",
        "quick_gelu",
        "silu",
        "sigmoid",
        "softmax",
        "log_softmax",
        "hard_swish",
        "relu6",
        "softplus",
    ] = Field(description="which function is applied to each element, or along the last axis")
    negative_slope: Number | None = Field(default=None, description="slope below zero, of leaky_relu alone")


class PReLU(LayerSpec):
    """max(x, 0) + alpha min(x, 0) with trained slopes (He et al., ICCV 2015; DIFFERENCES row 42).

    One slope for each element, each channel (the last axis), or the whole layer.
    """

    conventions = {"slope_per": ("element", "layer"), "initializer": ("zeros", "constant_0.25")}
    kind: Literal["prelu"] = "prelu"
    slope_per: Literal["element", "channel", "layer"] | None = Field(
        default=None, description="one slope for each element, each channel (the last axis), or the layer"
    )
    initializer: Initializer | None = Field(default=None, description="initial values of the slopes")

    def parameters(self, input_shape: Shape) -> tuple[ParameterSpec, ...]:
        shape = {"channel": input_shape[-1:], "layer": (1,)}.get(self.slope_per or "element", input_shape)
        fan = math.prod(shape)
        return (ParameterSpec("alpha", shape, self.initializer or "zeros", fan, fan),)


class Flatten(LayerSpec):
    """All axes but the batch into one, in HWC or CHW order (DIFFERENCES row 37)."""

    conventions = {"order": ("hwc", "chw")}
    kind: Literal["flatten"] = "flatten"
    order: Literal["hwc", "chw"] | None = Field(
        default=None, description="order of the numbers: hwc, as Keras does, or chw, as PyTorch does"
    )

    def output_shape(self, input_shape: Shape) -> Shape:
        return (math.prod(input_shape),)


class Reshape(LayerSpec):
    """The same numbers in row-major order in another shape, without the batch; one side may be -1."""

    kind: Literal["reshape"] = "reshape"
    shape: tuple[PositiveInt | Literal[-1], ...] = Field(
        min_length=1, description="shape without the batch; one side may be -1"
    )

    def output_shape(self, input_shape: Shape) -> Shape:
        numbers = math.prod(input_shape)
        known = math.prod(side for side in self.shape if side > 0)
        rest = numbers // known
        if self.shape.count(-1) > 1 or known * (rest if -1 in self.shape else 1) != numbers:
            raise self.error(f"shape {self.shape} does not suit an input of shape {input_shape}")
        return tuple(rest if side == -1 else side for side in self.shape)


class Permute(LayerSpec):
    """The axes in another order. `dims` as in keras.layers.Permute: 1 is the first axis after the batch."""

    kind: Literal["permute"] = "permute"
    dims: tuple[PositiveInt, ...] = Field(
        min_length=1, description="new order of the axes, counted from 1 after the batch"
    )

    def output_shape(self, input_shape: Shape) -> Shape:
        if sorted(self.dims) != list(range(1, len(input_shape) + 1)):
            raise self.error(f"dims {self.dims} do not name each axis of {input_shape} once")
        return tuple(input_shape[dim - 1] for dim in self.dims)


class Slice(LayerSpec):
    """Entries `start` to `stop`, exclusive, of the last axis; e.g. some columns of a table."""

    kind: Literal["slice"] = "slice"
    start: NonNegativeInt = Field(default=0, description="first entry")
    stop: PositiveInt = Field(description="entry after the last")

    def output_shape(self, input_shape: Shape) -> Shape:
        if not self.start < self.stop <= input_shape[-1]:
            raise self.error(
                f"start {self.start} to stop {self.stop} is no part of an input of shape {input_shape}"
            )
        return (*input_shape[:-1], self.stop - self.start)


class ActivityPenalty(LayerSpec):
    """The identity; adds l1 sum|x| + l2 sum x^2 over the local samples to the loss sum.

    As the loss sum is divided by the count of the global batch, this is keras.layers.ActivityRegularization,
    which divides by the batch size, where the loss counts samples.
    """

    kind: Literal["activity_penalty"] = "activity_penalty"
    l1: Number = Field(default=0.0, ge=0, description="factor of the sum of absolute values")
    l2: Number = Field(default=0.0, ge=0, description="factor of the sum of squares")
