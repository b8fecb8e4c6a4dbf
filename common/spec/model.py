"""ModelSpec: a tree of layers applied to one input."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Literal

from pydantic import Field, model_validator

from parity.common.spec.base import NonNegativeInt, PositiveInt, Spec
from parity.common.spec.layers import AnyLayer, Imported, LayerSpec, Node, Sequential, Shape
from parity.common.spec.layers.containers import Container
from parity.common.spec.layers.shifts import mark_shifts

# The largest recipe has some hundred. Of more, each command would be at work for minutes.
MOST_LAYERS = 20_000
# The trees that were asked for last, which is done often, with what they are of.
_TREES: deque[tuple[tuple[LayerSpec, ...], Shape, Node]] = deque(maxlen=4)


class ModelSpec(Spec):
    """A tree of layers applied to one input. `input_shape` leaves out the batch, images are HWC."""

    input_shape: tuple[PositiveInt, ...] = Field(
        min_length=1, description="shape of one sample, without the batch; images are HWC"
    )
    layers: tuple[AnyLayer, ...] = Field(min_length=1, description="the layers, applied one after another")
    inputs: Literal["numbers", "tokens"] = Field(
        default="numbers", description="floats, or integer token ids"
    )
    pad_id: NonNegativeInt | None = Field(
        default=None, description="the token that is padding: masked layers and losses leave its places out"
    )

    @model_validator(mode="after")
    def _not_endless(self) -> ModelSpec:
        count = _count(self.layers)
        if count > MOST_LAYERS:
            raise ValueError(
                f"{count} layers with those that are repeated; a model has at most {MOST_LAYERS}"
            )
        return self

    @model_validator(mode="after")
    def _padding_is_a_token(self) -> ModelSpec:
        if self.pad_id is not None and (self.inputs != "tokens" or len(self.input_shape) != 1):
            raise ValueError("pad_id needs inputs 'tokens' and an input_shape of (tokens,)")
        return self

    @model_validator(mode="after")
    def _imported_stands_alone(self) -> ModelSpec:
        if len(self.layers) > 1 or not isinstance(self.layers[0], Imported):
            found = next((layer for layer in _all_layers(self.layers) if isinstance(layer, Imported)), None)
            if found is not None:
                raise ValueError(
                    f"layer {found.name!r} is a model of its own (kind imported) and must be the only layer"
                )
        return self

    @property
    def imported(self) -> Imported | None:
        """The user's own model, where this is one."""
        first = self.layers[0]
        return first if isinstance(first, Imported) else None

    def tree(self) -> Node:
        """The layers in their places; the root's path is empty."""
        # A copy: runs that start side by side add theirs meanwhile.
        for layers, shape, known in tuple(_TREES):
            if layers is self.layers and shape == self.input_shape:
                return known
        # Not validated once more: the layers are.
        root = Sequential.model_construct(layers=self.layers)
        found = mark_shifts(root.node("", self.input_shape))
        _TREES.append((self.layers, self.input_shape, found))
        return found

    def output_shape(self) -> Shape:
        return self.tree().output_shape


def _count(layers: Iterable[LayerSpec]) -> int:
    """How many layers there are with all in them, each as often as it is repeated."""
    return sum(
        1 + _count(layer.layers) * getattr(layer, "times", 1) if isinstance(layer, Container) else 1
        for layer in layers
    )


def _all_layers(value: object) -> Iterator[LayerSpec]:
    """The layers in a field of a spec and in theirs."""
    if isinstance(value, tuple):
        for item in value:
            yield from _all_layers(item)
    elif isinstance(value, LayerSpec):
        yield value
        for name in type(value).model_fields:
            yield from _all_layers(getattr(value, name))


def walk(node: Node) -> Iterator[Node]:
    """The node and everything below it, in execution order."""
    yield node
    for child in node.children:
        yield from walk(child)
