"""A mapping proposed from what two models are called and consist of: names, shapes, order and layout.

Nothing is guessed silently: what only its order distinguishes from others of its shape is doubted, and `refine` tries it.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from parity.common.external.mapping.blocks import within_blocks
from parity.common.external.mapping.candidate_rules import fitting, joined
from parity.common.external.mapping.class_layouts import in_layouts_of_classes
from parity.common.external.mapping.correspondence import layer_pairs
from parity.common.external.mapping.graphs import assign, in_order
from parity.common.external.mapping.left_over import (
    NEUTRAL,
    biases,
    by_inputs,
    by_shape,
    by_use,
    cells,
    divided,
    fused,
    joined_norms,
    neutral,
    neutral_alone,
    rows,
    side_by_side,
    stacked,
    untied,
)
from parity.common.external.mapping.name_similarity import likeness, ranked, weights_of, whole_names
from parity.common.external.mapping.parameter_groups import (
    ParameterGroup,
    Part,
    holds_several,
    number_of,
    parameter_groups_of,
)
from parity.common.spec.external.mapping import ALSO_FITS, Mapping, Names, Pair, Reasons, Source
from parity.common.spec.external.outline import LayerInfo, Outline, TensorInfo
from parity.common.spec.external.patterns import Shape
from parity.common.spec.external.rules import parse_rule

# Names tell two layers from others when they are this alike, and by this much more than any other.
_ALIKE, _MARGIN = 0.3, 0.03
_NAME_WEIGHT = 1.5
_TRANSPOSED = 0.05
# Of pairing what is trained with what is not, more than any name is worth.
_CONSTANT_COST = 2.0
# What one step out of order costs, beside names that are 0 to 1 alike.
_STEP_COST = 0.01
# Settings that layers of one shape may differ in, and ports rarely get wrong.
_TELLING = {"strides", "groups", "dilation"}
# What is found before all others, where tensors are left over; see `_proposed`.
_First = Literal["rows", "use", "kernels"] | None
_WAYS: tuple[tuple[bool | None, _First], ...] = (
    *((False, None), (True, None)),
    *((None, "rows"), (None, "use"), (None, "kernels")),
)
# Whole names tell where so many are equal, and of the side with more this share.
_FEWEST_NAMED, _NAMED = 3, 0.8
# What exchanging partners must gain in words; and the most groups of one shape that are tried.
_EXCHANGE_GAIN, _EXCHANGED = 0.3, 300


# A 1x1 convolution is a dense layer, and so is an embedding of one-hot vectors.
_EXCHANGEABLE = ({"dense", "conv"}, {"dense", "embedding"})


@dataclass(frozen=True)
class Match:
    """Two parameter groups, how they were matched, and why that may be wrong."""

    keras: ParameterGroup
    torch: ParameterGroup
    source: Source
    doubt: str | None


def propose(keras: Outline, torch: Outline, hints: Mapping | None = None) -> Mapping:
    """Map two models.

    Args:
        keras, torch: outlines, best with a traced pass: order and unused tensors come from it.
        hints: what is known; its tensors, ignored, tied and layers are taken over as they are.
    """
    hints = hints or Mapping(keras=keras.target, torch=torch.target)
    best = _proposed(keras, torch, hints, None)
    # What is fused, or several in one, takes the partner of another where it is matched alone, by its shape.
    for every, first in _WAYS if any(_mismatches(best, keras, torch)) else ():
        other = _proposed(keras, torch, hints, every, first)
        if _mismatches(other, keras, torch) < _mismatches(best, keras, torch):
            best = other
    if len(best.doubtful) > len(best.tensors) / 2 and _is_of_functions(torch):
        other = _proposed(keras, torch, hints, None, "use")
        best = other if _left(other, keras, torch) <= _left(best, keras, torch) else best
    return best


def other_ways(keras: Outline, torch: Outline, hints: Mapping | None, than: Mapping) -> Iterator[Mapping]:
    """Yield what else is proposed where something is found before all others, with no more tensors left over; arguments as of `propose`, and the
    proposal that is known.
    """
    hints = hints or Mapping(keras=keras.target, torch=torch.target)
    most, seen = (
        _mismatches(than, keras, torch),
        {frozenset((pair.keras, pair.torch) for pair in than.tensors)},
    )
    for every, first in ((None, None), *_WAYS):
        other = _proposed(keras, torch, hints, every, first)
        names = frozenset((pair.keras, pair.torch) for pair in other.tensors)
        if names not in seen and _mismatches(other, keras, torch) <= most:
            seen.add(names)
            yield other


def _is_of_functions(outline: Outline) -> bool:
    """Whether most of what is trained is of no layer that is known, so that nothing but its use says what belongs together."""
    kinds = {info.path: info.kind for info in outline.layers}
    trained = [not kinds.get(info.layer) for info in outline.tensors if info.trainable]
    return sum(trained) > len(trained) / 2


def _left(mapping: Mapping, keras: Outline, torch: Outline) -> int:
    """How many trained tensors have no counterpart."""
    alone = {
        name
        for pair in mapping.tensors
        if not (pair.keras and pair.torch)
        for name in (*pair.keras, *pair.torch)
    }
    return sum(
        info.trainable and (info.name in names or info.name in alone)
        for outline, names in ((keras, mapping.unmapped.keras), (torch, mapping.unmapped.torch))
        for info in outline.tensors
    )


def _mismatches(mapping: Mapping, keras: Outline, torch: Outline) -> tuple[int, int]:
    """How many trained tensors have no counterpart, and how many pairs are of tables and of kernels."""
    found = []
    for outline in (keras, torch):
        kinds = {layer.path: layer.kind for layer in outline.layers}
        found.append({info.name: kinds.get(info.layer, "") for info in outline.tensors})
    mixed = 0
    for pair in mapping.tensors:
        of = {
            side[name] for side, names in zip(found, (pair.keras, pair.torch), strict=True) for name in names
        }
        mixed += "embedding" in of and any(kind.startswith(("dense", "conv")) for kind in of)
    return _left(mapping, keras, torch), mixed


def _proposed(
    keras: Outline,
    torch: Outline,
    hints: Mapping,
    every: bool | None,
    first: _First = None,
) -> Mapping:
    """Map two models.

    Args:
        keras, torch, hints: as of `propose`.
        every: None: fused layers are those that nothing else fits. Else they are found before all others, with True
            also those that fit one layer alone.
        first: what is found before all others: tensors that are several of Keras's in one, or those of one size that are
            used in one order; or 'kernels': those side by side, and then what is left of their layers.
    """
    outlines = {"keras": keras, "torch": torch}
    # What a person leaves unmapped may be found.
    known = {side: set(hints.names(side)) - set(getattr(hints.unmapped, side)) for side in outlines}
    ignored = {
        side: {
            info.name: why
            for info in outline.tensors
            if info.name not in known[side] and (why := _needless(info))
        }
        for side, outline in outlines.items()
    }
    left_out = {side: known[side] | ignored[side].keys() for side in outlines}
    split = [holds_several(outline) for outline in (keras, torch)]
    flattened = _flattened(keras)

    def groups(
        pairs: Sequence[Pair], divide: bool = False
    ) -> tuple[list[ParameterGroup], list[ParameterGroup]]:
        """Of Keras and of torch, without the tensors of pairs; `divide`: whether tensors of one side that hold several are."""
        mapped = {side: {name for pair in pairs for name in getattr(pair, side)} for side in outlines}
        ours, theirs = (
            parameter_groups_of(
                outline,
                left_out[side] | mapped[side],
                divide and several and split[0] != split[1],
                torch if outline is keras else keras,
            )
            for (side, outline), several in zip(outlines.items(), split, strict=True)
        )
        return ours, theirs

    def fits_one(ours: ParameterGroup, theirs: ParameterGroup) -> bool:
        alike = ours.parts.keys() == theirs.parts.keys()
        return not every and alike and _worth(ours, theirs, flattened) is not None

    tensors = list(hints.tensors)
    if every is not None:
        tensors += fused(*groups(tensors), fits_one)
    if first == "use":
        tensors += by_use(*groups(tensors), (keras.used, torch.used))
    if first == "rows":
        tensors += stacked(*groups(tensors))
        tensors += rows(*groups(tensors))
    tensors += _pairs(_matched(*groups(tensors, divide=True), flattened), flattened, keras, torch)
    tensors += fused(*groups(tensors))
    tensors += divided(*groups(tensors))
    tensors += joined_norms(*groups(tensors))
    tensors += cells(*groups(tensors))
    tensors += rows(*groups(tensors))
    # Then the bias of what is tied on one side stands alone on both.
    tensors = untied(tensors, (keras, torch), *groups(tensors))
    tensors = biases(tensors, (keras, torch), *groups(tensors))
    tensors += by_shape(*groups(tensors))
    tensors += by_inputs(*groups(tensors))
    tensors += by_use(*groups(tensors), (keras.used, torch.used))
    tensors += side_by_side(*groups(tensors))
    if first == "kernels":
        tensors += rows(*groups(tensors))
    tensors += neutral_alone(*groups(tensors))
    tied, unmapped = {}, {}
    for side, outline in outlines.items():
        mapped = {name for pair in tensors for name in getattr(pair, side)}
        settled = mapped | ignored[side].keys() | known[side]
        rest = [info for info in outline.tensors if info.name not in settled]
        tied[side] = {info.name: info.tied_to for info in rest if info.tied_to is not None}
        rest = [info for info in rest if info.tied_to is None]
        for info in rest:
            if info.name in outline.unused:
                ignored[side][info.name] = "the model has it and does not use it"
            elif info.buffer:
                ignored[side][info.name] = "not trained, and nothing like it on the other side"
        unmapped[side] = tuple(info.name for info in rest if info.name not in ignored[side])
    proposed = Mapping(
        keras=keras.target,
        torch=torch.target,
        tensors=tuple(tensors),
        ignored=Reasons(**{side: {**getattr(hints.ignored, side), **ignored[side]} for side in outlines}),
        tied=Reasons(**{side: {**getattr(hints.tied, side), **tied[side]} for side in outlines}),
        unmapped=Names(**unmapped),
    )
    mapping = within_blocks(proposed, {info.name: info.shape for info in torch.tensors})
    mapping = in_layouts_of_classes(mapping, keras, torch)
    return mapping.model_copy(update={"layers": layer_pairs(mapping, keras, torch, hints.layers)})


def _needless(info: TensorInfo) -> str:
    """Why a tensor needs no counterpart, '' where it does."""
    if info.role == "num_batches_tracked":
        return "counts batches, which no formula uses"
    if "seed" in info.role and not info.trainable:
        return "state of a generator of random numbers"
    if not info.trainable and not info.dtype.startswith(("float", "bfloat")):
        return "a constant of whole numbers"
    return ""


def _flattened(keras: Outline) -> dict[str, Shape]:
    """Layer -> what was flattened before it: (height, width, channels)."""
    found: dict[str, Shape] = {}
    before: Shape = ()
    known: dict[str, LayerInfo] = {info.path: info for info in (*keras.layers, *keras.operations)}
    for layer in [known[path] for path in keras.order if path in known] or keras.layers:
        if layer.kind in ("flatten", "reshape") and layer.inputs and layer.outputs:
            given = [size for size in layer.inputs[0][1:] if size is not None]
            many = len(given) > 1 and max(given[:-1]) > 1
            before = tuple(given) if many and len(layer.outputs[0]) == 2 else ()
        elif layer.kind == "dense":
            if before:
                found[layer.path] = before
            before = ()
        elif layer.kind not in ("dropout", "activation", "batch_norm", "identity"):
            before = ()
    return found


def _matched(
    ours: Sequence[ParameterGroup], theirs: Sequence[ParameterGroup], flattened: dict[str, Shape]
) -> list[Match]:
    """Match groups: first those in order, weighed with their names, then the rest."""
    turned = (
        [False, True]
        if all(any(len(group.numbers) > 1 for group in side) for side in (ours, theirs))
        else [False]
    )
    fits = [_Fit(order, theirs, flattened, turn) for order in _orders(ours) for turn in turned]
    if named := _of_one_name(fits[0]):
        return [Match(fits[0].ours[i], theirs[j], "name", None) for i, j in sorted(named.items())]
    chains = [in_order(len(ours), len(theirs), fit.in_order) for fit in fits]
    fit, chain = max(
        zip(fits, chains, strict=True),
        key=lambda pair: sum(pair[0].in_order(*both) or 0.0 for both in pair[1]),
    )
    ours = fit.ours
    found = dict(chain)
    rows = [i for i in range(len(ours)) if i not in found]
    columns = sorted(set(range(len(theirs))) - set(found.values()))
    left = np.full((len(rows), len(columns)), -np.inf)
    for (a, i), (b, j) in itertools.product(enumerate(rows), enumerate(columns)):
        if fit.score(i, j) is not None:
            # How many steps j is from where order would have it.
            before = max((pair for pair in chain if pair[0] < i), default=(-1, -1))
            steps = 0 if fit.is_loose(i, j) else abs((j - before[1]) - (i - before[0]))
            left[a, b] = fit.likeness(i, j) - _STEP_COST * steps + fit.transposed(i, j)
    found |= {rows[a]: columns[b] for a, b in assign(left).items()}
    _exchange(found, fit)
    return [fit.match(i, j) for i, j in sorted(found.items())]


def _of_one_name(fit: _Fit) -> dict[int, int]:
    """Partners by their whole names, where a port has kept those of the original: all of one side, and nearly all of the other; else none."""
    parts = [
        [group.parts.get("main") or next(iter(group.parts.values())) for group in side]
        for side in (fit.ours, fit.theirs)
    ]
    names = whole_names(*([part.info.name for part in side] for side in parts))
    # Of the parts of one tensor with their numbers.
    keys = [
        [(*name, part.index) for name, part in zip(*both, strict=True)]
        for both in zip(names, parts, strict=True)
    ]
    places = [{key: place for place, key in enumerate(side)} for side in keys]
    shared = places[0].keys() & places[1].keys()
    few, many = sorted(map(len, keys))
    kept = len(shared) == few > _FEWEST_NAMED and few >= _NAMED * many
    found = {places[0][key]: places[1][key] for key in shared} if kept else {}
    return found if all(fit.score(i, j) is not None for i, j in found.items()) else {}


def crossed_names(mapping: Mapping) -> list[str]:
    """The pairs of tensors that go by another's name, where a port has kept those of the original else."""
    pairs = [pair for pair in mapping.tensors if len(pair.keras) == len(pair.torch) == 1]
    ours, theirs = whole_names([pair.keras[0] for pair in pairs], [pair.torch[0] for pair in pairs])
    both = list(zip(pairs, ours, theirs, strict=True))
    if sum(one == other for _, one, other in both) < _NAMED * len(pairs):
        return []
    known = {*ours} & {*theirs}
    return [pair.label for pair, one, other in both if one != other and {one, other} <= known]


