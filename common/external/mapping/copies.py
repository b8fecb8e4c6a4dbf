"""Parts of a model that are copies of another part, as a teacher is of its student: mapped like the part that they are copies of."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import permutations

from parity.common.spec.external.mapping import LayerPair, Mapping, Pair
from parity.common.spec.external.outline import Outline

_SEPARATORS = ("/", ".")
# How a pair was found that an experiment, or a person, has confirmed.
_SHOWN = ("probed", "hand")
# Tensors of a part, below which it is a layer.
_FEWEST = 3


def like_their_copies(mapping: Mapping, outlines: Sequence[Outline]) -> Mapping:
    """A mapping with parts of which no experiment has shown anything mapped as the parts that they are copies of on both sides.

    Args:
        mapping: tried on both models.
        outlines: Keras's and torch's.
    """
    ours, theirs = (
        list(_copies(outline, separator)) for outline, separator in zip(outlines, _SEPARATORS, strict=True)
    )
    done: list[str] = []
    for known, unknown in ours:
        if unknown.startswith((*done,)):
            continue
        shown, open_ = (_pairs_in(mapping, part) for part in (known, unknown))
        if not any(pair.source in _SHOWN for pair in shown) or any(pair.source in _SHOWN for pair in open_):
            continue
        for of, copy in theirs:
            copied = [_copied(pair, (known, unknown), (of, copy)) for pair in shown]
            held = all(_all_in(pair.torch, of) for pair in shown)
            if held and {p.keras for p in copied} == {p.keras for p in open_} != set():
                layers = {pair.keras: pair for pair in mapping.layers if not pair.keras.startswith(unknown)}
                for pair in mapping.layers:
                    if pair.keras.startswith(known) and pair.torch.startswith(of):
                        other = unknown + pair.keras.removeprefix(known)
                        layers[other] = LayerPair(keras=other, torch=copy + pair.torch.removeprefix(of))
                new = {pair.keras: pair for pair in copied}
                tensors = tuple(new.get(pair.keras, pair) for pair in mapping.tensors)
                names = [name for pair in tensors for name in pair.torch]
                if len(names) == len(set(names)):
                    update = {"tensors": tensors, "layers": tuple(layers.values())}
                    mapping = mapping.model_copy(update=update)
                    done.append(unknown)
                break
    return mapping


def _pairs_in(mapping: Mapping, part: str) -> list[Pair]:
    return [pair for pair in mapping.tensors if pair.keras and _all_in(pair.keras, part)]


def _copies(outline: Outline, separator: str) -> Iterator[tuple[str, str]]:
    """Two parts of a model with the same tensors, by the beginnings of their names, in either order; the largest first."""
    parts: dict[str, dict[str, tuple[int, ...]]] = {}
    for info in outline.tensors:
        words = info.name.split(separator)
        for end in range(1, len(words)):
            start = separator.join(words[:end]) + separator
            parts.setdefault(start, {})[separator.join(words[end:])] = info.shape
    alike: dict[frozenset[tuple[str, tuple[int, ...]]], list[str]] = {}
    for start, tensors in parts.items():
        if len(tensors) >= _FEWEST:
            alike.setdefault(frozenset(tensors.items()), []).append(start)
    for several in sorted(alike, key=len, reverse=True):
        yield from permutations(alike[several], 2)


def _all_in(names: Sequence[str], start: str) -> bool:
    return all(name.startswith(start) for name in names)


def _copied(pair: Pair, ours: tuple[str, str], theirs: tuple[str, str]) -> Pair:
    keras, torch = (
        tuple(copy + name.removeprefix(of) for name in names)
        for names, (of, copy) in ((pair.keras, ours), (pair.torch, theirs))
    )
    return pair.model_copy(update={"keras": keras, "torch": torch, "source": "name"})
