"""Both passes around a place: what lies between it and the tensors that both have, and what of Keras's may be tried there in torch's."""

from __future__ import annotations

import copy
import itertools
import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from parity.common.diagnosis import limits
from parity.common.external.pairs.bench import Bench
from parity.common.external.pairs.computations import (
    Computation,
    Operation,
    Shared,
    arrangements,
    named,
)
from parity.common.external.pairs.expressions import CAUSAL, HIDDEN, Expression
from parity.common.external.pairs.places import Place, Replacement, Substitution, recorded
from parity.common.external.pairs.reading import Reader
from parity.common.external.process.layouts import back
from parity.common.parity.deviation import tensor_deviation

DROPS = "that drops a share of"
# Operations of Keras's that are tried in the place of one of torch's, the likeliest first.
_TRIED = 12
# What stands between names in what an expression is called.
_NAMES = re.compile(r"[\s(),\[\]]+")
# So many numbers of Keras's are tried in torch's code.
_MOST_NUMBERS = 6
# Orders of the elements, for all calls of a line at once.
_ORDERS = 4


class Substitutions:
    """Both passes around a place, and the operations that lie between it and the tensors that both have.

    bench: both models. keras, torch: the computations. torch_operations, keras_operations: what lies between.
    """

    def __init__(self, bench: Bench, place: Place) -> None:
        self.bench = bench
        self.keras, self.torch = (recorded(bench, side, place) for side in (0, 1))
        shared = Shared(self.keras, self.torch)
        sides = (self.keras, self.torch)
        own = [
            computation.parameters
            | named(computation, {f"the input {name}": value for name, value in given.items()})
            | _masks(computation)
            | _causal_masks(computation)
            for computation, given in zip(sides, bench.inputs, strict=True)
        ]
        names = named(self.keras, place.activations) | own[0]
        self._names = names
        self._readers = (
            Reader(self.keras, shared.of_keras, names, own[0]),
            Reader(self.torch, shared.of_torch, names, own[1]),
        )
        pairs = [pair for pair in bench.mapping.tensors if pair.is_ambiguous]
        # What a layer gives stands for its weights.
        self._doubtful = {name for pair in pairs for name in (*pair.keras, *pair.torch)}
        self._doubtful |= {name.rpartition("/")[0] for pair in pairs for name in pair.keras} - {""}
        self._shared = shared
        self._look_at(place)

    def _look_at(self, place: Place) -> None:
        self._place = place
        self._ends = [
            next(iter(c.made_in(array, tap)), None)
            for c, array, tap in zip(
                (self.keras, self.torch), (place.due, place.own), place.taps, strict=True
            )
        ]
        self.keras_operations, self.torch_operations = self._between(*self._ends)

    def like(self, found: Substitution, place: Place) -> Substitution | None:
        """What may make another place of the same passes agree as one of these does: by operations of the same lines; None where nothing is."""
        other = copy.copy(self)
        other.__dict__.pop("_by_line", None)
        other._look_at(place)
        due_result, own_result = (
            each.results.index(result)
            for each, result in ((found.keras, found.keras_result), (found.torch, found.torch_result))
        )
        ours, theirs = (
            by_line.get((each.name, each.line), ())
            for by_line, each in zip(other._by_line, (found.keras, found.torch), strict=True)
        )
        due = [(each, result) for each in ours for result in each.results[due_result : due_result + 1]]
        ways = itertools.chain(
            (
                way
                for each in theirs
                for way in other._fitting(each, due)
                if way.torch_result in each.results[own_result : own_result + 1]
            ),
            other._used_otherwise(other.torch_operations, due),
        )
        return next(ways, None)

    def _between(self, keras: int | None, torch: int | None) -> tuple[list[Operation], list[Operation]]:
        """What computes a tensor of either side from those that both have."""
        ours, theirs = self._shared.of_keras, self._shared.of_torch
        return (
            [] if keras is None else self.keras.between(keras, lambda number: ours(number) is not None),
            [] if torch is None else self.torch.between(torch, lambda number: theirs(number) is not None),
        )

    @property
    def code(self) -> list[str]:
        """The lines of torch's code that compute what lies between, those of the operations first."""
        own = [each.line for each in self.torch_operations]
        return [*filter(None, dict.fromkeys([*own, *(each.called for each in self.torch_operations)]))]

    @property
    def end(self) -> int | None:
        """The number of Keras's tensor at the place."""
        return self._ends[0]

    @property
    def of_keras_alone(self) -> tuple[list[float], list[str], list[float]]:
        """A few numbers, and the names of operations, that Keras has on the way to the place, and torch has not; then these numbers once more, with
        those that such operations are given, whether or not torch has them elsewhere.
        """
        both = [made.parts() for made in self._made()]
        if len(both) < len(self._ends):
            return [], [], []
        ours, theirs = both
        numbers, others = (
            {each.number for each in parts if each.number is not None} for parts in (ours, theirs)
        )
        alone = [one for one in numbers if not any(math.isclose(one, each) for each in others)]
        names = {each.name for each in ours} - {each.name for each in theirs}
        given = [part.number for each in ours if each.name in names for part in each.operands]
        few = sorted(filter(math.isfinite, alone))[:_MOST_NUMBERS]
        bounds = [each for each in dict.fromkeys(given) if each is not None and math.isfinite(each)]
        return few, sorted(names), sorted({*few, *bounds[:_MOST_NUMBERS]})

    @property
    def doubtful(self) -> list[str]:
        """Weights and layers on the way to the place of which only order or shape says which tensors of torch's they are, or how these lie."""
        return self._doubtful_in(self._made())

    @property
    def doubtful_before(self) -> list[str]:
        """Weights like those of `doubtful`, of all that Keras computes before the place: some for others put what follows in another order."""
        made = [] if self.end is None else self.keras.between(self.end, lambda _: False)
        used = {name for each in made for n in each.tensors if (name := self.keras.parameters.get(n))}
        return sorted({*self.doubtful, *(used & self._doubtful)})

    def _made(self) -> list[Expression]:
        """What each side computes at the place, where that was recorded."""
        ends = zip(self._readers, self._ends, strict=True)
        return [reader.read(end, is_root=True) for reader, end in ends if end is not None]

    def _doubtful_in(self, expressions: Iterable[Expression]) -> list[str]:
        texts = {part.text for each in expressions for part in each.parts()}
        # What a part is called without being read further ('complex(a/real, a/imag)') is made of names, too.
        names = {name for text in texts for name in _NAMES.split(text)}
        return sorted(name for name in names if {name, name.rpartition("/")[0]} & self._doubtful)

    def seen(self) -> frozenset[int]:
        """What Keras computes on the way to the place, by number, that torch's model gives, as it is now."""
        made = [result for each in self.keras_operations for result in each.results]
        sought = [
            n for n in made if n == self.end or not (self.keras.is_uniform(n) or self.keras.is_number(n))
        ]
        loss = None if self._place.losses is None else self._place.losses[1]
        found = self.bench.torch.seen(
            self.keras.fingerprints[sought],
            self.bench.inputs[1],
            loss,
            training=self._place.training,
            inject=self._place.injections,
        )
        return frozenset(sought[place] for place in found)

    def left_with(self, seen: Collection[int]) -> int:
        """How many of Keras's operations before the place give what torch's has nowhere, with some tensors that it has."""
        end, known = self.end, self._shared.of_keras
        if end is None:
            return 0
        return len(self.keras.between(end, lambda number: number in seen or known(number) is not None))

    @property
    def given_alone(self) -> tuple[list[int], list[int]]:
        """What layers give that Keras, and that torch alone computes the place from: tensors that both have, by number."""
        sides = (
            (self.keras_operations, self._shared.of_keras, self.keras),
            (self.torch_operations, self._shared.of_torch, self.torch),
        )
        known = [
            {
                same: number
                for each in operations
                for number in map(computation.source, each.tensors)
                if (same := of(number)) is not None and number not in computation.parameters
            }
            for operations, of, computation in sides
        ]
        ours, theirs = known
        return [ours[n] for n in ours.keys() - theirs.keys()], [
            theirs[n] for n in theirs.keys() - ours.keys()
        ]

    def record_again(self, side: int = 0) -> None:
        """Have a process hold the tensors of this pass: it keeps those of the last that it recorded."""
        recorded(self.bench, side, self._place)

    def rearranged(self) -> Iterator[Substitution]:
        """Yield what may make the place agree where a tensor that both have, of as many axes, has its elements in another order in torch."""
        leaves = [
            {
                number: known(computation.source(given))
                for operation in operations
                for given in operation.tensors
                for number in computation.rearrangements(given)
            }
            for computation, operations, known in (
                (self.keras, self.keras_operations, self._shared.of_keras),
                (self.torch, self.torch_operations, self._shared.of_torch),
            )
        ]
        for (ours, same), (theirs, other) in itertools.product(leaves[0].items(), leaves[1].items()):
            made, due_of = self.torch.maker.get(theirs), self.keras.maker.get(ours)
            if same is None or same != other or made is None or due_of is None:
                continue
            # What goes on as another tensor is given by no operation that could be replaced.
            if theirs not in made.results or ours not in due_of.results:
                continue
            shapes = self.keras.shapes[ours], self.torch.shapes[theirs]
            (due,), (own,) = self.keras.values(ours), self.torch.values(theirs)
            # Of one shape, axes of one size are not to be taken for each other.
            numbers = np.arange(due.size).reshape(shapes[0])
            orders = [numbers.ravel()] if shapes[0] == shapes[1] else [*self._layouts_of(numbers, shapes[1])]
            arranged = (due.ravel()[order].reshape(shapes[1]) for order in orders)
            if all(tensor_deviation(own, each) > limits.SAME_ELEMENTS for each in arranged):
                for order in orders:
                    yield Substitution(made, theirs, shapes[1], due_of, ours, order)

    def trials(
        self, operations: tuple[Sequence[Operation], Sequence[Operation]] | None = None
    ) -> Iterator[Substitution]:
        """Yield what may make the place agree: of torch's operations the first first, each with the likeliest of Keras's; in bounded time.

        Where that is over, the last ones: what they compute holds all that is computed otherwise, as in a long loop.

        Args:
            operations: of Keras's and of torch's, those that lie between where None.
        """
        began = self.bench.busy
        before = self.bench.searched
        ours, theirs = operations or (self.keras_operations, self.torch_operations)
        due = [(each, result) for each in ours if not each.rearranges for result in each.results]
        # What both have, and Keras goes on to compute with in another way, may be used in many places of torch's.
        first = itertools.chain(
            self._used_otherwise(theirs, due) if operations is None else (),
            itertools.chain.from_iterable(self._fitting(each, due) for each in theirs),
        )
        for tried, substitution in enumerate(first):
            took = self.bench.busy - began
            self.bench.searched = before + took
            if self.bench.searched > limits.LONGEST_IN_ALL:
                return
            if took > limits.LONGEST_SEARCH and tried >= limits.LEAST_TRIED:
                break
            yield substitution
        else:
            return
        last = itertools.chain.from_iterable(self._fitting(each, due[::-1]) for each in reversed(theirs))
        yield from itertools.islice(last, limits.LAST_TRIED)

    def _used_otherwise(
        self, operations: Sequence[Operation], due: Sequence[tuple[Operation, int]]
    ) -> Iterator[Substitution]:
        """Yield what Keras computes of a tensor that both have in place of it, where operations of torch's use it as it is several times."""
        used = Counter(
            self.torch.source(number) for operation in operations for number in {*operation.tensors}
        )
        for number, times in used.items():
            maker, same = self.torch.maker.get(number), self._shared.of_torch(number)
            if times < 2 or same is None or maker is None or maker in operations:
                continue
            of_it = [
                (keras, result)
                for keras, result in due
                if any(self._shared.of_keras(self.keras.source(given)) == same for given in keras.tensors)
            ]
            yield from (each for each in self._fitting(maker, of_it) if each.torch_result == number)

    def _fitting(self, operation: Operation, due: Sequence[tuple[Operation, int]]) -> Iterator[Substitution]:
        """Yield what results of Keras's may stand for one of torch's, the likeliest first; of like ones as they are given."""
        for result in () if operation.rearranges else operation.results:
            size, own = self.torch.fingerprints[result][0], self._readers[1].read(result, is_root=True)
            fitting = [each for each in due if self.keras.fingerprints[each[1]][0] == size]
            fitting.sort(key=lambda each: -_likeness(own, self._readers[0].read(each[1])))
            for keras, keras_result in fitting[:_TRIED]:
                for order in self._orders(operation, result, keras, keras_result):
                    yield Substitution(
                        operation, result, self.torch.shapes[result], keras, keras_result, order
                    )

    def _orders(
        self, torch: Operation, torch_result: int, keras: Operation, keras_result: int
    ) -> Iterator[NDArray[np.intp]]:
        """Yield the orders that a result's elements may have: of its axes, or as those of an operand have."""
        shapes = self.keras.shapes[keras_result], self.torch.shapes[torch_result]
        numbers = np.arange(math.prod(shapes[0])).reshape(shapes[0])
        # First as the models have them elsewhere: of equal sides another order would agree at this place, too.
        for how in self._layouts(numbers.ndim):
            yield back(numbers, how).ravel()
        for array in arrangements(numbers, shapes[1]):
            yield array.ravel()
        for operand, other in itertools.product(torch.tensors, keras.tensors):
            sizes = (self.keras.fingerprints[other][0], self.torch.fingerprints[operand][0])
            if sizes != (numbers.size, numbers.size):
                continue
            (ours,), (theirs,) = self.keras.values(other), self.torch.values(operand)
            order = np.empty(numbers.size, np.intp)
            order[np.argsort(theirs.ravel(), kind="stable")] = np.argsort(ours.ravel(), kind="stable")
            if tensor_deviation(theirs.ravel(), ours.ravel()[order]) <= limits.SAME_ELEMENTS:
                yield order

    def _layouts(self, axes: int) -> list[str]:
        """The orders that so many axes have in torch, where that has been seen."""
        seen = dict.fromkeys(self.bench.layouts.values())
        return [how for how in seen if how.startswith("axes") and how.count(",") == axes - 1]

    def _layouts_of(self, numbers: NDArray[np.intp], shape: tuple[int, ...]) -> list[NDArray[np.intp]]:
        """The orders of elements, numbered (...), that a tensor has in torch with its axes in the order that makes it of a shape; those
        that the models have elsewhere, if one of these does.
        """
        if sorted(numbers.shape) != sorted(shape):
            return []
        seen = [back(numbers, how) for how in self._layouts(numbers.ndim)]
        return [each.ravel() for each in seen if each.shape == shape] or [
            each.ravel() for each in arrangements(numbers, shape)
        ]

    def repeated(self, number: int, tried: Collection[tuple[int, ...]]) -> list[list[Substitution]]:
        """What may make the place agree where an operation of torch's is of a line that is run several times, as in a loop: all its calls,
        in turn, with those of one of Keras's lines; the likeliest first. None where its line is run once, or for calls that were tried, by number.
        """
        ours_by_line, theirs_by_line = self._by_line
        line = next(
            (each for each in theirs_by_line.values() if any(one.number == number for one in each)), []
        )
        fitting = [
            (theirs, ours)
            for each in ours_by_line.values()
            for theirs, ours in _in_step(line, each)
            if number in (numbers := tuple(one.number for one in theirs))
            and numbers not in tried
            and self._sizes(1, theirs) == self._sizes(0, ours)
        ]
        # The first may be of numbers alone, which have no order.
        fitting.sort(key=lambda pair: -self._likeness(pair[0][-1], pair[1][-1]))
        return [
            [
                Substitution(
                    one, one.results[0], self.torch.shapes[one.results[0]], other, other.results[0], order
                )
                for one, other in zip(theirs, ours, strict=True)
            ]
            for theirs, ours in fitting[:_TRIED]
            for order in itertools.islice(
                self._orders(theirs[-1], theirs[-1].results[0], ours[-1], ours[-1].results[0]), _ORDERS
            )
        ]

    @cached_property
    def _by_line(self) -> list[dict[tuple[str, str], list[Operation]]]:
        return [_calls(each) for each in (self.keras_operations, self.torch_operations)]

    def _sizes(self, side: int, calls: Sequence[Operation]) -> list[float]:
        fingerprints = (self.keras, self.torch)[side].fingerprints
        return [float(fingerprints[each.results[0]][0]) for each in calls]

    def _likeness(self, torch: Operation, keras: Operation) -> float:
        """How much two operations have in common."""
        return _likeness(
            self._readers[1].read(torch.results[0], is_root=True), self._readers[0].read(keras.results[0])
        )

    def replacement(self, substitution: Substitution) -> Replacement | None:
        """What a substitution puts in torch's pass."""
        (value,) = self.keras.values(substitution.keras_result)
        return substitution.replacement(value, self._place.training)

    def replacements(self, substitutions: Sequence[Substitution]) -> list[Replacement]:
        """What several put there; none where one of them does not fit."""
        found = [self.replacement(each) for each in substitutions]
        return [] if None in found else [each for each in found if each is not None]