def _orders(ours: Sequence[ParameterGroup]) -> list[Sequence[ParameterGroup]]:
    """Return the possible orders of Keras's groups: that of the model and, if names show it, that of creation.

    A model lists branches by their depth; torch's modules stand as they were made, and Keras numbers what has no
    name of its own as it is made: conv2d, conv2d_1, ...
    """
    numbers = [number_of(group) for group in ours]
    places = [place for place, number in enumerate(numbers) if number is not None]
    created = list(ours)
    for place, origin in zip(places, sorted(places, key=lambda place: numbers[place] or 0), strict=True):
        created[place] = ours[origin]
    return [ours, created] if created != list(ours) else [ours]


def _exchange(found: dict[int, int], fit: _Fit) -> None:
    """Exchange partners where their words say so, whatever the order: attributes have none."""
    groups: dict[object, list[int]] = {}
    for i in found:
        # One of two layers may have no bias.
        parts = [(slot, part) for slot, part in fit.ours[i].parts.items() if slot != "shift"]
        key = tuple((slot, tuple(size for size in part.shape if size != 1)) for slot, part in parts)
        groups.setdefault(key, []).append(i)
    for members in groups.values():
        if not 1 < len(members) <= _EXCHANGED:
            continue
        partners = [found[i] for i in members]
        words = [
            [fit.words(i, j) if fit.score(i, j) is not None else -np.inf for j in partners] for i in members
        ]
        # Two that exchange their partners lose this twice.
        stays = _EXCHANGE_GAIN / 2 * np.eye(len(members))
        found |= {members[a]: partners[b] for a, b in assign(np.array(words) + stays).items()}


