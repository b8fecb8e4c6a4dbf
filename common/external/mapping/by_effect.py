"""Which tensor is which, by what each of them does.

Where all tensors of one shape have the same values, two models that agree do so whatever is whose; and what a change of one
tensor makes of the outputs tells it. What nothing tells apart is set apart one at a time, as isomorphic graphs are matched
(McKay and Piperno, 'Practical graph isomorphism, II', 2014).
"""

from __future__ import annotations

import itertools
import math
import time
import zlib
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from parity.common.base.errors import ExternalModelError
from parity.common.external.mapping.candidate_rules import arrangements, distinct
from parity.common.external.mapping.left_over import ways_of
from parity.common.external.mapping.trial import AGREES, Bench, constant_of, outputs_deviation
from parity.common.external.process.pass_result import Array, Arrays
from parity.common.spec.external.mapping import ALSO_FITS, Mapping, Names, Pair
from parity.common.spec.external.outline import TensorInfo
from parity.common.spec.external.patterns import Shape

# Rounding of two frameworks.
_EQUAL = 10 * AGREES
_MOST, _SECONDS = 400, 20.0
# Of dividing tensors into parts.
_WAYS = 20_000
_DOUBT = "told from the others of its shape by what it does alone"


@dataclass(frozen=True)
class _Piece:
    """A tensor, or one of `count` equal parts of it along an axis. key: its sizes in order, without ones."""

    info: TensorInfo
    key: Shape
    axis: int = 0
    place: int = 0
    count: int = 1

    @property
    def shape(self) -> Shape:
        """Of the part alone."""
        sizes = list(self.info.shape)
        if self.count > 1:
            sizes[self.axis] //= self.count
        return tuple(sizes)


