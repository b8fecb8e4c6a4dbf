"""Attention."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from common.spec import Node
from common.spec import layers as spec
from torch_impl.layers.registry import register


class SelfAttention(nn.Module):
    """Multi-head attention over kernels in canonical (in, out) layout."""

    def __init__(self, node: Node) -> None:
        super().__init__()
        self.heads = node.spec.heads
        self.width = node.input_shape[-1]
        for tensor in node.parameters:
            self.register_parameter(tensor.name, nn.Parameter(torch.zeros(tensor.shape)))

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = (self._split(self._project(x, part)) for part in ("query", "key", "value"))
        scores = (query * (self.width // self.heads) ** -0.5) @ key.transpose(-1, -2)
        mixed = (scores.softmax(-1) @ value).transpose(1, 2).flatten(2)
        return self._project(mixed, "output")

    def _project(self, x: Tensor, part: str) -> Tensor:
        y = x @ getattr(self, f"{part}_kernel")
        bias = getattr(self, f"{part}_bias", None)
        return y if bias is None else y + bias

    def _split(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (self.heads, self.width // self.heads)).transpose(1, 2)


@register(spec.SelfAttention)
def self_attention(node: Node) -> nn.Module:
    return SelfAttention(node)
