"""Named functions that return a complete TrainSpec. Each docstring is a lab note.

A recipe that takes `tiny` also comes as NAME:tiny, the same model made so small that it trains in seconds.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable

from parity.common.base.errors import SpecError, did_you_mean
from parity.common.recipes import digits, images, text
from parity.common.spec import TrainSpec

# Every public function of these modules, in their order.
RECIPES: dict[str, Callable[..., TrainSpec]] = {
    name: function
    for module in (digits, images, text)
    for name, function in vars(module).items()
    if getattr(function, "__module__", "") == module.__name__ and not name.startswith("_")
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
        near = did_you_mean(name, names())
        raise SpecError(f"unknown recipe {name[:80]!r}; 'parity recipes' lists all{near}")
    if not variant:
        return RECIPES[base]()
    if not has_tiny(base):
        raise SpecError(f"recipe {base!r} has no tiny variant; it trains in seconds as it is")
    return RECIPES[base](tiny=True)
