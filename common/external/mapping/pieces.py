"""Tensors, and equal parts of them, that could be each other's: both sides have as many of each size."""

from __future__ import annotations

import heapq
import itertools
import math
import re
import zlib
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from parity.common.external.mapping.candidate_rules import arrangements, distinct, fits
from parity.common.external.mapping.left_over import ways_of
from parity.common.external.process.pass_result import Array
from parity.common.spec.external.mapping import ALSO_FITS, Pair
from parity.common.spec.external.outline import TensorInfo
from parity.common.spec.external.patterns import Shape
from parity.common.spec.external.rules import parse_rule

# Of larger tensors it is not tried out what a rule does.
_COMPARED_SIZE = 4_000_000
# Axes of a tensor that are divided, and in how many parts in all.
_AXES, _MOST_PARTS = 2, 64
# So many choices of cuts are looked at.
_STATES, _WAYS = 4_000, 16
_MATRIX = 2
_DOUBT = "told from the others of its shape by what it does alone"


@dataclass(frozen=True)
class Piece:
    """A tensor of a side, or one of the equal parts of it that cuts along its axes give; or with a rule all that a pair has on that side.

    key: equal for those that could be each other's: the sizes in order, without ones, or the rule with its shapes. shape: of a part alone.
    cuts: in how many parts each axis is divided. place: which part of each axis it is.
    """

    key: Hashable
    names: tuple[str, ...]
    rule: str = ""
    shape: Shape = ()
    cuts: Shape = ()
    place: Shape = ()

    @property
    def is_whole(self) -> bool:
        """Whether it is one tensor, and no part of it."""
        return not self.rule and all(count == 1 for count in self.cuts)

    def fill(self, whole: Array, value: Array | float) -> None:
        """Give this part of a tensor its values, whose sizes are in order, or one number."""
        at = tuple(slice(i * size, (i + 1) * size) for i, size in zip(self.place, self.shape, strict=True))
        whole[at] = _arranged(value, self.shape) if isinstance(value, np.ndarray) else value


# A side's tensors of one shape; and how they are cut.
_Group = tuple[int, Shape]
_Way = dict[_Group, Shape]


def ways_to_cut(left: Sequence[Sequence[TensorInfo]]) -> Iterator[list[list[Piece]]]:
    """Yield the tensors of Keras and of torch, those of some shapes in parts, so that both sides have as many of each size; fewest parts first."""
    counts = {
        (side, shape): count
        for side, infos in enumerate(left)
        for shape, count in Counter(info.shape for info in infos).items()
    }
    every = itertools.chain(
        *(itertools.islice(_by_parts(counts, first), _WAYS) for first in (_number, _uneven)),
        _by_common_axes(counts),
    )
    seen: list[_Way] = []
    for way in every:
        if way in seen:
            continue
        seen.append(way)
        yield [
            [piece for info in infos for piece in _pieces(info, way[side, info.shape])]
            for side, infos in enumerate(left)
        ]


def _by_parts(
    counts: Mapping[_Group, int], first: Callable[[Mapping[_Group, int], _Way], tuple[int, int]]
) -> Iterator[_Way]:
    """Yield cuts with which both sides have as many pieces of each size, by cutting what has no counterpart into what has; those
    with the least of something come first.
    """
    keys = _keys(counts)
    choices = {shape: _divisions(shape, keys) for _, shape in counts}
    whole: _Way = {group: (1,) * len(group[1]) for group in counts}
    seen, waiting = {frozenset(whole.items())}, [((0, 0), 0, whole)]
    while waiting and len(seen) < _STATES:
        *_, way = heapq.heappop(waiting)
        unequal = _unequal(counts, way)
        if not unequal:
            yield way
            continue
        # The largest ones of which a side has more.
        key = max(unequal, key=lambda key: (math.prod(key), key))
        for group, cuts in way.items():
            if group[0] == unequal[key] and _key(_part(group[1], cuts)) == key:
                smaller = [
                    (finer, _key(part))
                    for finer in choices[group[1]]
                    if math.prod(part := _part(group[1], finer)) < math.prod(key)
                ]
                # Into what the other side has more of, where it can be.
                into = [finer for finer, to in smaller if unequal.get(to) == 1 - group[0]]
                for finer in into or [finer for finer, _ in smaller]:
                    other = way | {group: finer}
                    state = frozenset(other.items())
                    if state not in seen:
                        seen.add(state)
                        heapq.heappush(waiting, (first(counts, other), len(seen), other))


