"""Recurrent layers. PyTorch's kernels run them, except where the cell has dropout or resets before."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from parity.common.execution.pass_context import Context
from parity.common.execution.recurrent import (
    GRUCell,
    LSTMCell,
    Operations,
    Product,
    RecurrentLayer,
    SimpleRNNCell,
)
from parity.common.spec import layers as spec
from parity.torch_impl.layers.products import Products
from parity.torch_impl.layers.random import keep_mask
from parity.torch_impl.layers.registry import Contextual, NodeLayer, register


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


def _split(x: Tensor, parts: int | list[int]) -> tuple[Tensor, ...]:
    return x.chunk(parts, -1) if isinstance(parts, int) else x.split(parts, -1)


class Recurrent(Products, Contextual, NodeLayer, RecurrentLayer):
    """The passes over the tokens, with PyTorch's operations."""

    operations = Operations(
        concat=lambda parts: torch.cat(parts, -1),
        split=_split,
        unstack=lambda x: x.unbind(1),
        flip=lambda x: x.flip(1),
        where=lambda mask, y: torch.where(mask, y, 0),
        sigmoid=torch.sigmoid,
        tanh=torch.tanh,
        keep_mask=keep_mask,
        padding_last=padding_last,
        spread=spread,
    )

    def forward(self, x: Tensor, context: Context) -> Tensor:
        return self.outputs(x, context)

    def _run(self, products: Tensor, recur: list[Product]) -> Tensor:
        spec = self.node.spec
        state = (products.new_zeros(len(products), spec.units),) * self.states
        outputs = []
        for token in products.unbind(1):
            state = self._step(token.chunk(spec.gates, -1), state, recur)
            outputs.append(state[0])
        return torch.stack(outputs, 1)

    def _tensor(self, prefix: str, name: str) -> Tensor | None:
        return getattr(self, prefix + name, None)

    @property
    def has_native_kernel(self) -> bool:
        return self.low is None

    def _run_native(self, kernel: Callable, x: Tensor, prefix: str) -> Tensor:
        spec = self.node.spec
        names = ("kernel", "recurrent_kernel", "bias", "recurrent_bias")
        tensors = [self._tensor(prefix, name) for name in names]
        weights = [self._native_order(tensor).t() for tensor in tensors if tensor is not None]
        if len(weights) == 3:
            weights.append(torch.zeros_like(weights[2]))
        zero = x.new_zeros(1, len(x), spec.units)
        state = zero if self.states == 1 else (zero,) * self.states
        # Has biases, layers, dropout, training, bidirectional, batch first.
        return kernel(x, state, weights, spec.use_bias, 1, 0.0, torch.is_grad_enabled(), False, True)[0]

    def _native_order(self, tensor: Tensor) -> Tensor:
        """Columns (..., gates * units) with the gates as PyTorch orders them."""
        return tensor


@register(spec.LSTM)
class LSTM(LSTMCell, Recurrent):
    """LSTM cells, or PyTorch's kernel."""

    def _native(self, x: Tensor, prefix: str) -> Tensor:
        return self._run_native(torch._VF.lstm, x, prefix)


@register(spec.GRU)
class GRU(GRUCell, Recurrent):
    """GRU cells, or PyTorch's kernel, which resets after the product."""

    @property
    def has_native_kernel(self) -> bool:
        return self.low is None and self.node.spec.reset == "after"

    def _native(self, x: Tensor, prefix: str) -> Tensor:
        return self._run_native(torch._VF.gru, x, prefix)

    def _native_order(self, tensor: Tensor) -> Tensor:
        z, r, h = tensor.chunk(3, -1)
        return torch.cat([r, z, h], -1)


@register(spec.SimpleRNN)
class SimpleRNN(SimpleRNNCell, Recurrent):
    """Plain recurrent cells, or PyTorch's kernel."""

    def _native(self, x: Tensor, prefix: str) -> Tensor:
        return self._run_native(torch._VF.rnn_tanh, x, prefix)