class ByEffect:
    """A bench whose mapping has doubtful pairs, and what a search for others knows.

    open: pieces of Keras (0) and of torch (1) without a counterpart. values: of all pieces that were open, in the order of their keys.
    """

    def __init__(self, bench: Bench) -> None:
        self.bench, mapping = bench, bench.mapping
        self.known = tuple(pair for pair in mapping.tensors if not _is_open(pair))
        self._deadline = time.monotonic() + _SECONDS
        every = mapping.tensors
        self._views = bench.views(every, *bench.run(every, inject=False, shared=False))
        left: list[list[TensorInfo]] = []
        for side, outline in zip(("keras", "torch"), bench.outlines, strict=True):
            taken = {name for pair in self.known for name in getattr(pair, side)}
            rest = set(mapping.names(side)) - taken
            rest -= {*getattr(mapping.ignored, side), *getattr(mapping.tied, side)}
            left.append([info for info in outline.tensors if info.name in rest])
        self.open = _pieces(left)
        self.whole = {side: list(pieces) for side, pieces in enumerate(self.open)}
        self.values = {piece: _symmetric(piece.key, "") for piece in itertools.chain.from_iterable(self.open)}

    def mapping(self) -> Mapping | None:
        """The mapping with the pairs that are told; None where the models differ, or something has no counterpart."""
        counts = [Counter(piece.key for piece in side) for side in self.open]
        if counts[0] != counts[1] or not 0 < counts[0].total() <= _MOST:
            return None
        told: list[tuple[_Piece, _Piece]] = []
        try:
            while any(self.open):
                found = self._told() if self._agree() and time.monotonic() < self._deadline else []
                if not found:
                    return None
                for pair in found:
                    value = _symmetric(pair[0].key, (pair[0].info.name, pair[0].place))
                    for side, piece in enumerate(pair):
                        self.values[piece] = value
                        self.open[side].remove(piece)
                told += found
            agree = self._agree()
        except ExternalModelError:  # a model may refuse such values
            return None
        names = Names() if agree else self.bench.mapping.unmapped
        tensors = (*self.known, *_paired(told))
        return (
            self.bench.mapping.model_copy(update={"tensors": tensors, "unmapped": names}) if agree else None
        )

    def _agree(self) -> bool:
        """Give both models the values, and whether their outputs are the same then."""
        for side, worker in enumerate(self.bench.sides):
            worker.write({info.name: self._array(side, info) for info in self._infos(side)})
        return self._is_one(self._outputs(0), self._outputs(1))

    def _infos(self, side: int) -> list[TensorInfo]:
        return list({piece.info.name: piece.info for piece in self.whole[side]}.values())

    def _array(self, side: int, info: TensorInfo, changed: _Piece | None = None) -> Array:
        """A tensor with the values of its pieces; `changed`: of this one, others."""
        parts = []
        for piece in (piece for piece in self.whole[side] if piece.info.name == info.name):
            value = self.values[piece]
            # What no order of elements changes, and no norm behind it undoes.
            value = value + 0.5 * value * np.abs(value) if piece == changed else value
            parts.append(_arranged(value, piece.shape))
        whole = parts[0] if len(parts) == 1 else np.concatenate(parts, axis=piece.axis)
        return whole.astype(info.dtype.replace("bfloat16", "float32"))

    def _outputs(self, side: int) -> Arrays:
        return self.bench.sides[side].forward(self.bench.inputs[side], taps=False).outputs

    def _effects(self, side: int) -> Iterator[tuple[_Piece, Arrays]]:
        worker = self.bench.sides[side]
        for piece in self.open[side]:
            worker.write({piece.info.name: self._array(side, piece.info, piece)})
            yield piece, self._outputs(side)
            worker.write({piece.info.name: self._array(side, piece.info)})

    def _told(self) -> list[tuple[_Piece, _Piece]]:
        """Pairs of pieces that do the same and that no other does; where there are none, one of several; [] where one has no counterpart."""
        every = [list(self._effects(side)) for side in (0, 1)]
        alone: list[tuple[_Piece, _Piece]] = []
        ties: list[tuple[_Piece, _Piece]] = []
        for piece, does in every[0]:
            same, partners = (
                [other for other, makes in effects if other.key == piece.key and self._is_one(does, makes)]
                for effects in every
            )
            if len(same) != len(partners):
                return []
            (alone if len(same) == 1 else ties).append((piece, partners[0]))
        return alone or ties[:1]

    def _is_one(self, ours: Arrays, theirs: Arrays) -> bool:
        """Whether outputs are the same but for rounding."""
        return outputs_deviation(self._views, ours, theirs) <= _EQUAL


def _is_open(pair: Pair) -> bool:
    """Whether a pair may be another one. Constants, and parts of several sizes, stay as they are."""
    sizes = next((part.partition("=")[2] for part in pair.rule.partition(";")[2].split() if "+" in part), "")
    return (
        pair.doubt is not None
        and constant_of(pair.rule) is None
        and len(set(sizes.split("+"))) == 1
        and pair.source != "hand"
    )


def _key(shape: Sequence[int]) -> Shape:
    return tuple(sorted(size for size in shape if size != 1))


def _pieces(left: Sequence[Sequence[TensorInfo]]) -> list[list[_Piece]]:
    """The tensors of Keras and of torch, those of some shapes in parts, so that both sides have as many of each size; [[], []] where none is so."""
    counts = [Counter(info.shape for info in side) for side in left]
    keys = [{_key(shape) for shape in side} for side in counts]
    # Of each shape of a side: as it is, and the parts of it that the other side may have.
    groups = [(side, shape) for side in (0, 1) for shape in counts[side]]
    choices = [[(0, 1), *_divisions(shape, keys[1 - side])] for side, shape in groups]
    for chosen in itertools.islice(itertools.product(*choices), _WAYS):
        totals: list[Counter[Shape]] = [Counter(), Counter()]
        for (side, shape), (axis, count) in zip(groups, chosen, strict=True):
            totals[side][_part_of(shape, axis, count)] += count * counts[side][shape]
        if totals[0] == totals[1]:
            way = dict(zip(groups, chosen, strict=True))
            return [
                [piece for info in infos for piece in _parts(info, *way[side, info.shape])]
                for side, infos in enumerate(left)
            ]
    return [[], []]


