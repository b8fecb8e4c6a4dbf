"""Recurrent layers: a while_loop over the tokens, with the products of the inputs taken before it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import tensorflow as tf

from parity.common.execution.pass_context import Context
from parity.common.spec import Node
from parity.common.spec import layers as spec
from parity.tf_impl.layers.products import Products
from parity.tf_impl.layers.random import keep_mask
from parity.tf_impl.layers.registry import Contextual, NodeLayer, register

# Of a hidden state (batch, units) with the recurrent kernel: (batch, gates * units), of some neighbouring gates.
Product = Callable[[tf.Tensor], tf.Tensor]


class Recurrent(Products, Contextual, NodeLayer):
    """One or two passes over the tokens; subclasses say what happens at a token."""

    # How many vectors the state consists of; the first is the output.
    states = 1
    # How many gates share a product of the state with the recurrent kernel.
    products: tuple[int, ...] = (1,)

    def call(self, x: tf.Tensor, context: Context) -> tf.Tensor:
        spec = self.node.spec
        outputs = [self._pass(x, prefix, backward, context) for prefix, backward in spec.ways]
        return tf.add_n(outputs) if spec.merge == "sum" else tf.concat(outputs, -1)

    def _pass(self, x: tf.Tensor, prefix: str, backward: bool, context: Context) -> tf.Tensor:
        spec = self.node.spec
        mask = context.token_mask if spec.masked else None
        if backward:
            x, mask = tf.reverse(x, [1]), None if mask is None else tf.reverse(mask, [1])
        if mask is None:
            y = self._outputs(x, prefix, context)
        else:
            y = spread(self._outputs(padding_last(x, mask), prefix, context), mask)
        if not spec.return_sequences:
            return y[:, -1]
        if mask is not None and spec.zero_padded:
            y = tf.where(mask[:, :, None], y, tf.zeros([], y.dtype))
        return tf.reverse(y, [1]) if backward else y

    def _outputs(self, x: tf.Tensor, prefix: str, context: Context) -> tf.Tensor:
        """The output after each token (batch, tokens, units), the first token first."""
        spec, path = self.node.spec, f"{self.node.path}/{prefix}"
        drops_state = context.training and spec.recurrent_dropout > 0
        inputs = [x]
        if context.training and spec.input_dropout > 0:
            shape = (spec.gates if drops_state else 1, x.shape[-1])
            kept = keep_mask(x, context, f"{path}input", shape, spec.input_dropout)
            inputs = [x * one[:, None] for one in tf.unstack(kept, axis=1)]
        kernels = tf.split(self._tensor(prefix, "kernel"), len(inputs), -1)
        # The tokens first, which is cheaper here than of the products.
        turned = [tf.transpose(one, [1, 0, 2]) for one in inputs]
        products = [self.project(one, kernel) for one, kernel in zip(turned, kernels, strict=True)]
        products = tf.concat(products, -1)
        if spec.use_bias:
            products += self._tensor(prefix, "bias")
        kept = None
        if drops_state:
            shape = (spec.gates, spec.units)
            kept = keep_mask(x, context, f"{path}recurrent", shape, spec.recurrent_dropout)
        recur = self._recurrent_products(prefix, kept)
        tokens = x.shape[1]
        by_token = tf.TensorArray(x.dtype, tokens).unstack(products)
        outputs = tf.TensorArray(x.dtype, tokens, element_shape=[None, spec.units])

        def step(token: tf.Tensor, outputs: tf.TensorArray, *state: tf.Tensor) -> tuple:
            state = self._step(by_token.read(token), state, recur)
            return token + 1, outputs.write(token, state[0]), *state

        zero = tf.zeros([tf.shape(x)[0], spec.units], x.dtype)
        _, outputs, *_ = tf.while_loop(
            lambda token, *_: token < tokens,
            step,
            (tf.constant(0), outputs, *[zero] * self.states),
            maximum_iterations=tokens,
        )
        return tf.transpose(tf.reshape(outputs.stack(), [tokens, -1, spec.units]), [1, 0, 2])

    def _recurrent_products(self, prefix: str, kept: tf.Tensor | None) -> list[Product]:
        """A function for each of `products`. Splits here, once, and not at every token.

        kept: (batch, gates, units), dropout's mask of the state, or None.
        """
        kernel, bias = self._tensor(prefix, "recurrent_kernel"), self._tensor(prefix, "recurrent_bias")
        widths = [size * kernel.shape[0] for size in self.products]
        kernels = tf.split(kernel, widths, -1)
        biases = [None] * len(widths) if bias is None else tf.split(bias, widths, -1)
        masks = [] if kept is None else list(tf.unstack(kept, axis=1))
        found = []
        for size, part, shift in zip(self.products, kernels, biases, strict=True):
            own, masks = masks[:size], masks[size:]
            parts = tf.split(part, size, -1) if own else (part,)
            found.append(functools.partial(self._product, parts, own, shift))
        return found

    def _product(
        self,
        kernels: Sequence[tf.Tensor],
        masks: Sequence[tf.Tensor],
        bias: tf.Tensor | None,
        hidden: tf.Tensor,
    ) -> tf.Tensor:
        """Of a state with the recurrent kernel: one kernel a gate where it has dropout's masks, else one for all."""
        if masks:
            pairs = zip(masks, kernels, strict=True)
            products = tf.concat([self.project(hidden * one, kernel) for one, kernel in pairs], -1)
        else:
            products = self.project(hidden, kernels[0])
        return products if bias is None else products + bias

    def _step(
        self, token: tf.Tensor, state: tuple[tf.Tensor, ...], recur: list[Product]
    ) -> tuple[tf.Tensor, ...]:
        """The state after a token, given that token's products with the kernel, biases added."""
        raise NotImplementedError

    def _tensor(self, prefix: str, name: str) -> tf.Tensor | None:
        variable = getattr(self, prefix + name, None)
        return None if variable is None else tf.convert_to_tensor(variable)


