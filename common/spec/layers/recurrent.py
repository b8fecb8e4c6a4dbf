"""Recurrent layers.

Kernels are (in, gates * units) and (units, gates * units), the gates side by side in Keras's order.
Stacked layers are several layers in a row; PyTorch's dropout between them is a Dropout layer.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from parity.common.spec.base import Number, PositiveInt
from parity.common.spec.layers.base import Initializer, LayerSpec, ParameterSpec, Shape

_COMMON = {
    "padded_outputs": ("repeat_one_way", "zero"),
    "kernel_initializer": ("glorot_uniform", "uniform_fan_in"),
    "recurrent_initializer": ("orthogonal", "uniform_fan_in"),
    "bias_initializer": ("zeros", "uniform_fan_in"),
}


class RecurrentBase(LayerSpec):
    """(tokens, features) to the last output (units,), or with `return_sequences` to (tokens, units).

    direction: `backward` begins at the last token; each output still stands at its own token, whereas
        keras.layers with go_backwards leaves outputs in the order of their making. `both` runs one
        way with the tensors `kernel`, ... and the other with `backward_kernel`, ..., and merges.
    masked: tokens that are padding are passed over: the state after them is the state before them.
        `padded_outputs` says what stands in their places: `repeat`, the output before them, or zero
        where there is none; `zero`, as after PyTorch's packed sequences; `repeat_one_way`, repeat in a
        layer of one direction and zero in one of both, as in Keras. The last output is not affected.
    biases: `one`, or `two` that are added, one to each matrix product, and both trained (rows 38, 39).
    input_dropout, recurrent_dropout: inside the cell, as in Keras (row 47): on its input and on its state where
        these enter the matrix products, one mask for all tokens. Where recurrent_dropout is above 0,
        each gate has masks of its own.
    Initializers: the fan-in that `uniform_fan_in` takes is `units` for all tensors, as in PyTorch.
    """

    gates: ClassVar[int]
    units: PositiveInt = Field(description="features of the state")
    return_sequences: bool = Field(
        default=False, description="give the output of each token, not only the last"
    )
    direction: Literal["forward", "backward", "both"] = Field(
        default="forward", description="forward, backward, or both"
    )
    merge: Literal["concatenate", "sum"] = Field(
        default="concatenate", description="how the outputs of both directions become one"
    )
    masked: bool = Field(default=False, description="pass over tokens that are padding")
    padded_outputs: Literal["repeat", "zero", "repeat_one_way"] | None = Field(
        default=None,
        description="what stands at padding: the output before it, zero, or repeat_one_way, as in Keras",
    )
    use_bias: bool = Field(default=True, description="add biases")
    input_dropout: Number = Field(default=0.0, ge=0, lt=1, description="rate of dropout on the cell's input")
    recurrent_dropout: Number = Field(
        default=0.0, ge=0, lt=1, description="rate of dropout on the cell's state"
    )
    kernel_initializer: Initializer | None = Field(
        default=None, description="initial values of the input's kernel"
    )
    recurrent_initializer: Initializer | None = Field(
        default=None, description="initial values of the state's kernel"
    )
    bias_initializer: Initializer | None = Field(default=None, description="initial values of the biases")

    @property
    def two_biases(self) -> bool:
        """Whether the recurrent matrix product has a bias of its own."""
        return getattr(self, "biases", None) == "two"

    @property
    def zero_padded(self) -> bool:
        """Whether outputs at padding are zero."""
        both = self.direction == "both"
        return self.padded_outputs == "zero" or (both and self.padded_outputs == "repeat_one_way")

    @property
    def ways(self) -> tuple[tuple[str, bool], ...]:
        """(what the names of its tensors begin with, whether it runs backwards) of each direction."""
        if self.direction == "both":
            return (("", False), ("backward_", True))
        return (("", self.direction == "backward"),)

    def output_shape(self, input_shape: Shape) -> Shape:
        self.expect_rank(input_shape, 2, "(tokens, features)")
        width = self.units * (len(self.ways) if self.merge == "concatenate" else 1)
        return (input_shape[0], width) if self.return_sequences else (width,)

    def parameters(self, input_shape: Shape) -> tuple[ParameterSpec, ...]:
        width = self.gates * self.units
        bias = self.bias_initializer
        result = []
        for prefix, _ in self.ways:
            tensors: list[tuple[str, Shape, str | None]] = [
                ("kernel", (input_shape[1], width), self.kernel_initializer),
                ("recurrent_kernel", (self.units, width), self.recurrent_initializer),
            ]
            if self.use_bias:
                tensors.append(("bias", (width,), bias))
            if self.use_bias and self.two_biases:
                # The forget gate's 1 is given once.
                tensors.append(("recurrent_bias", (width,), "zeros" if bias == "forget_ones" else bias))
            for name, shape, initializer in tensors:
                fan_in = self.units if initializer == "uniform_fan_in" else shape[0]
                result.append(ParameterSpec(prefix + name, shape, initializer or "zeros", fan_in, width))
        return tuple(result)


class LSTM(RecurrentBase):
    """Long short-term memory (Hochreiter and Schmidhuber 1997, with forget gate), gates i, f, c, o.

    i, f, o = sigmoid(x W + h U + b), g = tanh(x W + h U + b); c' = f c + i g; h' = o tanh(c').
    """

    conventions = {**_COMMON, "biases": ("one", "two"), "bias_initializer": ("forget_ones", "uniform_fan_in")}
    gates = 4
    kind: Literal["lstm"] = "lstm"
    biases: Literal["one", "two"] | None = Field(
        default=None, description="one, as in Keras, or two that are added, as in PyTorch"
    )


class GRU(RecurrentBase):
    """Gated recurrent unit (Cho et al. 2014), gates z, r, h (row 39).

    z, r = sigmoid(x W + h U + b); h' = z h + (1 - z) n. With `reset: after`, n = tanh(x W + b + r (h U +
    recurrent_bias)); with `before`, n = tanh(x W + b + (r h) U). Only `after` has the second bias, which is
    row 1 of the bias in Keras and bias_hh in PyTorch. PyTorch has no `before`.
    """

    conventions = {**_COMMON, "reset": ("after", "after")}
    gates = 3
    kind: Literal["gru"] = "gru"
    reset: Literal["after", "before"] | None = Field(
        default=None, description="whether the reset gate is applied after the matrix product or before it"
    )

    @property
    def two_biases(self) -> bool:
        return self.reset != "before"


class SimpleRNN(RecurrentBase):
    """h' = tanh(x W + h U + b)."""

    conventions = {**_COMMON, "biases": ("one", "two")}
    gates = 1
    kind: Literal["simple_rnn"] = "simple_rnn"
    biases: Literal["one", "two"] | None = Field(
        default=None, description="one, as in Keras, or two that are added, as in PyTorch"
    )
