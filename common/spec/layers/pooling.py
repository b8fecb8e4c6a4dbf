"""Pooling, padding, and images as tokens."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from parity.common.spec.base import PositiveInt
from parity.common.spec.layers.base import LayerSpec, Shape
from parity.common.spec.layers.windows import (
    Explicit,
    Pairs,
    Sizes,
    Windowed,
    pairs_per_axis,
    per_axis,
)


class Pool(Windowed):
    """Base of the poolings. Strides default to the size; a rest at the edge is dropped.

    `ceil_mode` keeps a last window that reaches over the edge, unless it would start in the padding
    after the input (PyTorch). `padding: same` is TensorFlow's.
    """

    sized = ("size", "strides")
    size: Sizes = Field(
        default=2, description="cells of the window along each axis; one number stands for all axes"
    )
    strides: Sizes | None = Field(
        default=None, description="how far the window moves along each axis; null: by its size"
    )
    ceil_mode: bool = Field(default=False, description="keep a last window that reaches over the edge")

    def window(self) -> tuple[int, ...]:
        return per_axis(self.size, self.rank)

    def steps(self) -> tuple[int, ...]:
        return per_axis(self.size if self.strides is None else self.strides, self.rank)

    def pads(self, input_shape: Shape) -> Pairs:
        """Return the cells added (before, after) along each axis, with those that `ceil_mode` reaches for.

        Raises:
            SpecError: a side has as much padding as the window is long.
        """
        pads = super().pads(input_shape)
        for (before, after), window in zip(pads, self.window(), strict=True):
            if max(before, after) >= window:
                raise self.error(f"padding {self.padding!r} must be smaller than size {self.size}")
        if not self.ceil_mode:
            return pads
        return tuple(
            self._reach(*axis) for axis in zip(input_shape, pads, self.window(), self.steps(), strict=False)
        )

    def _reach(self, side: int, pads: tuple[int, int], window: int, stride: int) -> tuple[int, int]:
        before, after = pads
        count = -(-(before + side + after - window) // stride) + 1
        if (count - 1) * stride >= side + before:
            count -= 1
        return (before, max(after, (count - 1) * stride + window - side - before))

    def output_shape(self, input_shape: Shape) -> Shape:
        return (*self.sides(input_shape), input_shape[-1])


class MaxPool2D(Pool):
    """Maximum over windows of an HWC image; padding never wins.

    Of equal values the first in row-major order gets the gradient, in both frameworks.
    """

    kind: Literal["max_pool2d"] = "max_pool2d"


class MaxPool1D(Pool):
    """Maximum over windows of a (steps, features) sequence; padding never wins."""

    rank = 1
    kind: Literal["max_pool1d"] = "max_pool1d"


class _AveragePool(Pool):
    """Mean over windows, with or without the zeros of the padding (DIFFERENCES row 34)."""

    conventions = {"count_padding": (False, True)}
    count_padding: bool | None = Field(default=None, description="count the zeros of the padding")

    def counts(self, input_shape: Shape) -> NDArray[np.float64]:
        """The cells that each window is divided by: shape (*output sides, 1).

        Cells that only ceil_mode reaches for never count (PyTorch).
        """
        nominal = Windowed.pads(self, input_shape)
        product = np.ones((1,) * (self.rank + 1))
        for axis, count in enumerate(self.sides(input_shape)):
            side, (before, after) = input_shape[axis], nominal[axis]
            start = np.arange(count) * self.steps()[axis] - before
            stop = np.minimum(start + self.window()[axis], side + after)
            if not self.count_padding:
                start, stop = np.maximum(start, 0), np.minimum(stop, side)
            shape = [1] * (self.rank + 1)
            shape[axis] = count
            product = product * (stop - start).reshape(shape)
        return product


class AveragePool2D(_AveragePool):
    """Mean over windows of an HWC image; `count_padding` whether the padding's zeros count."""

    kind: Literal["average_pool2d"] = "average_pool2d"


class AveragePool1D(_AveragePool):
    """Mean over windows of a (steps, features) sequence; `count_padding` whether the padding's zeros count."""

    rank = 1
    kind: Literal["average_pool1d"] = "average_pool1d"


class GlobalAveragePool(LayerSpec):
    """Mean over all axes between the batch and the features."""

    kind: Literal["global_average_pool"] = "global_average_pool"

    def passes_shift(self, input_shape: Shape) -> bool:
        return True

    def output_shape(self, input_shape: Shape) -> Shape:
        return input_shape[-1:]


class GlobalMaxPool(LayerSpec):
    """Maximum over all axes between the batch and the features; equal values share the gradient."""

    kind: Literal["global_max_pool"] = "global_max_pool"

    def output_shape(self, input_shape: Shape) -> Shape:
        return input_shape[-1:]


class ZeroPad2D(LayerSpec):
    """An HWC image with zeros around it: ((top, bottom), (left, right)), or one number for all sides."""

    kind: Literal["zero_pad2d"] = "zero_pad2d"
    padding: Explicit = Field(
        default=1, description="zeros around the image: one number, or ((top, bottom), (left, right))"
    )

    def pads(self) -> Pairs:
        """((top, bottom), (left, right))."""
        return pairs_per_axis(self.padding, 2)

    def output_shape(self, input_shape: Shape) -> Shape:
        self.expect_rank(input_shape, 3, "an HWC image")
        pads = self.pads()
        if len(pads) != 2:
            raise self.error(f"padding needs 2 entries, one an axis, received {self.padding}")
        return (*(side + sum(pad) for side, pad in zip(input_shape, pads, strict=False)), input_shape[-1])


class Patchify(LayerSpec):
    """An HWC image into (tokens, size*size*C): patches in row-major order, each flattened as HWC."""

    kind: Literal["patchify"] = "patchify"
    size: PositiveInt = Field(default=2, description="side of a patch, in pixels")

    def output_shape(self, input_shape: Shape) -> Shape:
        self.expect_rank(input_shape, 3, "an HWC image")
        height, width, channels = input_shape
        if height % self.size or width % self.size:
            raise self.error(f"size {self.size} does not divide input {input_shape}")
        return (height // self.size * (width // self.size), self.size**2 * channels)
