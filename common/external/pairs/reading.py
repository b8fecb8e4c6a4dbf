"""Reads expressions off a recorded computation: of each operation what it computes, in words that both frameworks share."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from parity.common.diagnosis import limits
from parity.common.external.pairs.computations import WHOLE, Argument, Computation, Operation
from parity.common.external.pairs.expressions import (
    BETWEEN,
    CAUSAL,
    COMMUTATIVE,
    LONGEST_NAME,
    UNNAMED,
    Expression,
    brief,
)
from parity.common.external.pairs.forms import simplified
from parity.common.external.pairs.operation_names import CALLED, IGNORED, NAMES, SAID, SILENT, USUAL
from parity.common.external.process.operations import COUNTS

_WITH_MEANS = ("std_mean", "var_mean")
# They give all parts of a tensor along an axis, of torch and of TensorFlow.
_UNSTACKED = ("unbind", "Unpack")
# How torch calls a linear interpolation.
_ALONG_ONE, _ALONG_BOTH = "upsample_linear1d", "upsample_bilinear2d"


class Reader:
    """Reads expressions off a computation.

    known: of a tensor that both models have, its number in Keras's pass. names: how such tensors are called, by that number.
    own: how tensors are called that this side alone has, by number.
    """

    def __init__(
        self,
        computation: Computation,
        known: Callable[[int], int | None],
        names: Mapping[int, str],
        own: Mapping[int, str],
    ) -> None:
        self.computation, self.known = computation, known
        self._names, self._own = names, own
        self._read: dict[int, Expression] = {}

    def read(self, number: int, is_root: bool = False) -> Expression:
        """The expression that makes a tensor; a root is one even if both models have its result."""
        if is_root:
            return self._made(number)
        if number not in self._read:
            maker = self.computation.maker.get(number)
            rearranged = maker is not None and maker.rearranges and maker.tensors
            found = (None if rearranged else self._leaf(number)) or self._made(number)
            self._read[number] = replace(found, shape=self.computation.shapes[number], used=number)
        return self._read[number]

    def _leaf(self, number: int) -> Expression | None:
        computation = self.computation
        same = self.known(number)
        if same is not None:
            return Expression(same=same, text=self._name(number, same), tensor=number)
        if computation.is_number(number):
            value = float(computation.fingerprints[number][COUNTS])
            return Expression(number=value, text=self._own.get(number, ""), tensor=number)
        if number in self._own or number not in computation.maker:
            return Expression(text=self._own.get(number) or self._unnamed(number), tensor=number)
        return None

    def is_given(self, number: int) -> bool:
        """Whether a tensor is given to a layer, and is none of its own weights or numbers."""
        number = self.computation.source(number)
        if number in self.computation.parameters or self.computation.is_number(number):
            return False
        return number in self.computation.maker or self.known(number) is not None or number in self._own

    def _unnamed(self, number: int) -> str:
        few = self.computation.few.get(number)
        if few is not None:
            return f"{UNNAMED[0]} {brief(_whole(few))}"
        return f"{UNNAMED[1]} {'x'.join(map(str, self.computation.shapes[number]))} numbers"

    def _name(self, number: int, same: int) -> str:
        if same in self._names:
            return self._names[same]
        maker = self.computation.maker.get(number)
        if maker is None:
            return self._unnamed(number)
        made = self._made(number)
        # What is made of names is a name itself: over the steps of a loop they would grow without end.
        short = [told for told in map(made.told, (4, 3, 2, 1)) if len(told) <= LONGEST_NAME]
        # As short as says all, else as deep as fits.
        text = next(
            (told for told in reversed(short) if "..." not in told), next(iter(short), f"{made.name}(...)")
        )
        return f"({text})" if made.name in BETWEEN and text in short else text

    def _made(self, number: int) -> Expression:
        maker = self.computation.maker.get(number)
        if maker is None:
            return self._leaf(number) or Expression(text="a tensor", tensor=number)
        if maker.rearranges and not maker.arguments:
            # The reading of a variable that has no name here, as of ones that one side alone has.
            value = float(self.computation.fingerprints[number][COUNTS])
            uniform = self.computation.is_uniform(number)
            return Expression(
                number=value if uniform else None,
                text="" if uniform else self._unnamed(number),
                tensor=number,
            )
        if maker.rearranges and maker.tensors:
            inner = self.read(maker.tensors[0])
            shape = "x".join(map(str, self.computation.shapes[number]))
            chain = (*inner.chain, f"{_snake(maker.name.strip('_'))} to {shape}")
            return replace(inner, line=inner.line or maker.line, chain=chain)
        read = replace(_operation(maker, self, number), shape=self.computation.shapes[number])
        made = simplified(read)
        return replace(made, tensor=number, line=maker.line, called=maker.called)


def _operation(made: Operation, reader: Reader, result: int | None = None) -> Expression:
    if made.name in _WITH_MEANS and result is not None:
        return _with_mean(made, reader, result)
    if made.name in _UNSTACKED and result is not None:
        axis = made.settings.get("dim", made.settings.get("axis", 0))
        settings = (("axis", axis), ("index", made.results.index(result)))
        return Expression("take", (reader.read(made.tensors[0]),), settings)
    special = _SPECIAL.get(made.name)
    found = None if special is None else special(made, reader)
    return _as_called(made, reader, result) if found is None else found


def _as_called(made: Operation, reader: Reader, result: int | None = None) -> Expression:
    name = NAMES.get(made.name, made.name.strip("_"))
    name = name if name in NAMES.values() else _snake(name)
    count = len(made.arguments)
    said = {place % count: what for place, what in SAID.get(made.name, {}).items() if count}
    operands: list[Expression] = []
    settings: list[tuple[str, Any]] = []
    for place, argument in enumerate(made.arguments):
        if place in said and argument.tensor is not None:
            if said[place] in IGNORED:
                continue
            settings.append((said[place], _values(argument.tensor, reader)))
        elif argument.several:
            operands += [_operand(each, reader) for each in argument.several]
        elif argument.tensor is not None:
            if name not in WHOLE or reader.is_given(argument.tensor):
                operands.append(reader.read(argument.tensor))
        elif len(operands) < _operands_of(name) and _is_number(argument.literal):
            operands.append(_number(argument.literal))
    for key, value in made.settings.items():
        called = CALLED.get(key, key)
        if key not in IGNORED | SILENT and not _says_nothing(called, value):
            settings.append((called, value))
    if len(made.results) > 1 and name not in WHOLE and result is not None:
        settings.append(("part", made.results.index(result)))
    return Expression(name, tuple(operands), tuple(settings))


def _says_nothing(name: str, value: Any) -> bool:
    if name in USUAL:
        return all(each == USUAL[name] for each in (value if isinstance(value, list | tuple) else [value]))
    return value is None or value is False or value in ("", "NHWC", [])


def _operands_of(name: str) -> int:
    return 2 if name in BETWEEN or name in COMMUTATIVE or name in ("pow", "gt", "ge", "lt", "le") else 0


def _operand(argument: Any, reader: Reader) -> Expression:
    if argument.tensor is not None:
        return reader.read(argument.tensor)
    return _number(argument.literal)


def _number(value: Any) -> Expression:
    return Expression(number=float(value)) if isinstance(value, int | float) else Expression(text=str(value))


def _values(number: int, reader: Reader) -> Any:
    """A small tensor's numbers, as a call would say them."""
    few = reader.computation.few.get(number)
    if few is None:
        return "..."

    return _whole(few)