class _Fit:
    """How well groups fit; None where they cannot correspond.

    turned: whether torch's names have their numbers in the reverse order: norm1_0 and blocks.0.norm1.
    """

    def __init__(
        self,
        ours: Sequence[ParameterGroup],
        theirs: Sequence[ParameterGroup],
        flattened: dict[str, Shape],
        turned: bool,
    ) -> None:
        self.ours, self.theirs, self.flattened = ours, theirs, flattened
        self._weights = weights_of([group.words for group in (*ours, *theirs)])
        # A sequence counts its convolutions and their norms through.
        self._ranks = [
            ranked([((group.op, *group.words), group.numbers) for group in side]) for side in (ours, theirs)
        ]
        if turned:
            self._ranks[1] = [ranks[::-1] for ranks in self._ranks[1]]
        self._shapes: dict[tuple[object, object], float | None] = {}
        self._keys = [[_key(group) for group in side] for side in (ours, theirs)]
        self._likeness: dict[tuple[int, int], float] = {}

    def score(self, i: int, j: int) -> float | None:
        """What pairing them is worth."""
        key = self._keys[0][i], self._keys[1][j]
        if key not in self._shapes:
            self._shapes[key] = _worth(self.ours[i], self.theirs[j], self.flattened)
        worth = self._shapes[key]
        return None if worth is None else worth + _NAME_WEIGHT * self.likeness(i, j)

    def is_loose(self, i: int, j: int) -> bool:
        """Whether the order of calls says nothing about them."""
        return self.ours[i].contains or self.theirs[j].contains

    def in_order(self, i: int, j: int) -> float | None:
        """As `score`, None where order says nothing."""
        return None if self.is_loose(i, j) else self.score(i, j)

    def likeness(self, i: int, j: int) -> float:
        """0 to 1: how alike their names are; below 0 where one side alone trains them."""
        if (i, j) not in self._likeness:
            ranks = self._ranks[0][i], self._ranks[1][j]
            alike = likeness(self.ours[i].words, self.theirs[j].words, self._weights, *ranks)
            self._likeness[i, j] = alike - self._cost(i, j)
        return self._likeness[i, j]

    def transposed(self, i: int, j: int) -> float:
        """A little for a matrix that torch has as it has most: outputs first."""
        ours, theirs = (side.parts.get("main") for side in (self.ours[i], self.theirs[j]))
        if (
            ours is None
            or theirs is None
            or len(ours.shape) != 2
            or "embedding" in (self.ours[i].op, self.theirs[j].op)
        ):
            return 0.0
        return _TRANSPOSED if ours.shape[::-1] == theirs.shape else 0.0

    def words(self, i: int, j: int) -> float:
        """As `likeness`, of their words without numbers."""
        alike = likeness(self.ours[i].words, self.theirs[j].words, self._weights, (), ())
        return alike - self._cost(i, j)

    def _cost(self, i: int, j: int) -> float:
        """Of pairing what one side alone trains."""
        return _CONSTANT_COST if _is_trained_on_one_side(self.ours[i], self.theirs[j]) else 0.0

    def match(self, i: int, j: int) -> Match:
        """A pair that was chosen, with what speaks for it."""
        rows = [k for k in range(len(self.ours)) if self.score(k, j) is not None]
        columns = [k for k in range(len(self.theirs)) if self.score(i, k) is not None]
        ours, theirs = self.ours[i], self.theirs[j]
        if len(rows) == len(columns) == 1:
            return Match(ours, theirs, "shape", None)
        alike = self.likeness(i, j)
        others = [self.likeness(k, j) for k in rows if k != i]
        others += [self.likeness(i, k) for k in columns if k != j]
        if alike >= _ALIKE and all(alike >= other + _MARGIN for other in others):
            return Match(ours, theirs, "name", None)
        many = max(len(rows), len(columns))
        doubt = f"one of {many} of its shape, told from the others by order alone"
        return Match(ours, theirs, "order", doubt)


