"""Which layers of two models compute the same numbers, from the tensors that are mapped and from order.

For pairs and recorders. Lint, which has no mapping, goes by settings: `external.lint.alignment`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence

import numpy as np

from parity.common.external.mapping.components import moments
from parity.common.external.mapping.graphs import in_order
from parity.common.external.process.pass_result import Array, PassResult
from parity.common.spec.external.mapping import LayerPair, Mapping
from parity.common.spec.external.outline import LayerInfo, Outline

# Kinds without tensors whose names differ between the frameworks.
_KINDS = {"adaptive_average_pool": "global_average_pool", "adaptive_max_pool": "global_max_pool"}
# Sums over equal activations, summed in another order.
_EQUAL = 1e-11
# Of no interest: they compute nothing, or something random.
_PASSED_OVER = ("dropout", "identity", "flatten", "reshape", "permute", "input", "zero_pad", "crop")


def layer_pairs(
    mapping: Mapping, keras: Outline, torch: Outline, given: Sequence[LayerPair] = ()
) -> tuple[LayerPair, ...]:
    """Owners of mapped tensors, and layers without tensors between them; `given` ones as they are."""
    sides = (keras, torch)
    owners = _owners(mapping, keras, torch)
    taken = [{pair.keras for pair in given}, {pair.torch for pair in given}]
    applies = [{info.owner for info in side.operations} for side in sides]
    found = [
        pair
        for pair in owners
        if pair.keras not in taken[0]
        and pair.torch not in taken[1]
        # Keras's layer does not apply a function that torch's does not.
        and (pair.keras not in applies[0] or pair.torch in applies[1])
    ]
    orders = [{layer.path: place for place, layer in enumerate(side.layers)} for side in sides]
    # The most of them that rise on both sides.
    places = {(orders[0][pair.keras], orders[1][pair.torch]) for pair in owners}
    ours, theirs = (sorted({place[index] for place in places}) for index in (0, 1))
    rising = in_order(len(ours), len(theirs), lambda i, j: (ours[i], theirs[j]) in places)
    anchors = [(ours[i], theirs[j]) for i, j in rising]
    settled = [taken[index] | {info.layer for info in side.tensors} for index, side in enumerate(sides)]
    for before, after in itertools.pairwise([(-1, -1), *anchors, (len(keras.layers), len(torch.layers))]):
        between = [
            [
                (_sort(layer), layer)
                for layer in side.layers[before[index] + 1 : after[index]]
                if layer.calls and layer.kind not in ("", *_PASSED_OVER) and layer.path not in settled[index]
            ]
            for index, side in enumerate(sides)
        ]
        # Layers of one kind and size, where there are equally many of that kind.
        for key in dict.fromkeys(key for key, _ in between[0]):
            one, other = ([layer for kind, layer in side if kind == key] for side in between)
            if len(one) == len(other):
                found += [LayerPair(keras=a.path, torch=b.path) for a, b in zip(one, other, strict=True)]
    return tuple(sorted([*given, *found], key=lambda pair: orders[0].get(pair.keras, len(orders[0]))))


def _inside(layers: Iterable[str], separator: str) -> dict[str, list[str]]:
    """By each layer those that are inside of it."""
    known = set(layers)
    found: dict[str, list[str]] = {}
    for layer in known - {""}:
        parts = layer.split(separator)
        for around in ("", *(separator.join(parts[:count]) for count in range(1, len(parts)))):
            if around in known:
                found.setdefault(around, []).append(layer)
    return found


def _owners(mapping: Mapping, keras: Outline, torch: Outline) -> list[LayerPair]:
    """Layers of which each owns the counterpart of the other's last tensor."""
    sides = (keras, torch)
    owner = [{info.name: info.layer for info in side.tensors} for side in sides]
    # Of each tensor the layers that own what it is mapped to.
    partners: list[dict[str, set[str]]] = [{}, {}]
    for pair in mapping.tensors:
        for own, other, ours, theirs in ((0, 1, pair.keras, pair.torch), (1, 0, pair.torch, pair.keras)):
            layers = {owner[other][name] for name in theirs if name in owner[other]}
            for name in ours:
                partners[own].setdefault(name, set()).update(layers)
    last = [
        {info.layer: info.name for info in side.tensors if known.get(info.name)}
        for side, known in zip(sides, partners, strict=True)
    ]
    called = [{layer.path for layer in side.layers if layer.calls} for side in sides]
    inside = [_inside(known, separator) for known, separator in zip(last, "/.", strict=True)]

    def is_more(own: int, layer: str, other: str) -> bool:
        """Whether a layer contains some of which the other's layer has nothing: then it computes more."""
        contained = {other, *inside[1 - own].get(other, ())}
        return any(not partners[own][last[own][each]] <= contained for each in inside[own].get(layer, ()))

    found = [
        (ours, theirs)
        for ours, name in last[0].items()
        for theirs in partners[0][name]
        if ours in partners[1].get(last[1][theirs], ()) and ours in called[0] and theirs in called[1]
        if not is_more(0, ours, theirs) and not is_more(1, theirs, ours)
    ]
    around = [_around(0, sides, partners, called), _around(1, sides, partners, called)]
    return [
        LayerPair(keras=keras, torch=torch)
        for keras, torch in dict.fromkeys(
            (around[1].get(theirs, ours), around[0].get(ours, theirs)) for ours, theirs in found
        )
    ]