def _parts(info: TensorInfo, axis: int, count: int) -> list[_Piece]:
    return [_Piece(info, _part_of(info.shape, axis, count), axis, place, count) for place in range(count)]


def _part_of(shape: Shape, axis: int, count: int) -> Shape:
    """The key of one of some equal parts along an axis."""
    return _key([size // count if place == axis else size for place, size in enumerate(shape)])


def _divisions(shape: Shape, keys: Collection[Shape]) -> list[tuple[int, int]]:
    """Along which axis, and in how many parts, a tensor can be divided that have one of some keys; the largest parts first."""
    return [
        (axis, count)
        for count in range(2, max(shape, default=1) + 1)
        for axis, size in enumerate(shape)
        if size % count == 0 and _part_of(shape, axis, count) in keys
    ]


def _symmetric(key: Shape, name: object) -> Array:
    """Values for a piece of these sizes, which an exchange of axes of one size does not change; of a vector they may be variances."""
    random = np.random.default_rng(zlib.crc32(repr((key, name)).encode()))
    if len(key) < 2:
        return np.asarray(random.uniform(0.4, 1.2, key))
    value = random.standard_normal(key)
    orders = [
        order
        for order in itertools.permutations(range(len(key)))
        if tuple(key[axis] for axis in order) == key
    ]
    whole = sum((value.transpose(order) for order in orders), np.zeros(key))
    return np.asarray(1.3 * whole / math.sqrt(len(orders) * math.prod(key[:-1])))


def _arranged(value: Array, shape: Shape) -> Array:
    """Values, whose sizes are in order, in a shape."""
    sizes = [size for size in shape if size != 1]
    return value.transpose(np.argsort(np.argsort(sizes, kind="stable"))).reshape(shape)


def _paired(told: Sequence[tuple[_Piece, _Piece]]) -> list[Pair]:
    """Pairs of tensors from those of their pieces."""
    found: list[Pair] = []
    wholes: dict[tuple[int, str], list[tuple[_Piece, _Piece]]] = {}
    for pair in told:
        side = next((side for side, piece in enumerate(pair) if piece.count > 1), None)
        if side is None:
            ours, theirs = (piece.info for piece in pair)
            rules = distinct(ways_of(ours, theirs), ours.shape)
            also = f"; {ALSO_FITS} {' and '.join(map(repr, rules[1:3]))}" if len(rules) > 1 else ""
            pair_of = Pair(
                keras=(ours.name,), torch=(theirs.name,), rule=rules[0], source="order", doubt=_DOUBT + also
            )
            found.append(pair_of)
        else:
            wholes.setdefault((side, pair[side].info.name), []).append(pair)
    for (side, _), pairs in wholes.items():
        pairs.sort(key=lambda pair: pair[side].place)
        keras, torch = (tuple(dict.fromkeys(pair[each].info.name for pair in pairs)) for each in (0, 1))
        found.append(
            Pair(keras=keras, torch=torch, rule=_joined(side, *pairs[0]), source="order", doubt=_DOUBT)
        )
    return found


def _joined(side: int, keras: _Piece, torch: _Piece) -> str:
    """The rule of a tensor of one side, whose pieces follow each other, and of as many of the other's."""
    every = arrangements(keras.shape, torch.shape)
    # A kernel has its outputs first in torch.
    rule = next(
        (
            rule
            for rule in every
            if [*rule.partition(" -> ")[0].split()][::-1] == rule.partition(" -> ")[2].split()
        ),
        every[0],
    )
    sides = [part.split() for part in rule.split(" -> ")]
    whole = (keras, torch)[side]
    letter = sides[side][whole.axis]
    if letter != "1":
        return f"{rule}; {letter}={'+'.join([str(whole.shape[whole.axis])] * whole.count)}"
    sides[side][whole.axis] = "n"
    sides[1 - side].insert(0, "n")
    return " -> ".join(map(" ".join, sides))