def _key(group: ParameterGroup) -> object:
    """Equal for groups that fit the same others."""
    settings = tuple(group.layer.settings.get(name) for name in sorted(_TELLING))
    slots = tuple((slot, part.shape, part.count, part.index, part.axis) for slot, part in group.parts.items())
    role = next(iter(group.parts.values())).info.role
    return group.op, group.layer.kind, group.layer.type, settings, slots, role


def _worth(ours: ParameterGroup, theirs: ParameterGroup, flattened: dict[str, Shape]) -> float | None:
    """0.5 to 2 where groups can correspond, None where not."""
    if ours.op and theirs.op and ours.op != theirs.op and {ours.op, theirs.op} not in _EXCHANGEABLE:
        return None
    if any((slot in ours.parts) != (slot in theirs.parts) for slot in ("mean", "recurrent")):
        return None
    if (
        ours.layer.kind
        and theirs.layer.kind
        and ("transpose" in ours.layer.kind) != ("transpose" in theirs.layer.kind)
    ):
        return None
    shared = ours.parts.keys() & theirs.parts.keys()
    if not shared or (("main" in ours.parts) != ("main" in theirs.parts) and ours.op != "norm"):
        return None
    flat = flattened.get(ours.layer.path)
    if not all(fitting(ours, theirs, slot, flat) for slot in shared if slot != "recurrent_shift"):
        return None
    only = (ours.parts.keys() ^ theirs.parts.keys()) - {"recurrent_shift"}
    worth = 1.0 - 0.2 * len(only)
    if ours.op and ours.op == theirs.op:
        worth += 0.5
    if ours.layer.kind and ours.layer.kind == theirs.layer.kind:
        worth += 0.5
        main = ours.parts.get("main"), theirs.parts.get("main")
        if ours.layer.kind == "dense" and main[0] and main[1] and main[0].shape[::-1] != main[1].shape:
            worth -= 0.5  # of stock layers the one has its outputs last, and the other first
    settings = ours.layer.settings.keys() & theirs.layer.settings.keys() & _TELLING
    worth += sum(0.1 for name in settings if ours.layer.settings[name] == theirs.layer.settings[name])
    return worth


