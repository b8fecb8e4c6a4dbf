"""Normalisations."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from common.spec.base import Number
from common.spec.layers.base import LayerSpec, ParameterSpec, Shape


class BatchNorm(LayerSpec):
    """Batch normalisation over all axes but the last.

    moving = decay * moving + (1 - decay) * batch, so `decay` is Keras's momentum and one minus
    PyTorch's. `statistics: global` normalises with the statistics of the global batch, whatever
    the placement; `per_replica` makes the replica count part of the mathematics.
    """

    conventions = {
        "keras": {"decay": 0.99, "epsilon": 1e-3, "running_variance": "biased"},
        "torch": {"decay": 0.9, "epsilon": 1e-5, "running_variance": "unbiased"},
    }
    kind: Literal["batch_norm"] = "batch_norm"
    statistics: Literal["global", "per_replica"] = "global"
    decay: Number | None = Field(None, ge=0, lt=1)
    epsilon: Number | None = Field(None, gt=0)
    running_variance: Literal["biased", "unbiased"] | None = None

    def parameters(self, input_shape: Shape) -> tuple[ParameterSpec, ...]:
        shape = (input_shape[-1],)
        return (
            ParameterSpec("gamma", shape, "ones"),
            ParameterSpec("beta", shape, "zeros"),
            ParameterSpec("moving_mean", shape, "zeros", trainable=False),
            ParameterSpec("moving_variance", shape, "ones", trainable=False),
        )


class LayerNorm(LayerSpec):
    """Normalisation over the last axis with the biased variance."""

    conventions = {"keras": {"epsilon": 1e-3}, "torch": {"epsilon": 1e-5}}
    kind: Literal["layer_norm"] = "layer_norm"
    epsilon: Number | None = Field(None, gt=0)

    def parameters(self, input_shape: Shape) -> tuple[ParameterSpec, ...]:
        shape = (input_shape[-1],)
        return (ParameterSpec("gamma", shape, "ones"), ParameterSpec("beta", shape, "zeros"))
