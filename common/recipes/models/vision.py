"""Models of images."""

from __future__ import annotations

from parity.common.recipes.models.sequence import transformer_block
from parity.common.spec import LayerSpec, ModelSpec
from parity.common.spec.layers import (
    Activation,
    Add,
    AveragePool2D,
    BatchNorm,
    ClassToken,
    Concatenate,
    Conv2D,
    Conv2DTranspose,
    Dense,
    DepthwiseConv2D,
    Dropout,
    Flatten,
    GlobalAveragePool,
    Identity,
    LayerNorm,
    MaxPool2D,
    PositionEmbedding,
    Reshape,
    Residual,
    SelfAttention,
    Sequential,
    TakeToken,
)

RELU = Activation(function="relu")


def lenet5_model(classes: int = 10) -> ModelSpec:
    """LeNet-5 with tanh and average pooling, the third layer fully connected: LeCun et al. 1998."""
    tanh = Activation(function="tanh")
    return ModelSpec(
        input_shape=(28, 28, 1),
        layers=(
            Conv2D(filters=6, kernel_size=5, padding=2),
            tanh,
            AveragePool2D(size=2),
            Conv2D(filters=16, kernel_size=5, padding="valid"),
            tanh,
            AveragePool2D(size=2),
            Flatten(),
            Dense(units=120),
            tanh,
            Dense(units=84),
            tanh,
            Dense(units=classes),
        ),
    )


