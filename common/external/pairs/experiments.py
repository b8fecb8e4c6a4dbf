"""Experiments on two live models: one side is given what the other has, and a deviation vanishes or stays."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from parity.common.base.errors import ExternalModelError
from parity.common.external.pairs.bench import Arrays, Bench
from parity.common.external.process.worker import ExternalWorker


@dataclass(frozen=True)
class Change:
    """A setting of a live layer that is tried with another value. side: whose."""

    side: str
    layer: str
    setting: str
    value: Any


# The deviation of what is looked at, as the models are now; infinite where it cannot be told.
Measure = Callable[[], float]


@contextmanager
def changed(bench: Bench, changes: Sequence[Change]) -> Iterator[None]:
    """Both models with these settings; raises ExternalModelError where one cannot be set. They are put back at the end."""
    with ExitStack() as stack:
        for change in changes:
            worker = worker_of(bench, change.side)
            old = worker.set(change.layer, change.setting, change.value)
            stack.callback(worker.set, change.layer, change.setting, old)
        yield


def keep(bench: Bench, changes: Sequence[Change]) -> None:
    """Set them for good."""
    for change in changes:
        worker_of(bench, change.side).set(change.layer, change.setting, change.value)


def worker_of(bench: Bench, side: str) -> ExternalWorker:
    return bench.keras if side == "keras" else bench.torch


@contextmanager
def rewritten(bench: Bench, tensors: Arrays) -> Iterator[None]:
    """Torch's model with other values of some tensors."""
    before = bench.torch.read()
    bench.torch.write(tensors)
    try:
        yield
    finally:
        bench.torch.write({name: before[name] for name in tensors})


def deviation_with(bench: Bench, changes: Sequence[Change], measure: Measure) -> float | None:
    """The deviation with changes; None where they cannot be made, or the pass fails with them."""
    try:
        with changed(bench, changes):
            return measure()
    except ExternalModelError:
        return None


def needed(
    bench: Bench, candidates: Sequence[Sequence[Change]], measure: Measure, limit: float
) -> tuple[list[int], float] | None:
    """Which of several candidates make a deviation vanish: all that it stays without, and how far it is then.

    candidates: each one or more ways to make it, of which the first that works is taken. None: not even all of them
    together do.
    """
    usable: dict[int, Change] = {}
    for number, ways in enumerate(candidates):
        for way in ways:
            if deviation_with(bench, [way], lambda: 0.0) is not None:
                usable[number] = way
                break
    found: tuple[list[int], float] | None = None
    together = deviation_with(bench, list(usable.values()), measure) if usable else None
    if together is not None and together <= limit:
        needs = []
        for number in usable:
            others = [way for other, way in usable.items() if other != number]
            without = deviation_with(bench, others, measure)
            if without is None or without > limit:
                needs.append(number)
        # Where each by itself is enough, the first is.
        found = (needs or [next(iter(usable))], together)
    if found is None:
        for number, way in usable.items():
            alone = deviation_with(bench, [way], measure)
            if alone is not None and alone <= limit:
                return [number], alone
    return found


def ways_of(keras: str | None, torch: str | None, setting: str, ours: Any, theirs: Any) -> list[Change]:
    """Torch's layer as Keras's is, else Keras's as torch's is; of a function that one side lacks, none on the other."""
    if setting == "counterpart":
        sides = {"keras": keras, "torch": torch}
        return [Change(side, layer, "function", "linear") for side, layer in sides.items() if layer]
    found = []
    if torch:
        found.append(Change("torch", torch, setting, ours))
    if keras:
        found.append(Change("keras", keras, setting, theirs))
    return found
