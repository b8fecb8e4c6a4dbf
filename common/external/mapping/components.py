"""The least groups of layers of two models whose tensors are mapped to each other, and where their outputs are."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from parity.common.external.mapping.graphs import connected
from parity.common.external.process.layouts import back
from parity.common.external.process.pass_result import Array, Arrays
from parity.common.spec.external.mapping import Pair
from parity.common.spec.external.outline import Outline

_CALL = re.compile(r"(#\d+)?(:0)?")
_RESHAPED = "reshaped"
_BEFORE = "/before_activation"


@dataclass(frozen=True)
class Component:
    """pairs: by their place in the mapping. keras, torch: the paths of the layers that give its output.

    observed: whether what it computes shows in a tap of its own, and not only in what contains it.
    signature: equal for components that could be exchanged. order: of Keras's first call.
    """

    pairs: tuple[int, ...]
    keras: str
    torch: str
    observed: bool
    signature: object
    order: int


def components(pairs: Sequence[Pair], keras: Outline, torch: Outline) -> list[Component]:
    """In the order in which Keras calls them."""
    sides = (keras, torch)
    owner = [{info.name: info.layer for info in side.tensors} for side in sides]
    shapes = [{info.name: info.shape for info in side.tensors} for side in sides]
    places = [{info.name: place for place, info in enumerate(side.tensors)} for side in sides]
    calls = [{layer.path: place for place, layer in enumerate(side.layers)} for side in sides]
    nodes: dict[tuple[int, str], int] = {}
    edges: list[tuple[int, int]] = []
    for pair in pairs:
        layers = [(side, owner[side][name]) for side in (0, 1) for name in (pair.keras, pair.torch)[side]]
        own = [nodes.setdefault(layer, len(nodes)) for layer in layers]
        edges += [(own[0], other) for other in own]
    labels = connected([one for one, _ in edges], [other for _, other in edges], len(nodes))
    grouped: dict[int, list[int]] = {}
    for place, pair in enumerate(pairs):
        side, names = (0, pair.keras) if pair.keras else (1, pair.torch)
        grouped.setdefault(labels[nodes[side, owner[side][names[0]]]], []).append(place)
    paths: dict[int, list[list[str]]] = {label: [[], []] for label in grouped}
    for side in (0, 1):
        for path in calls[side]:
            if (side, path) in nodes:
                paths[labels[nodes[side, path]]][side].append(path)
    found = []
    for label, members in grouped.items():
        layers_of = paths[label]
        members.sort(
            key=lambda place: places[0][pairs[place].keras[0]] if pairs[place].keras else len(places[0])
        )
        ends = [_outer(layers_of[index], sides[index]) for index in (0, 1)]
        observed = all(ends) and not any(
            _contains(ends[index], layers_of[index], sides[index]) for index in (0, 1)
        )
        signature = tuple(
            (
                pairs[place].rule,
                tuple(shapes[0][name] for name in pairs[place].keras),
                tuple(shapes[1][name] for name in pairs[place].torch),
            )
            for place in members
        )
        order = min((calls[0][path] for path in layers_of[0]), default=len(calls[0]))
        found.append(Component(tuple(members), ends[0], ends[1], observed, signature, order))
    return sorted(found, key=lambda component: component.order)


def _outer(paths: Sequence[str], outline: Outline) -> str:
    """The layer that contains the others, else the last of them that is called; '' where none is."""
    called = {layer.path for layer in outline.layers if layer.calls}
    paths = [path for path in paths if path in called]
    around = [path for path in paths if all(_is_within(other, path) for other in paths)]
    return around[0] if around else (paths[-1] if paths else "")


def _is_within(path: str, outer: str) -> bool:
    return path == outer or not outer or path.startswith((f"{outer}/", f"{outer}."))


def _contains(path: str, own: Sequence[str], outline: Outline) -> bool:
    """Whether a layer contains owners of tensors that are not of its own component."""
    owners: Iterable[str] = {info.layer for info in outline.tensors} - set(own)
    return any(_is_within(other, path) for other in owners)


def taps_of(activations: Arrays, path: str) -> list[str]:
    """The taps of a layer's calls, in order: of what its activation is given where it has one."""
    for start in (f"{path}{_BEFORE}", path):
        found = [
            name for name in activations if name.startswith(start) and _CALL.fullmatch(name[len(start) :])
        ]
        if found:
            return found
    return []


class Views:
    """How torch's activations lie beside Keras's, by shape; where several ways fit, as most others of that rank."""

    def __init__(self, pairs: Iterable[tuple[Array, Array]]) -> None:
        """pairs: arrays of the same meaning, whose numbers need not agree."""
        votes: dict[int, dict[str, int]] = {}
        for keras, torch in pairs:
            ways = _ways(keras, torch)
            if len(ways) == 1:
                counts = votes.setdefault(keras.ndim, {})
                counts[ways[0]] = counts.get(ways[0], 0) + 1
        self._usual = {rank: max(counts, key=counts.__getitem__) for rank, counts in votes.items()}

    def way(self, keras: Array, torch: Array) -> str | None:
        """As `layouts.aligned` calls it; None where the shapes have nothing to do with each other."""
        ways = _ways(keras, torch)
        if not ways:
            return None
        usual = self._usual.get(keras.ndim)
        return usual if usual in ways else ways[0]

    def as_torch(self, keras: Array, torch: Array) -> Array | None:
        """A Keras array in the layout of a torch one."""
        way = self.way(keras, torch)
        if way == _RESHAPED:
            return keras.reshape(torch.shape)
        return None if way is None else back(keras, way)


def _ways(keras: Array, torch: Array) -> list[str]:
    if keras.ndim != torch.ndim:
        # Pooled pictures keep axes of size one in one framework, and not in the other.
        ends = [[size for size in array.shape if size != 1] for array in (keras, torch)]
        return [_RESHAPED] if ends[0] == ends[1] else []
    found = []
    for way in ("channels_first", "same", "time_first"):
        if keras.ndim < 3 and way != "same":
            continue
        if back_shape(keras.shape, way) == torch.shape:
            found.append(way)
    # Of square pictures both fit; torch has channels first in those, and in sequences last.
    return found if keras.ndim > 3 else sorted(found, key=("same", "channels_first", "time_first").index)


def back_shape(shape: tuple[int, ...], way: str) -> tuple[int, ...]:
    """The shape that `layouts.back` gives."""
    if way == "channels_first":
        return (shape[0], shape[-1], *shape[1:-1])
    return (shape[1], shape[0], *shape[2:]) if way == "time_first" else shape


def deviation(keras: Array, torch: Array) -> float:
    """The largest difference of two arrays by the largest of the first; infinite where one is not finite."""
    if keras.shape != torch.shape:
        return float("inf")
    scale = float(np.max(np.abs(keras), initial=0.0))
    difference = float(np.max(np.abs(keras - torch), initial=0.0))
    if not (np.isfinite(scale) and np.isfinite(difference)):
        return float("inf")
    return difference / scale if scale else difference


def moments(array: Array) -> Array:
    """Numbers that the order of an array's elements does not change."""
    flat = np.asarray(array, np.float64).ravel()
    if not flat.size or not np.all(np.isfinite(flat)):
        return np.full(6, np.inf)
    return np.array(
        [
            flat.size,
            flat.mean(),
            np.square(flat).mean() ** 0.5,
            np.cbrt((flat**3).mean()),
            flat.max(),
            flat.min(),
        ]
    )
