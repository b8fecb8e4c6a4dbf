"""Kernels that fit either way round, as those of their class that fit one way alone: of layers of the code's own, which may keep a kernel as
torch does.
"""

from __future__ import annotations

from parity.common.external.mapping.candidate_rules import fits
from parity.common.spec.external.mapping import Mapping, Pair
from parity.common.spec.external.outline import Outline
from parity.common.spec.external.patterns import Shape

_LAYOUTS = {"same": "transpose", "transpose": "same"}


def in_layouts_of_classes(mapping: Mapping, keras: Outline, torch: Outline) -> Mapping:
    """A mapping in which square kernels, and those that are one of the other side's, have the layout that all other kernels of their two classes
    have.

    Args:
        mapping: as proposed. keras, torch: the models.
    """
    sides = [_Side(keras), _Side(torch)]
    every = [(pair, *_of(pair, sides)) for pair in mapping.tensors]
    known: dict[tuple[str, str], set[str]] = {}
    for pair, shapes, classes in every:
        one = len(pair.keras) == len(pair.torch) == 1 and pair.rule in _LAYOUTS
        if one and classes and len(shapes[0][0]) == 2 and not fits(_LAYOUTS[pair.rule], *shapes):
            known.setdefault(classes, set()).add(pair.rule)
    found = []
    for pair, shapes, classes in every:
        rules = known.get(classes or ("", ""), set())
        rule = _in_layout(pair, *rules) if len(rules) == 1 else pair.rule
        better = rule != pair.rule and fits(rule, *shapes)
        found.append(pair.model_copy(update={"rule": rule}) if better else pair)
    return mapping.model_copy(update={"tensors": tuple(found)})


class _Side:
    """The shapes of a model's tensors by name, and the classes of the layers that own them."""

    def __init__(self, outline: Outline) -> None:
        classes = {info.path: info.type for info in outline.layers}
        self.shapes = {info.name: info.shape for info in outline.tensors}
        self.classes = {info.name: classes.get(info.layer, "") for info in outline.tensors}


def _of(pair: Pair, sides: list[_Side]) -> tuple[tuple[list[Shape], list[Shape]], tuple[str, str] | None]:
    """The shapes of Keras's tensors and of torch's, and the classes that own them; None where either has none, or several."""
    names = pair.keras, pair.torch
    ours, theirs = ([side.shapes[name] for name in each] for side, each in zip(sides, names, strict=True))
    owners = [{side.classes[name] for name in each} for side, each in zip(sides, names, strict=True)]
    single = all(len(each) == 1 and "" not in each for each in owners)
    return (ours, theirs), (min(owners[0]), min(owners[1])) if single else None


def _in_layout(pair: Pair, layout: str) -> str:
    """The rule of a pair in a layout; of kernels that are one of the other side's, the axes as that one has them."""
    if pair.rule in _LAYOUTS:
        return layout
    axes, semicolon, sizes = pair.rule.partition(";")
    if layout != "same" or not sizes or "i o -> o i" not in axes:
        return pair.rule
    whole = axes.split("->")[0 if len(pair.keras) == 1 else 1].replace("...", "").strip()
    return f"{whole} -> {whole}{semicolon}{sizes}"
