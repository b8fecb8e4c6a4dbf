"""The points in both models at which the same numbers should be, in the order of the pass."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from parity.common.spec.external.mapping import LayerPair, Mapping
from parity.common.spec.external.outline import LayerInfo, Outline

_CALL = "#"
# Of a layer that is called more often the calls stay paired in their order.
_MOST_CALLS = 32
# Beside this a layer does nothing, so that its output is its function's.
_ACTIVATION = "activation"
# What they give has another order in the other layout.
_RESHAPING = ("flatten", "reshape", "permute")


@dataclass(frozen=True)
class Point:
    """One place.

    keras, torch: the taps there. linear: Keras's layer applies a function of its own (its `activation`) to what is
    meant, and torch's does not: Keras's tap is then read with that function taken away.
    """

    keras: str
    torch: str
    linear: bool = False

    @property
    def name(self) -> str:
        """As Keras calls it."""
        return f"{self.keras}/before_activation" if self.linear else self.keras

    @property
    def keras_layer(self) -> str:
        return self.keras.partition(_CALL)[0]

    @property
    def torch_layer(self) -> str:
        return self.torch.partition(_CALL)[0]


@dataclass(frozen=True)
class Segment:
    """What computes between two points: layers of either side by path, functions included.

    point: at its end, None for the outputs.
    """

    point: Point | None
    keras: frozenset[str]
    torch: frozenset[str]

    def holds(self, keras: str | None, torch: str | None) -> bool:
        """Whether one of two layers, by path, is in it."""
        return keras in self.keras or torch in self.torch


# Of what is no place in the models: losses, gradients.
NOWHERE = Segment(None, frozenset(), frozenset())


def points_of(keras: Outline, torch: Outline, mapping: Mapping) -> list[Point]:
    """Of two outlines with traced passes; in the order in which Keras's calls end.

    A Keras layer with a function of its own is looked at before that function, and where torch has a layer of
    that function, behind it too. Layers without tensors that stand between the same two points, as many of a
    kind on either side, are taken for the same in their order, whatever their settings are.
    """
    theirs = {info.path: info for info in torch.layers}
    fused = {found.owner for found in keras.operations if found.path == f"{found.owner}/activation"}
    owners = _owners(keras, torch, mapping)
    partners = owners | _named(keras, torch, mapping, owners)
    partners |= _between(keras, torch, partners)
    taken = set(partners.values())
    order = [info.path for info in torch.layers]
    shapes = {info.name: info.shape for info in keras.tensors}
    moved = {shapes[name][-1] for pair in mapping.tensors if pair.moves_units for name in pair.keras}
    found: list[Point] = []
    for info in keras.layers:
        partner = partners.get(info.path)
        # A model itself, which may own tensors, has no tap; and what has its units in another order is not compared by itself.
        if not partner or any(len(shape) == 2 and shape[-1] in moved for shape in info.outputs):
            continue
        other = theirs[partner]
        before = info.path in fused and other.kind == info.kind
        found += [Point(*taps, linear=before) for taps in _calls(info, other)]
        if not before:
            continue
        # The layer behind the partner, where it is called and is nothing but a function.
        for behind in torch.layers[order.index(partner) + 1 :][:1]:
            if behind.kind == _ACTIVATION and behind.calls and behind.path not in taken:
                taken.add(behind.path)
                found += [Point(*taps) for taps in _calls(info, behind)]
    ends = _Ends(keras)

    def end(point: Point) -> tuple[int, int]:
        # What contains another layer ends after it.
        return ends.of(point.keras, point.linear), -len(point.keras_layer)

    return sorted(_uncrossed(found, keras, torch), key=end)


def _uncrossed(points: list[Point], keras: Outline, torch: Outline) -> list[Point]:
    """Without the layers that own no tensor and stand on the other side of one that does: they are others, or misplaced."""
    owners = {info.layer for info in keras.tensors}
    timelines = _timeline(keras), _timeline(torch)
    placed = [(timelines[0][point.keras_layer], timelines[1][point.torch_layer], point) for point in points]
    fixed = [(ours, theirs) for ours, theirs, point in placed if point.keras_layer in owners]
    return [
        point
        for ours, theirs, point in placed
        if point.keras_layer in owners or not any((ours < a) != (theirs < b) for a, b in fixed if a != ours)
    ]


def paired_layers(keras: Outline, torch: Outline, mapping: Mapping) -> list[LayerPair]:
    """The layers that hold each other's tensors, and the other pairs that a mapping names: whose settings are the same.

    A mapping pairs what gives the same: a Keras layer that has an activation of its own with the activation behind torch's layer.
    """
    owners = _owners(keras, torch, mapping)
    taken = set(owners.values())
    named = _named(keras, torch, mapping, owners)
    partners = {left: right for left, right in named.items() if right not in taken} | owners
    return [LayerPair(keras=left, torch=right) for left, right in partners.items()]


def _named(keras: Outline, torch: Outline, mapping: Mapping, owners: dict[str, str]) -> dict[str, str]:
    """The pairs of layers that a mapping names, but for parts: of a cell that the other side has whole, of a table for several.

    owners: the layers that hold each other's tensors. Others that own tensors are parts where they give tensors of another size.
    """
    ours, theirs = ({info.path: info for info in outline.layers} for outline in (keras, torch))
    owning = {info.layer for outline in (keras, torch) for info in outline.tensors}
    return {
        pair.keras: pair.torch
        for pair in mapping.layers
        if pair.keras in ours
        and pair.torch in theirs
        and (
            not {pair.keras, pair.torch} <= owning
            or owners.get(pair.keras) == pair.torch
            or _size(ours[pair.keras]) == _size(theirs[pair.torch])
        )
    }


def _size(layer: LayerInfo) -> int:
    """How many numbers it gives, of an axis of open length one; 0 where it is not called."""
    return math.prod(size or 1 for size in layer.outputs[0]) if layer.outputs else 0


def _owners(keras: Outline, torch: Outline, mapping: Mapping) -> dict[str, str]:
    """Layers of one kind that hold each other's tensors, and only those."""
    layers = [{info.name: info.layer for info in outline.tensors} for outline in (keras, torch)]
    kinds = [{info.path: info.kind for info in outline.layers} for outline in (keras, torch)]
    shared = {
        (layers[0][ours], layers[1][theirs]): None
        for pair in mapping.tensors
        for ours, theirs in itertools.product(pair.keras, pair.torch)
        if ours in layers[0] and theirs in layers[1]
    }
    held = [Counter(layer for layer, _ in shared), Counter(layer for _, layer in shared)]
    return {
        ours: theirs
        for ours, theirs in shared
        if held[0][ours] == held[1][theirs] == 1 and kinds[0].get(ours) == kinds[1].get(theirs) != ""
    }


