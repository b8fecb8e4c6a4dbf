"""Where two passes deviate, recorded operation by operation, and what may be put there."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from parity.common.external.pairs.bench import Bench, PairTrace
from parity.common.external.pairs.computations import WHOLE, Computation, Operation
from parity.common.external.process.objective import BatchLoss
from parity.common.external.process.pass_result import Array, Arrays

# Where a key has the number of a call.
_CALL_OF_LAYER, _CALL_OF_LINE = re.compile(r"(?<=#)\d+(?= \S+ \d+$)"), re.compile(r"\d+$")
# How causes begin that are found operation by operation.
CAUSE = "operation:"


@dataclass(frozen=True, eq=False)
class Replacement:
    """What an operation of torch's gives instead of its own result, by the mode of a pass; None: its own."""

    key: str
    training: Array | None = None
    inference: Array | None = None

    @classmethod
    def of(cls, operation: Operation, result: int, array: Array, training: bool) -> Replacement:
        """Of a result of an operation in one mode; array: of the result's shape."""
        key = operation.key_of(result)
        return cls(key, training=array) if training else cls(key, inference=array)

    def joined(self, other: Replacement) -> Replacement:
        """The same, and in the mode in which it is the operation's own what another one gives there."""
        training = other.training if self.training is None else self.training
        return Replacement(self.key, training, other.inference if self.inference is None else self.inference)

    def make(self, bench: Bench) -> Replacement:
        """Have it so, and return what takes it back."""
        return Replacement(self.key, *bench.torch.replace(self.key, self.training, self.inference))


@dataclass(frozen=True, eq=False)
class Place:
    """Where two passes deviate.

    own, due: what torch computes there, and what Keras does. training: the mode. injections: what torch's layers give instead of
    their own, by tap, so that all before the place agrees. activations: Keras's, by tap: by these tensors are called. losses: of
    both sides, where the place is in them. taps: where Keras's layers and torch's give it; '' where none does.
    """

    own: Array
    due: Array
    training: bool
    injections: Arrays = field(default_factory=dict)
    activations: Arrays = field(default_factory=dict)
    losses: tuple[BatchLoss, BatchLoss] | None = None
    taps: tuple[str, str] = ("", "")

    @classmethod
    def of_point(cls, bench: Bench, trace: PairTrace, number: int, training: bool) -> Place | None:
        """The n-th of a trace's points, or of its outputs behind them; None where torch has none."""
        points = bench.points
        before = {point.torch for point in points[:number]}
        if number < len(points):
            point = points[number]
            taps = point.keras, point.torch
            own, due = trace.injected.activations.get(point.torch), trace.expected[point.name]
            if own is not None:
                # Torch may call layers in another order.
                called = list(trace.injected.activations)
                before = {*called[: called.index(point.torch)]}
        else:
            outputs = [list(passed.outputs.values()) for passed in (trace.injected, trace.reference)]
            own, due = (each[number - len(points)] for each in outputs)
            taps = "", ""
        if own is None:
            return None
        injections = {tap: value for tap, value in trace.injections.items() if tap in before}
        return cls(own, due, training, injections, trace.reference.activations, taps=taps)


@dataclass(frozen=True, eq=False)
class Substitution:
    """A result of an operation of torch's, of a shape, and one of Keras's that is due there.

    order: of Keras's elements, all in one row, as torch has them.
    """

    torch: Operation
    torch_result: int
    shape: tuple[int, ...]
    keras: Operation
    keras_result: int
    order: NDArray[np.intp]

    def replacement(self, value: Array, training: bool) -> Replacement | None:
        """Put what Keras computes, of any shape, in the place of torch's result; None where it has another size."""
        if not value.size == self.order.size == math.prod(self.shape):
            return None
        array = value.ravel()[self.order].reshape(self.shape)
        return Replacement.of(self.torch, self.torch_result, array, training)

    @property
    def keras_key(self) -> tuple[str, int]:
        """By which Keras's operation is found again in another pass: its key, and which of its results."""
        place = self.keras.results.index(self.keras_result)
        return self.keras.keys[place], place


def recorded(bench: Bench, side: int, place: Place) -> Computation:
    """What Keras (0) or torch (1) computes in a pass with a place; its process keeps these tensors until it records another."""
    worker, outline = (bench.keras, bench.torch)[side], bench.outlines[side]
    whole = {
        info.path: (info.kind, info.settings.get("epsilon")) for info in outline.layers if info.kind in WHOLE
    }
    loss = None if place.losses is None else place.losses[side]
    inject = place.injections if side else None
    return Computation(
        worker, worker.operations(bench.inputs[side], loss, training=place.training, inject=inject), whole
    )


def found_again(computation: Computation, substitution: Substitution, later: int = 0) -> Array | None:
    """What the same operation of Keras's gives in another pass, of any shape; None where it is not called there.

    Args:
        computation: of the other pass.
        substitution: its operation.
        later: by how many calls later, as where a step calls the model again.
    """
    key, place = substitution.keras_key
    key = later_key(key, later)
    for operation in computation.operations:
        if len(operation.results) > place and operation.keys[place] == key:
            return computation.values(operation.results[place])[0]
    return None


def later_key(key: str, calls: int) -> str:
    """The key of an operation so many calls of its layer later; of its line, where it is in no layer."""
    before, number, after = _parts_of(key)
    return key if number is None else f"{before}{number + calls}{after}"


def calls_of(computation: Computation, key: str) -> int:
    """How often a pass calls the layer of an operation; its line, where it is in none."""
    calls = {_parts_of(each.keys[0])[:2] for each in computation.operations if each.keys}
    return sum(before == _parts_of(key)[0] for before, _ in calls)


def _parts_of(key: str) -> tuple[str, int | None, str]:
    """A key with the number of its layer's call, or of its line's, by itself; None where it has none, as of what a user's file is not called from."""
    found = _CALL_OF_LAYER.search(key) or _CALL_OF_LINE.search(key)
    if found is None:
        return key, None, ""
    return key[: found.start()], int(found[0]), key[found.end() :]
