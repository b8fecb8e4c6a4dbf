"""Pooling, resizing, and images as tokens."""

from __future__ import annotations

from typing import Literal

from common.errors import SpecError
from common.spec.base import PositiveInt
from common.spec.layers.base import LayerSpec, Shape


class MaxPool2D(LayerSpec):
    """Maximum over non-overlapping windows; a rest at the edge is dropped."""

    kind: Literal["max_pool2d"] = "max_pool2d"
    size: PositiveInt = 2

    def output_shape(self, input_shape: Shape) -> Shape:
        self.expect_rank(input_shape, 3, "an HWC image")
        height, width, channels = input_shape
        if min(height, width) < self.size:
            raise SpecError(
                f"layer {self.name or self.kind}: size {self.size} is larger than input {input_shape}"
            )
        return (height // self.size, width // self.size, channels)


class GlobalAveragePool(LayerSpec):
    """Mean over all axes between the batch and the features."""

    kind: Literal["global_average_pool"] = "global_average_pool"

    def output_shape(self, input_shape: Shape) -> Shape:
        return input_shape[-1:]


class Patchify(LayerSpec):
    """An HWC image into (tokens, size*size*C): patches in row-major order, each flattened as HWC."""

    kind: Literal["patchify"] = "patchify"
    size: PositiveInt = 2

    def output_shape(self, input_shape: Shape) -> Shape:
        self.expect_rank(input_shape, 3, "an HWC image")
        height, width, channels = input_shape
        if height % self.size or width % self.size:
            raise SpecError(
                f"layer {self.name or self.kind}: size {self.size} does not divide input {input_shape}"
            )
        return (height // self.size * (width // self.size), self.size**2 * channels)
