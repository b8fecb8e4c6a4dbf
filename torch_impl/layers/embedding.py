"""Tokens and positions as vectors."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from parity.common.execution.pass_context import Context
from parity.common.spec import Node
from parity.common.spec import layers as spec
from parity.torch_impl.layers.containers import Children
from parity.torch_impl.layers.products import Products
from parity.torch_impl.layers.registry import Function, NodeLayer, call, register


@register(spec.Embedding)
class Embedding(NodeLayer):
    """Rows of the table."""

    def forward(self, x: Tensor) -> Tensor:
        return F.embedding(x.long(), self.embedding, self.node.spec.padding_id)


@register(spec.TiedEmbedding)
class TiedEmbedding(Products, Children):
    """Children between an embedding and the logits, which share one table."""

    def forward(self, x: Tensor, context: Context) -> Tensor:
        beside = len(self.node.spec.beside)
        y = F.embedding(x.long(), self.embedding, self.node.spec.padding_id)
        for child in self.layers[:beside]:
            y = y + call(child, x, context)
        for child in self.layers[beside:]:
            y = call(child, y, context)
        return self.project(y, self.embedding.t(), getattr(self, "output_bias", None))


@register(spec.PositionEmbedding)
class PositionEmbedding(NodeLayer):
    """x + the first rows of the table."""

    def forward(self, x: Tensor) -> Tensor:
        return x + self.embedding[: x.shape[1]]


@register(spec.SinusoidalPositions)
class SinusoidalPositions(nn.Module):
    """x + table."""

    def __init__(self, node: Node) -> None:
        super().__init__()
        table = torch.from_numpy(node.spec.table(node.input_shape))
        self.register_buffer("table", table, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.table


@register(spec.SegmentEmbedding)
class SegmentEmbedding(NodeLayer):
    """The row of each token's segment."""

    def forward(self, x: Tensor) -> Tensor:
        spec = self.node.spec
        segments = torch.zeros_like(x, dtype=torch.int64)
        if spec.separator_id is not None:
            separators = (x == spec.separator_id).long()
            segments = (separators.cumsum(1) - separators).clamp(max=spec.types - 1)
        return F.embedding(segments, self.embedding)


@register(spec.ClassToken)
class ClassToken(NodeLayer):
    """The learned token, then x."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([self.embedding.expand(len(x), 1, -1), x], 1)


@register(spec.TakeToken)
def take_token(node: Node) -> nn.Module:
    return Function(lambda x: x[:, node.spec.index])
