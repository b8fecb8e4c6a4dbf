"""The collective operations: what each rank gives and must get, in NumPy, and how bandwidth is counted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.generic]

# The rank that broadcasts, scatters, and that gathers and reduces go to.
ROOT = 0


@dataclass(frozen=True)
class Operation:
    """One collective operation over n ranks.

    size_is: what the size counts, as in nccl-tests.
    gives: what a rank puts in: the whole size, the n-th part, or nothing. Of what is `sent`, ROOT alone gives.
    result: what ROOT sent, the sum of what the ranks gave, or that joined in their order.
    gets: who gets the result: all ranks, each its part of it, or ROOT alone.
    passes: bus bandwidth = algorithm bandwidth x what an optimal algorithm must move of the size over the busiest
        link, which is so many times (n - 1) / n; 0: the whole size (nccl-tests, doc/PERFORMANCE.md and src/*.cu).
    """

    name: str
    size_is: str
    gives: Literal["all", "part", "nothing"]
    result: Literal["sent", "sum", "joined"]
    gets: Literal["all", "part", "root", "nothing"]
    passes: int

    def given(self, elements: int, ranks: int) -> int:
        """How many of a size's elements a rank puts in."""
        return {"all": elements, "part": elements // ranks, "nothing": 0}[self.gives]

    def bus_factor(self, ranks: int) -> float:
        """Bus bandwidth over algorithm bandwidth."""
        return self.passes * (ranks - 1) / ranks if self.passes else 1.0

    def referee(self, inputs: Sequence[Array], rank: int) -> Array | None:
        """Return what a rank must get of the ranks' inputs (elements,), in their dtype; None: nothing."""
        if self.gets == "nothing" or (self.gets == "root" and rank != ROOT):
            return None
        whole: Array = inputs[ROOT]
        if self.result == "sum":
            whole = np.sum(np.stack(inputs), axis=0, dtype=whole.dtype)
        elif self.result == "joined":
            whole = np.concatenate(inputs)
        return np.split(whole, len(inputs))[rank] if self.gets == "part" else whole


OPERATIONS = {
    operation.name: operation
    for operation in (
        Operation("broadcast", "what the root sends, and every rank gets", "all", "sent", "all", 0),
        Operation("reduce", "what each rank gives, and the root gets", "all", "sum", "root", 0),
        Operation("all_reduce", "what each rank gives, and gets", "all", "sum", "all", 2),
        Operation("scatter", "what the root gives; each rank gets 1/n of it", "all", "sent", "part", 1),
        Operation("gather", "what the root gets; each rank gives 1/n of it", "part", "joined", "root", 1),
        Operation("all_gather", "what each rank gets; it gives 1/n of it", "part", "joined", "all", 1),
        Operation("reduce_scatter", "what each rank gives; it gets 1/n of it", "all", "sum", "part", 1),
        Operation("barrier", "nothing is sent", "nothing", "joined", "nothing", 0),
    )
}


def elements_of(size: int, itemsize: int, ranks: int) -> int:
    """How many numbers a size is: a multiple of the ranks, rounded down, one each at least."""
    return max(size // itemsize // ranks, 1) * ranks


def inputs_of(
    operation: Operation, elements: int, dtype: str, ranks: int, whole_numbers: bool
) -> list[Array]:
    """What each rank puts in; the same on whichever rank it is computed.

    whole_numbers: small ones, so that sums are exact in any order and in any type; else normal floats.
    """
    count = operation.given(elements, ranks)
    inputs: list[Array] = []
    for rank in range(ranks):
        draw = np.random.default_rng((elements, rank, whole_numbers))
        values = draw.integers(-100, 101, count) if whole_numbers else draw.standard_normal(count)
        inputs.append(np.asarray(values, dtype))
    return inputs


def wrong_elements(
    operation: Operation, inputs: Sequence[Array], rank: int, result: Array | None, exact: bool
) -> int:
    """How many numbers of a rank's result are not what NumPy says; a missing result is all wrong.

    Without `exact`, a sum of n floats may be off by (n - 1) rounding steps of the sum of their sizes, the
    bound of any order of addition (Higham, Accuracy and Stability of Numerical Algorithms, section 4.2).
    """
    expected = operation.referee(inputs, rank)
    if expected is None:
        return 0
    if result is None or result.shape != expected.shape or result.dtype != expected.dtype:
        return max(expected.size, 1)
    if exact or operation.result != "sum":
        return int(np.count_nonzero(result != expected))
    doubles: list[Array] = [np.asarray(each, np.float64) for each in inputs]
    truth = np.asarray(operation.referee(doubles, rank), np.float64)
    sizes = np.asarray(operation.referee([np.abs(each) for each in doubles], rank), np.float64)
    bound = (len(inputs) - 1) * float(np.finfo(str(expected.dtype)).eps) * sizes
    return int(np.count_nonzero(~(np.abs(np.asarray(result, np.float64) - truth) <= bound)))


def bandwidths(operation: Operation, size: int, seconds: float, ranks: int) -> tuple[float, float]:
    """(algorithm, bus) bandwidth in bytes a second: size / time, and that times the bus factor."""
    algorithm = size / seconds
    return algorithm, algorithm * operation.bus_factor(ranks)
