"""Recipes on the 1797 handwritten digits that scikit-learn ships: 8x8 pixels, ten classes."""

from __future__ import annotations

from typing import Any

from parity.common.recipes.models.sequence import transformer_block
from parity.common.spec import SGD, AdamW, LayerSpec, ModelSpec, TrainSpec, WarmupCosine
from parity.common.spec.layers import (
    Activation,
    BatchNorm,
    Conv2D,
    Dense,
    Flatten,
    GlobalAveragePool,
    LayerNorm,
    MaxPool2D,
    Patchify,
    PositionEmbedding,
    SelfAttention,
)


def _on_digits(name: str, *layers: LayerSpec, warmup_steps: int = 10, **fields: Any) -> TrainSpec:
    model = ModelSpec(input_shape=(8, 8, 1), layers=layers)
    schedule = WarmupCosine(warmup_steps=warmup_steps)
    return TrainSpec(name=name, model=model, schedule=schedule, steps=200, **fields)


def digits_mlp() -> TrainSpec:
    """Two dense layers: the smallest thing that learns.

    Command: parity run --recipe digits_mlp
    """
    return _on_digits(
        "digits_mlp",
        Flatten(),
        Dense(units=64),
        Activation(function="relu"),
        Dense(units=10),
        optimizer=SGD(learning_rate=0.1, momentum=0.9),
        global_batch_size=64,
    )


def digits_cnn() -> TrainSpec:
    """Two convolutions with synchronised batch norm: the main job.

    No convolution has a bias: batch norm would subtract it again, and an optimizer that
    normalises gradients would then walk along noise (a zero-gradient direction).

    Command: parity run --recipe digits_cnn
    """
    return _on_digits(
        "digits_cnn",
        Conv2D(filters=32, use_bias=False),
        BatchNorm(),
        Activation(function="relu"),
        Conv2D(filters=64, use_bias=False),
        BatchNorm(),
        Activation(function="relu"),
        MaxPool2D(size=2),
        Flatten(),
        Dense(units=10),
        optimizer=SGD(learning_rate=0.05, momentum=0.9),
        global_batch_size=256,
    )


def digits_transformer() -> TrainSpec:
    """Two pre-LN blocks over sixteen 2x2 patches. Smooth everywhere, so float32 is tight as well.

    Command: parity run --recipe digits_transformer
    """
    attend = LayerNorm(), SelfAttention(heads=4)
    feed_forward = LayerNorm(), Dense(units=64), Activation(function="gelu"), Dense(units=32)
    return _on_digits(
        "digits_transformer",
        Patchify(size=2),
        Dense(name="embed", units=32),
        PositionEmbedding(),
        transformer_block(1, attend, feed_forward),
        transformer_block(2, attend, feed_forward),
        LayerNorm(),
        GlobalAveragePool(),
        Dense(name="head", units=10),
        optimizer=AdamW(learning_rate=0.003),
        warmup_steps=20,
        global_batch_size=64,
    )
