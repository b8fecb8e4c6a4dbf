"""Windows that slide over the axes between the batch and the features: where they stop, what is padded."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field, model_validator

from parity.common.spec.base import NonNegativeInt, PositiveInt
from parity.common.spec.layers.base import LayerSpec, Shape

# One number for all axes, or one for each.
Sizes = PositiveInt | tuple[PositiveInt, ...]
# Zeros added at (before, after) of each axis; one number stands for all of them.
Explicit = NonNegativeInt | tuple[tuple[NonNegativeInt, NonNegativeInt], ...]
Padding = Literal["same", "valid"] | Explicit
Pairs = tuple[tuple[int, int], ...]

MEANING = {1: "a sequence (steps, features)", 2: "an HWC image"}


def per_axis(value: int | tuple[int, ...], rank: int) -> tuple[int, ...]:
    """`value` for each of `rank` axes."""
    return (value,) * rank if isinstance(value, int) else value


def pairs_per_axis(value: int | Pairs, rank: int) -> Pairs:
    """(before, after) for each of `rank` axes."""
    return ((value, value),) * rank if isinstance(value, int) else value


def dilated(size: int, dilation: int) -> int:
    """Cells that a window of `size` spans where its cells lie `dilation` apart."""
    return (size - 1) * dilation + 1


def same_pads(side: int, window: int, stride: int) -> tuple[int, int]:
    """What TensorFlow's SAME adds (before, after) an axis of length `side`."""
    total = max(0, (-(-side // stride) - 1) * stride + window - side)
    return (total // 2, total - total // 2)


class Windowed(LayerSpec):
    """Base of convolutions and poolings. `rank` counts the axes that the window slides over."""

    rank: ClassVar[int] = 2
    # Fields with one number an axis.
    sized: ClassVar[tuple[str, ...]] = ()
    padding: Padding = Field(
        default="valid",
        description="valid, same, or zeros around the input: one number, or (before, after) for each axis",
    )

    @model_validator(mode="after")
    def _one_number_an_axis(self) -> Windowed:
        for name in (*self.sized, "padding"):
            value = getattr(self, name)
            if isinstance(value, tuple) and len(value) != self.rank:
                raise ValueError(f"{name} needs {self.rank} entries, one an axis, received {value}")
        return self

    def window(self) -> tuple[int, ...]:
        """Cells that the window spans along each axis."""
        raise NotImplementedError

    def steps(self) -> tuple[int, ...]:
        """How far the window moves along each axis."""
        raise NotImplementedError

    def same_padding(self, side: int, axis: int = 0) -> tuple[int, int]:
        """Cells added (before, after) along an axis of length `side`.

        `same`: as many as ceil(side / stride) windows need, the odd one after (TensorFlow's guide on
        padding; DIFFERENCES row 33).
        """
        if self.padding == "valid":
            return (0, 0)
        if self.padding != "same":
            return pairs_per_axis(self.padding, self.rank)[axis]
        return same_pads(side, self.window()[axis], self.steps()[axis])

    def is_same(self, input_shape: Shape) -> bool:
        """Whether the padding, however it was given, is what TensorFlow calls SAME."""
        axes = zip(input_shape, self.window(), self.steps(), strict=False)
        return self.pads(input_shape) == tuple(same_pads(*axis) for axis in axes)

    def pads(self, input_shape: Shape) -> Pairs:
        """Cells added (before, after) along each axis."""
        return tuple(self.same_padding(side, axis) for axis, side in enumerate(input_shape[:-1]))

    def passes_shift(self, input_shape: Shape) -> bool:
        return not any(any(pair) for pair in self.pads(input_shape))

    def sides(self, input_shape: Shape) -> Shape:
        """How many windows fit along each axis; raises SpecError where none does."""
        self.expect_rank(input_shape, self.rank + 1, MEANING[self.rank])
        sides = []
        for axis, (before, after) in enumerate(self.pads(input_shape)):
            inside = before + input_shape[axis] + after - self.window()[axis]
            if inside < 0:
                raise self.error(
                    f"{self.sized[0]} {getattr(self, self.sized[0])} with padding"
                    f" {self.padding!r} does not fit an input of shape {input_shape}"
                )
            sides.append(inside // self.steps()[axis] + 1)
        return tuple(sides)
