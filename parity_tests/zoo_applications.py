"""Pairs of image models: of keras.applications, and KerasHub's convolutional ones."""

from __future__ import annotations

from typing import Any

from parity_tests.zoo_pair import (
    CLASSES,
    GELU,
    LOGITS,
    Images,
    ZooPair,
    applications,
    hub,
    hugging_face,
    timm,
)

_BARE = {"include_preprocessing": False}
_FEATURES = {"features_only": True, "out_indices": [5]}

_MAP = {"num_classes": 0, "global_pool": ""}
_SMALLER_NORM = "epsilon of batch norm: 1.001e-5 against 1e-5"
_PIXELS = Images(64, names=("images", "pixel_values"))


def _vgg(depth: int) -> ZooPair:
    # Keras's dense layers are timm's convolutions, whose order a flattened image of several pixels does not keep.
    return ZooPair(
        f"VGG{depth}",
        applications(f"VGG{depth}", 64, include_top=False),
        timm(f"vgg{depth}", **_FEATURES),
        Images(64),
        outputs=(("output", "0"),),
    )


def _mobilenet(width: float, suffix: str = "") -> ZooPair:
    config = {} if width == 1 else {"depth_multiplier": width}
    return ZooPair(
        f"MobileNet{suffix}",
        applications("MobileNet", 64, **_wide(width)),
        hugging_face("MobileNetV1ForImageClassification", num_labels=CLASSES, **config),
        _PIXELS,
        outputs=LOGITS,
    )


def _mobilenet_v2(width: float, name: str, suffix: str = "") -> ZooPair:
    return ZooPair(
        f"MobileNetV2{suffix}",
        applications("MobileNetV2", 64, **_wide(width)),
        timm(name, pad_type="same", bn_eps=1e-3),
        Images(64),
    )


def _mobilenet_v3(size: str, name: str, suffix: str = "", **arguments: Any) -> ZooPair:
    return ZooPair(
        f"MobileNetV3{size}{suffix}",
        applications(f"MobileNetV3{size}", 64, **_BARE, **arguments),
        timm(f"tf_mobilenetv3_{size.lower()}_{name}"),
        Images(64),
    )


def _wide(width: float) -> dict[str, Any]:
    return {} if width == 1 else {"alpha": width}


def _densenet(depth: int) -> ZooPair:
    return ZooPair(
        f"DenseNet{depth}",
        applications(f"DenseNet{depth}", 64),
        timm(f"densenet{depth}"),
        Images(64),
        differs=_SMALLER_NORM,
    )


def _efficientnet(size: int) -> ZooPair:
    return ZooPair(
        f"EfficientNetB{size}",
        applications(f"EfficientNetB{size}", 64),
        timm(f"tf_efficientnet_b{size}"),
        Images(64, factor=255.0),
    )


def _efficientnet_v2(size: str) -> ZooPair:
    return ZooPair(
        f"EfficientNetV2{size}",
        applications(f"EfficientNetV2{size}", 64, **_BARE),
        timm(f"tf_efficientnetv2_{size.lower()}"),
        Images(64),
    )


def _convnext(size: str, **config: Any) -> ZooPair:
    return ZooPair(
        f"ConvNeXt{size}",
        applications(f"ConvNeXt{size}", 64, **_BARE),
        hugging_face("ConvNextForImageClassification", num_labels=CLASSES, layer_norm_eps=1e-6, **config),
        _PIXELS,
        outputs=LOGITS,
        differs=GELU,
    )


def _resnet(depth: int, **config: Any) -> ZooPair:
    given = {"num_labels": CLASSES, "downsample_in_bottleneck": True, **config}
    return ZooPair(
        f"ResNet{depth}",
        applications(f"ResNet{depth}", 64),
        hugging_face("ResNetForImageClassification", **given),
        _PIXELS,
        outputs=LOGITS,
        differs=f"{_SMALLER_NORM}; Keras's convolutions have biases",
    )


def _hub_resnet(name: str, blocks: list[int], kind: str, timm_name: str, **arguments: Any) -> ZooPair:
    given = {
        "input_conv_filters": [64],
        "input_conv_kernel_sizes": [7],
        "stackwise_num_filters": [64, 128, 256, 512],
        "stackwise_num_blocks": blocks,
        "stackwise_num_strides": [1, 2, 2, 2],
        "block_type": kind,
        "image_shape": [64, 64, 3],
        **arguments,
    }
    return ZooPair(f"KerasHub's {name}", hub("ResNetBackbone", **given), timm(timm_name, **_MAP), Images(64))


def _hub_vgg(depth: int, repeats: list[int]) -> ZooPair:
    given = {"stackwise_num_repeats": repeats, "stackwise_num_filters": [64, 128, 256, 512, 512]}
    return ZooPair(
        f"KerasHub's VGG{depth}",
        hub("VGGBackbone", **given, image_shape=[64, 64, 3]),
        timm(f"vgg{depth}", **_FEATURES),
        Images(64),
        outputs=(("output", "0"),),
    )


APPLICATIONS = (
    _vgg(16),
    _vgg(19),
    # Every convolution and pool of stride 2 sees an odd size, where 'same' padding is symmetric.
    ZooPair(
        "Xception",
        applications("Xception", 71),
        timm("legacy_xception"),
        Images(71),
        differs="epsilon of batch norm (row 2)",
    ),
    ZooPair(
        "Xception, 96 pixels",
        applications("Xception", 96),
        timm("legacy_xception"),
        Images(96),
        differs="epsilon of batch norm (row 2), padding of pools and convolutions of stride 2 (row 33)",
    ),
    _mobilenet(1),
    _mobilenet(0.75, ", three quarters wide"),
    _mobilenet(0.25, ", a quarter wide"),
    _mobilenet_v2(1, "mobilenetv2_100"),
    _mobilenet_v2(0.5, "mobilenetv2_050", ", half as wide"),
    _mobilenet_v2(1.4, "mobilenetv2_140", ", 1.4 times as wide"),
    ZooPair(
        "MobileNetV2, timm's defaults",
        applications("MobileNetV2", 64),
        timm("mobilenetv2_100"),
        Images(64),
        differs="epsilon of batch norm (row 2), padding of convolutions of stride 2 (row 33)",
    ),
    _mobilenet_v3("Small", "100"),
    _mobilenet_v3("Small", "075", ", three quarters wide", alpha=0.75),
    _mobilenet_v3("Small", "minimal_100", ", minimalistic", minimalistic=True),
    _mobilenet_v3("Large", "100"),
    _mobilenet_v3("Large", "075", ", three quarters wide", alpha=0.75),
    _mobilenet_v3("Large", "minimal_100", ", minimalistic", minimalistic=True),
    *(_densenet(depth) for depth in (121, 169)),
    *(_efficientnet(size) for size in range(2)),
    *(_efficientnet_v2(size) for size in ("B0", "B1")),
    _convnext("Tiny"),
    _resnet(50),
    _hub_resnet("ResNet18", [2, 2, 2, 2], "basic_block", "resnet18"),
    _hub_resnet("ResNet34", [3, 4, 6, 3], "basic_block", "resnet34"),
    _hub_vgg(11, [1, 1, 2, 2, 2]),
)
