"""Layers made of layers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from parity.common.base.errors import SpecError
from parity.common.spec.base import Number, PositiveInt
from parity.common.spec.layers.base import LayerSpec, Node, Shape

if TYPE_CHECKING:
    from parity.common.spec.layers import AnyLayer


class Container(LayerSpec):
    """A layer made of layers, run in order."""

    layers: tuple[AnyLayer, ...] = Field(min_length=1, description="the layers inside")

    def node(self, path: str, input_shape: Shape) -> Node:
        children = self.children(path, self.inner_input_shape(input_shape))
        output_shape = self.combined_shape(input_shape, children)
        return Node(path, self, input_shape, output_shape, children, self.parameters(input_shape))

    def inner_input_shape(self, input_shape: Shape) -> Shape:
        """Shape that the first child receives."""
        return input_shape

    def children(self, path: str, input_shape: Shape) -> tuple[Node, ...]:
        """The children in their places, each fed by the one before it."""
        return placed(path, child_names(self.layers), self.layers, input_shape, chained=True)

    def combined_shape(self, input_shape: Shape, children: tuple[Node, ...]) -> Shape:
        """Shape of the whole; raises SpecError where the children's outputs do not suit."""
        return children[-1].output_shape


class Sequential(Container):
    """Children one after another."""

    kind: Literal["sequential"] = "sequential"


class Residual(Container):
    """x + children(x).

    With `drop_rate` whole branches are dropped in training, sample by sample, and the kept ones
    scaled by 1 / (1 - drop_rate): stochastic depth (Huang et al., ECCV 2016).
    """

    kind: Literal["residual"] = "residual"
    drop_rate: Number = Field(
        default=0.0, ge=0, lt=1, description="probability that a sample's branch is dropped in training"
    )

    def combined_shape(self, input_shape: Shape, children: tuple[Node, ...]) -> Shape:
        inner_shape = children[-1].output_shape
        if inner_shape != input_shape:
            raise self.error(f"a residual must keep its shape; {input_shape} became {inner_shape}")
        return input_shape


class Repeat(Container):
    """Children one after another, `times` times, each time with parameters of its own."""

    kind: Literal["repeat"] = "repeat"
    times: PositiveInt = Field(description="how often the layers stand one after another")

    def children(self, path: str, input_shape: Shape) -> tuple[Node, ...]:
        names = [str(number) for number in range(1, self.times + 1)]
        block = Sequential.model_construct(layers=self.layers)
        return placed(path, names, [block] * self.times, input_shape, chained=True)


class Identity(LayerSpec):
    """The input as it is: the skip beside what other branches make of it."""

    kind: Literal["identity"] = "identity"

    def passes_shift(self, input_shape: Shape) -> bool:
        return True


class _Branches(Container):
    """Children side by side, all fed with the container's input."""

    def children(self, path: str, input_shape: Shape) -> tuple[Node, ...]:
        return placed(path, child_names(self.layers), self.layers, input_shape, chained=False)


class Add(_Branches):
    """The sum of what the children make of the input."""

    kind: Literal["add"] = "add"

    def combined_shape(self, input_shape: Shape, children: tuple[Node, ...]) -> Shape:
        shapes = [child.output_shape for child in children]
        if len(set(shapes)) > 1:
            raise self.error(f"the branches must end in one shape, received {shapes}")
        return shapes[0]


class Concatenate(_Branches):
    """What the children make of the input, joined along the last axis."""

    kind: Literal["concatenate"] = "concatenate"

    def combined_shape(self, input_shape: Shape, children: tuple[Node, ...]) -> Shape:
        shapes = [child.output_shape for child in children]
        if len({shape[:-1] for shape in shapes}) > 1:
            raise self.error(f"the branches may differ in the last axis only, received {shapes}")
        return (*shapes[0][:-1], sum(shape[-1] for shape in shapes))


def placed(
    path: str, names: Sequence[str], layers: Sequence[LayerSpec], input_shape: Shape, chained: bool
) -> tuple[Node, ...]:
    """Children of these names in their places: `chained`, each fed by the one before it, or all with the same."""
    children: list[Node] = []
    for name, layer in zip(names, layers, strict=True):
        shape = children[-1].output_shape if chained and children else input_shape
        children.append(layer.node(f"{path}/{name}" if path else name, shape))
    return tuple(children)


def child_names(layers: tuple[LayerSpec, ...]) -> list[str]:
    """Return the names of siblings: those that are given, else the kind, numbered where a kind comes more than once.

    Raises:
        SpecError: two siblings have one name.
    """
    alike = Counter(layer.kind for layer in layers if layer.name is None)
    before: Counter[str] = Counter()
    names = []
    for layer in layers:
        number = ""
        if layer.name is None and alike[layer.kind] > 1:
            before[layer.kind] += 1
            number = f"_{before[layer.kind]}"
        names.append(layer.name or layer.kind + number)
    doubled = {name for name, count in Counter(names).items() if count > 1}
    if doubled:
        raise SpecError(f"layers: the name {sorted(doubled)[0]!r} is used twice among siblings")
    return names