def _whole(value: Any) -> Any:
    """Numbers without a fraction as whole ones."""
    if isinstance(value, list):
        return [_whole(each) for each in value]
    return int(value) if value == int(value) else value


def _snake(name: str) -> str:
    if name.islower():
        return name
    return "".join(f"_{c.lower()}" if c.isupper() and n else c.lower() for n, c in enumerate(name))


def _operands(made: Operation, reader: Reader) -> list[Expression]:
    return [
        _operand(each, reader)
        for each in made.arguments
        if each.tensor is not None or _is_number(each.literal)
    ]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _plus_product(made: Operation, reader: Reader) -> Expression:
    """torch's `addmm(bias, x, kernel)`."""
    bias, x, kernel = (reader.read(number) for number in made.tensors[:3])
    return Expression("add", (Expression("matmul", (x, kernel), line=made.line), bias))


def _convolution(made: Operation, reader: Reader) -> Expression | None:
    """torch's convolution, of either direction, with a bias or without."""
    if len(made.tensors) > 2:
        plain = replace(made, arguments=(*made.arguments[:2], Argument(), *made.arguments[3:]))
        return Expression("add", (_operation(plain, reader), reader.read(made.tensors[2])))
    if not made.settings.get("transposed"):
        return None
    settings = {key: value for key, value in made.settings.items() if key != "transposed"}
    return replace(_operation(replace(made, settings=settings), reader), name="conv_transpose")


