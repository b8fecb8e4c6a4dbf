"""Convolutions over HWC images."""

from __future__ import annotations

from typing import Literal

from common.errors import SpecError
from common.spec.base import PositiveInt
from common.spec.layers.base import Initializer, LayerSpec, ParameterSpec, Shape
from common.spec.layers.core import Dense


class Conv2D(LayerSpec):
    """Cross-correlation of an HWC image with an HWIO kernel.

    `padding: same` puts the odd pixel at the end, as TensorFlow does (DIFFERENCES row 33).
    """

    conventions = Dense.conventions
    linear = True
    kind: Literal["conv2d"] = "conv2d"
    filters: PositiveInt
    kernel_size: PositiveInt = 3
    strides: PositiveInt = 1
    padding: Literal["same", "valid"] = "same"
    use_bias: bool = True
    kernel_initializer: Initializer | None = None
    bias_initializer: Initializer | None = None

    def output_shape(self, input_shape: Shape) -> Shape:
        self.expect_rank(input_shape, 3, "an HWC image")
        sides = []
        for side in input_shape[:2]:
            inside = side if self.padding == "same" else side - self.kernel_size + 1
            if inside < 1:
                raise SpecError(
                    f"layer {self.name or self.kind}: kernel_size {self.kernel_size} with padding 'valid'"
                    f" does not fit an input of side {side}"
                )
            sides.append(-(-inside // self.strides))
        return (sides[0], sides[1], self.filters)

    def same_padding(self, side: int) -> tuple[int, int]:
        """Pixels added (before, after) along an axis of length `side`."""
        if self.padding == "valid":
            return (0, 0)
        total = max(0, (-(-side // self.strides) - 1) * self.strides + self.kernel_size - side)
        return (total // 2, total - total // 2)

    def parameters(self, input_shape: Shape) -> tuple[ParameterSpec, ...]:
        window = self.kernel_size**2
        fan_in, fan_out = window * input_shape[-1], window * self.filters
        shape = (self.kernel_size, self.kernel_size, input_shape[-1], self.filters)
        kernel = ParameterSpec("kernel", shape, self.kernel_initializer or "zeros", fan_in, fan_out)
        bias = ParameterSpec("bias", (self.filters,), self.bias_initializer or "zeros", fan_in, fan_out)
        return (kernel, bias) if self.use_bias else (kernel,)
