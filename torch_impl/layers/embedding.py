"""Tokens and positions as vectors."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from common.spec import Node
from common.spec import layers as spec
from torch_impl.layers.registry import register


class PositionEmbedding(nn.Module):
    """x + embedding."""

    def __init__(self, node: Node) -> None:
        super().__init__()
        self.embedding = nn.Parameter(torch.zeros(node.input_shape))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.embedding


@register(spec.PositionEmbedding)
def position_embedding(node: Node) -> nn.Module:
    return PositionEmbedding(node)