def padding_last(x: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
    """x (batch, tokens, features) with the unmasked tokens first, in their order.

    What comes after them cannot touch their outputs, so that no kernel needs to know of the mask.
    """
    order = tf.argsort(tf.cast(~mask, tf.int32), axis=1, stable=True)
    return tf.gather(x, order, batch_dims=1)


def spread(y: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
    """Outputs of `padding_last` back in their places, each repeated at the padding after it; zero before."""
    last = tf.cumsum(tf.cast(mask, tf.int32), 1) - 1
    spread = tf.gather(y, tf.maximum(last, 0), batch_dims=1)
    return tf.where(last[:, :, None] >= 0, spread, tf.zeros([], y.dtype))


@register(spec.LSTM)
class LSTM(Recurrent):
    """Hidden and cell state; gates i, f, c, o."""

    states = 2
    products = (4,)

    def _step(
        self, token: tf.Tensor, state: tuple[tf.Tensor, ...], recur: list[Product]
    ) -> tuple[tf.Tensor, ...]:
        hidden, cell = state
        i, f, c, o = tf.split(token + recur[0](hidden), 4, -1)
        cell = tf.sigmoid(f) * cell + tf.sigmoid(i) * tf.tanh(c)
        return tf.sigmoid(o) * tf.tanh(cell), cell


@register(spec.GRU)
class GRU(Recurrent):
    """Gates z, r, h."""

    def __init__(self, node: Node) -> None:
        super().__init__(node)
        self.products = (3,) if node.spec.reset == "after" else (2, 1)

    def _step(
        self, token: tf.Tensor, state: tuple[tf.Tensor, ...], recur: list[Product]
    ) -> tuple[tf.Tensor, ...]:
        (hidden,) = state
        widths = [2 * self.node.spec.units, self.node.spec.units]
        gates, token = tf.split(token, widths, -1)
        if self.node.spec.reset == "after":
            product, h = tf.split(recur[0](hidden), widths, -1)
            z, r = tf.split(tf.sigmoid(gates + product), 2, -1)
            new = tf.tanh(token + r * h)
        else:
            z, r = tf.split(tf.sigmoid(gates + recur[0](hidden)), 2, -1)
            new = tf.tanh(token + recur[1](r * hidden))
        return (z * hidden + (1 - z) * new,)


@register(spec.SimpleRNN)
class SimpleRNN(Recurrent):
    """h' = tanh(x W + h U + b)."""

    def _step(
        self, token: tf.Tensor, state: tuple[tf.Tensor, ...], recur: list[Product]
    ) -> tuple[tf.Tensor, ...]:
        return (tf.tanh(token + recur[0](state[0])),)
