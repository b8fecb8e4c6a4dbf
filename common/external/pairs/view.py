"""Both passes around a place: what lies between it and the tensors that both have, what may be tried there, and how what is found is told."""

from __future__ import annotations

import itertools
import math
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from parity.common.base.words import listed
from parity.common.diagnosis import limits
from parity.common.external.pairs.bench import Bench
from parity.common.external.pairs.computations import (
    Computation,
    Operation,
    Shared,
    arrangements,
    named,
)
from parity.common.external.pairs.constant_arrays import apart_in_words, known_numbers
from parity.common.external.pairs.difference_told import explanation_of
from parity.common.external.pairs.differences import (
    BY_ITSELF,
    OF_LAYOUTS,
    RECURRENT,
    Difference,
    alike,
    differences,
    is_weak,
)
from parity.common.external.pairs.explain import Attribution, made
from parity.common.external.pairs.expressions import CAUSAL, HIDDEN, UNNAMED, Expression
from parity.common.external.pairs.places import Place, Replacement, Substitution, recorded
from parity.common.external.pairs.reading import Reader
from parity.common.external.pairs.terms import by_terms
from parity.common.external.process.layouts import back, block_of
from parity.common.external.process.pass_result import Array
from parity.common.parity.deviation import tensor_deviation

_FLOAT32 = float(np.finfo(np.float32).eps)
DROPS = "that drops a share of"
# Operations of Keras's that are tried in the place of one of torch's, the likeliest first.
_TRIED = 12
# What stands between names in what an expression is called.
_NAMES = re.compile(r"[\s(),\[\]]+")
# So many numbers of Keras's are tried in torch's code.
_MOST_NUMBERS = 6
# Operations of torch's that are tried without.
_LEFT_AWAY = (
    "add",
    "sub",
    "mul",
    "div",
    "pow",
    "sqrt",
    "exp",
    "log",
    "abs",
    "clip",
    "relu",
    "tanh",
    "sigmoid",
    "maximum",
    "minimum",
)
# Orders of the elements, for all calls of a line at once.
_ORDERS = 4
# What is said of weights that may be others.
ONLY_ORDER = "; only order or shape says which weights {} are: see mapping.yaml"
# What another order of the weights before it would do as well.
OF_ORDER = ("order", "arrangement")
# Fewer elements are another tensor's times a number by chance.
_FEWEST = 4


