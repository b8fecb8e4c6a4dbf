"""Tokens and positions as vectors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from parity.common.spec.base import NonNegativeInt, PositiveInt
from parity.common.spec.layers.base import Initializer, LayerSpec, Node, ParameterSpec, Shape
from parity.common.spec.layers.containers import Container, child_names, placed

if TYPE_CHECKING:
    from parity.common.spec.layers import AnyLayer

# DIFFERENCES row 45.
_TABLE = {"initializer": ("uniform_0.05", "normal_1")}


def _checked_padding(layer: Any) -> Any:
    if layer.padding_id is not None and layer.padding_id >= layer.vocabulary:
        raise ValueError(f"padding_id must be below vocabulary {layer.vocabulary}, is {layer.padding_id}")
    return layer


class Embedding(LayerSpec):
    """The row of a table for each token: (...) integers, or floats that hold integers, to (..., features).

    The gradient of the table is dense. The row of `padding_id` starts at zero and gets none, as with
    padding_idx in PyTorch.
    """

    conventions = _TABLE
    kind: Literal["embedding"] = "embedding"
    vocabulary: PositiveInt = Field(description="rows of the table")
    features: PositiveInt = Field(description="columns of the table")
    padding_id: NonNegativeInt | None = Field(
        default=None, description="the token whose row starts at zero and gets no gradient"
    )
    initializer: Initializer | None = Field(default=None, description="initial values of the table")

    _padding_has_a_row = model_validator(mode="after")(_checked_padding)

    def output_shape(self, input_shape: Shape) -> Shape:
        return (*input_shape, self.features)

    def parameters(self, input_shape: Shape) -> tuple[ParameterSpec, ...]:
        return (_table(self.vocabulary, self.features, self.initializer, self.padding_id),)


class TiedEmbedding(Container):
    """Children between an embedding and the logits of the same tokens, which share one table E.

    y = children(E[tokens] + sum of what the layers of `beside` make of the tokens), logits = y E^T, plus
    `output_bias` where there is one: the weight tying of Press and Wolf 2017, as in GPT-2 and BERT. The
    row of `padding_id` gets no gradient from the embedding, but it does from the logits.
    """

    conventions = _TABLE
    kind: Literal["tied_embedding"] = "tied_embedding"
    vocabulary: PositiveInt = Field(description="rows of the table")
    features: PositiveInt = Field(description="columns of the table")
    beside: tuple[AnyLayer, ...] = Field(
        default=(), description="layers on the tokens, added to the embedded ones"
    )
    padding_id: NonNegativeInt | None = Field(
        default=None, description="the token whose row starts at zero and gets no gradient from the embedding"
    )
    output_bias: bool = Field(default=False, description="add a bias to the logits")
    initializer: Initializer | None = Field(default=None, description="initial values of the table")

    _padding_has_a_row = model_validator(mode="after")(_checked_padding)

    def inner_input_shape(self, input_shape: Shape) -> Shape:
        return (*input_shape, self.features)

    def node(self, path: str, input_shape: Shape) -> Node:
        inner = self.inner_input_shape(input_shape)
        names = child_names((*self.beside, *self.layers))[: len(self.beside)]
        beside = placed(path, names, self.beside, input_shape, chained=False)
        for child in beside:
            if child.output_shape != inner:
                raise self.error(
                    f"layers beside the embedding must end in {inner}, received {child.output_shape}"
                )
        children = self.children(path, inner)
        shape = self.combined_shape(input_shape, children)
        return Node(path, self, input_shape, shape, (*beside, *children), self.parameters(input_shape))

    def combined_shape(self, input_shape: Shape, children: tuple[Node, ...]) -> Shape:
        shape = children[-1].output_shape
        if shape[-1] != self.features:
            raise self.error(
                f"the children must end in the embedding's {self.features} features, received shape {shape}"
            )
        return (*shape[:-1], self.vocabulary)

    def parameters(self, input_shape: Shape) -> tuple[ParameterSpec, ...]:
        table = _table(self.vocabulary, self.features, self.initializer, self.padding_id)
        bias = ParameterSpec("output_bias", (self.vocabulary,), "zeros")
        return (table, bias) if self.output_bias else (table,)


class PositionEmbedding(LayerSpec):
    """Adds a learned vector to each token: the first rows of a table of `positions`."""

    conventions = _TABLE
    kind: Literal["position_embedding"] = "position_embedding"
    positions: PositiveInt | None = Field(
        default=None, description="rows of the table; default: the input's tokens"
    )
    initializer: Initializer | None = Field(default=None, description="initial values of the table")

    def output_shape(self, input_shape: Shape) -> Shape:
        self.expect_rank(input_shape, 2, "(tokens, features)")
        if self.positions is not None and self.positions < input_shape[0]:
            raise self.error(f"positions {self.positions} is below the {input_shape[0]} tokens")
        return input_shape

    def parameters(self, input_shape: Shape) -> tuple[ParameterSpec, ...]:
        return (_table(self.positions or input_shape[0], input_shape[1], self.initializer),)


class SinusoidalPositions(LayerSpec):
    """Adds sin(p / base^(2i/features)) to feature 2i of token p and the cosine to feature 2i + 1.

    Vaswani et al. 2017, section 3.5.
    """

    kind: Literal["sinusoidal_positions"] = "sinusoidal_positions"
    base: PositiveInt = Field(default=10000, description="base of the wavelengths")

    def output_shape(self, input_shape: Shape) -> Shape:
        self.expect_rank(input_shape, 2, "(tokens, features)")
        return input_shape

    def table(self, input_shape: Shape) -> NDArray[np.float64]:
        """(tokens, features): what is added."""
        tokens, features = input_shape
        even = np.arange(0, features, 2)
        angles = np.arange(tokens)[:, None] * float(self.base) ** (-even / features)
        table = np.empty((tokens, features))
        table[:, 0::2] = np.sin(angles)
        table[:, 1::2] = np.cos(angles[:, : features // 2])
        return table


class SegmentEmbedding(LayerSpec):
    """A learned vector for the segment that a token is in: (tokens,) integers to (tokens, features).

    The segment is the number of `separator_id` before the token, at most types - 1; without a
    separator all tokens are in segment 0. BERT adds it to its token embedding (Devlin et al. 2019).
    """

    conventions = _TABLE
    kind: Literal["segment_embedding"] = "segment_embedding"
    features: PositiveInt = Field(description="length of a vector")
    types: PositiveInt = Field(default=2, description="number of segments")
    separator_id: NonNegativeInt | None = Field(
        default=None, description="the token after which the next segment begins; null: there is one segment"
    )
    initializer: Initializer | None = Field(default=None, description="initial values of the table")

    def output_shape(self, input_shape: Shape) -> Shape:
        self.expect_rank(input_shape, 1, "(tokens,)")
        return (*input_shape, self.features)

    def parameters(self, input_shape: Shape) -> tuple[ParameterSpec, ...]:
        return (_table(self.types, self.features, self.initializer),)


class ClassToken(LayerSpec):
    """A learned token before all others: (tokens, features) to (tokens + 1, features) (Dosovitskiy et al. 2021)."""

    kind: Literal["class_token"] = "class_token"
    initializer: Initializer = Field(default="zeros", description="initial values of the token")

    def output_shape(self, input_shape: Shape) -> Shape:
        self.expect_rank(input_shape, 2, "(tokens, features)")
        return (input_shape[0] + 1, input_shape[1])

    def parameters(self, input_shape: Shape) -> tuple[ParameterSpec, ...]:
        return (ParameterSpec("embedding", (input_shape[1],), self.initializer),)


class TakeToken(LayerSpec):
    """One token of a sequence: (tokens, features) to (features,). A negative index counts from the end."""

    kind: Literal["take_token"] = "take_token"
    index: int = Field(default=0, strict=True, description="place of the token; -1 is the last")

    def output_shape(self, input_shape: Shape) -> Shape:
        self.expect_rank(input_shape, 2, "(tokens, features)")
        if not -input_shape[0] <= self.index < input_shape[0]:
            raise self.error(f"no token {self.index} in a sequence of {input_shape[0]}")
        return input_shape[1:]


def _table(rows: int, features: int, initializer: str | None, zero_row: int | None = None) -> ParameterSpec:
    shape = (rows, features)
    return ParameterSpec("embedding", shape, initializer or "zeros", rows, features, zero_row=zero_row)
