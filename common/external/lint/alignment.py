"""Which layers of two models do the same work, by their order, kinds and sizes.

For lint, which has no mapping. Where tensors are mapped: `external.mapping.correspondence`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from parity.common.external.lint.effective import Item, sizes_alike
from parity.common.external.mapping.graphs import in_order

# What a pair is worth: one that a mapping names more than any others together, and of those that are of one kind the
# ones that also agree in the sizes of what they give, and in the function.
_NAMED, _KIND, _SIZES, _FUNCTION = 1e6, 4.0, 2.0, 1.0

Pair = tuple[Item, Item]


class AlignedLayers(NamedTuple):
    """pairs: in Keras's order. displaced: those of them that are called in another order than the rest, as the
    branches of a block may be. alone: layers without a counterpart."""

    pairs: list[Pair]
    displaced: list[Pair]
    alone: list[Item]


def aligned(keras: Sequence[Item], torch: Sequence[Item], named: Sequence[tuple[str, str]]) -> AlignedLayers:
    """Pair what is worth most together while the order of both sides is kept, and then what is left likewise.

    A layer that is called more than once is one of a pair once for each layer that it meets.

    Args:
        keras, torch: in the order of their calls.
        named: paths of pairs that are known.
    """
    partner = dict(named)
    named_torch = set(partner.values())

    def worth(left: Item, right: Item) -> float:
        if partner.get(left.path) == right.path:
            return _NAMED if left.kind == right.kind or not left.part else 0.0
        if right.path in named_torch or (left.path in partner and not left.part):
            return 0.0
        return _likeness(left, right)

    found: dict[tuple[str, str], Pair] = {}
    for left, right in _in_order(keras, torch, worth):
        found.setdefault((left.path, right.path), (left, right))
    # Of a layer that comes to several the last one gives what the layer gives.
    by_path = [{item.path: item for item in side} for side in (keras, torch)]
    for pair in named:
        if pair[0] in by_path[0] and pair[1] in by_path[1]:
            found.setdefault(pair, (by_path[0][pair[0]], by_path[1][pair[1]]))
    displaced: list[Pair] = []
    while more := _in_order(_unpaired(keras, found, 0), _unpaired(torch, found, 1), _likely):
        found |= {(left.path, right.path): (left, right) for left, right in more}
        displaced += more
    place = {item.path: number for number, item in enumerate(keras)}
    pairs = sorted(found.values(), key=lambda pair: place[pair[0].path])
    return AlignedLayers(pairs, displaced, _unpaired(keras, found, 0) + _unpaired(torch, found, 1))


def _unpaired(side: Sequence[Item], found: dict[tuple[str, str], Pair], number: int) -> list[Item]:
    """The items of a side that are in no pair, each once."""
    taken = {(pair[number].path, pair[number].kind) for pair in found.values()}
    return list({(i.path, i.kind): i for i in side if (i.path, i.kind) not in taken}.values())


def _likeness(left: Item, right: Item) -> float:
    if left.kind != right.kind:
        return 0.0
    function = left.info.settings.get("function") == right.info.settings.get("function")
    return _KIND + _SIZES * sizes_alike(left, right) + _FUNCTION * function


def _likely(left: Item, right: Item) -> float:
    """Of what the order does not speak for, sizes and functions have to."""
    return _likeness(left, right) if _likeness(left, right) == _KIND + _SIZES + _FUNCTION else 0.0


def _in_order(
    keras: Sequence[Item], torch: Sequence[Item], worth: Callable[[Item, Item], float]
) -> list[Pair]:
    """The pairs worth most together, none of which crosses another."""
    found = in_order(len(keras), len(torch), lambda i, j: worth(keras[i], torch[j]))
    return [(keras[i], torch[j]) for i, j in found]
