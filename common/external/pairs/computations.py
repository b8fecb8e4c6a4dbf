"""What two models compute in one pass, operation by operation, and which tensors both of them have.

A tensor of one model is looked for in the other by its elements, in whatever order: layouts differ. From a place that deviates one
goes back on both sides to the nearest tensors that both have. What lies between is what is computed otherwise.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parity.common.diagnosis import limits
from parity.common.external.pairs.operation_names import FUNCTIONS, NAMES
from parity.common.external.process.operations import COUNTS, fingerprint, key_of_result, rows_alike
from parity.common.external.process.pass_result import Array, Arrays
from parity.common.external.process.worker import ExternalWorker

# They give the same elements in another order, which is another tensor.
_MOVES = ("roll", "flip", "sort")
# Layers whose insides are of no interest: each counts as one operation of its kind.
WHOLE = frozenset(
    ("batch_norm", "layer_norm", "group_norm", "instance_norm", "rms_norm", "lstm", "gru", "simple_rnn")
)
# What takes its type and shape alone from a tensor.
_FILLED = ("new_full", "new_ones", "new_zeros", "zeros_like", "ZerosLike")
Whole = tuple[str, Any]
_MOST_AXES = 6
# Of a number that someone would write, at most.
_DIGITS = 6


@dataclass(frozen=True)
class Argument:
    """What an operation is given: a tensor by its number, several arguments, or anything else."""

    tensor: int | None = None
    several: tuple[Argument, ...] = ()
    literal: Any = None

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> Argument:
        """From what `Recording` has."""
        return cls(data.get("value"), tuple(map(cls.of, data.get("list", ()))), data.get("literal"))

    @property
    def tensors(self) -> list[int]:
        """The numbers of all tensors in it."""
        own = [] if self.tensor is None else [self.tensor]
        return own + [number for each in self.several for number in each.tensors]


@dataclass(frozen=True, eq=False)
class Operation:
    """One operation of a pass, or all of a layer that counts as one.

    number: its place among the operations. keys: of its results, by which each can be replaced. line: of the user's code. called:
    the line that this one is reached from, where it is from several. layers: the calls of layers that it is made in.
    rearranges: it gives the elements of its first argument.
    """

    number: int
    name: str
    keys: tuple[str, ...]
    line: str
    arguments: tuple[Argument, ...]
    results: tuple[int, ...]
    rearranges: bool
    settings: Mapping[str, Any]
    called: str = ""
    layers: tuple[str, ...] = ()

    def key_of(self, result: int) -> str:
        """By which a result can be replaced."""
        return self.keys[self.results.index(result)]

    @cached_property
    def tensors(self) -> list[int]:
        """The numbers of the tensors that it is given."""
        return [number for argument in self.arguments for number in argument.tensors]


class Computation:
    """The operations of one model in a pass, and its tensors by number.

    masks: those of dropout, as (fingerprint, rate, whether elements are dropped together). parameters: weights and buffers, by
    number, with their names.
    """

    def __init__(self, side: ExternalWorker, told: Mapping[str, Any], whole: Mapping[str, Whole]) -> None:
        """
        Args:
            side: that has recorded it, and keeps the tensors until it records another pass.
            told: what it recorded.
            whole: the layers that count as one operation, path -> kind, and the epsilon that it has.
        """
        self._side = side
        self.fingerprints: NDArray[np.float64] = np.asarray(told["fingerprints"])
        self.shapes = [tuple(shape) for shape in told["shapes"]]
        self.few = {int(number): value for number, value in told["few"].items()}
        self.masks = [(np.asarray(m["fingerprint"]), m["rate"], m["together"]) for m in told["masks"]]
        called = _called([each["lines"] for each in told["operations"]])
        self.operations = [
            Operation(
                number,
                each["name"],
                tuple(key_of_result(each["key"], place) for place in range(len(each["results"]))),
                next(iter(each["lines"]), ""),
                tuple(map(Argument.of, each["arguments"])),
                tuple(each["results"]),
                each["rearranges"] or self._broadcasts(each, told["operations"]),
                each["settings"],
                called[number],
                tuple(each["layers"]),
            )
            for number, each in enumerate(told["operations"])
        ]
        # What an operation only hands on has been made before: a transposition that is undone, say.
        self.operations = [
            replace(
                each,
                results=new,
                keys=tuple(key for r, key in zip(each.results, each.keys, strict=True) if r in new),
            )
            for each in self.operations
            for new in [tuple(r for r in each.results if r > max(each.tensors, default=-1))]
        ]
        self._join(told["operations"], whole)
        self.maker: dict[int, Operation] = {}
        for place, each in enumerate(self.operations):
            operation = self.operations[place] = self._rejoined(each)
            for result in operation.results:
                self.maker.setdefault(result, operation)
        self.parameters = named(self, side.read())
        self._values: dict[int, Array] = {}
        self._is_number: dict[int, bool] = {}
        self._hand_on()

    def values(self, *numbers: int) -> list[Array]:
        """The tensors with these numbers."""
        missing = [number for number in dict.fromkeys(numbers) if number not in self._values]
        if missing:
            self._values |= dict(zip(missing, self._side.operation_values(missing), strict=True))
        return [self._values[number] for number in numbers]

    def is_uniform(self, number: int) -> bool:
        """Whether all elements of a tensor, several, are one finite number: such a tensor may be anywhere."""
        print_ = self.fingerprints[number]
        return bool(print_[0] != 1 and print_[COUNTS] == print_[COUNTS + 1] and not print_[1:COUNTS].any())

    def is_number(self, number: int) -> bool:
        """Whether a tensor is a number of the code's: all its elements are one, and it is not computed from others that are not."""
        if number not in self._is_number:
            print_ = self.fingerprints[number]
            maker = self.maker.get(number)
            self._is_number[number] = bool(
                print_[COUNTS] == print_[COUNTS + 1]
                and print_[0]
                and not print_[1:COUNTS].any()
                and number not in self.parameters
                and (
                    maker is None
                    or (
                        (maker.name != "ReadVariableOp" or print_[0] == 1)
                        and (maker.name in _FILLED or all(map(self.is_number, maker.tensors)))
                    )
                )
            )
        return self._is_number[number]

    def numbers_of(self, array: Array) -> list[int]:
        """The tensors with the elements of an array of any shape, in whatever order."""
        return self.numbers_like(fingerprint(array))

    def numbers_like(self, print_: NDArray[np.float64]) -> list[int]:
        """The tensors with a fingerprint, (FINGERPRINT,), those first that an operation makes: not all inside of a whole layer."""
        return sorted(rows_alike(self.fingerprints, print_), key=lambda number: number not in self.maker)

    def source(self, number: int) -> int:
        """The tensor that one is a rearrangement of, itself where it is none."""
        found = self.rearrangements(number)
        return self.maker[found[-1]].tensors[0] if found else number

    def rearrangements(self, number: int) -> list[int]:
        """The tensor and those before it that are rearrangements of another, the last first."""
        found: list[int] = []
        maker = self.maker.get(number)
        while maker is not None and maker.rearranges and maker.tensors and number not in found:
            found.append(number)
            number = maker.tensors[0]
            maker = self.maker.get(number)
        return found

    def between(self, end: int, known: Callable[[int], bool]) -> list[Operation]:
        """The operations that compute a tensor from the nearest known ones, in their order."""
        found: dict[int, Operation] = {}
        waiting, seen = [end], set()
        while waiting:
            number = waiting.pop()
            if number in seen or (number != end and known(number)):
                continue
            seen.add(number)
            maker = self.maker.get(number)
            if maker is not None:
                found[maker.number] = maker
                waiting += maker.tensors
        return [found[number] for number in sorted(found)]

    def made_in(self, array: Array, tap: str) -> list[int]:
        """The tensors with the elements of an array of any shape, those first that a call of a layer makes, and of these those with its order: another call may make the same."""
        call = tap if "#" in tap else f"{tap}#0"
        numbers = self.numbers_of(array)
        values = self.values(*numbers) if len(numbers) > 1 else []
        # What only has the same elements in another order, as what is reversed at last, is another tensor.
        in_order = {
            n for n, v in zip(numbers, values, strict=False) if v.shape == array.shape and _same(array, v)
        }
        return sorted(
            numbers,
            key=lambda number: (
                number not in self.maker or call not in self.maker[number].layers,
                number not in in_order,
            ),
        )

    def makes_behind(self, array: Array, before: Array) -> bool:
        """Whether a tensor, of any shape, is computed after another one."""
        made = [
            [self.maker[number].number for number in self.numbers_of(each) if number in self.maker]
            for each in (array, before)
        ]
        return bool(made[0] and made[1]) and max(made[0]) > min(made[1])

    def last_functions(self, array: Array) -> set[str]:
        """The functions of `FUNCTIONS` that an array, of any shape, is made by."""
        made = {self.maker[number].name.lower() for number in self.numbers_of(array) if number in self.maker}
        return made & FUNCTIONS

    def next_functions(self, array: Array) -> set[str]:
        """Those that are computed of an array, of any shape."""
        given = {*self.numbers_of(array)}
        return {each.name.lower() for each in self.operations if self._takes(each, given)} & FUNCTIONS

    def _takes(self, operation: Operation, numbers: set[int]) -> bool:
        """Whether an operation is given one of some tensors, however it is rearranged."""
        return any(not numbers.isdisjoint((one, self.source(one))) for one in operation.tensors)

    def crops(self, array: Array, sizes: Sequence[int]) -> bool:
        """Whether slices are taken of an array, of any shape, until its axes have these sizes, in any order."""
        cut = {*self.numbers_of(array)}
        for each in self.operations:
            if each.name == "slice" and self._takes(each, cut):
                cut |= {*each.results}
                if any(sorted(self.shapes[result]) == sorted(sizes) for result in each.results):
                    return True
        return False

    def _broadcasts(self, told: Mapping[str, Any], others: Sequence[Mapping[str, Any]]) -> bool:
        """Whether it repeats a tensor, whole, along axes of one that stay: what torch's `expand` gives without an operation."""
        if told["name"] not in ("Tile", "repeat"):
            return False
        (result,) = told["results"]
        then = [
            made
            for each in others
            if each["rearranges"] and {"value": result} in each["arguments"][:1]
            for made in each["results"]
        ]
        long, *later = ([size for size in self.shapes[made] if size != 1] for made in (result, *then))
        # Where such an axis is joined with another afterwards, elements are repeated one by one.
        if any(each != long for each in later):
            return False
        of, times = map(Argument.of, told["arguments"][:2])
        counts = times.literal if times.tensor is None else self.few.get(times.tensor)
        shape = () if of.tensor is None else self.shapes[of.tensor]
        if not isinstance(counts, list) or len(counts) < len(shape):
            return False
        sizes = (*(1,) * (len(counts) - len(shape)), *shape)
        return all(count == 1 or size == 1 for count, size in zip(counts, sizes, strict=True))

    def _rejoined(self, operation: Operation) -> Operation:
        """One that joins all parts of a tensor, in their order, as heads are put behind one another: a rearrangement of it."""
        parts = operation.tensors
        joins = parts and NAMES.get(operation.name) in ("concat", "stack")
        maker = self.maker.get(parts[0]) if joins else None
        if maker is None or NAMES.get(maker.name) not in ("split", "unstack"):
            return operation
        if tuple(parts[: len(maker.results)]) != maker.results:
            return operation
        size = sum(math.prod(self.shapes[part]) for part in maker.results)
        whole = next((each for each in maker.tensors if math.prod(self.shapes[each]) == size), None)
        if whole is None or any(math.prod(self.shapes[each]) > 1 for each in parts[len(maker.results) :]):
            return operation
        return replace(operation, rearranges=True, arguments=(Argument(whole),))

    def _hand_on(self) -> None:
        """Have what goes on as another tensor, as taps make of what a layer gives, be that which was computed."""
        made: dict[bytes, int] = {}
        counts = set[int]()  # what follows from shapes alone
        for number, print_ in enumerate(self.fingerprints):
            maker, own = self.maker.get(number), number in self.parameters
            key = print_.tobytes() + str(self.shapes[number]).encode()
            # A whole number is one of the code's, whatever else comes to the same by chance, as the largest token does.
            whole = print_[0] == 1 and print_[COUNTS].is_integer()
            if maker is None and not own and key in made and not whole:
                self.maker[number] = Operation(-1, "identity", (), "", (Argument(made[key]),), (), True, {})
                continue
            follows = maker is not None and (
                maker.name in ("Shape", "Size") or counts.issuperset(maker.tensors)
            )
            if follows or self.is_number(number):
                counts.add(number)
            elif maker is not None and not own:
                made[key] = number

    def _join(self, told: Sequence[Mapping[str, Any]], whole: Mapping[str, Whole]) -> None:
        """Make one operation of all that a call of a layer of `whole` consists of."""
        calls: dict[str, list[Operation]] = {}
        kinds: dict[str, Whole] = {}
        for operation, each in zip(self.operations, told, strict=True):
            call = next((call for call in each["layers"] if call.rpartition("#")[0] in whole), None)
            if call is not None:
                calls.setdefault(call, []).append(operation)
                kinds[call] = whole[call.rpartition("#")[0]]
        inside = {operation.number: call for call, members in calls.items() for operation in members}
        used_by: dict[int, set[str]] = {}
        for operation in self.operations:
            for number in operation.tensors:
                used_by.setdefault(number, set()).add(inside.get(operation.number, ""))
        joined = [_joined(kinds[call], call, members, used_by) for call, members in calls.items()]
        rest = [operation for operation in self.operations if operation.number not in inside]
        self.operations = sorted([*rest, *joined], key=lambda operation: operation.number)