def small_resnet_model(depth: int, width: int, side: int, classes: int = 10) -> ModelSpec:
    """The ResNet for small images: He et al. 2016, section 4.2, with projections where shapes change.

    Raises:
        ValueError: `depth` is not 6n + 2.
    """
    if (depth - 2) % 6:
        raise ValueError(f"depth must be 6n + 2, received {depth}")
    blocks = (
        _basic_block(f"stage_{stage + 1}_{number + 1}", width << stage, 2 if number == 0 < stage else 1)
        for stage in range(3)
        for number in range((depth - 2) // 6)
    )
    return ModelSpec(
        input_shape=(side, side, 3),
        layers=(
            Conv2D(filters=width, padding=1, use_bias=False),
            BatchNorm(),
            RELU,
            *blocks,
            GlobalAveragePool(),
            Dense(name="head", units=classes),
        ),
    )


def _basic_block(name: str, filters: int, strides: int) -> Sequential:
    inside = (
        Conv2D(filters=filters, strides=strides, padding=1, use_bias=False),
        BatchNorm(),
        RELU,
        Conv2D(filters=filters, padding=1, use_bias=False),
        BatchNorm(),
    )
    projection = Conv2D(filters=filters, kernel_size=1, strides=strides, padding=0, use_bias=False)
    return _residual(name, inside, () if strides == 1 else (projection, BatchNorm()))


def _residual(name: str, inside: tuple[LayerSpec, ...], shortcut: tuple[LayerSpec, ...]) -> Sequential:
    """relu(inside + shortcut); without layers, the shortcut is the input as it is."""
    if not shortcut:
        return Sequential(name=name, layers=(Residual(layers=inside), RELU))
    branches = Sequential(name="inside", layers=inside), Sequential(name="shortcut", layers=shortcut)
    return Sequential(name=name, layers=(Add(layers=branches), RELU))


def resnet50_model(
    side: int = 224,
    classes: int = 1000,
    width: int = 64,
    blocks: tuple[int, ...] = (3, 4, 6, 3),
    first_version: bool = True,
) -> ModelSpec:
    """ResNet with bottlenecks: He et al. 2016.

    `first_version` is the one of keras.applications: the stride in a block's first convolution, biases
    before the norms. Otherwise that of torchvision, "v1.5": the stride in the 3x3, no biases.
    """
    epsilon = 1.001e-5 if first_version else 1e-5
    norm = BatchNorm(epsilon=epsilon)

    def conv(filters: int, size: int, strides: int = 1) -> tuple[LayerSpec, LayerSpec]:
        sizes = {"filters": filters, "kernel_size": size, "strides": strides, "padding": size // 2}
        return Conv2D(**sizes, use_bias=first_version), norm

    def bottleneck(name: str, filters: int, strides: int, projects: bool) -> Sequential:
        outer, inner = (strides, 1) if first_version else (1, strides)
        inside = (*conv(filters, 1, outer), RELU, *conv(filters, 3, inner), RELU, *conv(4 * filters, 1))
        return _residual(name, inside, conv(4 * filters, 1, strides) if projects else ())

    stages = [
        bottleneck(
            f"stage_{stage + 1}_{number + 1}",
            width << stage,
            strides=2 if number == 0 and stage > 0 else 1,
            projects=number == 0,
        )
        for stage, count in enumerate(blocks)
        for number in range(count)
    ]
    return ModelSpec(
        input_shape=(side, side, 3),
        layers=(
            *conv(width, 7, 2),
            RELU,
            MaxPool2D(size=3, strides=2, padding=1),
            *stages,
            GlobalAveragePool(),
            Dense(name="head", units=classes),
        ),
    )


# Expansion, channels, repeats, first stride: Sandler et al. 2018, table 2.
_MOBILENET_V2 = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)


def mobilenet_v2_model(
    side: int = 224,
    classes: int = 1000,
    stem: int = 32,
    head: int = 1280,
    stages: tuple[tuple[int, int, int, int], ...] = _MOBILENET_V2,
) -> ModelSpec:
    """MobileNetV2: Sandler et al. 2018; norms as in keras.applications."""
    norm = BatchNorm(epsilon=1e-3, decay=0.999)
    relu6 = Activation(function="relu6")

    def inverted(name: str, channels: int, expansion: int, filters: int, strides: int) -> LayerSpec:
        expand = (Conv2D(filters=channels * expansion, kernel_size=1, use_bias=False), norm, relu6)
        inside = (
            *(expand if expansion > 1 else ()),
            DepthwiseConv2D(strides=strides, padding="same", use_bias=False),
            norm,
            relu6,
            Conv2D(filters=filters, kernel_size=1, use_bias=False),
            norm,
        )
        container = Residual if strides == 1 and channels == filters else Sequential
        return container(name=name, layers=inside)

    blocks: list[LayerSpec] = []
    channels = stem
    for expansion, filters, repeats, first_stride in stages:
        for number in range(repeats):
            strides = first_stride if number == 0 else 1
            blocks.append(inverted(f"block_{len(blocks)}", channels, expansion, filters, strides))
            channels = filters
    return ModelSpec(
        input_shape=(side, side, 3),
        layers=(
            Conv2D(filters=stem, strides=2, padding="same", use_bias=False),
            norm,
            relu6,
            *blocks,
            Conv2D(name="last", filters=head, kernel_size=1, use_bias=False),
            BatchNorm(name="last_norm", epsilon=1e-3, decay=0.999),
            relu6.model_copy(update={"name": "last_relu"}),
            GlobalAveragePool(),
            Dense(name="head", units=classes),
        ),
    )


def unet_model(
    side: int = 512, channels: int = 1, classes: int = 2, width: int = 64, depth: int = 4
) -> ModelSpec:
    """U-Net: Ronneberger, Fischer, Brox 2015, with padded convolutions, so that masks keep the image's size."""

    def convolve(filters: int) -> Sequential:
        return Sequential(
            layers=(Conv2D(filters=filters, padding=1), RELU, Conv2D(filters=filters, padding=1), RELU)
        )

    def level(filters: int, below: int) -> Sequential:
        if below == 0:
            return convolve(filters)
        deeper = Sequential(
            name="below",
            layers=(
                MaxPool2D(size=2),
                level(2 * filters, below - 1),
                Conv2DTranspose(filters=filters, kernel_size=2, strides=2, padding="valid"),
            ),
        )
        return Sequential(
            layers=(convolve(filters), Concatenate(layers=(Identity(), deeper)), convolve(filters))
        )

    return ModelSpec(
        input_shape=(side, side, channels),
        layers=(level(width, depth), Conv2D(name="head", filters=classes, kernel_size=1)),
    )


def vit_model(
    width: int,
    depth: int,
    heads: int,
    side: int = 224,
    patch: int = 16,
    channels: int = 3,
    classes: int = 1000,
    dropout: float = 0.1,
    drop_path: float = 0.0,
) -> ModelSpec:
    """Vision transformer with a class token: Dosovitskiy et al. 2021, table 1 and appendix."""
    tokens = (side // patch) ** 2
    norm = LayerNorm(epsilon=1e-6)

    drop = (Dropout(rate=dropout),) if dropout else ()
    feed_forward = (
        Dense(name="widen", units=4 * width),
        Activation(function="gelu"),
        Dense(name="narrow", units=width),
    )

    def block(number: int) -> Sequential:
        branches = (norm, SelfAttention(heads=heads), *drop), (norm, *feed_forward, *drop)
        return transformer_block(number + 1, *branches, drop_rate=drop_path * number / max(1, depth - 1))

    return ModelSpec(
        input_shape=(side, side, channels),
        layers=(
            Conv2D(name="embed", filters=width, kernel_size=patch, strides=patch, padding="valid"),
            Reshape(shape=(tokens, width)),
            ClassToken(),
            PositionEmbedding(initializer="truncated_normal_0.02"),
            *drop,
            *(block(number) for number in range(depth)),
            norm,
            TakeToken(index=0),
            Dense(name="head", units=classes),
        ),
    )


def autoencoder_model(side: int = 28, width: int = 32) -> ModelSpec:
    """The convolutional autoencoder of Keras's examples: twice down by pooling, twice up by transposed convolutions."""
    up = Conv2DTranspose(filters=width, strides=2, padding="same")
    return ModelSpec(
        input_shape=(side, side, 1),
        layers=(
            Conv2D(filters=width, padding="same"),
            RELU,
            MaxPool2D(size=2),
            Conv2D(filters=width, padding="same"),
            RELU,
            MaxPool2D(size=2),
            up,
            RELU,
            up,
            RELU,
            Conv2D(name="head", filters=1, padding="same"),
        ),
    )
