"""What a forward pass keeps for its backward pass, and the most that both hold: automatic differentiation without numbers."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import NamedTuple

from parity.common.spec.layers import Shape


@dataclass(frozen=True, eq=False)
class Storage:
    """Bytes that are allocated and freed together; what views share."""

    bytes: int


class Value(NamedTuple):
    """A tensor: what it is stored in, its shape without the batch, whether a gradient flows into it.

    dense: whether its elements lie in the order of its shape, so that flattening it is only a view.
    """

    storage: Storage
    shape: Shape
    grad: bool
    dense: bool = True


@dataclass(frozen=True)
class Operation:
    """One operation of a forward pass.

    saved: kept until its backward pass. parameters: bytes of parameter gradients that arise there.
    passes: whether the gradient of the output is, unchanged, that of the inputs.
    scratch: bytes besides, in the backward pass. forward_scratch: in the forward pass.
    """

    inputs: tuple[Value, ...]
    output: Value
    saved: tuple[Storage, ...]
    parameters: int
    passes: bool
    scratch: int
    forward_scratch: int


class Memory(NamedTuple):
    """Bytes of one forward and backward pass, parameters not counted.

    saved: what is kept from one to the other; the activations.
    peak: the most at once, the saved, the gradients of activations and those of parameters included; but
        not the batch itself, which may be among the saved.
    added: the same where each parameter's gradient is added to one that is there already, and freed.
    """

    saved: int
    peak: int
    added: int


@dataclass
class Tape:
    """Records the operations of a forward pass over some samples.

    low_itemsize: of the type that products round their operands to, None where they do not.
    tokens: whether the model's inputs are integers. has_padding: whether layers may mask some of them.
    checkpoints: paths of the layers that keep only their input. alone: whether there is no other replica.
    given: the batch: it may be saved, but is there in any case.
    """

    samples: int
    itemsize: int
    low_itemsize: int | None = None
    tokens: bool = False
    has_padding: bool = False
    checkpoints: frozenset[str] = frozenset()
    alone: bool = True
    given: Storage | None = None
    operations: list[Operation] = field(default_factory=list)

    def bytes_of(self, shape: Shape, itemsize: int | None = None) -> int:
        """Of a tensor with this shape for each sample."""
        return self.samples * math.prod(shape) * (self.itemsize if itemsize is None else itemsize)

    def new(self, shape: Shape, grad: bool = True, itemsize: int | None = None, dense: bool = True) -> Value:
        """A tensor with a storage of its own."""
        return Value(Storage(self.bytes_of(shape, itemsize)), shape, grad, dense)

    def kept(self, shape: Shape, itemsize: int | None = None) -> Storage:
        """Something saved that is no operation's input or output, such as indices or statistics."""
        return Storage(self.bytes_of(shape, itemsize))

    def part(self, x: Value, shape: Shape) -> Value:
        """A part of x as a view; its gradient is as large as x's storage."""
        return self.apply(x, x._replace(shape=shape, dense=False))

    def apply(
        self,
        inputs: Value | tuple[Value, ...],
        output: Value,
        *saved: Storage | Value,
        parameters: int = 0,
        passes: bool = False,
        scratch: int = 0,
        forward_scratch: int = 0,
    ) -> Value:
        """Record an operation; returns its output, into which a gradient flows if it does into an input."""
        given = (inputs,) if isinstance(inputs, Value) else inputs
        output = output._replace(grad=bool(parameters) or any(value.grad for value in given))
        storages = tuple(each.storage if isinstance(each, Value) else each for each in saved)
        if not output.grad:
            storages = ()
        self.operations.append(
            Operation(given, output, storages, parameters, passes, scratch, forward_scratch)
        )
        return output

    def view(self, x: Value, shape: Shape, dense: bool = True) -> Value:
        """The same storage under another shape."""
        return self.apply(x, x._replace(shape=shape, dense=dense), passes=True)

    def copied(self, x: Value, shape: Shape | None = None, dense: bool = True) -> Value:
        """A copy of the same size, whose gradient is a copy too."""
        bytes_each = x.storage.bytes and self.bytes_of(x.shape)
        return self.apply(x, Value(Storage(bytes_each), shape or x.shape, x.grad, dense))

    def checkpointed(self, first: int, block_input: Value) -> None:
        """Let the operations from `first` on keep only the block's input, and compute the rest again."""
        inside = Tape(
            self.samples, self.itemsize, given=block_input.storage, operations=self.operations[first:]
        )
        if not inside.operations:
            return
        parameters = sum(operation.parameters for operation in inside.operations)
        output = inside.operations[-1].output
        # What is counted outside anyhow: the gradients of the output, of the input and of parameters.
        outside = self.bytes_of(output.shape) + self.bytes_of(block_input.shape) * block_input.grad
        again = max(inside.memory().peak - outside - parameters, 0)
        del self.operations[first:]
        self.apply(block_input, output, block_input, parameters=parameters, scratch=again)

    def memory(self) -> Memory:
        """What the recorded pass keeps, and the peak of it and its backward pass."""
        forward = self._forward_peak()
        peaks = (max(forward, self._backward_peak(stay)) for stay in (True, False))
        return Memory(sum(self._saved().values()), *peaks)

    def _saved(self) -> dict[int, int]:
        """Bytes of each storage that is saved, by its identity."""
        return {id(s): s.bytes for operation in self.operations for s in operation.saved}

    def _forward_peak(self) -> int:
        places = enumerate(self.operations)
        last_use = {id(value.storage): place for place, operation in places for value in operation.inputs}
        last_use |= dict.fromkeys(self._saved(), len(self.operations))
        ends: defaultdict[int, list[int]] = defaultdict(list)  # by place, what nothing uses after it
        for key, last in last_use.items():
            ends[last].append(key)
        live: dict[int, int] = {}
        total = peak = 0
        for place, operation in enumerate(self.operations):
            new = {
                id(s): s.bytes for s in (*operation.saved, operation.output.storage) if s is not self.given
            }
            total += sum(size for key, size in new.items() if key not in live)
            live |= new
            peak = max(peak, total + operation.forward_scratch)
            total -= sum(
                live.pop(key, 0) for key in (*ends[place], *(k for k in new if last_use.get(k, 0) <= place))
            )
        return peak

    def _backward_peak(self, gradients_stay: bool) -> int:
        uses = Counter(id(s) for operation in self.operations for s in set(operation.saved))
        saved = self._saved()
        saved.pop(id(self.given), None)
        kept, arisen, peak = sum(saved.values()), 0, 0
        gradients = _Gradients()
        for last in self.operations[-1:]:
            gradients.add(last.output, _Buffer(self.bytes_of(last.output.shape)))
        for operation in reversed(self.operations):
            if not operation.output.grad:
                continue
            arisen += operation.parameters
            most = gradients.through(operation, self)
            peak = max(peak, kept + arisen + most + operation.scratch)
            for storage in set(operation.saved):
                uses[id(storage)] -= 1
                if not uses[id(storage)] and storage is not self.given:
                    kept -= storage.bytes
            if not gradients_stay:
                arisen = 0
        return peak