def _called(lines: Sequence[Sequence[str]]) -> list[str]:
    """Of each operation, by its lines of code, the first line around its own in which it differs from others of its line; '' where in none."""
    by_line: dict[str, set[tuple[str, ...]]] = {}
    for each in lines:
        by_line.setdefault(next(iter(each), ""), set()).add(tuple(each[1:]))
    found = []
    for each in lines:
        others = by_line[next(iter(each), "")]
        places = (n for n, line in enumerate(each[1:]) if {line} != {o[n] for o in others if n < len(o)})
        found.append(next((each[1 + n] for n in places), ""))
    return found


def _joined(
    whole: Whole, call: str, members: Sequence[Operation], used_by: Mapping[int, set[str]]
) -> Operation:
    made = {result: key for each in members for result, key in zip(each.results, each.keys, strict=True)}
    given = dict.fromkeys(number for each in members for number in each.tensors if number not in made)
    results = [
        result
        for each in members
        for result in each.results
        if (each is members[-1] or used_by.get(result, set()) - {call}) and result not in given
    ]
    # The last is what the layer gives; a recurrent one gives its states, too.
    results = list(dict.fromkeys(reversed(results)))
    first, last = members[0], members[-1]
    return (
        Operation(
            last.number,
            whole[0],
            tuple(made[result] for result in results),
            next((each.line for each in members if each.line), ""),
            tuple(Argument(number) for number in given),
            tuple(results),
            False,
            {} if whole[1] is None else {"epsilon": whole[1]},
            next((each.called for each in members if each.line), ""),
            first.layers,
        )
        if first is not last or first.results
        else last
    )


