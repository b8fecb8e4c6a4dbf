"""The least groups of layers of two models whose tensors are mapped to each other, and where their outputs are."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from parity.common.external.mapping.graphs import connected
from parity.common.external.process.layouts import back, fitting
from parity.common.external.process.pass_result import Array, Arrays
from parity.common.parity.deviation import unmasked
from parity.common.spec.external.mapping import Pair
from parity.common.spec.external.outline import Outline

_CALL = re.compile(r"(#\d+)?(:0)?$")
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
    infos = [{info.name: info for info in side.tensors} for side in sides]
    places = {name: place for place, name in enumerate(infos[0])}
    calls = {layer.path: place for place, layer in enumerate(keras.layers)}
    # Of each pair the layers that own its tensors: (0, path) of Keras, (1, path) of torch.
    owners = [
        [
            (side, infos[side][name].layer)
            for side, names in enumerate((pair.keras, pair.torch))
            # What is only tied to it on the other side computes something else.
            for name in (names[:1] if pair.parsed.shared_by_one else names)
        ]
        for pair in pairs
    ]
    nodes = {owner: number for number, owner in enumerate(dict.fromkeys(itertools.chain(*owners)))}
    edges = np.reshape([(nodes[own[0]], nodes[other]) for own in owners for other in own], (-1, 2))
    labels = connected(edges[:, 0], edges[:, 1], len(nodes))
    label_of = {owner: labels[number] for owner, number in nodes.items()}
    grouped: dict[int, list[int]] = {}
    for place, own in enumerate(owners):
        grouped.setdefault(label_of[own[0]], []).append(place)
    found = []
    for label, members in grouped.items():
        members.sort(key=lambda place: places[pairs[place].keras[0]] if pairs[place].keras else len(places))
        layers = [
            [layer.path for layer in side.layers if label_of.get((index, layer.path)) == label]
            for index, side in enumerate(sides)
        ]
        ends = [_outer(own, side) for own, side in zip(layers, sides, strict=True)]
        # Whether a layer contains owners of tensors that are not of its own component.
        inside = [
            any(_is_within(info.layer, end) for info in side.tensors if info.layer not in own)
            for end, own, side in zip(ends, layers, sides, strict=True)
        ]
        signature = tuple(
            (
                pairs[place].rule,
                tuple(infos[0][name].shape for name in pairs[place].keras),
                tuple(infos[1][name].shape for name in pairs[place].torch),
            )
            for place in members
        )
        order = min((calls[path] for path in layers[0]), default=len(calls))
        observed = all(ends) and not any(inside)
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


def taps_of(activations: Arrays, path: str) -> list[str]:
    """The taps of a layer's calls, in order: of what its activation is given where it has one."""
    taps = _taps_by_path(tuple(activations))
    return taps.get(f"{path}{_BEFORE}") or taps.get(path) or []


@lru_cache(maxsize=16)
def _taps_by_path(names: tuple[str, ...]) -> dict[str, list[str]]:
    """Taps by the path that is left without the number of a call: a pass has thousands, which are asked for again and again."""
    found: dict[str, list[str]] = {}
    for name in names:
        found.setdefault(_CALL.sub("", name), []).append(name)
    return found


class Views:
    """How torch's activations lie beside Keras's, by shape; where several ways fit, as most others of that rank."""

    def __init__(self, pairs: Iterable[tuple[Array, Array]]) -> None:
        """pairs: arrays of the same meaning, whose numbers need not agree."""
        votes: dict[int, Counter[str]] = {}
        for keras, torch in pairs:
            ways = _ways(keras, torch)
            if len(ways) == 1:
                votes.setdefault(keras.ndim, Counter()).update(ways)
        self._usual = {rank: counts.most_common(1)[0][0] for rank, counts in votes.items()}

    def as_torch(self, keras: Array, torch: Array) -> Array | None:
        """A Keras array in a torch one's layout; None where their shapes have nothing to do with each other."""
        ways = _ways(keras, torch)
        usual = self._usual.get(keras.ndim)
        way = usual if usual in ways else next(iter(ways), None)
        if way == _RESHAPED:
            return keras.reshape(torch.shape)
        return None if way is None else back(keras, way)


def _ways(keras: Array, torch: Array) -> list[str]:
    if keras.ndim != torch.ndim:
        # Pooled pictures keep axes of size one in one framework, and not in the other.
        ends = [[size for size in array.shape if size != 1] for array in (keras, torch)]
        return [_RESHAPED] if ends[0] == ends[1] else []
    ways = [found.how for found in fitting(keras, torch)]
    # Of square pictures both fit; torch has channels first in those, and in sequences last.
    return sorted(ways, key=lambda way: way != "channels_first") if keras.ndim > 3 else ways


def deviation(keras: Array, torch: Array) -> float:
    """The largest difference of two arrays by the largest of the first; what is masked and all else by themselves.

    Infinite where one is not finite, or the shapes differ.
    """
    rest = unmasked(keras) if keras.shape == torch.shape else None
    if rest is None:
        return relative(keras, torch)
    return max(relative(keras[rest], torch[rest]), relative(keras[~rest], torch[~rest]))


def relative(keras: Array, torch: Array) -> float:
    """As `deviation`, all elements together, of arrays of any one shape."""
    if keras.shape != torch.shape:
        return float("inf")
    scale = float(np.max(np.abs(keras), initial=0.0))
    difference = float(np.max(np.abs(keras - torch), initial=0.0))
    if not (np.isfinite(scale) and np.isfinite(difference)):
        return float("inf")
    return difference / scale if scale else difference


def moments(array: Array) -> Array:
    """Numbers that the order of an array's elements does not change: float64 [6], infinite where one of them is."""
    flat = np.asarray(array, np.float64).ravel()
    if not flat.size or not np.all(np.isfinite(flat)):
        return np.full(6, np.inf)
    powers = [flat.mean(), np.square(flat).mean() ** 0.5, np.cbrt((flat**3).mean())]
    return np.array([flat.size, *powers, flat.max(), flat.min()])
