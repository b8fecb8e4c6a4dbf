"""Attention."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from parity.common.spec.base import Number, PositiveInt
from parity.common.spec.layers.base import Initializer, LayerSpec, ParameterSpec, Shape
from parity.common.spec.layers.containers import Container


class AttentionBase(LayerSpec):
    """softmax(q k^T / sqrt(head_size)) v for each head, then a projection back (Vaswani et al. 2017).

    Kernels are (in, heads * head_size), the heads one after another; `output_kernel` is
    (heads * head_size, features). With fewer `key_value_heads` than `heads`, query head h uses key and
    value head h // (heads / key_value_heads): grouped-query attention (Ainslie et al. 2023).

    `masked` takes the tokens that are padding out of the keys; a query to which no key is left gets
    zeros. In Keras, such a query attends to the padding after all, and in nn.MultiheadAttention it is NaN.
    `dropout` falls on the attention weights, in training.

    The initial values are those of keras.layers.MultiHeadAttention, whose kernels are of rank three
    (`fans: per_head`), or of nn.MultiheadAttention, which draws query, key and value kernels as one
    (`fans: joint`). A given `kernel_initializer` holds for the output kernel too, unless that has its own.
    """

    conventions = {
        "kernel_initializer": ("glorot_uniform", "glorot_uniform"),
        "output_kernel_initializer": ("glorot_uniform", "uniform_fan_in"),
        "bias_initializer": ("zeros", "zeros"),
        "fans": ("per_head", "joint"),
    }
    heads: PositiveInt = Field(description="attention heads of the queries")
    key_value_heads: PositiveInt | None = Field(default=None, description="default: as many as heads")
    head_size: PositiveInt | None = Field(default=None, description="default: features / heads")
    masked: bool = Field(default=False, description="leave tokens that are padding out of the keys")
    dropout: Number = Field(default=0.0, ge=0, lt=1, description="rate of dropout on the attention weights")
    use_bias: bool = Field(default=True, description="add biases to queries, keys and values")
    output_bias: bool | None = Field(default=None, description="default: use_bias")
    kernel_initializer: Initializer | None = Field(default=None, description="initial values of the kernels")
    output_kernel_initializer: Initializer | None = Field(
        default=None,
        description="initial values of the output kernel; default: kernel_initializer where that is given",
    )
    bias_initializer: Initializer | None = Field(default=None, description="initial values of the biases")
    fans: Literal["per_head", "joint"] | None = Field(
        default=None,
        description="how the fans of the kernels are counted: per_head, as Keras does, or joint, as PyTorch does",
    )

    @model_validator(mode="before")
    @classmethod
    def _one_initializer_for_all_kernels(cls, data: Any) -> Any:
        if isinstance(data, dict) and data.get("output_kernel_initializer") is None:
            given = data.get("kernel_initializer")
            if given is not None:
                return {**data, "output_kernel_initializer": given}
        return data

    @model_validator(mode="after")
    def _heads_share_evenly(self) -> AttentionBase:
        if self.heads % self.groups:
            raise ValueError(f"key_value_heads {self.groups} does not divide heads {self.heads}")
        return self

    @property
    def groups(self) -> int:
        """Heads of keys and values."""
        return self.key_value_heads or self.heads

    def size(self, input_shape: Shape) -> int:
        """Features of one head; raises SpecError where the heads do not divide the features."""
        self.expect_rank(input_shape, 2, "(tokens, features)")
        if self.head_size is None and input_shape[-1] % self.heads:
            raise self.error(f"heads {self.heads} does not divide {input_shape[-1]} features")
        return self.head_size or input_shape[-1] // self.heads

    def projections(self, input_shape: Shape, memory_width: int) -> tuple[ParameterSpec, ...]:
        """Kernels and biases of queries from the input, keys and values from `memory_width` features."""
        width, size = input_shape[-1], self.size(input_shape)
        inner, shared = self.heads * size, self.groups * size
        result = []
        for part, rows, columns, heads in (
            ("query", width, inner, self.heads),
            ("key", memory_width, shared, self.groups),
            ("value", memory_width, shared, self.groups),
            ("output", inner, width, self.heads),
        ):
            is_output = part == "output"
            fans = (rows, columns) if is_output else (rows, inner + 2 * shared)
            if self.fans == "per_head":
                # The fans that Keras reads off kernels (in, heads, size) and (heads, size, out).
                fans = (inner, width * heads) if is_output else (rows * heads, rows * size)
            kernel = (self.output_kernel_initializer if is_output else self.kernel_initializer) or "zeros"
            result.append(ParameterSpec(f"{part}_kernel", (rows, columns), kernel, *fans))
            if self.output_bias if is_output and self.output_bias is not None else self.use_bias:
                # Turned by each key's own angle, a key bias is not the same for all keys.
                is_null = part == "key" and not getattr(self, "rotary", None)
                reason = "softmax over keys is invariant to a key bias" if is_null else None
                bias = self.bias_initializer or "zeros"
                result.append(
                    ParameterSpec(f"{part}_bias", (columns,), bias, rows, columns, null_direction=reason)
                )
        return tuple(result)


class SelfAttention(AttentionBase):
    """Multi-head attention of a sequence to itself; see `AttentionBase`.

    `causal` lets a token attend to itself and to what is before it. `rotary` turns each pair of features of
    queries and keys by the angle position * base^(-2 i / head_size) (Su et al. 2021); the pairs are (i,
    i + head_size / 2) for `half`, as in Llama, and (2 i, 2 i + 1) for `interleaved`, as in the paper.
    """

    kind: Literal["self_attention"] = "self_attention"
    causal: bool = Field(
        default=False, description="let a token attend only to itself and to tokens before it"
    )
    rotary: Literal["half", "interleaved"] | None = Field(
        default=None,
        description="rotary positions: half pairs (i, i + head_size / 2), interleaved pairs (2 i, 2 i + 1); null: none",
    )
    rotary_base: Number = Field(default=10000.0, gt=0, description="base of the rotary angles")

    def output_shape(self, input_shape: Shape) -> Shape:
        if self.size(input_shape) % 2 and self.rotary:
            raise self.error(f"rotary positions need an even head size, received {self.size(input_shape)}")
        return input_shape

    def parameters(self, input_shape: Shape) -> tuple[ParameterSpec, ...]:
        return self.projections(input_shape, input_shape[-1])

    def rotary_angles(self, input_shape: Shape) -> NDArray[np.float64]:
        """(tokens, head_size / 2): the angle of each pair of features at each token."""
        size = self.size(input_shape)
        frequencies = self.rotary_base ** (-np.arange(0, size, 2) / size)
        return np.arange(input_shape[0])[:, None] * frequencies


class CrossAttention(AttentionBase, Container):
    """Attention of the input to a memory made from it; see `AttentionBase`.

    A tree has one input, so the memory is what `layers`, one after another, make of the layer's own
    input; queries come from the input as it is. `masked` needs a memory of as many tokens as the input.
    """

    kind: Literal["cross_attention"] = "cross_attention"

    def output_shape(self, input_shape: Shape) -> Shape:
        self.size(input_shape)
        memory = self._memory_shape(input_shape)
        if len(memory) != 2:
            raise self.error(f"expects a memory (tokens, features), received shape {memory}")
        if self.masked and memory[0] != input_shape[0]:
            raise self.error(f"masked needs a memory of {input_shape[0]} tokens, received {memory[0]}")
        return input_shape

    def combined_shape(self, input_shape: Shape, children: tuple[Any, ...]) -> Shape:
        return self.output_shape(input_shape)

    def parameters(self, input_shape: Shape) -> tuple[ParameterSpec, ...]:
        return self.projections(input_shape, self._memory_shape(input_shape)[-1])

    def _memory_shape(self, input_shape: Shape) -> Shape:
        return self.children("", input_shape)[-1].output_shape