class Shared:
    """The tensors that both models have in a pass, up to rounding and the order of their axes.

    Numbers, and tensors of which all elements are equal, are none of these: they would be everywhere.
    """

    def __init__(self, keras: Computation, torch: Computation) -> None:
        self._keras, self._torch = keras, torch
        self._in_keras, self._in_torch = _matched(torch, keras), _matched(keras, torch)
        self._equal: dict[tuple[int, int], bool] = {}

    def of_torch(self, number: int) -> int | None:
        """The first tensor of Keras's that one of torch's is; None where there is none."""
        return next((each for each in self._in_keras.get(number, ()) if self.equal(each, number)), None)

    def of_keras(self, number: int) -> int | None:
        """The first tensor of Keras's that is one of Keras's, where torch has it, too; None where it has not."""
        found = next((each for each in self._in_torch.get(number, ()) if self.equal(number, each)), None)
        return None if found is None else self.of_torch(found)

    def equal(self, keras: int, torch: int) -> bool:
        """Whether two tensors are the same, up to rounding and the order of their axes."""
        if (keras, torch) not in self._equal:
            (ours,), (theirs,) = self._keras.values(keras), self._torch.values(torch)
            source = self._torch.source(torch)
            # What computes numbers, such as repeats, and joins axes the other way round makes something else; however it is rearranged then.
            in_turn = source == torch and torch in self._torch.maker
            self._equal[keras, torch] = any(
                _same(each, theirs) for each in arrangements(ours, theirs.shape, in_turn)
            ) and (source == torch or self.of_torch(source) is not None)
        return self._equal[keras, torch]