def _is_trained_on_one_side(ours: ParameterGroup, theirs: ParameterGroup) -> bool:
    """Whether what one side trains is on the other a tensor that is not made to be trained."""
    pairs = (
        (ours.parts[slot].info, theirs.parts[slot].info) for slot in ours.parts.keys() & theirs.parts.keys()
    )
    return any((a.trainable and b.buffer) or (b.trainable and a.buffer) for a, b in pairs)


def _pairs(
    matches: Iterable[Match], flattened: dict[str, Shape], keras: Outline, torch: Outline
) -> list[Pair]:
    """Pairs of tensors, in Keras's order; a tensor that holds several, and lacks one of them, has none."""
    found: list[Pair] = []
    # Without any, nothing has its channels first, and a flatten is the same on both sides.
    windows = any(re.search("conv|pool", info.kind) for info in torch.layers) or any(
        len(info.shape) > 2 for info in torch.tensors
    )
    # The parts of a tensor that holds several wait for each other.
    waiting: dict[str, list[tuple[Part, Part, Match]]] = {}
    for match in matches:
        ours, theirs = match.keras.parts, match.torch.parts
        for slot in dict.fromkeys((*ours, *theirs)):
            one, other = ours.get(slot), theirs.get(slot)
            part = one or other
            if slot == "recurrent_shift" or part is None:
                continue
            if one is None or other is None:
                if part.count == 1 and slot in NEUTRAL:
                    rule = neutral(slot, part.shape)
                    found.append(_pair([one] if one else [], [other] if other else [], [rule], match))
            elif one.count > 1 or other.count > 1:
                whole = one if one.count > 1 else other
                waiting.setdefault(whole.info.name, []).append((one, other, match))
            else:
                rules = fitting(match.keras, match.torch, slot, flattened.get(match.keras.layer.path))
                if not windows and rules[0].startswith("flatten") and "transpose" in rules:
                    rules = tuple(sorted(rules, key=lambda rule: rule != "transpose"))
                two = slot == "shift" and "recurrent_shift" in theirs
                found.append(
                    _pair([one], [other, theirs["recurrent_shift"]] if two else [other], rules, match)
                )
    for members in waiting.values():
        members.sort(key=lambda member: max(member[0], member[1], key=lambda part: part.count).index)
        ones, others, origins = (list(side) for side in zip(*members, strict=True))
        rules = joined(ones, others) if len(members) == max(ones[0].count, others[0].count) else ()
        if rules:
            doubt = next((match.doubt for match in origins if match.doubt), None)
            found.append(_pair(ones, others, rules, replace(origins[0], doubt=doubt)))
    places = {info.name: place for place, info in enumerate(keras.tensors)}
    return sorted(found, key=lambda pair: places[pair.keras[0]] if pair.keras else len(places))


def _pair(ours: Sequence[Part], theirs: Sequence[Part], rules: Sequence[str], match: Match) -> Pair:
    """The tensors of parts by the first of the rules that fit."""
    doubt = match.doubt
    if len(rules) > 1:
        also = f"{ALSO_FITS} {' and '.join(repr(rule) for rule in rules[1:3])}"
        doubt = f"{doubt}; {also}" if doubt else also
    names = [tuple(dict.fromkeys(part.info.name for part in parts)) for parts in (ours, theirs)]
    note = parse_rule(rules[0]).note or None
    if rules[0] == "two_biases" and not all(part.info.trainable for part in theirs):
        note = None  # the other takes its place
    return Pair(keras=names[0], torch=names[1], rule=rules[0], source=match.source, doubt=doubt, note=note)