class View:
    """Both passes around a place, and the operations that lie between it and the tensors that both have.

    bench: both models. keras, torch: the computations. torch_operations, keras_operations: what lies between.
    """

    def __init__(self, bench: Bench, place: Place) -> None:
        self.bench, self._place = bench, place
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
        self._ends = [
            next(iter(c.made_in(array, tap)), None)
            for c, array, tap in zip(sides, (place.due, place.own), place.taps, strict=True)
        ]
        self.keras_operations, self.torch_operations = self._between(*self._ends)

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
    def of_keras_alone(self) -> tuple[list[float], list[str]]:
        """A few numbers, and the names of operations, that Keras has on the way to the place, and torch has not."""
        both = [made.parts() for made in self._made()]
        if len(both) < len(self._ends):
            return [], []
        ours, theirs = both
        numbers, others = (
            {each.number for each in parts if each.number is not None} for parts in (ours, theirs)
        )
        alone = [one for one in numbers if not any(math.isclose(one, each) for each in others)]
        names = {each.name for each in ours} - {each.name for each in theirs}
        return sorted(filter(math.isfinite, alone))[:_MOST_NUMBERS], sorted(names)

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

    def attributed(
        self,
        substitutions: Sequence[Substitution],
        changes: Sequence[Replacement],
        evidence: str,
        layers: tuple[str, ...],
        confirmed: bool,
        agrees: Callable[[Replacement], bool],
        is_number: bool = False,
    ) -> list[Attribution]:
        """The differences of what both compute at substitutions, one attribution each; changes of torch's pass make good all of them.

        Args:
            substitutions: one, or the calls of a line, of which alike ones are told once.
            changes, evidence, layers, confirmed: what was tried, and what came of it.
            agrees: whether the place does so with something else put there.
            is_number: whether the place is one number, which any sum may make good.
        """
        substitution = substitutions[0]
        torch, keras = self._read(substitution)
        found = []
        opened = self._opened(torch, keras)
        opened += self._of_other_calls(substitutions[1:], (torch, keras), opened)
        if [each.kind for each in opened] == ["other"]:
            opened = self._without_one(opened[0], agrees)
        if len(opened) > 1:
            # An order alone, as of samples that are sorted, may be that of the other operands, too.
            opened = [each for each in opened if not self._is_order(each)] or opened
            opened = self._one_number(opened, torch, agrees)
        # Of several the experiment says that together they are it, and not of each; of one operation in one line they are one.
        kinds = {(each.kind, each.torch.name, each.torch.line) for each in opened}
        alone = (len(kinds) == 1 and not any(map(is_weak, opened))) or all(each.shown for each in opened)
        if is_number:
            confirmed = confirmed and all(self._is_shown(each, substitution, agrees) for each in opened)
        for number, each in enumerate(map(self._with_numbers, opened)):
            # A weight that is another one's counterpart makes a formula differ where none does.
            doubtful = (
                self.doubtful_before
                if each.kind in OF_ORDER
                else self._doubtful_in((each.torch, each.keras, torch, keras))
            )
            why = evidence + each.shown
            why += (
                "; together with the others that are told of it" if len(opened) > 1 and not each.shown else ""
            )
            if doubtful:
                why += ONLY_ORDER.format(listed(doubtful))
            explanation = explanation_of(each, torch, why, layers, confirmed and alone and not doubtful)
            if apart := self._rounded(each):
                line = each.torch.line or torch.line
                text = f"{line}: a constant that code rounds to float32, and not alike on both sides: {apart:.1g} apart"
                fix = "compute it in float64 on both sides, or take the same numbers; it is no other formula"
                explanation = replace(explanation, cause="rounding:constant", text=text, fix=fix)
            if each.torch.text == each.keras.text and DROPS in each.torch.text:
                # Masks are given by us, to calls that were taken for the same.
                fix = "compare with --without-dropout; in both models, call what drops in one order"
                explanation = replace(explanation, confidence="likely", fix=fix)
            found.append(Attribution(explanation, () if number else tuple(changes)))
        return found

    def _is_given_the_same(self, found: Difference) -> bool:
        """Whether a recurrent layer that is said to read elements in another order is given Keras's in the same."""
        if found.kind != "arrangement" or found.torch.name not in RECURRENT:
            return False
        theirs, ours = self._given(found) or (np.zeros(0), np.zeros(1))
        return ours.shape == theirs.shape and tensor_deviation(ours, theirs) <= limits.LIVE_FLOAT64

    def _is_of_layout(self, found: Difference) -> bool:
        """Whether settings that only say how axes lie are all that differs, and what is given has its elements in no like order."""
        if found.kind != "argument" or found.torch.name != found.keras.name:
            return False
        theirs, ours = dict(found.torch.settings), dict(found.keras.settings)
        if any(theirs.get(name) != ours.get(name) for name in {*theirs, *ours} - OF_LAYOUTS):
            return False
        given, due = self._given(found) or (np.zeros(0), np.zeros(0))
        return given.size == due.size > 0 and not any(
            tensor_deviation(each, given) <= limits.SAME_ELEMENTS for each in arrangements(due, given.shape)
        )

    def _given(self, found: Difference) -> tuple[Array, Array] | None:
        """What torch's and Keras's operation of a difference are given first; None where one is none."""
        given = [each.operands[0].used for each in (found.torch, found.keras) if each.operands]
        if len(given) < len(self._ends) or None in given:
            return None
        (theirs,), (ours,) = self.torch.values(given[0] or 0), self.keras.values(given[1] or 0)
        return theirs, ours

    def _with_numbers(self, found: Difference) -> Difference:
        """Of two constants what they are, and how they differ; of other results how, where one is the other times a number, say."""
        both = (found.torch, found.keras)
        if not all(self._is_constant(each) and each.tensor is not None for each in both):
            other = found.kind == "other"
            return replace(found, apart=self._apart(*both) or self._unpackable(*both)) if other else found
        (theirs,), (ours,) = (
            side.values(each.tensor or 0) for side, each in zip((self.torch, self.keras), both, strict=True)
        )
        if theirs.size != ours.size or not (apart := apart_in_words(theirs, ours)):
            return found
        kinds = [known_numbers(values) for values in (theirs, ours)]
        if not all(each.text.startswith(UNNAMED) for each in both) and not all(kinds):
            return found
        told = [
            replace(each, name="", operands=(), text=f"{each} ({kind})" if kind else str(each))
            for each, kind in zip(both, kinds, strict=True)
        ]
        first = replace(told[0], text=f"{told[0].text}, {apart},")
        return replace(found, kind="number", torch=first, keras=told[1])

    def _apart(self, torch: Expression, keras: Expression) -> str:
        """How torch's result is made of Keras's; '' where that is no number, and no other order."""
        if torch.tensor is None or keras.tensor is None or self.torch.is_uniform(torch.tensor):
            return ""
        (theirs,), (ours,) = self.torch.values(torch.tensor), self.keras.values(keras.tensor)
        if theirs.size < _FEWEST or not np.isfinite(theirs).all():
            return ""
        # As it lies first: another order of axes may be it by chance.
        said = (apart_in_words(theirs, each) for each in arrangements(ours, theirs.shape))
        return next((each for each in said if each and not each.startswith("up to")), "")

    def _unpackable(self, torch: Expression, keras: Expression) -> str:
        """That torch packs by lengths what Keras's mask hides between others; '' where it is not so."""
        if keras.name not in RECURRENT or not any(
            each.name == "pack_padded_sequence" for each in torch.parts()
        ):
            return ""
        masks = (
            each.tensor for part in keras.parts() if part.name in RECURRENT for each in part.operands[1:]
        )
        for value in self.keras.values(*(tensor for tensor in masks if tensor is not None)):
            seen = value.astype(bool)
            if value.ndim == 2 and (seen[:, 1:] & ~seen[:, :-1]).any():
                return "of lengths, and Keras's mask hides steps between others, too, which no length says"
        return ""

    def _is_order(self, found: Difference) -> bool:
        """Whether torch takes in another order by a gather what Keras takes as it is."""
        own, due = found.torch, found.keras
        if found.kind != "too_much" or own.name != "gather" or own.tensor is None or due.tensor is None:
            return False
        (theirs,), (ours,) = self.torch.values(own.tensor), self.keras.values(due.tensor)
        return theirs.size == ours.size and (
            tensor_deviation(np.sort(theirs, axis=None), np.sort(ours, axis=None)) <= limits.SAME_ELEMENTS
        )

    def _one_number(
        self, opened: list[Difference], torch: Expression, agrees: Callable[[Replacement], bool]
    ) -> list[Difference]:
        """Of several differences a factor alone, where Keras's is all that it takes: what is arranged otherwise is then the same in effect."""
        for each in opened:
            own, due = each.torch.number, each.keras.number
            if each.kind != "number" or not own or not due:
                continue
            for part in torch.parts():
                places = [n for n, of in enumerate(part.operands) if not of.name and of.number == own]
                if part.name not in ("mul", "div") or not places or part.tensor not in self.torch.maker:
                    continue
                maker, (value,) = self.torch.maker[part.tensor], self.torch.values(part.tensor)
                factor = own / due if part.name == "div" and places == [1] else due / own
                if agrees(Replacement.of(maker, part.tensor, value * factor, self._place.training)):
                    return [replace(each, shown=BY_ITSELF)]
        return opened

    def _without_one(self, found: Difference, agrees: Callable[[Replacement], bool]) -> list[Difference]:
        """The same as an operation of torch's too much, where all agrees once its result is what it was given, as of a sum that is divided again."""
        parts = [
            part
            for part in found.torch.parts()
            if part.tensor in self.torch.maker and part.name in _LEFT_AWAY
        ]
        for part in parts[:_TRIED]:
            assert part.tensor is not None
            maker = self.torch.maker[part.tensor]
            for given in maker.tensors:
                if self.torch.shapes[given] != self.torch.shapes[part.tensor] or self.torch.is_number(given):
                    continue
                (value,) = self.torch.values(given)
                if agrees(Replacement.of(maker, part.tensor, value, self._place.training)):
                    return [
                        Difference(
                            "too_much",
                            part,
                            replace(self._readers[1].read(given), line=found.keras.line),
                            shown=BY_ITSELF,
                        )
                    ]
        return [found]

    def _of_other_calls(
        self,
        others: Sequence[Substitution],
        first: tuple[Expression, Expression],
        known: Sequence[Difference],
    ) -> list[Difference]:
        """What other calls of a line do otherwise that compute something else than its first: several of one sum, say."""
        found, seen, told = [], {_outline(*first)}, {str(each) for each in known}
        for pair in map(self._read, others):
            if (kind := _outline(*pair)) not in seen:
                seen.add(kind)
                found += [each for each in self._opened(*pair) if str(each) not in told]
                told |= {str(each) for each in found}
        return found

    def _inside(self, torch: Expression, keras: Expression) -> list[Difference]:
        """The differences of what makes a tensor of torch's agree with one of Keras's, found by experiment; none where nothing does."""
        if torch.tensor is None or keras.tensor is None:
            return []
        key = self.torch.maker[torch.tensor].key_of(torch.tensor)
        (due,) = self.keras.values(keras.tensor)

        def agrees(change: Replacement) -> bool:
            with made(self.bench, [change]):
                passed = recorded(self.bench, 1, self._place)
            results = [
                r
                for each in passed.operations
                for r, k in zip(each.results, each.keys, strict=True)
                if k == key
            ]
            values = passed.values(*results)
            self.record_again(1)
            return any(
                tensor_deviation(array, value) <= limits.LIVE_FLOAT64
                for value in values
                for array in arrangements(due, value.shape)
            )

        for substitution in self.trials(self._between(keras.tensor, torch.tensor)):
            if substitution.torch_result != torch.tensor:
                change = self.replacement(substitution)
                if change is not None and agrees(change):
                    return self._opened(*self._read(substitution))
        return []

    def _read(self, substitution: Substitution) -> tuple[Expression, Expression]:
        """What torch and Keras compute at a substitution."""
        torch = self._readers[1].read(substitution.torch_result, is_root=True)
        keras = self._readers[0].read(substitution.keras_result)
        made = self._readers[0].read(substitution.keras_result, is_root=True)
        # How a number is computed says more than the number; and what is due at the place itself more than a tensor that is the same by chance.
        chance = substitution.keras_result == self._ends[0] and not keras.name and made.name == torch.name
        # But that torch goes on with what is due is no chance.
        chance &= all(each.same != keras.same for each in torch.operands)
        # So does how what goes by the name of its operand is made: what is reversed has the same elements.
        reordered = not keras.name and any(each.text == keras.text != "" for each in made.operands)
        if keras.number is not None or chance or reordered:
            keras = made
        # What Keras goes on to reverse, torch may leave as it is: both have that.
        same = self._shared.of_torch(substitution.torch_result)
        if same is not None and any(each.same == same for each in keras.operands):
            torch = replace(torch, same=same)
        return torch, keras

    def _is_shown(
        self, found: Difference, outer: Substitution, agrees: Callable[[Replacement], bool]
    ) -> bool:
        """Whether nothing speaks against a part of what was tried: a place that does not agree with Keras's result of it in torch's."""
        theirs, ours = found.torch.tensor, found.keras.tensor
        if (
            theirs is None
            or ours is None
            or theirs == outer.torch_result
            or not found.torch.name
            or found.kind == "broadcast"
        ):
            return True
        makers = self.torch.maker.get(theirs), self.keras.maker.get(ours)
        if makers[0] is None or makers[1] is None or makers[0].rearranges:
            return True
        (value,) = self.keras.values(ours)
        tried = [
            Substitution(makers[0], theirs, self.torch.shapes[theirs], makers[1], ours, order).replacement(
                value, self._place.training
            )
            for order in self._orders(makers[0], theirs, makers[1], ours)
        ]
        possible = [each for each in tried if each is not None]
        return not possible or any(map(agrees, possible))

    def _opened(self, torch: Expression, keras: Expression) -> list[Difference]:
        """The differences of what both compute, those inside of others and behind what only happens to be the same, too."""
        part = self._other_part(torch, keras)
        found, several = [], differences(torch, keras) if part is None else [part]
        several = [replace(each, kind="other") if self._is_given_the_same(each) else each for each in several]
        several = [
            replace(each, kind="arrangement") if self._is_of_layout(each) else each for each in several
        ]
        if any(each.kind == "other" for each in several):
            several = self._other_terms(torch, keras) or several
        if [each.kind for each in several] == ["other"]:
            several = [
                self._other_order(torch, keras)
                or self._other_divisor(several[0])
                or self._other_layer(several[0])
            ]
        for each in several:
            if each.inner is None or self._is_hidden(each):
                found += self._behind(replace(each, inner=None))
                continue
            tried = self._inside(*each.inner)
            inner = tried or self._opened(*each.inner)
            # Once the inner one is made good what is left is the outer one, where that is all.
            alone = len(inner) == len(several) == 1 and (tried or inner[0].shown)
            found += [replace(one, shown=BY_ITSELF if alone else "") for one in (each, *inner)]
        return found

    def _is_hidden(self, found: Difference) -> bool:
        """Whether all that differs inside of what Keras's mask hides something of is what it hides, as at padding."""
        if found.inner is None or found.keras.name != "where" or found.kind != "left_out":
            return False
        outer, (torch, keras) = found.keras.tensor, (each.tensor for each in found.inner)
        if outer is None or torch is None or keras is None:
            return False
        whole, ours = self.keras.values(outer, keras)
        (theirs,) = self.torch.values(torch)
        seen = np.equal(whole, ours) if whole.shape == ours.shape else np.zeros(ours.shape, bool)
        return bool(seen.any()) and any(
            tensor_deviation(ours[seen], each[seen]) <= limits.SAME_ELEMENTS
            for each in arrangements(theirs, ours.shape)
        )

    def _other_part(self, torch: Expression, keras: Expression) -> Difference | None:
        """That torch takes another part of a tensor than the one that Keras computes, as a crop at another side; None where it is not so."""
        whole, chain = torch, torch.chain
        while whole.name == "slice":
            whole = whole.operands[0]
            chain += whole.chain
        if whole is torch or None in (whole.tensor, keras.tensor) or chain or keras.chain:
            return None
        assert whole.tensor is not None and keras.tensor is not None
        (outer,), (inner,) = self.torch.values(whole.tensor), self.keras.values(keras.tensor)
        block = block_of(inner, outer)
        if block is None:
            return None
        due = whole
        for axis, (kept, size) in enumerate(zip(block, outer.shape, strict=True)):
            ends = [("start", kept.start)] * (kept.start > 0) + [("stop", kept.stop - size)] * (
                kept.stop < size
            )
            due = Expression("slice", (due,), (("axis", axis), *ends)) if ends else due
        # That it is so was measured, element by element.
        return Difference("part", torch, replace(due, line=keras.line), shown=BY_ITSELF)

    def _other_terms(self, torch: Expression, keras: Expression) -> list[Difference]:
        """In which terms two numbers differ that are sums; nothing where that is not clear."""
        if math.prod(torch.shape) * math.prod(keras.shape) != 1:
            return []
        return by_terms((self.keras, self.torch), keras, torch)

    def _other_divisor(self, found: Difference) -> Difference | None:
        """That a mean of torch's is Keras's sum by another divisor, as a mean over padding is; None where it is not so."""
        torch, keras = found.torch, found.keras
        if torch.name != "mean" or keras.name != "div" or None in (torch.tensor, keras.operands[0].tensor):
            return None
        assert torch.tensor is not None and keras.operands[0].tensor is not None
        (theirs,), (ours,) = self.torch.values(torch.tensor), self.keras.values(keras.operands[0].tensor)
        terms = math.prod(torch.operands[0].shape) / max(theirs.size, 1)
        sums = theirs * terms
        if not any(
            tensor_deviation(each, sums) <= limits.SAME_ELEMENTS for each in arrangements(ours, sums.shape)
        ):
            return None
        by = Expression(number=terms, line=torch.line)
        return Difference("divisor", by, replace(keras.operands[1], line=keras.line), shown=BY_ITSELF)

    def _other_layer(self, found: Difference) -> Difference:
        """The same as another tensor, where torch goes on with what both have, and Keras with what a layer of its own gives."""
        called = None if found.keras.tensor is None else self._names.get(found.keras.tensor)
        if called is None or found.torch.name or found.torch.same is None:
            return found
        return replace(
            found, kind="operand", keras=replace(found.keras, name="", operands=(), settings=(), text=called)
        )

    def _other_order(self, torch: Expression, keras: Expression) -> Difference | None:
        """That torch arranges otherwise, as by a reshape, what has the elements of Keras's; None where it is not so."""
        if torch.tensor is None or keras.tensor is None:
            return None
        (theirs,), (ours,) = self.torch.values(torch.tensor), self.keras.values(keras.tensor)
        after = (
            each for each in self.torch.operations if each.rearranges and each.tensors[:1] == [torch.tensor]
        )
        then = next(after, None)
        if then is None or theirs.size != ours.size or self.torch.is_uniform(torch.tensor):
            return None
        if not tensor_deviation(np.sort(theirs, axis=None), np.sort(ours, axis=None)) <= limits.SAME_ELEMENTS:
            return None
        chain = self._readers[1].read(then.results[0]).chain
        own, due = (
            Expression(text=str(each), tensor=each.tensor, shape=each.shape) for each in (torch, keras)
        )
        return Difference(
            "arrangement", replace(own, chain=chain, line=then.line), replace(due, line=keras.line)
        )

    def _behind(self, found: Difference) -> list[Difference]:
        """The differences of what made torch's part, where that only happens to be a tensor that both have, or a number, and is
        made by the operation that is due, of an operand that is due: a product with ones is what is multiplied.
        """
        leaf = found.torch
        made = self._made_as(leaf, [leaf] if found.kind == "left_out" else found.keras.operands, found.keras)
        return [found] if made is None else self._opened(made, found.keras)

    def _made_as(self, leaf: Expression, due: Sequence[Expression], keras: Expression) -> Expression | None:
        """What makes a tensor of torch's that both have, where that is the operation due, of an operand due, or of one made so; else None."""
        if leaf.name or leaf.tensor is None:
            return None
        made = self._readers[1].read(leaf.tensor, is_root=True)
        if not made.name or made.name != keras.name:
            return None
        pairs = itertools.product(made.operands, due)
        deeper = zip(made.operands, keras.operands, strict=False)
        is_so = any(alike(*pair) for pair in pairs) or any(
            self._made_as(one, other.operands, other) is not None for one, other in deeper
        )
        return made if is_so else None

    def _rounded(self, found: Difference) -> float:
        """How far two constants are apart, that no input or trained weight is part of, by rounding to float32 alone; 0.0 where that is not so."""
        constant = self._is_constant(found.torch) and self._is_constant(found.keras)
        if not constant or found.torch.tensor is None or found.keras.tensor is None:
            return 0.0
        (theirs,), (ours,) = self.torch.values(found.torch.tensor), self.keras.values(found.keras.tensor)
        each = (tensor_deviation(array, theirs) for array in arrangements(ours, theirs.shape))
        apart = min(each, default=math.inf)
        # A table is made of angles of some periods, each rounded.
        most = limits.ROUNDED_CONSTANT if theirs.size == 1 else limits.ULPS_OF_FLOAT32 * _FLOAT32
        return apart if apart <= most else 0.0

    @cached_property
    def _buffers(self) -> set[str]:
        return {info.name for outline in self.bench.outlines for info in outline.tensors if info.buffer}

    def _is_constant(self, made: Expression) -> bool:
        """Whether no input or trained weight is part of it."""
        leaves = (part for part in made.parts() if not part.name)
        return all(
            part.number is not None or part.text.startswith(UNNAMED) or part.text in self._buffers
            for part in leaves
        )

    @property
    def has_ends(self) -> bool:
        """Whether both passes have what is compared at the place, as code may make it outside of all operations."""
        return None not in self._ends

    @property
    def computes_nothing(self) -> bool:
        """Whether torch has at the place what both have before it."""
        return self._ends[1] is not None and self._shared.of_torch(self._ends[1]) is not None

    def as_read(self, layers: tuple[str, ...]) -> list[Attribution]:
        """The differences of what both compute at the place, where no number of one fits the other, or torch computes nothing."""
        roots = True, not self.computes_nothing
        ours, theirs = (
            reader.read(end, is_root=root)
            for reader, end, root in zip(self._readers, self._ends, roots, strict=True)
            if end is not None
        )
        own, due = self._place.own.shape, self._place.due.shape
        of = f", and of the shapes {own} and {due}" if sorted(own) != sorted(due) else ""
        evidence = f"read from both passes: of equal tensors{of}"
        return [
            Attribution(explanation_of(each, theirs, evidence, layers, confirmed=False))
            for each in self._opened(theirs, ours)
        ]


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


def _outline(torch: Expression, keras: Expression) -> tuple[tuple[str, ...], ...]:
    """What two expressions are made by, by name: alike in each round of a loop."""
    return tuple((each.name, *(operand.name for operand in each.operands)) for each in (torch, keras))