def _convolution_back(made: Operation, reader: Reader) -> Expression:
    """TensorFlow's transposed convolution, which is given its kernel first; the shape follows from what else it is told."""
    read = _operation(replace(made, name="conv_transpose"), reader)
    kernel, x = read.operands[-2:]
    return replace(read, operands=(x, kernel))


def _written_by_index(made: Operation, reader: Reader) -> Expression | None:
    """torch's `y[:, order] = x`, where all of an axis is written: x in the inverse order."""
    _, indices, values = made.arguments[:3]
    given = [(axis, each.tensor) for axis, each in enumerate(indices.several) if each.tensor is not None]
    few = reader.computation.few.get(given[0][1]) if len(given) == 1 else None
    size = reader.computation.shapes[made.results[0]]
    if not isinstance(few, list) or values.tensor is None or sorted(few) != [*range(size[given[0][0]])]:
        return None
    inverse = sorted(range(len(few)), key=few.__getitem__)
    numbers = Expression(text=f"{UNNAMED[0]} {brief(inverse)}")
    return Expression("gather", (reader.read(values.tensor), numbers), (("axis", given[0][0]),))


def _square(made: Operation, reader: Reader) -> Expression:
    return Expression("pow", (reader.read(made.tensors[0]), Expression(number=2.0)))


def _squared_difference(made: Operation, reader: Reader) -> Expression:
    difference = Expression("sub", tuple(reader.read(number) for number in made.tensors))
    return Expression("pow", (difference, Expression(number=2.0)))


def _mean_squared_error(made: Operation, reader: Reader) -> Expression:
    """torch's `mse_loss`."""
    how = {0: "", 1: "mean", 2: "sum"}[made.settings.get("reduction", 1)]
    squares = _squared_difference(made, reader)
    return Expression(how, (squares,)) if how else squares


def _between(made: Operation, reader: Reader) -> Expression | None:
    """torch's `lerp` by a number: a weighted sum."""
    weight = made.settings.get("weight", made.arguments[2].literal if len(made.arguments) > 2 else None)
    if not isinstance(weight, int | float) or len(made.tensors) != 2:
        return None
    parts = (
        Expression("mul", (Expression(number=share), reader.read(tensor)), line=made.line)
        for share, tensor in zip((1.0 - weight, weight), made.tensors, strict=True)
    )
    return Expression("add", tuple(parts))


def _mean(made: Operation, reader: Reader) -> Expression | None:
    """The mean of squared differences from the mean is a variance; read by what makes them, since a mean may be one that both models have."""
    maker, source = reader.computation.maker, reader.computation.source
    square = maker.get(made.tensors[0])
    if square is None or not (
        square.name in ("Square", "SquaredDifference", "square")
        or (square.name == "pow" and [each.literal for each in square.arguments[1:]] == [2])
    ):
        return None
    apart = square if square.name == "SquaredDifference" else maker.get(square.tensors[0])
    if apart is None or len(apart.tensors) != 2:
        return None
    of, mean = apart.tensors
    maker_of_mean = maker.get(source(mean))
    if maker_of_mean is None or maker_of_mean.name != made.name or maker_of_mean.tensors[0] != of:
        return None
    if apart is not square and NAMES.get(apart.name, apart.name) != "sub":
        return None
    plain = _as_called(made, reader)
    return replace(
        plain, name="var", operands=(reader.read(of),), settings=(*plain.settings, ("correction", 0))
    )


def _with_mean(made: Operation, reader: Reader, result: int) -> Expression:
    """One of the two that torch's `std_mean` and `var_mean` give: how numbers spread, and their mean."""
    read = _as_called(made, reader)
    if made.results.index(result):
        return replace(read, name="mean", settings=tuple(s for s in read.settings if s[0] != "correction"))
    return replace(read, name=made.name.partition("_")[0])