def arrangements(array: Array, shape: Sequence[int], in_turn: bool = False) -> Iterator[Array]:
    """Yield an array in each order of its axes in which it has a shape, or has it once axes are joined or divided.

    Args:
        array: of any shape.
        shape: of as many elements; else nothing is yielded.
        in_turn: whether axes are joined only as they follow each other in the array.
    """
    if array.size != math.prod(shape) or array.ndim > _MOST_AXES:
        return
    long = [size for size in shape if size > 1]
    others = []
    for order in itertools.permutations(range(array.ndim)):
        moved = array.transpose(order)
        if [size for size in moved.shape if size > 1] == long:
            yield moved.reshape(shape)
        elif not in_turn or _joins_in_turn(array.shape, order, long):
            others.append(moved)
    for moved in others:
        if len(long) != sum(size > 1 for size in array.shape):
            yield moved.reshape(shape)


def _joins_in_turn(shape: Sequence[int], order: Sequence[int], long: Sequence[int]) -> bool:
    """Whether axes of a shape, taken in an order, are neighbours in it wherever sizes `long` join them."""
    places = {axis: place for place, axis in enumerate(a for a, size in enumerate(shape) if size > 1)}
    ends, before, size = set(itertools.accumulate(long, lambda one, other: one * other)), None, 1
    for axis in (axis for axis in order if axis in places):
        # Between two sizes nothing is joined.
        if before is not None and size not in ends and places[axis] != places[before] + 1:
            return False
        before, size = axis, size * shape[axis]
    return True


