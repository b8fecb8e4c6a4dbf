"""Tokens and positions as vectors."""

from __future__ import annotations

from typing import Literal

from common.spec.layers.base import Initializer, LayerSpec, ParameterSpec, Shape


class PositionEmbedding(LayerSpec):
    """Adds a learned vector to each token."""

    conventions = {"keras": {"initializer": "uniform_0.05"}, "torch": {"initializer": "normal_1"}}
    kind: Literal["position_embedding"] = "position_embedding"
    initializer: Initializer | None = None

    def parameters(self, input_shape: Shape) -> tuple[ParameterSpec, ...]:
        self.expect_rank(input_shape, 2, "(tokens, features)")
        return (ParameterSpec("embedding", input_shape, self.initializer or "zeros"),)
