"""Tokens and positions as vectors."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from parity.common.spec import Node
from parity.common.spec import layers as spec
from parity.torch_impl.context import Context
from parity.torch_impl.layers.products import Products
from parity.torch_impl.layers.registry import Contextual, Function, build_layer, call, register


class Table(nn.Module):
    """A module whose parameter `embedding` has the node's shape."""

    def __init__(self, node: Node) -> None:
        super().__init__()
        self.node = node
        self.embedding = nn.Parameter(torch.zeros(node.parameters[0].shape))


class Embedding(Table):
    """Rows of the table."""

    def forward(self, x: Tensor) -> Tensor:
        return F.embedding(x.long(), self.embedding, self.node.spec.padding_id)


@register(spec.Embedding)
def embedding(node: Node) -> nn.Module:
    return Embedding(node)


class TiedEmbedding(Products, Contextual):
    """Children between an embedding and the logits, which share one table."""

    def __init__(self, node: Node) -> None:
        super().__init__()
        for tensor in node.parameters:
            self.register_parameter(tensor.name, nn.Parameter(torch.zeros(tensor.shape)))
        self.layers = nn.ModuleList(build_layer(child) for child in node.children)
        self.spec = node.spec

    def forward(self, x: Tensor, context: Context) -> Tensor:
        beside = len(self.spec.beside)
        y = F.embedding(x.long(), self.embedding, self.spec.padding_id)
        for child in self.layers[:beside]:
            y = y + call(child, x, context)
        for child in self.layers[beside:]:
            y = call(child, y, context)
        bias = getattr(self, "output_bias", None)
        if self.low is None:
            return F.linear(y, self.embedding, bias)
        logits = self.project(y, self.embedding.t())
        return logits if bias is None else logits + bias


@register(spec.TiedEmbedding)
def tied_embedding(node: Node) -> nn.Module:
    return TiedEmbedding(node)


class PositionEmbedding(Table):
    """x + the first rows of the table."""

    def forward(self, x: Tensor) -> Tensor:
        return x + self.embedding[: x.shape[1]]


@register(spec.PositionEmbedding)
def position_embedding(node: Node) -> nn.Module:
    return PositionEmbedding(node)


class SinusoidalPositions(nn.Module):
    """x + table."""

    def __init__(self, node: Node) -> None:
        super().__init__()
        table = torch.from_numpy(node.spec.table(node.input_shape))
        self.register_buffer("table", table, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.table


@register(spec.SinusoidalPositions)
def sinusoidal_positions(node: Node) -> nn.Module:
    return SinusoidalPositions(node)


class SegmentEmbedding(Table):
    """The row of each token's segment."""

    def forward(self, x: Tensor) -> Tensor:
        spec = self.node.spec
        segments = torch.zeros_like(x, dtype=torch.int64)
        if spec.separator_id is not None:
            separators = (x == spec.separator_id).long()
            segments = (separators.cumsum(1) - separators).clamp(max=spec.types - 1)
        return F.embedding(segments, self.embedding)


@register(spec.SegmentEmbedding)
def segment_embedding(node: Node) -> nn.Module:
    return SegmentEmbedding(node)


class ClassToken(Table):
    """The learned token, then x."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([self.embedding.expand(len(x), 1, -1), x], 1)


@register(spec.ClassToken)
def class_token(node: Node) -> nn.Module:
    return ClassToken(node)


@register(spec.TakeToken)
def take_token(node: Node) -> nn.Module:
    return Function(lambda x: x[:, node.spec.index])
