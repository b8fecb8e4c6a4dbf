"""The operations of a framework in one pass of a user's model: what each is given, what it gives, and where in the code it is."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parity.common.diagnosis import limits
from parity.common.external.process.code_lines import code_lines
from parity.common.external.process.pass_result import Array

# The numbers of a fingerprint, and how many of them are counts.
FINGERPRINT, COUNTS = 12, 4
# A tensor with so few elements is told with its values.
_FEW = 16


def fingerprint(array: Array) -> NDArray[np.float64]:
    """Return numbers by which a tensor is known in whatever order its elements are, (FINGERPRINT,).

    COUNTS of them count elements, infinities of both signs and NaNs. The others are of the finite elements: the smallest, the
    largest, the largest size m; the sums of x/m, its square and its cube; and the sums of their sizes, of x/m and its cube.
    """
    flat = np.asarray(array, np.float64).ravel()
    finite = flat[np.isfinite(flat)]
    counts = [flat.size, np.sum(flat == np.inf), np.sum(flat == -np.inf), np.sum(np.isnan(flat))]
    if not finite.size:
        return np.array([*counts, *[0.0] * (FINGERPRINT - COUNTS)], np.float64)
    largest = float(np.abs(finite).max())
    scaled = finite / (largest or 1.0)
    sums = [float(np.sum(scaled**power)) for power in (1, 2, 3)]
    sizes = [float(np.sum(np.abs(scaled) ** power)) for power in (1, 3)]
    return np.array([*counts, finite.min(), finite.max(), largest, *sums, *sizes], np.float64)


def rows_alike(table: NDArray[np.float64], print_: NDArray[np.float64]) -> list[int]:
    """The rows of a table of fingerprints, (rows, FINGERPRINT), that are the same as one, (FINGERPRINT,), up to rounding."""
    rows = np.flatnonzero((table[:, :COUNTS] == print_[:COUNTS]).all(1))
    apart = np.abs(table[rows, COUNTS:] - print_[COUNTS:])
    *_, largest, _, squares, _, sizes, cubes = print_[COUNTS:]
    scale = np.array([largest, largest, largest, sizes, squares, cubes, sizes, cubes])
    return [int(row) for row in rows[(apart <= limits.SAME_ELEMENTS * scale).all(1)]]


class Sought:
    """Tensors that are looked for among those of a pass.

    sizes: how many elements they have. found: the numbers of those that were met.
    """

    def __init__(self, prints: NDArray[np.float64]) -> None:
        """prints: their fingerprints, (tensors, FINGERPRINT)."""
        self._prints = np.asarray(prints, np.float64).reshape(-1, FINGERPRINT)
        self.sizes = {int(size) for size in self._prints[:, 0]}
        self.found = set[int]()

    def meet(self, array: Array) -> None:
        """A tensor of the pass, of any shape."""
        if array.size and self._may_be(float(array.min()), float(array.max()), array.size):
            self.found |= {*rows_alike(self._prints, fingerprint(array))}

    def _may_be(self, smallest: float, largest: float, size: int) -> bool:
        """Whether any of a size has this smallest and this largest number, or these are not finite: seen sooner than a whole fingerprint."""
        if not math.isfinite(smallest + largest):
            return True
        ends = self._prints[self._prints[:, 0] == size, COUNTS : COUNTS + 2]
        apart = np.abs(ends - (smallest, largest)).max(axis=1, initial=0.0)
        return bool((apart <= limits.SAME_ELEMENTS * max(abs(smallest), abs(largest))).any())


class Recording:
    """The operations of one pass, in their order, and the tensors that they are given and give.

    operations: of each its key, which names it in every pass; name; lines of the user's code, the innermost first; the calls of layers that it is
    made in, the outermost first; whether it only rearranges; settings; arguments, {'value': number of a tensor}, {'list':
    arguments} or {'literal': anything else}; results, numbers of tensors. values: the tensors by number. masks: of dropout, each with its rate and whether elements are dropped together. over: whether what
    comes is none of the pass. paused: whether what is called now is ours.
    """

    def __init__(self, replaced: Mapping[str, Array], records: bool) -> None:
        """
        Args:
            replaced: by key of an operation, what takes the place of its result.
            records: whether operations are recorded, or only replaced.
        """
        self._replaced, self.records = replaced, records
        self._names = {key.partition(" ")[0].partition(":")[0] for key in replaced}
        self.over = self.paused = False
        self._built: list[tuple[str, int]] = []
        self.operations: list[dict[str, Any]] = []
        self.values: list[Array] = []
        self.masks: list[tuple[Array, float, bool]] = []
        self._layers: list[str] = []
        self._counts: Counter[str] = Counter()

    def enter(self, path: str) -> None:
        """A layer is called: what comes until `leave` is a part of it."""
        self._layers.append(f"{path}#{self._counts[path]}")
        self._counts[path] += 1

    def leave(self) -> None:
        """The call of the innermost layer has ended."""
        self._layers.pop()

    @contextmanager
    def hidden(self) -> Iterator[None]:
        """What is called within is ours, and no part of the model."""
        before, self.paused = self.paused, True
        try:
            yield
        finally:
            self.paused = before

    @property
    def ignores(self) -> bool:
        """Whether what is called now is no part of the model."""
        return self.over or self.paused

    def concerns(self, name: str) -> bool:
        """Whether an operation of this name is recorded, or may give another result."""
        return self.records or name in self._names

    @contextmanager
    def built(self, line: str) -> Iterator[None]:
        """What is called within is a part of a graph, which this line of the user's code has made before."""
        self._built.append((line, len(code_lines())))
        try:
            yield
        finally:
            self._built.pop()

    def _lines(self) -> list[str]:
        """Of the user's code, the innermost first: a graph's between what it calls and what calls it."""
        running = code_lines()
        lines, told = list[str](), 0
        for line, outside in reversed(self._built):
            inside = max(told, len(running) - outside)
            lines += [*running[told:inside], line]
            told = inside
        return lines + running[told:]

    def key_of(self, name: str) -> tuple[str, list[str]]:
        """Return the key of the next operation of this name, and its lines of code, the innermost first."""
        lines = self._lines()
        place = " ".join([name, *self._layers[-1:], *lines[:1]])
        number = self._counts[place]
        self._counts[place] += 1
        return f"{place} {number}", lines

    def replacement(self, key: str, shape: Sequence[int]) -> Array | None:
        """Return what takes the place of an operation's result of this shape; None where nothing does."""
        array = self._replaced.get(key)
        return array if array is not None and array.shape == tuple(shape) else None

    def number_of(self, array: Array) -> int:
        """Keep a new tensor; returns its number."""
        self.values.append(array)
        return len(self.values) - 1

    def add(
        self,
        key: tuple[str, Sequence[str]],
        name: str,
        arguments: Sequence[Any],
        results: Sequence[int],
        rearranges: bool = False,
        settings: Mapping[str, Any] = {},
    ) -> None:
        """Record an operation; key: with its lines of code."""
        self.operations.append(
            {
                "key": key[0],
                "lines": list(key[1]),
                "name": name,
                "layers": list(self._layers),
                "arguments": list(arguments),
                "results": list(results),
                "rearranges": rearranges,
                "settings": {key: plain(value) for key, value in settings.items()},
            }
        )

    def told(self) -> dict[str, Any]:
        """The operations, and of each tensor its fingerprint and shape; the values of those with few elements."""
        return {
            "operations": self.operations,
            "fingerprints": np.array([fingerprint(value) for value in self.values]).reshape(-1, FINGERPRINT),
            "masks": [
                {"fingerprint": fingerprint(mask), "rate": rate, "together": together}
                for mask, rate, together in self.masks
            ],
            "shapes": [list(value.shape) for value in self.values],
            "few": {
                str(number): np.asarray(value, np.float64).tolist()
                for number, value in enumerate(self.values)
                if value.size <= _FEW and np.isfinite(value).all()
            },
        }


def key_of_result(key: str, number: int) -> str:
    """Of the key of an operation that of one of its results: the first has that of the operation."""
    name, _, rest = key.partition(" ")
    return f"{name}:{number} {rest}" if number else key


def plain(value: Any) -> Any:
    """An argument that is no tensor, as JSON has it."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    return str(value)
