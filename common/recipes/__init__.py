"""Named functions that return a complete TrainSpec. Each docstring is a lab note.

A recipe that takes `tiny` also comes as NAME:tiny, the same model made so small that it trains in seconds.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable

from parity.common.base.errors import SpecError
from parity.common.recipes.digits import digits_cnn, digits_mlp, digits_transformer
from parity.common.recipes.images import (
    autoencoder,
    lenet5,
    mobilenet_v2,
    resnet20,
    resnet50,
    resnet50_torchvision,
    unet,
    vit_base,
    vit_small,
    vit_tiny,
)
from parity.common.recipes.tables import wide_and_deep
from parity.common.recipes.text import bert_base, gpt2, gru_tagger, lstm_classifier
from parity.common.spec import TrainSpec

RECIPES: dict[str, Callable[..., TrainSpec]] = {
    recipe.__name__: recipe
    for recipe in (
        digits_mlp,
        digits_cnn,
        digits_transformer,
        lenet5,
        resnet20,
        resnet50,
        resnet50_torchvision,
        mobilenet_v2,
        unet,
        autoencoder,
        vit_tiny,
        vit_small,
        vit_base,
        gpt2,
        bert_base,
        lstm_classifier,
        gru_tagger,
        wide_and_deep,
    )
}


def names() -> list[str]:
    """Every name that `get` knows."""
    return [n for name in RECIPES for n in ((name, f"{name}:tiny") if has_tiny(name) else (name,))]


def has_tiny(name: str) -> bool:
    """Whether a recipe also comes made small."""
    return "tiny" in inspect.signature(RECIPES[name]).parameters


def get(name: str) -> TrainSpec:
    """The spec of a recipe; raises SpecError naming the known ones."""
    base, _, variant = name.partition(":")
    if base not in RECIPES or variant not in ("", "tiny"):
        raise SpecError(f"unknown recipe {name!r}; known: {', '.join(RECIPES)}; most also as NAME:tiny")
    if not variant:
        return RECIPES[base]()
    if not has_tiny(base):
        raise SpecError(f"recipe {base!r} has no tiny variant; it trains in seconds as it is")
    return RECIPES[base](tiny=True)
