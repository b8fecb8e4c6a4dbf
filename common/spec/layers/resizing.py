"""Images made larger or smaller by interpolation."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from parity.common.spec.base import Number, PositiveInt
from parity.common.spec.layers.base import LayerSpec, Shape


class _Resizing(LayerSpec):
    """Interpolation without antialiasing, each axis by itself.

    Output cell i lies at (i + 1/2) in / out - 1/2 of the input, or with `align_corners` (not for nearest)
    at i (in - 1) / (out - 1). `bilinear` weighs the two cells beside it; beyond the first and the last
    cell their value goes on. `bicubic` weighs four by Keys's kernel (IEEE ASSP 1981) with the coefficient
    `cubic_coefficient`; cells beyond the edge are `repeated` or left out and the rest `renormalised`
    (DIFFERENCES row 48). `nearest` takes cell floor((i + 1/2) in / out) from the `center` of the output
    cell, or floor(i in / out) from its `corner`; the two differ only where out / in is not a whole number.
    """

    conventions = {
        "nearest_from": ("center", "corner"),
        "cubic_coefficient": (-0.5, -0.75),
        "cubic_edge": ("renormalised", "repeated"),
    }
    interpolation: Literal["nearest", "bilinear", "bicubic"] = Field(
        default="nearest", description="how values between cells are made"
    )
    align_corners: bool = Field(
        default=False, description="the first and last cells of input and output coincide"
    )
    nearest_from: Literal["center", "corner"] | None = Field(
        default=None, description="with nearest: the point of an output cell that chooses the input cell"
    )
    cubic_coefficient: Number | None = Field(
        default=None, description="with bicubic: coefficient of Keys's kernel"
    )
    cubic_edge: Literal["repeated", "renormalised"] | None = Field(
        default=None,
        description="with bicubic: cells beyond the edge are repeated, or left out and the weights renormalised",
    )

    @model_validator(mode="after")
    def _corners_need_interpolation(self) -> _Resizing:
        if self.align_corners and self.interpolation == "nearest":
            raise ValueError("align_corners needs interpolation 'bilinear' or 'bicubic'")
        return self

    def sides(self, input_shape: Shape) -> tuple[int, int]:
        """(height, width) that come out."""
        raise NotImplementedError

    def output_shape(self, input_shape: Shape) -> Shape:
        self.expect_rank(input_shape, 3, "an HWC image")
        return (*self.sides(input_shape), input_shape[-1])

    def nearest_cells(self, before: int, after: int) -> NDArray[np.int64]:
        """For each of `after` cells the one of `before` cells that it copies; in whole numbers, so exact."""
        cells = np.arange(after)
        if self.nearest_from == "corner":
            return cells * before // after
        return (2 * cells + 1) * before // (2 * after)

    def matrix(self, before: int, after: int) -> NDArray[np.float64]:
        """(after, before): the weight of each cell in each interpolated one."""
        cells = np.arange(after)
        if self.align_corners:
            places = cells * ((before - 1) / (after - 1)) if after > 1 else np.zeros(1)
        else:
            places = (cells + 0.5) * before / after - 0.5
        if self.interpolation == "bilinear":
            places = np.clip(places, 0, before - 1)
        first = np.floor(places).astype(np.int64)
        cubic = self.interpolation == "bicubic"
        weights = np.zeros((after, before))
        for offset in (-1, 0, 1, 2) if cubic else (0, 1):
            distance = np.abs(places - (first + offset))
            weight = _keys(distance, self.cubic_coefficient or 0.0) if cubic else np.maximum(1 - distance, 0)
            cell = first + offset
            if cubic and self.cubic_edge == "renormalised":
                weight = np.where((cell >= 0) & (cell < before), weight, 0)
            np.add.at(weights, (cells, np.clip(cell, 0, before - 1)), weight)
        if cubic and self.cubic_edge == "renormalised":
            weights /= weights.sum(1, keepdims=True)
        return weights


def _keys(distance: NDArray[np.float64], a: float) -> NDArray[np.float64]:
    near = ((a + 2) * distance - (a + 3)) * distance**2 + 1
    far = a * (((distance - 5) * distance + 8) * distance - 4)
    return np.where(distance <= 1, near, np.where(distance < 2, far, 0.0))


class UpSampling2D(_Resizing):
    """An HWC image `size` times as large, a number or one each for height and width."""

    kind: Literal["up_sampling2d"] = "up_sampling2d"
    size: PositiveInt | tuple[PositiveInt, PositiveInt] = Field(
        default=2, description="factor, or (height, width) factors"
    )

    def sides(self, input_shape: Shape) -> tuple[int, int]:
        factors = (self.size, self.size) if isinstance(self.size, int) else self.size
        return (input_shape[0] * factors[0], input_shape[1] * factors[1])


class Resize(_Resizing):
    """An HWC image of the given height and width."""

    kind: Literal["resize"] = "resize"
    height: PositiveInt = Field(description="height that comes out")
    width: PositiveInt = Field(description="width that comes out")
    interpolation: Literal["nearest", "bilinear", "bicubic"] = Field(
        default="bilinear", description="how values between cells are made"
    )

    def sides(self, input_shape: Shape) -> tuple[int, int]:
        return (self.height, self.width)
