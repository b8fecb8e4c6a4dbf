"""How a group of Keras tensors becomes a group of torch tensors and back: named rules, and patterns of axes.

Rules are bijections; those that are none say so, with what training by them cannot keep equal (`note`).
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from parity.common.base.errors import ExternalModelError
from parity.common.spec.external.patterns import Array, Rule, Shape, pattern

_TEXT_LIMIT = 200


class _OneShape(Rule):
    """For tensors of one shape: as many of Keras's and of torch's as `counts` says, None: any number."""

    counts: tuple[int | None, int | None]

    def _shapes(self, shapes: Sequence[Shape], count: int, to_torch: bool) -> list[Shape]:
        given = (len(shapes), count) if to_torch else (count, len(shapes))
        fits = all(one in (None, other) for one, other in zip(self.counts, given, strict=True))
        if not fits or len(set(shapes)) != 1:
            ours, theirs = ("any number" if one is None else one for one in self.counts)
            raise ExternalModelError(
                f"rule {self.text!r} is for {ours} of Keras's tensors and {theirs} of torch's, all of one shape"
            )
        return [shapes[0]] * count


class Same(_OneShape):
    """One tensor each, of any shape."""

    text, counts = "same", (1, 1)

    def to_torch(self, arrays: Sequence[Array], count: int) -> list[Array]:
        self.torch_shapes([array.shape for array in arrays], count)
        return list(arrays)

    to_keras = to_torch


class TwoBiases(_OneShape):
    """Keras's one bias of a recurrent layer, of which torch has two that are only ever added: no bijection.

    To torch: the first takes the values, the second zero. To Keras: their sum. The gradient is that of the
    first: each of torch's two has the gradient that Keras's one has. But an update moves both, so torch's sum
    moves twice as far as Keras's bias (SGD; others similarly): training truly differs unless one is frozen.
    """

    text, counts = "two_biases", (1, 2)
    note = "torch has two biases where Keras has one: both get its gradient, so their sum moves twice as fast"

    def to_torch(self, arrays: Sequence[Array], count: int) -> list[Array]:
        return [arrays[0], np.zeros_like(arrays[0])]

    def to_keras(self, arrays: Sequence[Array], count: int) -> list[Array]:
        return [np.add(arrays[0], arrays[1])]

    def gradients(self, arrays: Sequence[Array], count: int) -> list[Array]:
        return [arrays[0]]


class Copies(_OneShape):
    """One Keras tensor in several places that torch has one tensor for each: no bijection.

    To Keras all must be equal. The gradient is the sum.
    """

    text, counts, shared_by_one = "copies", (1, None), True
    note = "Keras shares one tensor where torch has several: after a step they are no longer equal"

    def to_torch(self, arrays: Sequence[Array], count: int) -> list[Array]:
        return [arrays[0].copy() for _ in range(count)]

    def to_keras(self, arrays: Sequence[Array], count: int) -> list[Array]:
        if any(not np.array_equal(arrays[0], other) for other in arrays[1:]):
            raise ExternalModelError("torch tensors that are one tensor in Keras have different values")
        return [arrays[0]]

    def gradients(self, arrays: Sequence[Array], count: int) -> list[Array]:
        return [sum(arrays[1:], arrays[0])]


class TiedKernel(Rule):
    """Keras's embedding and the kernel of its output layer, (i, o), where torch has one tensor for both: no bijection.

    To torch: the embedding's values. To Keras: both alike. Of the gradient of one no other has a share.
    """

    text, shared_by_one = "tied_kernel", True
    note = "torch shares one tensor where Keras has two: after a step they are no longer equal"

    def _shapes(self, shapes: Sequence[Shape], count: int, to_torch: bool) -> list[Shape]:
        first = shapes[0] if shapes else ()
        due = [first, *[first[::-1]] * (len(shapes) - 1)]
        if len(first) != 2 or list(shapes) != due or (count, len(shapes)) not in ((1, 2), (2, 1)):
            raise ExternalModelError(
                f"rule {self.text!r} is for Keras's embedding (o, i) and kernel (i, o) and one tensor (o, i) of torch's"
            )
        return [first] if to_torch else [first, first[::-1]]

    def to_torch(self, arrays: Sequence[Array], count: int) -> list[Array]:
        return [arrays[0]]

    def to_keras(self, arrays: Sequence[Array], count: int) -> list[Array]:
        return [arrays[0], arrays[0].T.copy()]

    def gradients(self, arrays: Sequence[Array], count: int) -> list[Array]:
        return []


class MeanLessBias(_OneShape):
    """Keras's bias before a batch normalisation, and its moving mean, in torch's running mean: no bijection.

    Subtracting a batch's mean removes the bias in training; in inference the moving mean contains it.
    To Keras the bias is zero.
    """

    text, counts = "mean_less_bias", (2, 1)
    note = "Keras has a bias before batch norm, which changes nothing; torch's running mean is without it"

    def to_torch(self, arrays: Sequence[Array], count: int) -> list[Array]:
        return [np.subtract(arrays[1], arrays[0])]

    def to_keras(self, arrays: Sequence[Array], count: int) -> list[Array]:
        return [np.zeros_like(arrays[0]), arrays[0]]

    def gradients(self, arrays: Sequence[Array], count: int) -> list[Array]:
        return []


@dataclass(frozen=True)
class Constant(Rule):
    """A tensor that only one side has, and that changes nothing while it has this one value: no bijection."""

    text: str
    value: float
    shape: Shape

    @property
    def note(self) -> str:  # type: ignore[override]
        return f"one side alone has this tensor: the two agree only while it is {self.value:g}"

    def _shapes(self, shapes: Sequence[Shape], count: int, to_torch: bool) -> list[Shape]:
        if any(tuple(shape) != self.shape for shape in shapes) or bool(shapes) == bool(count):
            raise ExternalModelError(
                f"rule {self.text!r} is for tensors of shape {self.shape} of one side alone"
            )
        return [self.shape] * count

    def to_torch(self, arrays: Sequence[Array], count: int) -> list[Array]:
        if any(np.any(array != np.asarray(self.value, array.dtype)) for array in arrays):
            hint = (
                "" if self.value else "; a bias before a batch norm: rule mean_less_bias with its moving mean"
            )
            raise ExternalModelError(
                f"it should be {self.value:g} throughout, since the other framework has no such tensor{hint}"
            )
        return [np.full(self.shape, self.value) for _ in range(count)]

    to_keras = to_torch

    def gradients(self, arrays: Sequence[Array], count: int) -> list[Array]:
        return []


_Make = Callable[[str, tuple[int, ...]], Rule]
_GATES = ("g", (1, 0, 2))  # Keras z, r, h; torch r, z, n


def _pattern(body: str, order: tuple[str, tuple[int, ...]] | None = None) -> _Make:
    """What makes the rule of a pattern that holds {} for each number."""
    return lambda text, numbers: pattern(text, body.format(*numbers), order)


def _flatten(text: str, numbers: tuple[int, ...]) -> Rule:
    names = [chr(ord("p") + i) for i in range(len(numbers) - 1)]
    sizes = " ".join(f"{name}={size}" for name, size in zip([*names, "c"], numbers, strict=True))
    spatial = " ".join(names)
    return pattern(text, f"({spatial} c) o -> o (c {spatial}); {sizes}")


# How a rule is written -> (how it is made, what it is for).
NAMED: dict[str, tuple[_Make, str]] = {
    "same": (lambda *_: Same(), "equal layouts: biases, scales, statistics, embeddings"),
    "transpose": (_pattern("i o -> o i"), "dense and recurrent kernels"),
    "conv": (
        _pattern("... i o -> o i ..."),
        "convolutions of any rank, grouped and transposed ones too: HWIO and OIHW",
    ),
    "depthwise": (
        lambda text, numbers: pattern(text, f"... c m -> (c m) 1 ...; m={numbers[0] if numbers else 1}"),
        "depthwise kernels: (height, width, channels, multiplier) and (channels*multiplier, 1, height, width);"
        " the multiplier where it is not 1",
    ),
    "flatten": (_flatten, "the dense kernel after a flatten: (height, width, channels) before it"),
    "heads": (
        _pattern("d h k -> (h k) d; h={}"),
        "query, key or value kernel of Keras's MultiHeadAttention and of nn.Linear; the number of heads",
    ),
    "heads_bias": (_pattern("h k -> (h k); h={}"), "the bias of such a one"),
    "heads_out": (
        _pattern("h k d -> d (h k); h={}"),
        "output kernel of Keras's MultiHeadAttention and of nn.Linear",
    ),
    "gru": (_pattern("i (g u) -> (g u) i; g=3", _GATES), "kernels of a GRU: gates z, r, h and r, z, n"),
    "gru_bias": (
        _pattern("n (g u) -> n (g u); g=3", _GATES),
        "Keras's one bias (2, 3*units) and torch's two",
    ),
    "two_biases": (lambda *_: TwoBiases(), TwoBiases.note),
    "copies": (lambda *_: Copies(), Copies.note),
    "tied_kernel": (lambda *_: TiedKernel(), TiedKernel.note),
    "mean_less_bias": (lambda *_: MeanLessBias(), MeanLessBias.note),
}
# How many numbers a rule takes, at least and at most; others take none.
_NUMBERS = {
    "depthwise": (0, 1),
    "flatten": (2, 4),
    **dict.fromkeys(("heads", "heads_bias", "heads_out"), (1, 1)),
}
_CALL = re.compile(r"([a-z_0-9]+)(?:\(\s*([0-9]{1,9}(?:\s*,\s*[0-9]{1,9}){0,7})\s*\))?")
_NUMBER = r"-?(?:[0-9]{1,17}(?:\.[0-9]{0,17})?|\.[0-9]{1,17})(?:e-?[0-9]{1,3})?"
_CONSTANT = re.compile(rf"constant\(\s*({_NUMBER})\s*;([0-9 ]{{0,100}})\)")
# So many numbers at most has a tensor that is made of nothing but a line of text.
_CONSTANT_LIMIT = 1 << 28


def parse_rule(text: str) -> Rule:
    """The rule that a text names; raises ExternalModelError with the nearest names, or with what a pattern lacks."""
    if len(text) > _TEXT_LIMIT or not text.isprintable():
        raise ExternalModelError(
            f"a rule is a line of at most {_TEXT_LIMIT} characters, received {text[:40]!r}..."
        )
    if "->" in text:
        return pattern(text, text)
    constant = _CONSTANT.fullmatch(text)
    if constant is not None:
        shape = tuple(int(size) for size in constant[2].split())
        if math.prod(shape) > _CONSTANT_LIMIT:
            raise ExternalModelError(
                f"rule {text!r}: a constant tensor has at most {_CONSTANT_LIMIT} numbers"
            )
        return Constant(text, float(constant[1]), shape)
    match = _CALL.fullmatch(text.strip())
    if match is None or match[1] not in NAMED:
        name = match[1] if match else text
        near = difflib.get_close_matches(name, [*NAMED, "constant"], 3, 0.4)
        hint = f"closest are {', '.join(near)}" if near else f"known are {', '.join(NAMED)}"
        raise ExternalModelError(f"unknown rule {text!r}; {hint}; or a pattern, such as 'h w i o -> o i h w'")
    make, purpose = NAMED[match[1]]
    least, most = _NUMBERS.get(match[1], (0, 0))
    given = tuple(int(number) for number in match[2].split(",")) if match[2] else ()
    if not least <= len(given) <= most or 0 in given:
        takes = f"{least}" if least == most else f"{least} to {most}"
        raise ExternalModelError(f"rule {text!r}: {match[1]} takes {takes} numbers above 0 ({purpose})")
    return make(text, given)
