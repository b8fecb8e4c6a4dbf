"""Parts of a model that are like another part, as a teacher is like its student or a head like another head: mapped as that one is."""

from __future__ import annotations

from collections.abc import Sequence

from parity.common.spec.external.mapping import LayerPair, Mapping, Pair
from parity.common.spec.external.outline import Outline

_SEPARATORS = ("/", ".")
# How a pair was found that an experiment, or a person, has confirmed.
_SHOWN = ("probed", "hand")
# Tensors of a part, below which it is a layer.
_FEWEST = 3


def like_their_copies(mapping: Mapping, outlines: Sequence[Outline]) -> Mapping:
    """A mapping with parts of which no experiment has shown anything mapped as the parts that they are like on both sides.

    Args:
        mapping: tried on both models.
        outlines: Keras's and torch's.
    """
    ours, theirs = (
        _alike(outline, separator) for outline, separator in zip(outlines, _SEPARATORS, strict=True)
    )
    shapes = {info.name: info.shape for info in outlines[1].tensors}
    done: list[str] = []
    for parts in ours:
        shown = [part for part in parts if _is_shown(mapping, part)]
        for unknown in parts if shown else ():
            # What is in a part that was mapped so is, too.
            if unknown in shown or unknown.startswith((*done,)):
                continue
            found = next(
                filter(None, (_mapped_as(mapping, known, unknown, theirs, shapes) for known in shown)), None
            )
            if found is not None:
                mapping = found
                done.append(unknown)
    return mapping


def _mapped_as(
    mapping: Mapping,
    known: str,
    unknown: str,
    theirs: Sequence[list[str]],
    shapes: dict[str, tuple[int, ...]],
) -> Mapping | None:
    """A mapping with one part of Keras's mapped as another one, to a copy of that one's in torch; None where there is none."""
    pairs = _pairs_in(mapping, known)
    due = {pair.keras: [shapes.get(name) for name in pair.torch] for pair in _pairs_in(mapping, unknown)}
    for parts in theirs:
        for of in (part for part in parts if all(_all_in(pair.torch, part) for pair in pairs)):
            for copy in (part for part in parts if part != of):
                new = {p.keras: p for p in (_copied(pair, (known, unknown), (of, copy)) for pair in pairs)}
                if new.keys() != due.keys():
                    return None
                # A part may have other sizes than the one that it is like.
                if any([shapes.get(name) for name in pair.torch] != due[pair.keras] for pair in new.values()):
                    continue
                tensors = tuple(new.get(pair.keras, pair) for pair in mapping.tensors)
                names = [name for pair in tensors for name in pair.torch]
                if len(names) == len(set(names)):
                    layers = _copied_layers(mapping, (known, unknown), (of, copy))
                    return mapping.model_copy(update={"tensors": tensors, "layers": layers})
    return None


def _copied_layers(mapping: Mapping, ours: tuple[str, str], theirs: tuple[str, str]) -> tuple[LayerPair, ...]:
    (known, unknown), (of, copy) = ours, theirs
    layers = {pair.keras: pair for pair in mapping.layers if not pair.keras.startswith(unknown)}
    for pair in mapping.layers:
        if pair.keras.startswith(known) and pair.torch.startswith(of):
            other = unknown + pair.keras.removeprefix(known)
            layers[other] = LayerPair(keras=other, torch=copy + pair.torch.removeprefix(of))
    return tuple(layers.values())


def _is_shown(mapping: Mapping, part: str) -> bool:
    return any(pair.source in _SHOWN for pair in _pairs_in(mapping, part))


def _pairs_in(mapping: Mapping, part: str) -> list[Pair]:
    return [pair for pair in mapping.tensors if pair.keras and _all_in(pair.keras, part)]


def _alike(outline: Outline, separator: str) -> list[list[str]]:
    """Parts of a model with tensors of the same names, by the beginnings of these, those together that are alike; the largest first."""
    parts: dict[str, dict[str, int]] = {}
    for info in outline.tensors:
        words = info.name.split(separator)
        for end in range(1, len(words)):
            start = separator.join(words[:end]) + separator
            parts.setdefault(start, {})[separator.join(words[end:])] = len(info.shape)
    alike: dict[frozenset[tuple[str, int]], list[str]] = {}
    for start, tensors in parts.items():
        if len(tensors) >= _FEWEST:
            alike.setdefault(frozenset(tensors.items()), []).append(start)
    return [alike[each] for each in sorted(alike, key=len, reverse=True) if len(alike[each]) > 1]


def _all_in(names: Sequence[str], start: str) -> bool:
    return all(name.startswith(start) for name in names)


def _copied(pair: Pair, ours: tuple[str, str], theirs: tuple[str, str]) -> Pair:
    keras, torch = (
        tuple(copy + name.removeprefix(of) for name in names)
        for names, (of, copy) in ((pair.keras, ours), (pair.torch, theirs))
    )
    return pair.model_copy(update={"keras": keras, "torch": torch, "source": "name"})
