"""Recurrent layers. PyTorch's kernels run them, except where the cell has dropout or resets before."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from parity.common.execution.pass_context import Context
from parity.common.spec import Node
from parity.common.spec import layers as spec
from parity.torch_impl.layers.products import Products
from parity.torch_impl.layers.random import keep_mask
from parity.torch_impl.layers.registry import Contextual, NodeLayer, register

# Of a hidden state (batch, units) with the recurrent kernel: (batch, gates * units), of some neighbouring gates.
Product = Callable[[Tensor], Tensor]

# Kernels as PyTorch's own have them, (gates * units, features): its kernels would copy others at every pass.
_BY_GATES = {
    f"{way}{name}": (f"{way}{name}", (1, 0))
    for way in ("", "backward_")
    for name in ("kernel", "recurrent_kernel")
}


class Recurrent(Products, Contextual, NodeLayer):
    """One or two passes over the tokens; subclasses say what happens at a token."""

    # How many vectors the state consists of; the first is the output.
    states = 1
    # How many gates share a product of the state with the recurrent kernel.
    products: tuple[int, ...] = (1,)
    # PyTorch's own for a whole sequence; None where it has none that computes the same.
    native_kernel: Callable | None = None

    def forward(self, x: Tensor, context: Context) -> Tensor:
        spec = self.node.spec
        outputs = [self._pass(x, prefix, backward, context) for prefix, backward in spec.ways]
        if len(outputs) == 1 or spec.merge == "sum":
            return sum(outputs[1:], outputs[0])
        return torch.cat(outputs, -1)

    def _pass(self, x: Tensor, prefix: str, backward: bool, context: Context) -> Tensor:
        spec = self.node.spec
        mask = context.token_mask if spec.masked else None
        if backward:
            x, mask = x.flip(1), None if mask is None else mask.flip(1)
        if mask is None:
            y = self._outputs(x, prefix, context)
        else:
            y = spread(self._outputs(padding_last(x, mask), prefix, context), mask)
        if not spec.return_sequences:
            return y[:, -1]
        if mask is not None and spec.zero_padded:
            y = torch.where(mask[:, :, None], y, 0)
        return y.flip(1) if backward else y

    def _outputs(self, x: Tensor, prefix: str, context: Context) -> Tensor:
        """The output after each token (batch, tokens, units), the first token first."""
        spec, path = self.node.spec, f"{self.node.path}/{prefix}"
        drops_state = context.training and spec.recurrent_dropout > 0
        inputs = [x]
        if context.training and spec.input_dropout > 0:
            shape = (spec.gates if drops_state else 1, x.shape[-1])
            kept = keep_mask(x, context, f"{path}input", shape, spec.input_dropout)
            inputs = [x * one[:, None] for one in kept.unbind(1)]
        if self.native_kernel is not None and not drops_state and self.low is None:
            return self._native(inputs[0], prefix)
        kernels = self._tensor(prefix, "kernel").t().chunk(len(inputs), -1)
        pairs = zip(inputs, kernels, strict=True)
        products = torch.cat([self.project(one, kernel) for one, kernel in pairs], -1)
        if spec.use_bias:
            products = products + self._tensor(prefix, "bias")
        kept = None
        if drops_state:
            shape = (spec.gates, spec.units)
            kept = keep_mask(x, context, f"{path}recurrent", shape, spec.recurrent_dropout)
        recur = self._recurrent_products(prefix, kept)
        state = (x.new_zeros(len(x), spec.units),) * self.states
        outputs = []
        for token in products.unbind(1):
            state = self._step(token, state, recur)
            outputs.append(state[0])
        return torch.stack(outputs, 1)

    def _recurrent_products(self, prefix: str, kept: Tensor | None) -> list[Product]:
        """A function for each of `products`. Splits here, once, and not at every token.

        kept: (batch, gates, units), dropout's mask of the state, or None.
        """
        kernel, bias = self._tensor(prefix, "recurrent_kernel").t(), self._tensor(prefix, "recurrent_bias")
        widths = [size * kernel.shape[0] for size in self.products]
        kernels = kernel.split(widths, -1)
        biases = [None] * len(widths) if bias is None else bias.split(widths, -1)
        masks = [] if kept is None else list(kept.unbind(1))
        found = []
        for size, part, shift in zip(self.products, kernels, biases, strict=True):
            own, masks = masks[:size], masks[size:]
            parts = part.chunk(size, -1) if own else (part,)
            found.append(functools.partial(self._product, parts, own, shift))
        return found

    def _product(
        self, kernels: Sequence[Tensor], masks: Sequence[Tensor], bias: Tensor | None, hidden: Tensor
    ) -> Tensor:
        """Of a state with the recurrent kernel: one kernel a gate where it has dropout's masks, else one for all."""
        if masks:
            pairs = zip(masks, kernels, strict=True)
            products = torch.cat([self.project(hidden * one, kernel) for one, kernel in pairs], -1)
        else:
            products = self.project(hidden, kernels[0])
        return products if bias is None else products + bias

    def _step(self, token: Tensor, state: tuple[Tensor, ...], recur: list[Product]) -> tuple[Tensor, ...]:
        """The state after a token, given that token's products with the kernel, biases added."""
        raise NotImplementedError

    def _tensor(self, prefix: str, name: str) -> Tensor | None:
        return getattr(self, prefix + name, None)

    def _native(self, x: Tensor, prefix: str) -> Tensor:
        spec = self.node.spec
        names = ("kernel", "recurrent_kernel", "bias", "recurrent_bias")
        tensors = [self._tensor(prefix, name) for name in names]
        weights = [self._native_order(tensor) for tensor in tensors if tensor is not None]
        if len(weights) == 3:
            weights.append(torch.zeros_like(weights[2]))
        zero = x.new_zeros(1, len(x), spec.units)
        state = zero if self.states == 1 else (zero,) * self.states
        # Has biases, layers, dropout, training, bidirectional, batch first.
        return self.native_kernel(
            x, state, weights, spec.use_bias, 1, 0.0, torch.is_grad_enabled(), False, True
        )[0]

    def _native_order(self, tensor: Tensor) -> Tensor:
        """A kernel or bias (gates * units, ...) with the gates as PyTorch orders them."""
        return tensor


