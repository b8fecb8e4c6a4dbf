"""What two recorded scripts' models and optimizers are set to differently, by the outlines beside their records."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from parity.common.base.errors import RecordError
from parity.common.base.words import listed
from parity.common.external.lint.lint import Difference, audit, of_optimizers, same
from parity.common.external.lint.settings import said
from parity.common.record.files import parse, read_json
from parity.common.record.script import OUTLINE
from parity.common.spec.external.mapping import LayerPair, Mapping
from parity.common.spec.external.outline import LayerInfo, OptimizerInfo, Outline


def setting_differences(
    reference: Path, candidate: Path, mapping: Mapping | None = None
) -> tuple[list[str], list[str]]:
    """(differences, what could not be compared), for people; mapping: by which layers correspond, of two frameworks, where it is known."""
    first, second = _read(reference), _read(candidate)
    if isinstance(first, str) or isinstance(second, str):
        return [], [
            f"{folder}: {read}; the settings of its model and optimizer were not compared"
            for folder, read in ((reference, first), (candidate, second))
            if isinstance(read, str)
        ]
    if first.framework == second.framework:
        return _together(_alike(first, second)), []
    swapped = first.framework == "torch"
    keras, torch = (second, first) if swapped else (first, second)
    several = zip(keras.optimizers, torch.optimizers, strict=False)
    known = _layers(mapping, keras, torch) if mapping is not None else None
    found = [("optimizer", one) for one in audit(keras, torch, known).differences] + [
        (f"optimizer {number}", one)
        for number, (ours, theirs) in enumerate(several, 1)
        for one in of_optimizers(ours, theirs, [])
    ]
    told: list[tuple[str, str]] = []
    for label, one in found:
        # Recorders trace no pass, so functions are not known, and what was begun with is compared itself.
        if one.changes in ("layout", "initial values"):
            continue
        if one.setting == "counterpart" or (one.setting == "kind" and one.keras is not None):
            continue
        if known is not None and not _corresponds(one, known, keras, torch):
            continue
        values = [one.torch_value, one.keras_value] if swapped else [one.keras_value, one.torch_value]
        layers = " and ".join(dict.fromkeys(filter(None, (one.keras, one.torch)))) or label
        row = f" (row {one.row} of DIFFERENCES)" if one.row else ""
        told.append((layers, f"{one.setting} is {said(values[0])} and {said(values[1])}{row}"))
    return _together([*told, *_pools(first, second)]), []


def _layers(mapping: Mapping, keras: Outline, torch: Outline) -> list[LayerPair]:
    """The layers whose tensors are each other's counterparts."""
    ours, theirs = ({info.name: info.layer for info in side.tensors} for side in (keras, torch))
    pairs = {
        (ours[pair.keras[0]], theirs[pair.torch[0]])
        for pair in mapping.tensors
        if pair.keras and pair.torch and pair.keras[0] in ours and pair.torch[0] in theirs
    }
    named = [{pair.keras for pair in mapping.layers}, {pair.torch for pair in mapping.layers}]
    rest = [(one, other) for one, other in sorted(pairs) if one not in named[0] and other not in named[1]]
    return [*mapping.layers, *(LayerPair(keras=one, torch=other) for one, other in rest)]


def _corresponds(one: Difference, known: Sequence[LayerPair], keras: Outline, torch: Outline) -> bool:
    """Whether two layers are each other's: as a mapping has it, or by their order where both sides have as many of that kind.

    Layers without tensors are in no mapping of tensors, and torch's functions in no record.
    """
    if one.keras is None or one.torch is None:
        return True
    if any((pair.keras, pair.torch) == (one.keras, one.torch) for pair in known):
        return True
    sides = [{each.path: each.kind for each in (*side.layers, *side.operations)} for side in (keras, torch)]
    kinds = [side.get(path, "") for side, path in zip(sides, (one.keras, one.torch), strict=True)]
    counts = [list(side.values()).count(kind) for side, kind in zip(sides, kinds, strict=True)]
    return kinds[0] == kinds[1] and counts[0] == counts[1]


def _pools(first: Outline, second: Outline) -> list[tuple[str, str]]:
    """Poolings by the maximum that are by the mean in the other, where both have as many."""
    ours, theirs = ([layer for layer in each.layers if "_pool" in layer.kind] for each in (first, second))
    return [
        (f"{one.path} and {other.path}", f"kind is {one.kind} and {other.kind}")
        for one, other in zip(ours, theirs, strict=False)
        if len(ours) == len(theirs) and ("max_pool" in one.kind) != ("max_pool" in other.kind)
    ]


def has_one_optimizer(folder: Path) -> bool:
    """Whether a recorded script's model was updated by one optimizer, as far as is known."""
    outline = _read(folder)
    return isinstance(outline, str) or outline.optimizer is not None


def _together(told: Iterable[tuple[str, str]]) -> list[str]:
    """A line for each difference, with all layers that have it."""
    layers: dict[str, list[str]] = {}
    for layer, what in told:
        layers.setdefault(what, []).append(layer)
    return [f"{listed(found)}: {what}" for what, found in layers.items()]


def _read(folder: Path) -> Outline | str:
    path = folder / OUTLINE
    if not path.exists():
        return "no outline.json"
    data = read_json(path)
    if isinstance(data, dict) and "error" in data:
        return f"its model could not be described ({data['error']})"
    try:
        return parse(Outline, path)
    except RecordError as error:
        return str(error)


def _alike(first: Outline, second: Outline) -> Iterator[tuple[str, str]]:
    """Of one framework: layers by their names, and what differs."""
    theirs = {layer.path: layer for layer in second.layers}
    pairs: list[tuple[str, LayerInfo | OptimizerInfo, LayerInfo | OptimizerInfo]] = [
        (layer.path, layer, theirs[layer.path]) for layer in first.layers if layer.path in theirs
    ]
    if first.optimizer is not None and second.optimizer is not None:
        pairs.append(("optimizer", first.optimizer, second.optimizer))
    several = enumerate(zip(first.optimizers, second.optimizers, strict=False), 1)
    pairs += [(f"optimizer {number}", *two) for number, two in several]
    for name, ours, others in pairs:
        # One class of two scripts' own modules is one.
        kinds = [one.type.rpartition(".")[2] for one in (ours, others)]
        if kinds[0] != kinds[1]:
            yield name or "the model", f"is a {kinds[0]} and a {kinds[1]}"
        for setting in dict.fromkeys([*ours.settings, *others.settings]):
            left, right = ours.settings.get(setting), others.settings.get(setting)
            if not same(left, right) and not setting.endswith("_initializer"):
                yield name, f"{setting} is {said(left)} and {said(right)}"
