"""Pairs that order alone has told, taken from the block of torch's that the rest of their block is in."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping as Names

from parity.common.spec.external.mapping import Mapping, Pair
from parity.common.spec.external.patterns import Shape

_NUMBER = re.compile(r"\d+")


def within_blocks(mapping: Mapping, shapes: Names[str, Shape]) -> Mapping:
    """A mapping in which two pairs of one kind have exchanged their tensors of torch where both are then of the block that most of theirs is of.

    A block is told by the first number in a name: 'block0_time/value/kernel' and 'blocks.0.att.value.weight'.

    Args:
        mapping: as proposed, with pairs that only order has told.
        shapes: of torch's tensors.
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
    for place in range(len(pairs)):
        pair = pairs[place]
        ours, theirs = _blocks(pair)
        if ours is None or theirs is None or due.get(ours, theirs) == theirs:
            continue
        wanted = tuple(_NUMBER.sub(due[ours], name, count=1) for name in pair.torch)
        if wanted not in holder:
            continue
        there = holder[wanted]
        other = pairs[there]
        both_healed = due.get(_blocks(other)[0] or "") == theirs
        alike = [shapes[name] for name in wanted] == [shapes[name] for name in pair.torch]
        if both_healed and alike and other.rule == pair.rule and pair.source == other.source == "order":
            pairs[there] = other.model_copy(update={"torch": pair.torch})
            pairs[place] = pair.model_copy(update={"torch": wanted})
            holder |= {pair.torch: there, wanted: place}
    return mapping.model_copy(update={"tensors": tuple(pairs)})


def _blocks(pair: Pair) -> tuple[str | None, str | None]:
    """The first number in Keras's name and in torch's; None where there is none."""
    found = [_NUMBER.search(names[0]) if names else None for names in (pair.keras, pair.torch)]
    ours, theirs = (None if each is None else each[0] for each in found)
    return ours, theirs
