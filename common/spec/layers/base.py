"""What every layer spec shares: its place in the tree, its shapes, its parameters."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar

from pydantic import AfterValidator, Field

from parity.common.base.errors import SpecError
from parity.common.spec.base import Spec
from parity.common.spec.initializers import check_initializer

Shape = tuple[int, ...]
Initializer = Annotated[str, AfterValidator(check_initializer)]


@dataclass(frozen=True)
class ParameterSpec:
    """One tensor of a layer in canonical layout."""

    name: str
    shape: Shape
    initializer: Initializer
    fan_in: int = 1
    fan_out: int = 1
    trainable: bool = True
    # A row that starts at zero, whatever the initializer.
    zero_row: int | None = None
    # Why this tensor's gradient is zero up to rounding, whatever the data; None for all others.
    null_direction: str | None = None


@dataclass(frozen=True)
class Node:
    """A layer in its place in the tree: its canonical path, its shapes, its children."""

    path: str
    spec: LayerSpec
    input_shape: Shape
    output_shape: Shape
    children: tuple[Node, ...] = ()
    parameters: tuple[ParameterSpec, ...] = field(default=())

    @property
    def trained(self) -> int:
        """Numbers of its own tensors that training changes."""
        return sum(math.prod(p.shape) for p in self.parameters if p.trainable)


class LayerSpec(Spec):
    """Base of all layers. Subclasses set a literal `kind` and override the two shape methods."""

    known: ClassVar[list[type[LayerSpec]]] = []
    kind: str
    name: str | None = Field(
        default=None, pattern=r"^[a-z][a-z0-9_]*$", description="default: kind and a number"
    )

    def __init_subclass__(cls, **arguments: Any) -> None:
        super().__init_subclass__(**arguments)
        LayerSpec.known.append(cls)

    def output_shape(self, input_shape: Shape) -> Shape:
        """Shape after this layer; raises SpecError where the input does not fit."""
        return input_shape

    def parameters(self, input_shape: Shape) -> tuple[ParameterSpec, ...]:
        """The layer's own tensors, without those of its children."""
        return ()

    def node(self, path: str, input_shape: Shape) -> Node:
        """This layer placed at `path`."""
        return Node(path, self, input_shape, self.output_shape(input_shape), (), self.parameters(input_shape))

    @property
    def subtracts_bias(self) -> bool:
        """Whether a constant added to each feature of the input makes no difference in training."""
        return False

    def passes_shift(self, input_shape: Shape) -> bool:
        """Whether a constant added to each feature of the input adds constants to those of the output."""
        return False

    def error(self, problem: str) -> SpecError:
        """Return the error of this layer that states a problem."""
        return SpecError(f"layer {self.name or self.kind}: {problem}")

    def expect_rank(self, input_shape: Shape, rank: int, meaning: str) -> None:
        """Raise SpecError unless the input has `rank` dimensions."""
        if len(input_shape) != rank:
            raise self.error(f"expects {meaning}, received shape {input_shape}")
