"""Batches prepared ahead, in order."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from itertools import islice
from typing import TypeVar

Item = TypeVar("Item")
Made = TypeVar("Made")


def in_order(make: Callable[[Item], Made], items: Iterable[Item], workers: int, ahead: int) -> Iterator[Made]:
    """`make(item)` of each item in order, made by `workers` threads that run `ahead` items each before.

    Without workers each is made when it is asked for. An error of `make` arrives in its place.
    """
    if not workers:
        yield from map(make, items)
        return
    rest = iter(items)
    with ThreadPoolExecutor(workers, "loader", initializer=leave_cores_of_replicas) as pool:
        waiting: deque[Future[Made]] = deque()
        try:
            for item in islice(rest, workers * ahead):
                waiting.append(pool.submit(make, item))
            while waiting:
                made = waiting.popleft().result()
                for item in islice(rest, 1):
                    waiting.append(pool.submit(make, item))
                yield made
        finally:
            for future in waiting:
                future.cancel()


def leave_cores_of_replicas(cores: Iterable[int] | None = None) -> None:
    """Let this thread, or process, run on `cores`: those that the process's parent has, by default.

    A replica pinned to a core pins what it starts; a loader there would take its time.
    """
    with suppress(OSError):  # the parent is gone, or another user's: stay
        os.sched_setaffinity(0, os.sched_getaffinity(os.getppid()) if cores is None else cores)