def padding_last(x: Tensor, mask: Tensor) -> Tensor:
    """x (batch, tokens, features) with the unmasked tokens first, in their order.

    What comes after them cannot touch their outputs, so that no kernel needs to know of the mask.
    """
    order = torch.argsort((~mask).byte(), dim=1, stable=True)
    return torch.take_along_dim(x, order[:, :, None], 1)


def spread(y: Tensor, mask: Tensor) -> Tensor:
    """Outputs of `padding_last` back in their places, each repeated at the padding after it; zero before."""
    last = mask.long().cumsum(1)[:, :, None] - 1
    return torch.where(last >= 0, torch.take_along_dim(y, last.clamp(min=0), 1), 0)


@register(spec.LSTM, **_BY_GATES)
class LSTM(Recurrent):
    """Hidden and cell state; gates i, f, c, o."""

    states = 2
    products = (4,)
    native_kernel = torch._VF.lstm

    def _step(self, token: Tensor, state: tuple[Tensor, ...], recur: list[Product]) -> tuple[Tensor, ...]:
        hidden, cell = state
        i, f, c, o = (token + recur[0](hidden)).chunk(4, -1)
        cell = f.sigmoid() * cell + i.sigmoid() * c.tanh()
        return o.sigmoid() * cell.tanh(), cell


@register(spec.GRU, **_BY_GATES)
class GRU(Recurrent):
    """Gates z, r, h."""

    def __init__(self, node: Node) -> None:
        super().__init__(node)
        after = node.spec.reset == "after"
        self.products, self.native_kernel = ((3,), torch._VF.gru) if after else ((2, 1), None)

    def _step(self, token: Tensor, state: tuple[Tensor, ...], recur: list[Product]) -> tuple[Tensor, ...]:
        (hidden,) = state
        widths = [2 * self.node.spec.units, self.node.spec.units]
        gates, token = token.split(widths, -1)
        if self.node.spec.reset == "after":
            product, h = recur[0](hidden).split(widths, -1)
            z, r = (gates + product).sigmoid().chunk(2, -1)
            new = (token + r * h).tanh()
        else:
            z, r = (gates + recur[0](hidden)).sigmoid().chunk(2, -1)
            new = (token + recur[1](r * hidden)).tanh()
        return (z * hidden + (1 - z) * new,)

    def _native_order(self, tensor: Tensor) -> Tensor:
        z, r, h = tensor.chunk(3)
        return torch.cat([r, z, h])


@register(spec.SimpleRNN, **_BY_GATES)
class SimpleRNN(Recurrent):
    """h' = tanh(x W + h U + b)."""

    native_kernel = torch._VF.rnn_tanh

    def _step(self, token: Tensor, state: tuple[Tensor, ...], recur: list[Product]) -> tuple[Tensor, ...]:
        return ((token + recur[0](state[0])).tanh(),)
