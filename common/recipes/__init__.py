"""Named functions that return a complete TrainSpec. Each docstring is a lab note."""

from __future__ import annotations

from collections.abc import Callable

from common.errors import SpecError
from common.recipes.digits import digits_cnn, digits_mlp, digits_transformer
from common.spec import TrainSpec

RECIPES: dict[str, Callable[[], TrainSpec]] = {
    recipe.__name__: recipe for recipe in (digits_mlp, digits_cnn, digits_transformer)
}


def get(name: str) -> TrainSpec:
    """The spec of a recipe; raises SpecError naming the known ones."""
    if name not in RECIPES:
        raise SpecError(f"unknown recipe {name!r}; known: {', '.join(RECIPES)}")
    return RECIPES[name]()