def _between(keras: Outline, torch: Outline, partners: dict[str, str]) -> dict[str, str]:
    """Layers without partner between two that have one, as many of a kind on either side."""
    places = [{info.path: n for n, info in enumerate(outline.layers)} for outline in (keras, torch)]
    anchors = [(places[0][ours], places[1][theirs]) for ours, theirs in partners.items()]
    anchors = sorted(anchor for anchor in anchors if not _crossed(anchor, anchors))
    taken = set(partners) | set(partners.values())
    found: dict[str, str] = {}
    ends = [(-1, -1), *anchors, (len(keras.layers), len(torch.layers))]
    for before, after in itertools.pairwise(ends):
        sides = [
            [
                info
                for info in outline.layers[start + 1 : end]
                if info.calls and info.kind and info.path not in taken
            ]
            for outline, start, end in zip((keras, torch), before, after, strict=True)
        ]
        for kind in dict.fromkeys(info.kind for info in sides[0]):
            ours, theirs = ([info.path for info in side if info.kind == kind] for side in sides)
            if len(ours) == len(theirs) and kind not in _RESHAPING:
                found |= dict(zip(ours, theirs, strict=True))
    return found


def _crossed(anchor: tuple[int, int], anchors: list[tuple[int, int]]) -> bool:
    """Whether another pair is before it on one side and behind it on the other."""
    return any((ours < anchor[0]) != (theirs < anchor[1]) for ours, theirs in anchors if ours != anchor[0])


