"""Recurrent layers, written once for both frameworks, which hand in their operations and their loop over tokens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

Gates = Sequence[Any]


class Operations(NamedTuple):
    """What the layers need of a framework besides operators, on tensors (batch, tokens, features).

    concat, split: along the last axis; split(x, n) into n parts, split(x, sizes) into parts of these sizes.
    unstack, flip: along the tokens. where(mask, y): y, and zero where the mask is False.
    keep_mask: dropout's. padding_last, spread: the tokens that count moved to the front, and outputs back again.
    """

    concat: Callable[[Gates], Any]
    split: Callable[[Any, Any], Gates]
    unstack: Callable[[Any], Gates]
    flip: Callable[[Any], Any]
    where: Callable[[Any, Any], Any]
    sigmoid: Callable[[Any], Any]
    tanh: Callable[[Any], Any]
    keep_mask: Callable[..., Any]
    padding_last: Callable[[Any, Any], Any]
    spread: Callable[[Any, Any], Any]


@dataclass(frozen=True)
class Product:
    """Of a hidden state (batch, units) with the recurrent kernel, for `gates` neighbouring gates."""

    operations: Operations
    project: Callable[[Any, Any], Any]
    gates: int
    kernels: Gates  # one a gate where the state has dropout's masks, else one for all
    masks: Gates  # (batch, units) one a gate, or none
    bias: Any

    def __call__(self, hidden: Any) -> Gates:
        """(batch, units) for each gate."""
        if self.masks:
            pairs = zip(self.masks, self.kernels, strict=True)
            products = self.operations.concat([self.project(hidden * one, kernel) for one, kernel in pairs])
        else:
            products = self.project(hidden, self.kernels[0])
        if self.bias is not None:
            products = products + self.bias
        return self.operations.split(products, self.gates)


class RecurrentLayer:
    """One or two passes over the tokens; subclasses say what happens at a token.

    states: how many vectors the state consists of; the first is the output.
    """

    operations: ClassVar[Operations]
    states: ClassVar[int] = 1
    node: Any
    project: Callable[[Any, Any], Any]

    @property
    def products(self) -> tuple[int, ...]:
        """How many gates share a product of the state with the recurrent kernel, of each product."""
        return (self.node.spec.gates,)

    @property
    def has_native_kernel(self) -> bool:
        """Whether `_native` makes the outputs where the state has no dropout."""
        return False

    def _native(self, x: Any, prefix: str) -> Any:
        raise NotImplementedError

    def _run(self, products: Any, recur: list[Product]) -> Any:
        """Outputs (batch, tokens, units): `_step` at each token of the products with the kernel, from zero states."""
        raise NotImplementedError

    def _step(self, token: Gates, state: tuple[Any, ...], recur: list[Product]) -> tuple[Any, ...]:
        """The state after a token, given that token's products with the kernel, biases added."""
        raise NotImplementedError

    def _tensor(self, prefix: str, name: str) -> Any:
        """A tensor of one direction; None where the layer lacks it."""
        raise NotImplementedError

    def outputs(self, x: Any, context: Any) -> Any:
        """Outputs (batch, tokens, units), or the last ones, of x (batch, tokens, features)."""
        spec = self.node.spec
        outputs = [self._pass(x, prefix, backward, context) for prefix, backward in spec.ways]
        return sum(outputs[1:], outputs[0]) if spec.merge == "sum" else self.operations.concat(outputs)

    def _pass(self, x: Any, prefix: str, backward: bool, context: Any) -> Any:
        spec, ops = self.node.spec, self.operations
        mask = context.token_mask if spec.masked else None
        if backward:
            x, mask = ops.flip(x), None if mask is None else ops.flip(mask)
        if mask is None:
            y = self._forward(x, prefix, context)
        else:
            y = ops.spread(self._forward(ops.padding_last(x, mask), prefix, context), mask)
        if not spec.return_sequences:
            return y[:, -1]
        if mask is not None and spec.zero_padded:
            y = ops.where(mask[:, :, None], y)
        return ops.flip(y) if backward else y

    def _forward(self, x: Any, prefix: str, context: Any) -> Any:
        """The output after each token (batch, tokens, units), the first token first."""
        spec, ops, path = self.node.spec, self.operations, f"{self.node.path}/{prefix}"
        drops_state = context.training and spec.recurrent_dropout > 0
        inputs = [x]
        if context.training and spec.input_dropout > 0:
            shape = (spec.gates if drops_state else 1, x.shape[-1])
            kept = ops.keep_mask(x, context, f"{path}input", shape, spec.input_dropout)
            inputs = [x * one[:, None] for one in ops.unstack(kept)]
        if self.has_native_kernel and not drops_state:
            return self._native(inputs[0], prefix)
        kernels = ops.split(self._tensor(prefix, "kernel"), len(inputs))
        products = ops.concat([self.project(*pair) for pair in zip(inputs, kernels, strict=True)])
        if spec.use_bias:
            products = products + self._tensor(prefix, "bias")
        masks: Gates = ()
        if drops_state:
            shape = (spec.gates, spec.units)
            masks = ops.unstack(ops.keep_mask(x, context, f"{path}recurrent", shape, spec.recurrent_dropout))
        return self._run(products, self._split_products(prefix, list(masks)))

    def _split_products(self, prefix: str, masks: list[Any]) -> list[Product]:
        """One Product for each of `products`. Splits here, once, and not at every token."""
        ops, sizes = self.operations, self.products
        kernel, bias = self._tensor(prefix, "recurrent_kernel"), self._tensor(prefix, "recurrent_bias")
        widths = [size * kernel.shape[0] for size in sizes]
        biases = [None] * len(sizes) if bias is None else ops.split(bias, widths)
        made = []
        for size, part, shift in zip(sizes, ops.split(kernel, widths), biases, strict=True):
            own, masks = masks[:size], masks[size:]
            parts = ops.split(part, size) if own else (part,)
            made.append(Product(ops, self.project, size, parts, own, shift))
        return made


class LSTMCell(RecurrentLayer):
    """Hidden and cell state; gates i, f, c, o."""

    states = 2

    def _step(self, token: Gates, state: tuple[Any, ...], recur: list[Product]) -> tuple[Any, ...]:
        sigmoid, tanh = self.operations.sigmoid, self.operations.tanh
        hidden, cell = state
        i, f, c, o = (a + b for a, b in zip(token, recur[0](hidden), strict=True))
        cell = sigmoid(f) * cell + sigmoid(i) * tanh(c)
        return sigmoid(o) * tanh(cell), cell


class GRUCell(RecurrentLayer):
    """Gates z, r, h."""

    @property
    def products(self) -> tuple[int, ...]:
        return (3,) if self.node.spec.reset == "after" else (2, 1)

    def _step(self, token: Gates, state: tuple[Any, ...], recur: list[Product]) -> tuple[Any, ...]:
        sigmoid, tanh = self.operations.sigmoid, self.operations.tanh
        (hidden,) = state
        z, r, *reset_after = recur[0](hidden)
        z, r = sigmoid(token[0] + z), sigmoid(token[1] + r)
        if reset_after:
            h = r * reset_after[0]
        else:
            (h,) = recur[1](r * hidden)
        return (z * hidden + (1 - z) * tanh(token[2] + h),)


class SimpleRNNCell(RecurrentLayer):
    """h' = tanh(x W + h U + b)."""

    def _step(self, token: Gates, state: tuple[Any, ...], recur: list[Product]) -> tuple[Any, ...]:
        (product,) = recur[0](state[0])
        return (self.operations.tanh(token[0] + product),)