def _norm(made: Operation, reader: Reader) -> Expression | None:
    """torch's `linalg_vector_norm`, of the usual order."""
    if made.settings.get("ord", 2) != 2:
        return None
    shape = reader.computation.shapes[made.tensors[0]]
    squares = Expression("pow", (reader.read(made.tensors[0]), Expression(number=2.0)), shape=shape)
    axes = made.settings.get("dim")
    return Expression("sqrt", (Expression("sum", (squares,), () if axes is None else (("axis", axes),)),))


def _attention(made: Operation, reader: Reader) -> Expression | None:
    """torch's `scaled_dot_product_attention`."""
    query, key, value, *mask = made.tensors
    if made.settings.get("dropout_p") or len(mask) > 1:
        return None
    size = reader.computation.shapes[query][-1]
    scale = Expression(number=float(made.settings.get("scale") or size**-0.5))
    scores = Expression(
        "mul", (Expression("matmul", (reader.read(query), reader.read(key)), line=made.line), scale)
    )
    if made.settings.get("is_causal"):
        hidden = Expression("not", (Expression(text=CAUSAL),))
        scores = Expression("where", (hidden, Expression(number=-math.inf), scores), line=made.line)
    if mask:
        scores = simplified(Expression("add", (scores, reader.read(mask[0]))))
    return Expression("matmul", (Expression("softmax", (scores,), line=made.line), reader.read(value)))


def _clamp(made: Operation, reader: Reader) -> Expression | None:
    """torch's `clamp` on one side alone."""
    rest = [each.literal for each in made.arguments[1:]]
    bounds = {"min": rest[0] if rest else None, "max": rest[1] if len(rest) > 1 else None} | {
        name: made.settings[name] for name in ("min", "max") if name in made.settings
    }
    given = [(name, bound) for name, bound in bounds.items() if _is_number(bound)]
    if len(given) != 1 or len(made.tensors) != 1:
        return None
    ((name, bound),) = given
    return Expression(
        "maximum" if name == "min" else "minimum", (reader.read(made.tensors[0]), _number(bound))
    )


def _masked_fill(made: Operation, reader: Reader) -> Expression:
    x, mask, value = made.arguments[:3]
    return Expression("where", (_operand(mask, reader), _operand(value, reader), _operand(x, reader)))


def _interpolates(computation: Computation, number: int) -> bool:
    """Whether a tensor is a matrix of weights of neighbours, as of a linear interpolation: two in a row at most, one in all."""
    if number in computation.parameters or len(computation.shapes[number]) != 2:
        return False
    maker = computation.maker.get(number)
    if maker is not None and maker.tensors:
        return False
    (value,) = computation.values(number)
    return bool(
        value.dtype.kind == "f"
        and (value >= 0).all()
        and ((value > 0).sum(1) <= 2).all()
        and np.allclose(value.sum(1), 1, rtol=0, atol=limits.FITS)
    )


def _identity(made: Operation, reader: Reader) -> Expression | None:
    """TensorFlow's matrix with ones along its diagonal."""
    shape = reader.computation.shapes[made.results[0]]
    ones = made.tensors[:1] and reader.computation.is_number(made.tensors[0])
    value = reader.read(made.tensors[0]).number if ones else None
    square = len(shape) == 2 and shape[0] == shape[1]
    return Expression("eye", (), (("n", shape[0]),)) if value == 1 and square else None


def _reversed_difference(made: Operation, reader: Reader) -> Expression:
    first, second = _operands(made, reader)[:2]
    return Expression("sub", (second, first))


def _sum(made: Operation, reader: Reader) -> Expression | None:
    """torch's `add` and `sub` with a factor."""
    alpha = made.settings.get("alpha", 1)
    if alpha == 1:
        return None
    first, second = _operands(made, reader)[:2]
    return Expression(NAMES[made.name], (first, Expression("mul", (second, _number(alpha)))))


def _slice(made: Operation, reader: Reader) -> Expression:
    """torch's slices of one axis, as in 'x[axis 1: 2:]'."""
    axis, *ends = [argument.literal for argument in made.arguments[1:]] or [0]
    given = dict(zip(("start", "stop", "step"), ends, strict=False))
    if made.name == "select":
        return Expression(
            "take", (reader.read(made.tensors[0]),), (("axis", axis), ("index", ends[0] if ends else 0))
        )
    settings = [("axis", axis)]
    settings += [("start", given["start"])] if given.get("start") else []
    settings += [("stop", given["stop"])] if given.get("stop") not in (None, 2**63 - 1) else []
    settings += [("step", given["step"])] if given.get("step", 1) != 1 else []
    return Expression("slice", (reader.read(made.tensors[0]),), tuple(settings))


