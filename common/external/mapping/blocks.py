"""Pairs that order alone has told, taken from the block of torch's that the rest of their block is in."""

from __future__ import annotations

import re
from collections import Counter

from parity.common.spec.external.mapping import Mapping, Pair

_NUMBER = re.compile(r"\d+")


def within_blocks(mapping: Mapping) -> Mapping:
    """A mapping in which two pairs of one kind have exchanged their tensors of torch where both are then of the block that most of theirs is of.

    A block is told by the first number in a name: 'block0_time/value/kernel' and 'blocks.0.att.value.weight'.

    Args:
        mapping: as proposed, with pairs that only order has told.
    """
    votes: dict[str, Counter[str]] = {}
    for pair in mapping.tensors:
        ours, theirs = _blocks(pair)
        if ours is not None and theirs is not None:
            votes.setdefault(ours, Counter())[theirs] += 1
    most = {ours: counts.most_common(1)[0] for ours, counts in votes.items()}
    due = {ours: block for ours, (block, count) in most.items() if count > votes[ours].total() / 2}
    if len({*due.values()}) < len(due):
        return mapping
    pairs = list(mapping.tensors)
    holder = {pair.torch: place for place, pair in enumerate(pairs)}
    for place, pair in enumerate(mapping.tensors):
        ours, theirs = _blocks(pairs[place])
        if theirs is None or due.get(ours or "", theirs) == theirs:
            continue
        wanted = tuple(_NUMBER.sub(due[ours or ""], name, count=1) for name in pair.torch)
        other = pairs[holder[wanted]] if wanted in holder else None
        told = {each.source for each in (pairs[place], other) if each is not None}
        if other is None or told != {"order"} or other.rule != pair.rule:
            continue
        if due.get(_blocks(other)[0] or "") == theirs:
            exchanged = pairs[place].torch
            pairs[holder[wanted]] = other.model_copy(update={"torch": exchanged})
            pairs[place] = pairs[place].model_copy(update={"torch": wanted})
            holder |= {exchanged: holder[wanted], wanted: place}
    return mapping.model_copy(update={"tensors": tuple(pairs)})


def _blocks(pair: Pair) -> tuple[str | None, str | None]:
    """The first number in Keras's name and in torch's; None where there is none."""
    found = [_NUMBER.search(names[0]) if names else None for names in (pair.keras, pair.torch)]
    ours, theirs = (None if each is None else each[0] for each in found)
    return ours, theirs