def repaired_calls(points: Sequence[Point], fits: Callable[[Point], float]) -> list[Point]:
    """The points with calls of one layer paired anew where more of them fit so: the models may call it in other orders.

    Where none fits in any order, as behind something that deviates, they are paired as those of the layer before.

    fits: how well, 1 where both sides compute the same numbers at a point, 0 where these have other shapes.
    """
    from scipy import optimize

    found = list(points)
    groups: dict[tuple[str, str, bool], list[int]] = {}
    for number, point in enumerate(found):
        groups.setdefault((point.keras_layer, point.torch_layer, point.linear), []).append(number)
    before: Sequence[int] = ()
    for members in groups.values():
        count = len(members)
        if not 1 < count <= _MOST_CALLS:
            continue
        if all(fits(found[number]) == 1 for number in members):
            before = range(count)
            continue
        calls = [found[number].torch for number in members]
        gains = np.array([[fits(replace(found[n], torch=tap)) for tap in calls] for n in members])
        # As they stand where nothing speaks for another order.
        _, order = optimize.linear_sum_assignment(gains + np.eye(count) / 10 / count, maximize=True)
        if (gains == 1).any():
            before = order
        elif len(before) == count:
            order = before
        for number, call in zip(members, order, strict=True):
            found[number] = replace(found[number], torch=calls[call])
    return found


def _calls(ours: LayerInfo, theirs: LayerInfo) -> Iterator[tuple[str, str]]:
    """The taps of each call; none where the two are called differently often."""
    if ours.calls != theirs.calls or len(ours.outputs) != 1 or len(theirs.outputs) != 1:
        return
    for number in range(ours.calls):
        end = f"{_CALL}{number}" if number else ""
        yield f"{ours.path}{end}", f"{theirs.path}{end}"


def segments_of(outlines: tuple[Outline, Outline], points: Sequence[Point]) -> list[Segment]:
    """What computes before each point and behind the one before it; at the end, before the outputs."""
    ends = [_Ends(outline) for outline in outlines]
    found = []
    before = [-1, -1]
    for point in [*points, None]:
        here = [len(outline.order) for outline in outlines]
        if point is not None:
            here = [ends[0].of(point.keras, point.linear), ends[1].of(point.torch)]
        layers = [
            frozenset(outline.order[low + 1 : high + 1])
            for outline, low, high in zip(outlines, before, here, strict=True)
        ]
        found.append(Segment(point, *layers))
        if point is not None:
            before = [max(old, new) for old, new in zip(before, here, strict=True)]
    return found


class _Ends:
    """When each call of a pass ends, by its number in the order in which they begin: after all that is called in it."""

    def __init__(self, outline: Outline) -> None:
        self._order = outline.order
        self._begins: dict[str, list[int]] = {}
        for place, path in enumerate(outline.order):
            self._begins.setdefault(path, []).append(place)

    def of(self, tap: str, linear: bool = False) -> int:
        """Of a tap; linear: before the layer's own function. -1 where it is not called."""
        path, _, number = tap.partition(_CALL)
        begins = self._begins.get(path, [])
        end = begins[int(number or 0)] if int(number or 0) < len(begins) else -1
        inside = (f"{path}/", f"{path}.")
        while not linear and -1 < end < len(self._order) - 1 and self._order[end + 1].startswith(inside):
            end += 1
        return end


def _timeline(outline: Outline) -> dict[str, float]:
    """When each layer and function is first called."""
    found: dict[str, float] = {}
    for place, path in enumerate(outline.order):
        found.setdefault(path, float(place))
    for info in outline.layers:
        found.setdefault(info.path, -1.0)  # not called
    return found