def _strided_slice(made: Operation, reader: Reader) -> Expression | None:
    """TensorFlow's slices of several axes: one for each axis of which a part is taken."""
    lists = [_values(number, reader) for number in made.tensors[1:4]]
    if len(lists) < 3 or not all(isinstance(each, list) for each in lists):
        return None
    masks = {
        key: int(made.settings.get(f"{key}_mask") or 0)
        for key in ("begin", "end", "shrink_axis", "ellipsis", "new_axis")
    }
    found = reader.read(made.tensors[0])
    rank, places = len(reader.computation.shapes[made.tensors[0]]), range(len(lists[0]))
    real = [not (masks["new_axis"] | masks["ellipsis"]) & 1 << place for place in places]
    # Of what is left of the tensor, which has an axis less after each that is taken.
    axis = taken = 0
    for place, start, stop, step in zip(places, *lists, strict=True):
        bit = 1 << place
        if masks["ellipsis"] & bit:
            axis = rank - taken - sum(real[place + 1 :])
        elif real[place] and masks["shrink_axis"] & bit:
            found = Expression("take", (found,), (("axis", axis), ("index", start)))
            taken += 1
        elif real[place]:
            settings = [] if masks["begin"] & bit or not start else [("start", start)]
            settings += [] if masks["end"] & bit else [("stop", stop)]
            settings += [] if step == 1 else [("step", step)]
            if settings:
                found = Expression("slice", (found,), (("axis", axis), *settings))
            axis += 1
    return found


def _einsum(made: Operation, reader: Reader) -> Expression | None:
    """TensorFlow's sums of products, which torch's `einsum` makes of `bmm`."""
    equation = str(made.settings.get("equation"))
    letters, of_result = equation.split("->")
    terms = letters.split(",")
    if len(terms) != 2 or not set(terms[0]) & set(terms[1]) - set(of_result):
        return None
    operands = [reader.read(number) for number in made.tensors]
    resized = [
        other
        for number, other in zip(made.tensors, operands[::-1], strict=True)
        if _interpolates(reader.computation, number)
    ]
    if len(resized) == 1:
        # How images are resized in float64, axis by axis; see `_exact_resize` of the TensorFlow side.
        (of,) = resized
        twice = of.name == _ALONG_ONE
        settings = (("align_corners", False),)
        return Expression(_ALONG_BOTH if twice else _ALONG_ONE, of.operands if twice else (of,), settings)
    arranged = [
        replace(each, chain=(*each.chain, f"as {term} of {equation}"))
        for each, term in zip(operands, terms, strict=True)
    ]
    return Expression("matmul", tuple(arranged))


def _bucketize(made: Operation, reader: Reader) -> Expression:
    """Which bucket an edge itself is in: TensorFlow's is the one above it, torch's the one below unless it is told."""
    found = _as_called(made, reader)
    above = made.name == "Bucketize" or made.settings.get("right") is True
    settings = [each for each in found.settings if each[0] != "right"]
    return replace(found, settings=(*settings, ("right", above)))


_SPECIAL: dict[str, Callable[[Operation, Reader], Expression | None]] = {
    "Bucketize": _bucketize,
    "bucketize": _bucketize,
    "Einsum": _einsum,
    "addmm": _plus_product,
    "baddbmm": _plus_product,
    "convolution": _convolution,
    "Conv2DBackpropInput": _convolution_back,
    "Conv3DBackpropInputV2": _convolution_back,
    "index_put": _written_by_index,
    "_index_put_impl": _written_by_index,
    "MatrixDiagV3": _identity,
    "Square": _square,
    "SquaredDifference": _squared_difference,
    "mse_loss": _mean_squared_error,
    "lerp": _between,
    "Mean": _mean,
    "mean": _mean,
    "masked_fill": _masked_fill,
    "clamp": _clamp,
    "linalg_vector_norm": _norm,
    "_scaled_dot_product_flash_attention_for_cpu": _attention,
    "_scaled_dot_product_efficient_attention": _attention,
    "rsub": _reversed_difference,
    "add": _sum,
    "sub": _sum,
    "slice": _slice,
    "select": _slice,
    "StridedSlice": _strided_slice,
}