def _by_common_axes(counts: Mapping[_Group, int]) -> Iterator[_Way]:
    """Yield cuts along one axis of all that have their other axes in common, whatever its sizes, into what these have in common; of a stack
    all that it holds.
    """
    whole: _Way = {group: (1,) * len(group[1]) for group in counts}
    unequal = _unequal(counts, whole)
    # Of each tensor: the other axes, that along which it is a stack, and the one that is cut.
    choices: dict[_Group, list[tuple[Shape, int | None, int]]] = {
        (side, shape): [
            (_key([size for place, size in enumerate(shape) if place not in (stack, axis)]), stack, axis)
            for stack in (None, *(range(len(shape)) if len(shape) > _MATRIX else ()))
            for axis in range(len(shape))
            if axis != stack
        ]
        for side, shape in counts
        if _key(shape) in unequal
    }
    for _ in range(len(choices)):
        of = [
            {choice[0] for (side, _), each in choices.items() if side == which for choice in each}
            for which in (0, 1)
        ]
        choices = {
            group: [choice for choice in each if choice[0] and choice[0] in of[0] & of[1]]
            for group, each in choices.items()
        }
    for chosen in itertools.islice(itertools.product(*choices.values()), _STATES):
        way, numbers = dict(whole), dict[Shape, int]()
        common: dict[Shape, int] = {}
        for (side, shape), (rest, _, axis) in zip(choices, chosen, strict=True):
            common[rest] = math.gcd(common.get(rest, 0), shape[axis])
            numbers[rest] = numbers.get(rest, 0) + (1 - 2 * side) * math.prod(shape) * counts[side, shape]
        if any(numbers.values()):
            continue
        for group, (rest, stack, axis) in zip(choices, chosen, strict=True):
            cuts = [1] * len(group[1])
            if stack is not None:
                cuts[stack] = group[1][stack]
            cuts[axis] = group[1][axis] // common[rest]
            way[group] = tuple(cuts)
        if not _unequal(counts, way):
            yield way


def _number(counts: Mapping[_Group, int], way: _Way) -> tuple[int, int]:
    """How many pieces there are."""
    return sum(counts[group] * math.prod(cuts) for group, cuts in way.items()), 0


def _uneven(counts: Mapping[_Group, int], way: _Way) -> tuple[int, int]:
    """Of how many keys a side has more, and how many pieces there are."""
    return len(_unequal(counts, way)), _number(counts, way)[0]


def _unequal(counts: Mapping[_Group, int], way: _Way) -> dict[Shape, int]:
    """The keys of which a side has more pieces, with that side."""
    totals = _totals(counts, way)
    return {
        key: int(totals[1][key] > totals[0][key])
        for key in {*totals[0], *totals[1]}
        if totals[0][key] != totals[1][key]
    }


def _totals(counts: Mapping[_Group, int], way: _Way) -> list[Counter[Shape]]:
    """How many pieces of each key a side has."""
    found = [Counter[Shape](), Counter[Shape]()]
    for (side, shape), cuts in way.items():
        found[side][_key(_part(shape, cuts))] += math.prod(cuts) * counts[side, shape]
    return found


def _keys(counts: Mapping[_Group, int]) -> set[Shape]:
    """The sizes that parts may have: those of the tensors; and of those of which one side has more, what stacks of them hold, and what two of
    these have in common that differ along one axis.
    """
    unequal = _unequal(counts, {group: (1,) * len(group[1]) for group in counts})
    odd = {shape for _, shape in counts if _key(shape) in unequal}
    found = {_key(shape) for shape in odd}
    found |= {key[:axis] + key[axis + 1 :] for key in found if len(key) > _MATRIX for axis in range(len(key))}
    common = set()
    for one, other in itertools.combinations(found, 2):
        both = Counter(one) & Counter(other)
        if len(one) == len(other) == both.total() + 1:
            (ours,), (theirs,) = (Counter(key) - both for key in (one, other))
            common |= {_key((*both.elements(), size)) for size in [math.gcd(ours, theirs)] if size > 1}
    return found | common | {_key(shape) for _, shape in counts}


