"""What each rank does: every operation checked, then timed, at every size. Both frameworks run this."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from parity.common.planning.collectives.operations import (
    OPERATIONS,
    ROOT,
    Operation,
    elements_of,
    inputs_of,
    wrong_elements,
)

DTYPES = ("float32", "float64", "int32", "int64")
# How late one rank comes to a barrier, so that leaving too early shows.
_LATE_SECONDS = 0.02


@dataclass(frozen=True)
class Plan:
    """What to run. Sizes are in bytes."""

    ranks: int
    sizes: tuple[int, ...]
    dtype: str = "float32"
    device: str = "auto"
    repeats: int = 20
    warm_up: int = 3
    operations: tuple[str, ...] = tuple(OPERATIONS)
    timeout_seconds: int = 60

    @property
    def cases(self) -> list[tuple[Operation, int]]:
        """(operation, size) in order; a barrier has no size."""
        chosen = [OPERATIONS[name] for name in self.operations]
        return [(op, size) for op in chosen for size in ((0,) if op.gives == "nothing" else self.sizes)]


class Group(Protocol):
    """A rank's end of a framework's collectives."""

    rank: int
    ranks: int

    def tensor(self, array: NDArray[np.generic]) -> Any:
        """Return a copy on the device of this rank, of the same shape and dtype."""

    def array(self, tensor: Any) -> NDArray[np.generic]:
        """Return a copy on the host, of the same shape and dtype."""

    def prepare(self, operation: str, tensor: Any) -> Callable[[], Any]:
        """A function that runs the operation on `tensor`, each time it is called, and returns its result.

        The result is None on a rank that gets nothing. The function may change the tensor. It may return
        before the device is done; see `wait`.
        """

    def wait(self) -> None:
        """Until the device has done what it was asked for."""

    def how(self, operation: str) -> str:
        """What of the framework is called; 'built from ...' where it has no such operation."""


def conduct(plan: Plan, group: Group, folder: Path) -> None:
    """Run all cases of a plan on this rank; write a line for each into `folder/rank_N.jsonl`."""
    itemsize = np.dtype(plan.dtype).itemsize
    with open(folder / f"rank_{group.rank}.jsonl", "w", buffering=1) as file:
        for operation, size in plan.cases:
            elements = elements_of(size, itemsize, group.ranks)
            line: dict[str, Any] = {"operation": operation.name, "how": group.how(operation.name)}
            if operation.gives == "nothing":
                line |= {"bytes": 0, "elements": 0, "wrong": 0, "crossings": _barrier_crossings(group)}
            else:
                written, wrong = elements * itemsize, _wrong(plan, group, operation, elements)
                line |= {"bytes": written, "elements": elements, "wrong": wrong}
            line["seconds"] = _seconds(plan, group, operation, elements)
            file.write(json.dumps(line) + "\n")


def _wrong(plan: Plan, group: Group, operation: Operation, elements: int) -> int:
    """Wrong numbers in this rank's results: of whole numbers exactly, of floats within rounding."""
    wrong = 0
    floats = np.issubdtype(np.dtype(plan.dtype), np.floating)
    for whole_numbers in (True, False) if floats else (True,):
        inputs = inputs_of(operation, elements, plan.dtype, group.ranks, whole_numbers)
        own = inputs[group.rank]
        if operation.result == "sent" and group.rank != ROOT:
            own = np.zeros_like(own)  # room for what it receives
        result = group.prepare(operation.name, group.tensor(own))()
        group.wait()
        array = None if result is None else group.array(result)
        wrong += wrong_elements(operation, inputs, group.rank, array, exact=whole_numbers)
    return wrong


def _barrier_crossings(group: Group) -> list[tuple[float, float]]:
    """(entered, left) on the machine's clock, once with each rank coming late."""
    barrier = group.prepare("barrier", None)
    crossings = []
    for late in range(group.ranks):
        barrier()
        group.wait()
        if group.rank == late:
            time.sleep(_LATE_SECONDS)
        entered = time.monotonic()
        barrier()
        group.wait()
        crossings.append((entered, time.monotonic()))
    return crossings


def _seconds(plan: Plan, group: Group, operation: Operation, elements: int) -> list[float]:
    """The time of each repeat on this rank. All begin together, and the device is done at the end."""
    # Zeros, since a sum in place would grow from repeat to repeat.
    zeros = np.zeros(operation.given(elements, group.ranks), plan.dtype)
    run = group.prepare(operation.name, group.tensor(zeros))
    barrier = group.prepare("barrier", None)
    seconds = []
    for repeat in range(plan.warm_up + plan.repeats):
        barrier()
        group.wait()
        begun = time.perf_counter()
        run()
        group.wait()
        if repeat >= plan.warm_up:
            seconds.append(time.perf_counter() - begun)
    return seconds
