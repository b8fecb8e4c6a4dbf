"""Attention."""

from __future__ import annotations

from typing import Literal

from common.errors import SpecError
from common.spec.base import PositiveInt
from common.spec.layers.base import Initializer, LayerSpec, ParameterSpec, Shape
from common.spec.layers.core import Dense


class SelfAttention(LayerSpec):
    """Multi-head softmax(q k^T / sqrt(head size)) v with four (features, features) projections."""

    conventions = Dense.conventions
    kind: Literal["self_attention"] = "self_attention"
    heads: PositiveInt
    use_bias: bool = True
    kernel_initializer: Initializer | None = None
    bias_initializer: Initializer | None = None

    def output_shape(self, input_shape: Shape) -> Shape:
        self.expect_rank(input_shape, 2, "(tokens, features)")
        if input_shape[-1] % self.heads:
            raise SpecError(
                f"layer {self.name or self.kind}: heads {self.heads} does not divide {input_shape[-1]} features"
            )
        return input_shape

    def parameters(self, input_shape: Shape) -> tuple[ParameterSpec, ...]:
        width = input_shape[-1]
        result = []
        for part in ("query", "key", "value", "output"):
            kernel = self.kernel_initializer or "zeros"
            result.append(ParameterSpec(f"{part}_kernel", (width, width), kernel, width, width))
            if self.use_bias:
                reason = "softmax over keys is invariant to a key bias" if part == "key" else None
                bias = self.bias_initializer or "zeros"
                result.append(
                    ParameterSpec(f"{part}_bias", (width,), bias, width, width, null_direction=reason)
                )
        return tuple(result)