def _pieces(info: TensorInfo, cuts: Shape) -> list[Piece]:
    shape = _part(info.shape, cuts)
    places = itertools.product(*map(range, cuts))
    return [Piece(_key(shape), (info.name,), "", shape, cuts, place) for place in places]


def _key(shape: Iterable[int]) -> Shape:
    return tuple(sorted(size for size in shape if size != 1))


def _part(shape: Shape, cuts: Shape) -> Shape:
    return tuple(size // count for size, count in zip(shape, cuts, strict=True))


def _divisions(shape: Shape, keys: Collection[Shape]) -> list[Shape]:
    """The cuts of a tensor whose parts have one of some keys."""
    counts = [[count for count in range(1, size + 1) if size % count == 0] for size in shape]
    return [
        cuts
        for cuts in itertools.product(*counts)
        if math.prod(cuts) <= _MOST_PARTS
        and sum(count > 1 for count in cuts) <= _AXES
        and _key(_part(shape, cuts)) in keys
    ]


def is_plain(pair: Pair, ours: Sequence[Shape], theirs: Sequence[Shape]) -> bool:
    """Whether a rule, for tensors of these shapes, only gives axes another order, and parts another place."""
    if "->" in pair.rule or max(len(ours), len(theirs)) > 1:
        return "->" in pair.rule and not pair.parsed.shared_by_one
    if sum(map(math.prod, ours)) > _COMPARED_SIZE:
        return pair.rule in ("same", "transpose", "conv")
    if _key(ours[0]) != _key(theirs[0]):
        return False
    value = values_of(_key(ours[0]), "")
    (found,) = pair.parsed.to_torch([_arranged(value, ours[0])], 1)
    return np.array_equal(found, _arranged(value, theirs[0]))


def values_of(key: Hashable, name: object) -> Array:
    """Values of the shape `key`, float64, which an exchange of axes of one size does not change; of a vector they may be variances. `name` draws others."""
    assert isinstance(key, tuple)
    random = np.random.default_rng(zlib.crc32(repr((key, name)).encode()))
    if len(key) < 2:
        return np.asarray(random.uniform(0.4, 1.2, key))
    value = random.standard_normal(key)
    at = np.indices(key)
    for size in {*key}:
        axes = [axis for axis, other in enumerate(key) if other == size]
        at[axes] = np.sort(at[axes], axis=0)
    return np.asarray(1.3 * value[tuple(at)] / math.sqrt(math.prod(key[:-1])))


def _arranged(value: Array, shape: Shape) -> Array:
    """Values whose sizes are in order, in a shape."""
    sizes = [size for size in shape if size != 1]
    return value.transpose(np.argsort(np.argsort(sizes, kind="stable"))).reshape(shape)


def pairs_of(
    told: Sequence[tuple[Piece, Piece]], keras: Mapping[str, TensorInfo], torch: Mapping[str, TensorInfo]
) -> list[Pair] | None:
    """Pairs of tensors from those of their pieces, all in doubt; None where the pieces lie as no rule has them.

    Args:
        told: Keras's and torch's pieces. keras, torch: tensors by name.
    """
    found = [_pair(ours.names, theirs.names, [ours.rule]) for ours, theirs in told if ours.rule]
    parts = [pair for pair in told if not pair[0].rule]
    # Every tensor with the numbers of its pieces' pairs where these lie.
    numbered: tuple[dict[str, Array], dict[str, Array]] = {}, {}
    for number, pair in enumerate(parts):
        for arrays, piece, infos in zip(numbered, pair, (keras, torch), strict=True):
            (name,) = piece.names
            piece.fill(arrays.setdefault(name, np.zeros(infos[name].shape)), number)
    for ours, theirs in _together([(one.names[0], other.names[0]) for one, other in parts]):
        if min(len(ours), len(theirs)) > 1:
            return None
        several, whole = (
            (numbered[0], numbered[1][theirs[0]]) if len(ours) > 1 else (numbered[1], numbered[0][ours[0]])
        )
        first = {
            name: np.flatnonzero(np.isin(whole, several[name]))[0]
            for name in (ours if len(ours) > 1 else theirs)
        }
        ours, theirs = (sorted(names, key=lambda name: first.get(name, 0)) for names in (ours, theirs))
        rules = [
            rule
            for rule in _rules([keras[name] for name in ours], [torch[name] for name in theirs])
            if all(
                map(
                    np.array_equal,
                    parse_rule(rule).to_torch([numbered[0][name] for name in ours], len(theirs)),
                    [numbered[1][name] for name in theirs],
                )
            )
        ]
        if not rules:
            return None
        found.append(_pair(ours, theirs, sorted(rules, key=lambda rule: not _is_stock(rule))))
    return found


def _together(names: Sequence[tuple[str, str]]) -> Iterator[tuple[list[str], list[str]]]:
    """Yield the tensors of Keras and of torch that have pieces of each other."""
    left = dict.fromkeys(names)
    while left:
        ours, theirs = [next(iter(left))[0]], list[str]()
        before = -1
        while len(ours) + len(theirs) > before:
            before = len(ours) + len(theirs)
            theirs = list(dict.fromkeys(other for one, other in names if one in ours))
            ours = list(dict.fromkeys(one for one, other in names if other in theirs))
        yield ours, theirs
        left = {pair: None for pair in left if pair[0] not in ours}


def _rules(ours: Sequence[TensorInfo], theirs: Sequence[TensorInfo]) -> Sequence[str]:
    """Every rule that fits tensors, of which one side has one, in their order."""
    if len(ours) == len(theirs) == 1:
        return distinct(ways_of(ours[0], theirs[0]), ours[0].shape)
    parts, whole = (
        [info.shape for info in side] for side in ((ours, theirs) if len(ours) > 1 else (theirs, ours))
    )
    if len({*map(len, parts)}) > 1:
        return []
    found: list[str] = []
    stack = [(0, (len(parts), *parts[0]))] if len({*parts}) == 1 else []
    beside = [
        (
            axis,
            tuple(
                sum(sizes) if place == axis else sizes[0]
                for place, sizes in enumerate(zip(*parts, strict=True))
            ),
        )
        for axis in range(len(parts[0]))
    ]
    for axis, shape in (*stack, *beside):
        several = 0 if len(ours) > 1 else 1
        for rule in arrangements(*((shape, whole[0]) if several == 0 else (whole[0], shape))):
            pattern, _, sizes = rule.partition("; ")
            sides = [side.split() for side in pattern.split(" -> ")]
            letter = sides[several][axis]
            if not letter.isalpha():
                continue
            if (axis, shape) in stack:
                found.append(rule.replace(letter, "n"))
            else:
                kept = [size for size in sizes.split() if not size.startswith(letter)]
                kept.append(f"{letter}={'+'.join(str(part[axis]) for part in parts)}")
                found.append(f"{pattern}; {' '.join(kept)}")
    shapes = [[info.shape for info in side] for side in (ours, theirs)]
    return [rule for rule in found if fits(rule, *shapes)]


def _is_stock(rule: str) -> bool:
    """Whether kernels of layers are so: inputs and outputs last in Keras, and in torch outputs and inputs first."""
    if "->" not in rule:
        return rule in ("transpose", "conv", "depthwise")
    ours, theirs = rule.partition(";")[0].split("->")
    # Of each axis the names but that of a stack, none of an axis of one.
    axes = [re.findall(r"[a-m]", axis) for axis in re.findall(r"\([^)]*\)|\S+", ours.removeprefix("n "))]
    due = [*itertools.chain.from_iterable(axes[:-3:-1]), *itertools.chain.from_iterable(axes[:-2])]
    return re.findall(r"[a-m]", theirs) == due


def _pair(keras: Sequence[str], torch: Sequence[str], rules: Sequence[str]) -> Pair:
    also = f"; {ALSO_FITS} {' and '.join(map(repr, rules[1:3]))}" if len(rules) > 1 else ""
    return Pair(keras=tuple(keras), torch=tuple(torch), rule=rules[0], source="order", doubt=_DOUBT + also)