def _likeness(one: Expression, other: Expression) -> float:
    """How much two expressions have in common: the operation, and the tensors that they are made of."""
    every = (one.shared | other.shared).total()
    return (one.name == other.name) + ((one.shared & other.shared).total() / every if every else 0.0)


def _calls(operations: Sequence[Operation]) -> dict[tuple[str, str], list[Operation]]:
    """By name and line what is no rearrangement, in the order of the calls."""
    found: dict[tuple[str, str], list[Operation]] = {}
    for each in operations:
        if each.line and each.results and not each.rearranges:
            found.setdefault((each.name, each.line), []).append(each)
    return found


def _in_step(
    ones: Sequence[Operation], others: Sequence[Operation]
) -> Iterator[tuple[Sequence[Operation], Sequence[Operation]]]:
    """Yield the calls of two lines that may be counterparts: as many of each, where one does the same several times in a round every n-th one."""
    few, many = sorted((len(ones), len(others)))
    if few < 2 or many % few:
        return
    step = many // few
    for offset in range(step):
        yield (ones[offset::step], others) if len(ones) == many else (ones, others[offset::step])


def _masks(computation: Computation) -> dict[int, str]:
    """How masks of dropout are called, by number."""
    return {
        number: f"a mask{' of whole channels' if together else ''} {DROPS} {rate:g}"
        for print_, rate, together in computation.masks
        for number in computation.numbers_like(print_)
    }


def _causal_masks(computation: Computation) -> dict[int, str]:
    """How masks that let no step see a later one are called, by number: how code makes them says less."""
    squares = [
        number
        for number, shape in enumerate(computation.shapes)
        if len(shape) > 1 and shape[-1] == shape[-2] > 2 and math.prod(shape) == shape[-1] ** 2
    ]
    found = {}
    for number, value in zip(squares, computation.values(*squares), strict=True):
        square = value.reshape(value.shape[-2:])
        seen = np.tri(len(square), dtype=bool)
        if np.array_equal(square, seen) or (np.all(square[seen] == 0) and np.all(square[~seen] == -np.inf)):
            found[number] = CAUSAL
        elif np.array_equal(square, ~seen):
            found[number] = HIDDEN
    return found