def _same(one: Array, other: Array) -> bool:
    ours, theirs = np.asarray(one, np.float64), np.asarray(other, np.float64)
    finite = np.isfinite(ours)
    if not np.array_equal(finite, np.isfinite(theirs)) or not np.array_equal(
        ours[~finite], theirs[~finite], equal_nan=True
    ):
        return False
    largest = np.abs(ours[finite]).max(initial=0.0)
    return bool(np.abs(ours[finite] - theirs[finite]).max(initial=0.0) <= limits.SAME_ELEMENTS * largest)


def _matched(one: Computation, other: Computation) -> dict[int, list[int]]:
    """By number of a tensor of one, those of the other with the same elements."""
    found = {}
    for number, print_ in enumerate(one.fingerprints):
        alike = (
            [] if one.is_uniform(number) or one.is_number(number) else rows_alike(other.fingerprints, print_)
        )
        if alike:
            found[number] = alike
    return found


def named(computation: Computation, arrays: Arrays) -> dict[int, str]:
    """By number of a tensor the name of an array with its elements; of several the first."""
    found: dict[int, str] = {}
    for name, array in arrays.items():
        # One number that someone would write may be any.
        if array.size > 1 or array.ndim or float(f"{array:.{_DIGITS}g}") != array:
            for number in computation.numbers_of(array):
                maker = computation.maker.get(number)
                moved = maker is not None and NAMES.get(maker.name, maker.name.lower()) in _MOVES
                if not computation.is_uniform(number) and not moved:
                    found.setdefault(number, name)
    return found
