"""Dense layers, activations, and changes of shape."""

from __future__ import annotations

import math
from typing import Literal

from common.spec.base import PositiveInt
from common.spec.layers.base import Initializer, LayerSpec, ParameterSpec, Shape


class Dense(LayerSpec):
    """y = x @ kernel + bias over the last axis."""

    conventions = {
        "keras": {"kernel_initializer": "glorot_uniform", "bias_initializer": "zeros"},
        "torch": {"kernel_initializer": "uniform_fan_in", "bias_initializer": "uniform_fan_in"},
    }
    linear = True
    kind: Literal["dense"] = "dense"
    units: PositiveInt
    use_bias: bool = True
    kernel_initializer: Initializer | None = None
    bias_initializer: Initializer | None = None

    def output_shape(self, input_shape: Shape) -> Shape:
        return (*input_shape[:-1], self.units)

    def parameters(self, input_shape: Shape) -> tuple[ParameterSpec, ...]:
        fan_in = input_shape[-1]
        kernel = ParameterSpec(
            "kernel", (fan_in, self.units), self.kernel_initializer or "zeros", fan_in, self.units
        )
        bias = ParameterSpec("bias", (self.units,), self.bias_initializer or "zeros", fan_in, self.units)
        return (kernel, bias) if self.use_bias else (kernel,)


class Activation(LayerSpec):
    """An elementwise function; `gelu` is the exact one, with the error function."""

    kind: Literal["activation"] = "activation"
    function: Literal["relu", "gelu", "tanh"]


class Flatten(LayerSpec):
    """All axes but the batch into one, in HWC or CHW order (DIFFERENCES row 37)."""

    conventions = {"keras": {"order": "hwc"}, "torch": {"order": "chw"}}
    kind: Literal["flatten"] = "flatten"
    order: Literal["hwc", "chw"] | None = None

    def output_shape(self, input_shape: Shape) -> Shape:
        return (math.prod(input_shape),)
