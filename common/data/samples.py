"""Samples by id: nothing is read or made before it is asked for, and only what is asked for."""

from __future__ import annotations

import abc
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parity.common.base import rng

Ids = NDArray[np.int64]
Array = NDArray[Any]
Rows = tuple[Array, Array]

# An order of so many samples is worked out at once; a longer one as it is needed.
_ORDER_AT_ONCE = 1 << 20


class Source(abc.ABC):
    """Samples by position, of any number: (inputs, targets), numbers as floats, codes as int64.

    `rows` works for no positions at all, too: that is how shapes are found without reading.
    """

    # How many there are; None: as many as asked for.
    size: int | None
    # Whether rows come from memory.
    in_memory = False

    @abc.abstractmethod
    def rows(self, positions: Ids) -> Rows:
        """Return inputs (n, ...) and targets (n, ...) at `positions` (n,), each with memory of its own."""


class Arrays(Source):
    """Samples that are in memory, in whatever types."""

    in_memory = True

    def __init__(self, inputs: Array, targets: Array) -> None:
        self.inputs, self.targets = inputs, targets
        self.size = len(inputs)

    def rows(self, positions: Ids) -> Rows:
        return self.inputs[positions], self.targets[positions]


class Stored(Source):
    """Samples in arrays, in memory or mapped.

    Whole numbers become int64, others float64. `divide_by` makes numbers of the inputs, whatever they
    were. Without targets the input is the target.
    """

    def __init__(self, inputs: Array, targets: Array | None, divide_by: float | None = None) -> None:
        self.inputs, self.targets, self.divide_by = inputs, targets, divide_by
        self.size = len(inputs)
        self.in_memory = not isinstance(inputs, np.memmap)

    def rows(self, positions: Ids) -> Rows:
        inputs = widened(self.inputs[positions])
        if self.divide_by is not None:
            inputs = inputs / self.divide_by
        return inputs, inputs.copy() if self.targets is None else widened(self.targets[positions])


def widened(values: Array) -> Array:
    """As int64 or float64."""
    return np.asarray(values, np.float64 if values.dtype.kind == "f" else np.int64)


def are_whole(values: Array) -> bool:
    """Whether all numbers (any shape) are finite and have no fraction, whatever their type."""
    return bool(np.isfinite(values).all() and (values == np.round(values)).all())


class Reordered(Source):
    """Another source's samples in a keyed order."""

    def __init__(self, source: Source, seed: int) -> None:
        assert source.size is not None
        self._source, self.size, self.in_memory = source, source.size, source.in_memory
        self._size = source.size
        self._key = rng.derive_key(seed, "sample permutation")
        self._order = self._images(np.arange(self._size)) if self._size <= _ORDER_AT_ONCE else None

    def _images(self, positions: Ids) -> Ids:
        return rng.permute(self._key, positions, self._size)

    def rows(self, positions: Ids) -> Rows:
        return self._source.rows(self._images(positions) if self._order is None else self._order[positions])


class Standardised(Source):
    """Another source's inputs less `mean`, divided by `std`."""

    def __init__(self, source: Source, mean: Array, std: Array) -> None:
        self._source, self.size, self.in_memory = source, source.size, source.in_memory
        self._mean, self._std = mean, std

    def rows(self, positions: Ids) -> Rows:
        inputs, targets = self._source.rows(positions)
        return (inputs - self._mean) / self._std, targets


@dataclass(frozen=True)
class Dataset:
    """A source that was found to be in order.

    train: the samples, or where there is `test` those to train on.
    number_columns: which columns of a table to standardise; None: none.
    """

    train: Source
    test: Source | None = None
    number_columns: NDArray[np.bool_] | None = field(default=None, kw_only=True)


# Changes or converts (inputs, targets) of sample ids in an epoch; may ask for rows of other ids.
Fetch = Callable[[Ids], Rows]
Change = Callable[[Fetch, Ids, int], Rows]


@dataclass(eq=False)
class Samples:
    """A run's training or evaluation samples, in the run's types.

    source: where rows come from. count: how many samples. first_id: id of the first. first_position: its place in
    the source. change: augments and converts; None: rows go out as they are. reopen: how another process gets these
    samples without being sent them.
    """

    source: Source
    count: int
    first_id: int = 0
    first_position: int = 0
    change: Change | None = None
    reopen: tuple[Callable[..., Samples], tuple[Any, ...]] | None = None

    def __len__(self) -> int:
        return self.count

    def rows(self, ids: Ids, epoch: int = 0) -> Rows:
        """Return inputs (n, ...) and targets (n, ...) of sample ids (n,), as they are in an epoch."""
        return self.fetch(ids) if self.change is None else self.change(self.fetch, ids, epoch)

    def fetch(self, ids: Ids) -> Rows:
        """Return inputs (n, ...) and targets (n, ...) of sample ids (n,), as the source has them."""
        shift = self.first_position - self.first_id
        return self.source.rows(ids + shift if shift else ids)

    def __reduce__(self) -> Any:
        return object.__reduce_ex__(self, 2) if self.reopen is None else self.reopen
