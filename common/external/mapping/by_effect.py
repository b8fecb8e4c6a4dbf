"""Which tensor is which, by what each of them does.

Where all tensors of one shape have the same values, two models that agree do so whatever is whose; and what a change of one
tensor makes of the outputs tells it. What nothing tells apart is set apart one at a time, as isomorphic graphs are matched
(McKay and Piperno, 'Practical graph isomorphism, II', 2014).
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from parity.common.base.errors import ExternalModelError
from parity.common.external.mapping.components import deviation
from parity.common.external.mapping.graphs import assign
from parity.common.external.mapping.name_similarity import named_alike
from parity.common.external.mapping.pieces import Piece, is_plain, pairs_of, values_of, ways_to_cut
from parity.common.external.mapping.trial import AGREES, Bench, draw
from parity.common.external.process.pass_result import Array, Arrays
from parity.common.parity.deviation import unmasked
from parity.common.spec.external.mapping import Mapping, Names, Pair
from parity.common.spec.external.rules import parse_rule

# Rounding of two frameworks.
_EQUAL = 10 * AGREES
# Pieces of a side that are told, and for how long.
_MOST, _SECONDS = 400, 60.0
# How near the outputs of models are that differ in little.
_NEAR = 0.5
# By how much the likenesses of two pairs together are larger than of the two that they are exchanged for.
_CLEARLY_NEARER = 0.25
# Of cutting tensors into pieces.
_WAYS = 48

_Effects = Sequence[tuple[Piece, Array]]
_Told = tuple[Piece, Piece]
_Pieces = Sequence[Sequence[Piece]]


class ByEffect:
    """What is known of the doubtful pairs of a bench's mapping.

    open: pieces of Keras (0) and of torch (1) without a counterpart. values: of all that were open: of a part its own, else
    Keras's tensors.
    """

    def __init__(self, bench: Bench, known: Sequence[Pair]) -> None:
        """known: pairs of the mapping that stay."""
        self.bench, self.known, mapping = bench, known, bench.mapping
        self._closest: tuple[float, _Pieces] | None = None
        self._alike: tuple[list[Piece], list[Piece], Array] | None = None
        passes = bench.run(mapping.tensors, inject=False, shared=False)
        self._views = bench.views(mapping.tensors, *passes)
        # The outputs of both, in one order; and where what is masked does not hide the others.
        self._first = passes[1].outputs
        self._names, self._kept = self._shared(*(each.outputs for each in passes))
        self._infos = [{info.name: info for info in outline.tensors} for outline in bench.outlines]
        self._bound = [
            pair for pair in mapping.tensors if pair not in known and not is_plain(pair, *self._shapes(pair))
        ]

    def mapping(self) -> Mapping | None:
        """The mapping with the pairs that are told; None where the models differ, or nothing tells."""
        self._deadline = time.monotonic() + _SECONDS
        try:
            for pieces in itertools.islice(self._ways(), _WAYS) if self._names else ():
                if found := self._by(pieces):
                    return found
        except ExternalModelError:  # a model may refuse such values
            return None
        return None

    def nearest(self) -> Mapping | None:
        """Of models that differ, once `mapping` has found none: the mapping with pairs of what does most nearly the same."""
        # Of models that agree `mapping` has told all that there is to tell.
        if self._closest is None or not _EQUAL < self._closest[0] <= _NEAR:
            return None
        self._begin(self._closest[1])
        try:
            start = time.monotonic()
            self._agree()
            if (time.monotonic() - start) * len(self.open[0]) > _SECONDS:
                return None
            ours, theirs = self._effects()
        except ExternalModelError:
            return None
        alike = np.array(
            [
                [_likeness(does, makes) if piece.key == other.key else -np.inf for other, makes in theirs]
                for piece, does in ours
            ]
        )
        sides = [piece for piece, _ in ours], [piece for piece, _ in theirs]
        self._alike = *sides, alike
        found = assign(_of_wholes(alike, *sides))
        return self._with([(sides[0][row], sides[1][column]) for row, column in found.items()])

    def exchanged(self) -> list[Pair]:
        """Once `nearest` has been asked: pairs in place of those of two tensors of a layer, where each does clearly more nearly what the other's partner
        does, and their names say nothing.
        """
        if self._alike is None:
            return []
        ours, theirs, alike = self._alike
        places = {piece.names: place for place, piece in enumerate(theirs) if piece.is_whole}
        partner = {pair.keras: pair.torch for pair in self.bench.mapping.tensors}
        now = {
            row: places[partner[piece.names]]
            for row, piece in enumerate(ours)
            if piece.is_whole and partner.get(piece.names) in places
        }

        def layers(row: int) -> tuple[object, ...]:
            pieces = ours[row], theirs[now[row]]
            return ours[row].key, *(i[p.names[0]].layer for i, p in zip(self._infos, pieces, strict=True))

        changed = set[int]()
        for two in itertools.combinations(now, 2):
            (one, other), columns = two, [now[row] for row in two]
            gain = sum(alike[two, columns[::-1]]) - sum(alike[two, columns])
            named = any(named_alike(ours[row].names[0], theirs[now[row]].names[0]) for row in two)
            if layers(one) == layers(other) and gain >= _CLEARLY_NEARER and not named:
                now[one], now[other] = now[other], now[one]
                changed |= {one, other}
        told = [(ours[row], theirs[now[row]]) for row in changed]
        return [*(pairs_of(told, self._infos[0], self._infos[1]) or ())]

    def _with(self, told: Sequence[_Told]) -> Mapping | None:
        """The mapping with the pairs of tensors whose pieces are told; None where no rule has them so."""
        pairs = pairs_of(told, self._infos[0], self._infos[1])
        if pairs is None:
            return None
        return self.bench.mapping.model_copy(update={"tensors": (*self.known, *pairs), "unmapped": Names()})

    def _begin(self, pieces: _Pieces) -> None:
        """Open pieces, with equal values for those of one key."""
        self._whole, self.open = pieces, [list(side) for side in pieces]
        first = {piece.key: piece for piece in pieces[0]}
        self.values = {piece: self._drawn(first[piece.key], None) for side in pieces for piece in side}

    def _ways(self) -> Iterator[list[list[Piece]]]:
        """Yield the pieces of Keras and of torch that have no counterpart."""
        left, mapping = [], self.bench.mapping
        for side, infos in zip(("keras", "torch"), self._infos, strict=True):
            settled = {name for pair in (*self.known, *self._bound) for name in getattr(pair, side)}
            settled |= {*getattr(mapping.ignored, side), *getattr(mapping.tied, side)}
            named = set(mapping.names(side)) - settled
            left.append([info for info in infos.values() if info.name in named])
        bound = [
            [
                Piece((pair.rule, *map(tuple, self._shapes(pair))), (pair.keras, pair.torch)[side], pair.rule)
                for pair in self._bound
            ]
            for side in (0, 1)
        ]
        for pieces in ways_to_cut(left):
            both = [[*one, *other] for one, other in zip(pieces, bound, strict=True)]
            if 0 < len(both[0]) <= _MOST:
                yield both

    def _by(self, pieces: _Pieces) -> Mapping | None:
        self._begin(pieces)
        told: list[_Told] = []
        agree = self._agree()
        far = deviation(*self._base)
        if self._closest is None or far < self._closest[0]:
            self._closest = far, pieces
        while any(self.open):
            if not agree or time.monotonic() > self._deadline:
                return None
            alone, ties = self._told(*self._effects())
            # What nothing tells apart is mostly in the same order.
            before = dict(self.values)
            self._set_apart([*alone, *ties])
            agree = bool(alone or ties) and self._agree()
            found = [*alone, *ties]
            if not agree and ties:
                self.values = before
                found = alone or ties[:1]
                self._set_apart(found)
                agree = self._agree()
            for pair in found:
                for side, piece in enumerate(pair):
                    self.open[side].remove(piece)
            told += found
        return self._with(told) if agree else None

    def _set_apart(self, told: Sequence[_Told]) -> None:
        """Give pairs of pieces values of their own."""
        for pair in told:
            self.values |= dict.fromkeys(pair, self._drawn(pair[0], pair[0].place))

    def _shapes(self, pair: Pair) -> list[list[tuple[int, ...]]]:
        return [
            [infos[name].shape for name in names]
            for infos, names in zip(self._infos, (pair.keras, pair.torch), strict=True)
        ]

    def _shared(self, ours: Arrays, theirs: Arrays) -> tuple[list[tuple[str, str]], list[Array]]:
        """The outputs that both models have, by their names in both, and which of their numbers are not masked."""
        names: list[tuple[str, str]] = []
        kept: list[Array] = []
        for name, array in ours.items():
            rest = {other: each for other, each in theirs.items() if other not in {pair[1] for pair in names}}
            views = {other: self._views.as_torch(array, each) for other, each in rest.items()}
            fits = {other: deviation(view, rest[other]) for other, view in views.items() if view is not None}
            if fits:
                other = min(fits, key=lambda each: fits[each])
                names.append((name, other))
                clear = unmasked(rest[other])
                kept.append(np.flatnonzero(np.ones(array.size) if clear is None else clear))
        return names, kept

    def _drawn(self, piece: Piece, name: object) -> list[Array]:
        """Values for a piece; `name`: None for all that are alike."""
        if not piece.rule:
            return [values_of(piece.key, (name, *piece.names) if name is not None else "")]
        return [
            draw(self._infos[0][tensor], tensor if name is not None else (piece.key, slot))
            for slot, tensor in enumerate(piece.names)
        ]

    def _state(self, side: int, piece: Piece, changed: bool = False) -> Arrays:
        """The tensors that a piece is of; `changed`: with others values of this piece."""
        if piece.rule:
            arrays = [_changed(value) if changed else value for value in self.values[piece]]
            if side == 1:
                arrays = parse_rule(piece.rule).to_torch(arrays, len(piece.names))
            found = dict(zip(piece.names, arrays, strict=True))
        else:
            whole = np.zeros(self._infos[side][piece.names[0]].shape)
            for each in (each for each in self._whole[side] if each.names == piece.names):
                (value,) = self.values[each]
                each.fill(whole, _changed(value) if changed and each == piece else value)
            found = {piece.names[0]: whole}
        return {
            name: value.astype(self._infos[side][name].dtype.replace("bfloat16", "float32"))
            for name, value in found.items()
        }

    def _outputs(self, side: int) -> Array:
        """All outputs that both models have, one after another in the order of Keras's and in torch's layout, without what is masked."""
        outputs = self.bench.sides[side].forward(self.bench.inputs[side], taps=False).outputs
        rows: list[Array] = []
        for (ours, theirs), kept in zip(self._names, self._kept, strict=True):
            array = outputs[theirs] if side else self._views.as_torch(outputs[ours], self._first[theirs])
            assert array is not None
            rows.append(array.ravel()[kept])
        return np.concatenate(rows)

    def _agree(self) -> bool:
        """Give both models the values, and whether their outputs are the same then."""
        for side, worker in enumerate(self.bench.sides):
            for piece in self._whole[side]:
                if not any(piece.place):
                    worker.write(self._state(side, piece))
        self._base = [self._outputs(side) for side in (0, 1)]
        return _is_one(*self._base)

    def _effects(self) -> tuple[_Effects, _Effects]:
        """Of each open piece of both sides what a change of it adds to the outputs."""

        def of(side: int) -> _Effects:
            worker, found = self.bench.sides[side], []
            for piece in self.open[side]:
                worker.write(self._state(side, piece, changed=True))
                found.append((piece, self._outputs(side) - self._base[side]))
                worker.write(self._state(side, piece))
            return found

        with ThreadPoolExecutor(2) as threads:
            ours, theirs = threads.map(of, (0, 1))
        return ours, theirs

    def _told(self, ours: _Effects, theirs: _Effects) -> tuple[list[_Told], list[_Told]]:
        """Pairs of pieces that do the same and that no other does; and of several that do, in their order. None, where one has no counterpart."""
        base, classes = self._base[0], list[tuple[_Effects, _Effects]]()
        left = [list(ours), list(theirs)]
        while left[0]:
            piece, does = left[0][0]
            same = [
                [
                    each
                    for each in effects
                    if each[0].key == piece.key and _is_one(base + does, base + each[1])
                ]
                for effects in left
            ]
            if len(same[0]) != len(same[1]):
                return [], []
            gone = {each[0] for alike in same for each in alike}
            left = [[each for each in effects if each[0] not in gone] for effects in left]
            classes.append((same[0], same[1]))
        pairs = [[(one[0], other[0]) for one, other in zip(*both, strict=True)] for both in classes]
        return [each[0] for each in pairs if len(each) == 1], [
            pair for each in pairs if len(each) > 1 for pair in each
        ]


def _is_one(ours: Array, theirs: Array) -> bool:
    """Whether outputs are the same but for rounding."""
    return deviation(ours, theirs) <= _EQUAL


def _changed(value: Array) -> Array:
    """Other values, whatever the order of their elements, and whatever norm follows."""
    return np.asarray(value + 0.5 * value * np.abs(value))


def _of_wholes(alike: Array, ours: Sequence[Piece], theirs: Sequence[Piece]) -> Array:
    """How alike pieces are, without pairs that would divide two tensors of one cut which are more alike as wholes than their pieces are like whole tensors."""
    of = [_by_tensor(pieces) for pieces in (ours, theirs)]
    several = [[places for places in each.values() if len(places) > 1] for each in of]
    single = [[places[0] for places in each.values() if len(places) == 1] for each in of]
    worth = np.full((len(several[0]), len(several[1])), -np.inf)
    for (i, rows), (j, columns) in itertools.product(enumerate(several[0]), enumerate(several[1])):
        if len(rows) == len(columns):
            parts = (
                alike[np.ix_(rows, single[1])].max(1, initial=0),
                alike[np.ix_(single[0], columns)].max(0, initial=0),
            )
            whole = alike[rows, columns].mean()
            worth[i, j] = whole if whole >= max(each.mean() for each in parts) else -np.inf
    found = alike.copy()
    for i, j in assign(worth).items():
        rows, columns = several[0][i], several[1][j]
        found[rows, :], found[:, columns] = -np.inf, -np.inf
        found[rows, columns] = alike[rows, columns]
    return found


def _by_tensor(pieces: Sequence[Piece]) -> dict[object, list[int]]:
    """The places of the pieces of each tensor, in order."""
    found: dict[object, list[int]] = {}
    for place, piece in enumerate(pieces):
        found.setdefault((piece.rule, piece.names), []).append(place)
    return found


def _likeness(ours: Array, theirs: Array) -> float:
    """1 for equal effects, 0 for those that have nothing in common."""
    sizes = float(np.linalg.norm(ours) + np.linalg.norm(theirs))
    near = 1 - float(np.linalg.norm(ours - theirs)) / sizes if sizes else 1.0
    return near if math.isfinite(near) else 0.0
