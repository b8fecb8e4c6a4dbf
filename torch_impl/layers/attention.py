"""Attention."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from parity.common.execution.pass_context import Context
from parity.common.spec import Node
from parity.common.spec import layers as spec
from parity.torch_impl.layers.containers import Children
from parity.torch_impl.layers.products import Products
from parity.torch_impl.layers.random import keep_mask
from parity.torch_impl.layers.registry import Contextual, NodeLayer, register
from parity.torch_impl.private_names import attention

# As `Products.project`.
Project = Callable[[Tensor, Tensor, Tensor | None], Tensor]


class AllHeads:
    """The heads on this rank: all of them, unless a strategy divides them."""

    def enter(self, x: Tensor) -> Tensor:
        """x as each rank's heads may use it; its gradient is the sum of what they give."""
        return x

    def part(self, parameter: Tensor) -> Tensor:
        """This rank's part of a parameter."""
        return parameter

    def total(self, project: Project, x: Tensor, kernel: Tensor, bias: Tensor | None) -> Tensor:
        """The sum over the ranks of what the output kernel makes of their heads, plus the bias."""
        return project(x, kernel, bias)

    def own(self, values: Tensor) -> Tensor:
        """Of values for each head (batch, heads, ...) those of this rank's heads."""
        return values


class _Joined(torch.autograd.Function):
    """x (..., k) times kernels (k, n) side by side, in one product. They are joined once more for the backward pass, not kept so."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, bias: Tensor | None, *kernels: Tensor) -> Tensor:
        ctx.save_for_backward(x, *kernels)
        ctx.has_bias = bias is not None
        return F.linear(x, torch.cat(kernels, 1).t(), bias)

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        x, *kernels = ctx.saved_tensors
        rows = dy.flatten(0, -2)
        of_kernels = (x.flatten(0, -2).t() @ rows).split([kernel.shape[1] for kernel in kernels], 1)
        return dy @ torch.cat(kernels, 1).t(), rows.sum(0) if ctx.has_bias else None, *of_kernels


class Attention(Products, Contextual, NodeLayer):
    """Multi-head attention of queries to a memory, over kernels in canonical (in, out) layout."""

    causal = False
    division = AllHeads()

    def __init__(self, node: Node) -> None:
        super().__init__(node)
        self.size = node.spec.size(node.input_shape)

    def attend(self, x: Tensor, memory: Tensor, context: Context) -> Tensor:
        """What the tokens of x (batch, tokens, features) take from those of the memory."""
        tokens = self.division.enter(x)
        if memory is x:
            query, key, value = self._project(tokens, "query", "key", "value")
        else:
            (query,) = self._project(tokens, "query")
            key, value = self._project(self.division.enter(memory), "key", "value")
        query, key, value = self._turn(self._split(query)), self._turn(self._split(key)), self._split(value)
        mixed = self._mix(query, key, value, context).transpose(1, 2).flatten(2)
        kernel, bias = self._tensors("output")
        return self.division.total(self.project, mixed, kernel, bias)

    def _project(self, x: Tensor, *parts: str) -> Sequence[Tensor]:
        """Products of x with some kernels, biases added."""
        tensors = [self._tensors(part) for part in parts]
        if len(parts) == 1 or self.low is not None or torch.is_autocast_enabled(x.device.type):
            return [self.project(x, *each) for each in tensors]
        kernels, biases = zip(*tensors, strict=True)
        joined = _Joined.apply(x, None if biases[0] is None else torch.cat(biases), *kernels)
        return joined.split([kernel.shape[1] for kernel in kernels], -1)

    def _tensors(self, part: str) -> tuple[Tensor, Tensor | None]:
        """This rank's part of a kernel, and of its bias where there is one."""
        kernel, bias = getattr(self, f"{part}_kernel"), getattr(self, f"{part}_bias", None)
        return self.division.part(kernel), None if bias is None else self.division.part(bias)

    def _split(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (-1, self.size)).transpose(1, 2)

    def _turn(self, x: Tensor) -> Tensor:
        return x

    def _mix(self, query: Tensor, key: Tensor, value: Tensor, context: Context) -> Tensor:
        spec = self.node.spec
        masked = spec.masked and context.token_mask is not None
        dropped = context.training and spec.dropout > 0
        by_hand = dropped or self.low is not None
        if not (masked or by_hand):
            return attention(query, key, value, is_causal=self.causal)
        allowed = torch.ones(query.shape[-2], key.shape[-2], dtype=torch.bool, device=query.device)
        if self.causal:
            allowed = allowed.tril()
        if masked:
            allowed = allowed & context.token_mask[:, None, None, :]
        # A query without a key would be NaN: it attends to all of them, and what it takes is dropped.
        some = allowed.any(-1, keepdim=True)
        allowed = allowed | ~some
        if by_hand:
            mixed = self._mix_by_hand(query, key, value, allowed, context)
        else:
            mixed = attention(query, key, value, attn_mask=allowed)
        return torch.where(some, mixed, 0)

    def _mix_by_hand(
        self, query: Tensor, key: Tensor, value: Tensor, allowed: Tensor, context: Context
    ) -> Tensor:
        spec = self.node.spec
        repeats = spec.heads // spec.groups
        if repeats > 1:
            key, value = key.repeat_interleave(repeats, 1), value.repeat_interleave(repeats, 1)
        scores = self.matmul(query * self.size**-0.5, key.transpose(-1, -2))
        weights = scores.masked_fill(~allowed, float("-inf")).softmax(-1)
        if context.training and spec.dropout > 0:
            shape = (spec.heads, *weights.shape[2:])
            mask = keep_mask(weights, context, f"{self.node.path}/weights", shape, spec.dropout)
            weights = weights * self.division.own(mask)
        return self.matmul(weights, value)


@register(spec.SelfAttention)
class SelfAttention(Attention):
    """Attention of a sequence to itself."""

    def __init__(self, node: Node) -> None:
        super().__init__(node)
        self.causal = node.spec.causal
        if node.spec.rotary:
            angles = torch.from_numpy(node.spec.rotary_angles(node.input_shape))
            self.register_buffer("cosine", angles.cos(), persistent=False)
            self.register_buffer("sine", angles.sin(), persistent=False)

    def forward(self, x: Tensor, context: Context) -> Tensor:
        return self.attend(x, x, context)

    def _turn(self, x: Tensor) -> Tensor:
        layout = self.node.spec.rotary
        if layout is None:
            return x
        a, b = x.chunk(2, -1) if layout == "half" else (x[..., 0::2], x[..., 1::2])
        turned = a * self.cosine - b * self.sine, b * self.cosine + a * self.sine
        return torch.cat(turned, -1) if layout == "half" else torch.stack(turned, -1).flatten(-2)


@register(spec.CrossAttention)
class CrossAttention(Attention, Children):
    """Attention to what the children make of the input."""

    def forward(self, x: Tensor, context: Context) -> Tensor:
        return self.attend(x, self.chain(x, context), context)
