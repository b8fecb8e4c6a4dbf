"""Pairs of transformers of images: of KerasHub, and of Hugging Face's package of that name."""

from __future__ import annotations

from parity_tests.zoo_pair import GELU, Images, ZooPair, hub, hugging_face

_DEPTH, _FEW, _HEADS, _WIDTH, _INNER = 12, 4, 4, 64, 160
_SIDE, _PATCH = 32, 8
_VISION = {
    "image_shape": [_SIDE, _SIDE, 3],
    "patch_size": _PATCH,
    "num_layers": _DEPTH,
    "num_heads": _HEADS,
    "hidden_dim": _WIDTH,
}
_THEIR_VISION = {
    "image_size": _SIDE,
    "patch_size": _PATCH,
    "hidden_size": _WIDTH,
    "num_hidden_layers": _DEPTH,
    "num_attention_heads": _HEADS,
    "intermediate_size": _INNER,
    "layer_norm_eps": 1e-6,
}
_SHORT_VISION = {**_VISION, "num_layers": _FEW, "intermediate_dim": 2 * _WIDTH}
_THEIR_SHORT_VISION = {**_THEIR_VISION, "num_hidden_layers": _FEW, "intermediate_size": 2 * _WIDTH}
_PIXELS = Images(_SIDE, names=("images", "pixel_values"))
_SEQUENCE = (("output", "last_hidden_state"),)
_NO_POOLER = {"add_pooling_layer": False}

VISION = (
    ZooPair(
        "ViT",
        hub("ViTBackbone", **_VISION, mlp_dim=_INNER),
        hugging_face("ViTModel", **_THEIR_VISION, model=_NO_POOLER),
        _PIXELS,
        _SEQUENCE,
        differs=GELU,
    ),
    ZooPair(
        "DeiT",
        hub("DeiTBackbone", **_VISION, intermediate_dim=_INNER),
        hugging_face("DeiTModel", **_THEIR_VISION, model=_NO_POOLER),
        _PIXELS,
        _SEQUENCE,
        differs=GELU,
    ),
    ZooPair(
        "SigLIP's image encoder",
        hub("SigLIPVisionEncoder", **_SHORT_VISION),
        hugging_face("SiglipVisionModel", **_THEIR_SHORT_VISION),
        _PIXELS,
        (("output", "pooler_output"),),
        differs=GELU,
    ),
)