@dataclass
class _Buffer:
    """A gradient, shared by as many values as `uses` says."""

    bytes: int
    uses: int = 1


class _Gradients:
    """Gradients of activations that exist at some point of a backward pass."""

    def __init__(self) -> None:
        self._of: dict[tuple[int, Shape], _Buffer] = {}
        self._total = 0

    def through(self, operation: Operation, tape: Tape) -> int:
        """Turn the gradient of an operation's output into those of its inputs; the most bytes meanwhile."""
        outgoing = self._of.pop(_key(operation.output), None)
        if outgoing is None:
            return self._total
        for value in operation.inputs:
            if not value.grad:
                continue
            if operation.passes:
                outgoing.uses += 1
                self._total -= outgoing.bytes  # which are there already
                self.add(value, outgoing)
            else:
                self.add(value, _Buffer(tape.bytes_of(value.shape)))
        most = self._total
        self._drop(outgoing)
        return most

    def add(self, value: Value, buffer: _Buffer) -> None:
        """A new gradient of a value, added to what there is of it."""
        self._total += buffer.bytes
        before = self._of.get(_key(value))
        if before is not None:
            # The sum of both goes into a new one where another value still needs the first.
            if before.uses > 1:
                self._total += buffer.bytes
                self._drop(before)
                self._drop(buffer)
                buffer = _Buffer(buffer.bytes)
            else:
                self._drop(buffer)
                buffer = before
        self._of[_key(value)] = buffer

    def _drop(self, buffer: _Buffer) -> None:
        buffer.uses -= 1
        if not buffer.uses:
            self._total -= buffer.bytes


def _key(value: Value) -> tuple[int, Shape]:
    return id(value.storage), value.shape