def _around(
    own: int,
    sides: tuple[Outline, Outline],
    partners: Sequence[dict[str, set[str]]],
    called: Sequence[set[str]],
) -> dict[str, str]:
    """By layer whose tensors several layers of the other model own: the smallest one there that holds these, and nothing else."""
    holding: dict[str, set[str]] = {}
    for info in sides[own].tensors:
        holding.setdefault(info.layer, set()).update(partners[own].get(info.name, ()))
    separator, tensors = "./"[own], sides[1 - own].tensors
    inside = _inside({*called[1 - own], *(info.layer for info in tensors)}, separator)
    found = {}
    for layer, several in holding.items():
        if len(several) > 1:
            parts = [each.split(separator) for each in several]
            shared = itertools.takewhile(lambda each: len({*each}) == 1, zip(*parts, strict=False))
            holder = separator.join(each[0] for each in shared)
            held = {holder, *inside.get(holder, ())}
            owners = [partners[1 - own].get(info.name, set()) for info in tensors if info.layer in held]
            if holder and holder in called[1 - own] and set().union(*owners) <= {layer}:
                found[layer] = holder
    return found


def _sort(layer: LayerInfo) -> tuple[object, ...]:
    shape = layer.outputs[0] if layer.outputs else ()
    size = math.prod(size for size in shape if size is not None)
    return _KINDS.get(layer.kind, layer.kind), layer.settings.get("function"), size


def by_numbers(
    pairs: Sequence[LayerPair],
    given: Sequence[LayerPair],
    outlines: tuple[Outline, Outline],
    keras: PassResult,
    torch: PassResult,
) -> tuple[LayerPair, ...]:
    """The pairs, with those replaced whose numbers are found elsewhere, and what else computes equal numbers.

    Args:
        pairs: by tensors and order. given: those of them that a person has named.
        outlines: of Keras and torch.
        keras, torch: a pass of the models with mapped tensors.
    """
    sides: list[dict[str, Array]] = []
    for outline, passed in zip(outlines, (keras, torch), strict=True):
        own: dict[str, Array] = {}
        for layer in outline.layers:
            name = next((n for n in (layer.path, f"{layer.path}:0") if n in passed.activations), None)
            if name is not None and layer.calls and layer.kind not in _PASSED_OVER:
                own[layer.path] = moments(passed.activations[name])
        sides.append(own)
    kinds = [{layer.path: layer.kind for layer in outline.layers} for outline in outlines]
    partner = {pair.keras: pair.torch for pair in pairs}
    fixed = {pair.keras for pair in given}
    free = sides[1].keys() - {pair.torch for pair in given}

    def agree(ours: str, theirs: str) -> bool:
        return _equal(sides[0].get(ours), sides[1].get(theirs))

    for ours in sides[0]:
        if ours in fixed or (ours in partner and agree(ours, partner[ours])):
            continue
        taken = {theirs for other, theirs in partner.items() if other != ours and agree(other, theirs)}
        same = [path for path in sides[1] if path in free - taken and agree(ours, path)]
        alike = [path for path in same if kinds[1][path] == kinds[0][ours]]
        if same:
            partner[ours] = (alike or same)[0]
    # A torch layer that was given away has no other partner.
    found: dict[str, LayerPair] = {}
    for ours, theirs in partner.items():
        if theirs not in found or ours in fixed or agree(ours, theirs):
            found[theirs] = LayerPair(keras=ours, torch=theirs)
    order = {layer.path: place for place, layer in enumerate(outlines[0].layers)}
    return tuple(sorted(found.values(), key=lambda pair: order.get(pair.keras, len(order))))


def _equal(ours: Array | None, theirs: Array | None) -> bool:
    if ours is None or theirs is None or not np.all(np.isfinite(ours)):
        return False
    return bool(np.all(np.abs(ours - theirs) <= _EQUAL * np.abs(ours).max()) and ours[0] == theirs[0])
