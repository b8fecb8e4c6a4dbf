"""Recipes on the 1797 handwritten digits that scikit-learn ships: 8x8 pixels, ten classes."""

from __future__ import annotations

from parity.common.recipes.models.sequence import transformer_block
from parity.common.spec import SGD, AdamW, ModelSpec, TrainSpec, WarmupCosine
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


def digits_mlp() -> TrainSpec:
    """Two dense layers: the smallest thing that learns.

    Command: parity run --recipe digits_mlp
    """
    return TrainSpec(
        name="digits_mlp",
        model=ModelSpec(
            input_shape=(8, 8, 1),
            layers=(
                Flatten(),
                Dense(units=64),
                Activation(function="relu"),
                Dense(units=10),
            ),
        ),
        optimizer=SGD(learning_rate=0.1, momentum=0.9),
        schedule=WarmupCosine(warmup_steps=10),
        global_batch_size=64,
        steps=200,
    )


def digits_cnn() -> TrainSpec:
    """Two convolutions with synchronised batch norm: the main job.

    No convolution has a bias: batch norm would subtract it again, and an optimizer that
    normalises gradients would then walk along noise (a zero-gradient direction).

    Command: parity run --recipe digits_cnn
    """
    return TrainSpec(
        name="digits_cnn",
        model=ModelSpec(
            input_shape=(8, 8, 1),
            layers=(
                Conv2D(filters=32, use_bias=False),
                BatchNorm(),
                Activation(function="relu"),
                Conv2D(filters=64, use_bias=False),
                BatchNorm(),
                Activation(function="relu"),
                MaxPool2D(size=2),
                Flatten(),
                Dense(units=10),
            ),
        ),
        optimizer=SGD(learning_rate=0.05, momentum=0.9),
        schedule=WarmupCosine(warmup_steps=10),
        global_batch_size=256,
        steps=200,
    )


def digits_transformer() -> TrainSpec:
    """Two pre-LN blocks over sixteen 2x2 patches. Smooth everywhere, so float32 is tight as well.

    Command: parity run --recipe digits_transformer
    """
    attend = LayerNorm(), SelfAttention(heads=4)
    feed_forward = LayerNorm(), Dense(units=64), Activation(function="gelu"), Dense(units=32)
    return TrainSpec(
        name="digits_transformer",
        model=ModelSpec(
            input_shape=(8, 8, 1),
            layers=(
                Patchify(size=2),
                Dense(name="embed", units=32),
                PositionEmbedding(),
                transformer_block(1, attend, feed_forward),
                transformer_block(2, attend, feed_forward),
                LayerNorm(),
                GlobalAveragePool(),
                Dense(name="head", units=10),
            ),
        ),
        optimizer=AdamW(learning_rate=0.003),
        schedule=WarmupCosine(warmup_steps=20),
        global_batch_size=64,
        steps=200,
    )
