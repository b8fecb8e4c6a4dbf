"""Recipes on images.

They train on synthetic images of the size the architecture was published for, so that they run anywhere. Your
own: --set data.source='{kind: cifar10, path: ...}' or image_folder, and data.train_samples to match.
"""

from __future__ import annotations

from typing import Any

from parity.common.recipes.made import on_synthetic
from parity.common.recipes.models import vision
from parity.common.spec import SGD, Adam, AdamW, ModelSpec, TrainSpec, WarmupCosine
from parity.common.spec.augment import AugmentSpec, ColourJitter, Crop, Cutout, Flip, Mixup, Noise, Normalise
from parity.common.spec.layers import Dropout
from parity.common.spec.losses import BinaryCrossEntropy, SoftmaxCrossEntropy


def _classifier(name: str, tiny: bool, model: ModelSpec, *augment: AugmentSpec, **fields: Any) -> TrainSpec:
    source = {"classes": model.output_shape()[0], "low": 0.0}
    return on_synthetic(name, tiny, model, source, *augment, samples=(50_000, 1_000), **fields)


def lenet5(tiny: bool = False) -> TrainSpec:
    """LeNet-5 on 28x28 images.

    61,706 parameters.

    Command: parity run --recipe lenet5; MNIST: --set data.source='{kind: mnist_idx, path: ...}'
    """
    optimizer = SGD(learning_rate=0.05, momentum=0.9)
    model, crop = vision.lenet5_model(), Crop(padding=2)
    return _classifier("lenet5", tiny, model, crop, optimizer=optimizer, batch=128, steps=2000)


def resnet20(tiny: bool = False) -> TrainSpec:
    """ResNet-20 on 32x32 images.

    272,474 parameters, 0.27 million as published.

    Command: parity run --recipe resnet20; CIFAR-10: --set data.source='{kind: cifar10, path: ...}'
    """
    return _classifier(
        "resnet20",
        tiny,
        vision.small_resnet_model(8, 4, 16) if tiny else vision.small_resnet_model(20, 16, 32),
        Crop(padding=2 if tiny else 4),
        Flip(),
        optimizer=SGD(learning_rate=0.1, momentum=0.9, weight_decay=1e-4),
        schedule=WarmupCosine(warmup_steps=10 if tiny else 400),
        batch=128,
        steps=4000,
    )


def _resnet50(name: str, tiny: bool, first_version: bool) -> TrainSpec:
    # Three stages, which leave 2x2 places: over one place and a small batch, batch norm is ill-conditioned,
    # and permuted runs of one framework part by 1e-8.
    sizes: dict[str, Any] = {"side": 32, "classes": 10, "width": 8, "blocks": (1, 2, 1)} if tiny else {}
    return _classifier(
        name,
        tiny,
        vision.resnet50_model(first_version=first_version, **sizes),
        Crop(padding=4),
        Flip(),
        ColourJitter(brightness=0.4, contrast=0.4, saturation=0.4),
        loss=SoftmaxCrossEntropy(label_smoothing=0.1),
        optimizer=SGD(learning_rate=0.02 if tiny else 0.1, momentum=0.9, weight_decay=1e-4),
        schedule=WarmupCosine(warmup_steps=10 if tiny else 2500),
        batch=256,
        steps=50_000,
    )


def resnet50(tiny: bool = False) -> TrainSpec:
    """ResNet-50 as keras.applications has it.

    25,583,592 parameters.

    Command: parity run --recipe resnet50:tiny
    """
    return _resnet50("resnet50", tiny, first_version=True)


def resnet50_torchvision(tiny: bool = False) -> TrainSpec:
    """ResNet-50 as torchvision has it, "v1.5".

    25,557,032 parameters.

    Command: parity run --recipe resnet50_torchvision:tiny
    """
    return _resnet50("resnet50_torchvision", tiny, first_version=False)


def mobilenet_v2(tiny: bool = False) -> TrainSpec:
    """MobileNetV2 as keras.applications has it, with dropout before the head.

    3,504,872 parameters.

    Command: parity run --recipe mobilenet_v2:tiny
    """
    stages = ((1, 4, 1, 1), (3, 6, 2, 2), (3, 8, 1, 2))
    sizes: dict[str, Any] = {"side": 24, "classes": 10, "stem": 8, "head": 32, "stages": stages}
    model = vision.mobilenet_v2_model(**sizes if tiny else {})
    *body, head = model.layers
    return _classifier(
        "mobilenet_v2",
        tiny,
        model.model_copy(update={"layers": (*body, Dropout(rate=0.2), head)}),
        Crop(padding=4),
        Flip(),
        Cutout(size=4 if tiny else 16),
        optimizer=SGD(learning_rate=0.045, momentum=0.9, weight_decay=4e-5),
        schedule=WarmupCosine(),
        batch=96,
        steps=50_000,
    )


def unet(tiny: bool = False) -> TrainSpec:
    """U-Net with padded convolutions, a class for each pixel.

    31,030,658 parameters.

    Command: parity run --recipe unet:tiny
    """
    return on_synthetic(
        "unet",
        tiny,
        vision.unet_model(side=16, width=4, depth=2) if tiny else vision.unet_model(),
        {"target": "masks", "classes": 2, "low": 0.0},
        Noise(std=0.05),
        samples=(2_000, 100),
        optimizer=Adam(learning_rate=0.01 if tiny else 0.001),
        batch=4,
        steps=5_000,
    )


def autoencoder(tiny: bool = False) -> TrainSpec:
    """The convolutional autoencoder of Keras's examples; it removes noise.

    28,353 parameters.

    Command: parity run --recipe autoencoder; MNIST: --set data.source='{kind: mnist_idx, path: ..., target: input}'
    """
    return on_synthetic(
        "autoencoder",
        tiny,
        vision.autoencoder_model(side=12, width=6) if tiny else vision.autoencoder_model(),
        {"target": "input", "low": 0.0},
        Noise(std=0.2),
        samples=(50_000, 1_000),
        loss=BinaryCrossEntropy(),
        optimizer=AdamW(learning_rate=0.003),
        batch=128,
        steps=4_000,
    )


def _vit(name: str, tiny: bool, width: int, depth: int, heads: int) -> TrainSpec:
    small = vision.vit_model(24, 2, 3, side=16, patch=4, classes=10, drop_path=0.2)
    return _classifier(
        name,
        tiny,
        small if tiny else vision.vit_model(width, depth, heads, drop_path=0.1),
        Normalise(mean=(0.5,) * 3, std=(0.5,) * 3),
        Flip(),
        Mixup(alpha=0.2),
        loss=SoftmaxCrossEntropy(targets="distributions"),
        optimizer=AdamW(learning_rate=0.003 if tiny else 0.001, weight_decay=0.1, clip_global_norm=1.0),
        schedule=WarmupCosine(warmup_steps=10 if tiny else 10_000),
        batch=1024,
        steps=90_000,
    )


def vit_tiny(tiny: bool = False) -> TrainSpec:
    """ViT-Ti/16.

    5,717,416 parameters.

    Command: parity run --recipe vit_tiny:tiny
    """
    return _vit("vit_tiny", tiny, 192, 12, 3)


def vit_small(tiny: bool = False) -> TrainSpec:
    """ViT-S/16.

    22,050,664 parameters.

    Command: parity run --recipe vit_small:tiny
    """
    return _vit("vit_small", tiny, 384, 12, 6)


def vit_base(tiny: bool = False) -> TrainSpec:
    """ViT-B/16.

    86,567,656 parameters.

    Command: parity run --recipe vit_base:tiny
    """
    return _vit("vit_base", tiny, 768, 12, 12)
