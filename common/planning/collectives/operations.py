"""The collective operations: what each rank gives and must get, in NumPy, and how bandwidth is counted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.generic]

# The rank that broadcasts, scatters, and that gathers and reduces go to.
ROOT = 0


@dataclass(frozen=True)
class Operation:
    """One collective operation over n ranks.

    size_is: what the size counts, as in nccl-tests.
    gives: what a rank puts in: the whole size ("all"), the n-th part ("part"), or nothing; ROOT alone
        where `rooted_input`.
    sums: whether numbers of several ranks are added, so that floats are rounded.
    bus_factor: bus bandwidth = algorithm bandwidth x this, for n ranks: what of the size an optimal
        algorithm must move over the busiest link (nccl-tests, doc/PERFORMANCE.md and src/*.cu).
    """

    name: str
    size_is: str
    gives: str
    sums: bool
    bus_factor: Callable[[int], float]
    referee: Callable[[Sequence[Array], int], Array | None]
    rooted_input: bool = False


def _whole(ranks: int) -> float:
    return 1.0


def _others(ranks: int) -> float:
    return (ranks - 1) / ranks


def _twice_others(ranks: int) -> float:
    return 2 * (ranks - 1) / ranks


def _sum(inputs: Sequence[Array]) -> Array:
    total: Array = np.sum(np.stack(inputs), axis=0, dtype=inputs[0].dtype)
    return total


def _own_part(whole: Array, ranks: int, rank: int) -> Array:
    part: Array = np.split(whole, ranks)[rank]
    return part


OPERATIONS: dict[str, Operation] = {
    operation.name: operation
    for operation in (
        Operation(
            "broadcast",
            "what the root sends, and every rank gets",
            "all",
            False,
            _whole,
            lambda inputs, rank: inputs[ROOT],
            rooted_input=True,
        ),
        Operation(
            "reduce",
            "what each rank gives, and the root gets",
            "all",
            True,
            _whole,
            lambda inputs, rank: _sum(inputs) if rank == ROOT else None,
        ),
        Operation(
            "all_reduce",
            "what each rank gives, and gets",
            "all",
            True,
            _twice_others,
            lambda inputs, rank: _sum(inputs),
        ),
        Operation(
            "scatter",
            "what the root gives; each rank gets 1/n of it",
            "all",
            False,
            _others,
            lambda inputs, rank: _own_part(inputs[ROOT], len(inputs), rank),
            rooted_input=True,
        ),
        Operation(
            "gather",
            "what the root gets; each rank gives 1/n of it",
            "part",
            False,
            _others,
            lambda inputs, rank: np.concatenate(inputs) if rank == ROOT else None,
        ),
        Operation(
            "all_gather",
            "what each rank gets; it gives 1/n of it",
            "part",
            False,
            _others,
            lambda inputs, rank: np.concatenate(inputs),
        ),
        Operation(
            "reduce_scatter",
            "what each rank gives; it gets 1/n of it",
            "all",
            True,
            _others,
            lambda inputs, rank: _own_part(_sum(inputs), len(inputs), rank),
        ),
        Operation("barrier", "nothing is sent", "nothing", False, _whole, lambda inputs, rank: None),
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
    count = {"all": elements, "part": elements // ranks, "nothing": 0}[operation.gives]
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
    if exact or not operation.sums:
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
