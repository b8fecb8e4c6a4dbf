"""The tape of a spec's forward pass with its loss, and what it says of memory."""

from __future__ import annotations

import functools
import math

import numpy as np

# The rules of its layers register themselves.
from parity.common.planning.adviser import sequences  # noqa: F401
from parity.common.planning.adviser.layers import record
from parity.common.planning.adviser.tape import Memory, Storage, Tape, Value
from parity.common.spec import TrainSpec, losses


def itemsizes(spec: TrainSpec) -> tuple[int, int | None]:
    """Bytes of a number of the parameters and activations, and of a product's rounded operand."""
    low = {None: None, "bfloat16": 2, "float16": 2}[spec.low_dtype]
    return np.dtype(spec.master_dtype).itemsize, low


def batch_bytes(spec: TrainSpec, samples: int) -> int:
    """Of the inputs, targets and ids of some samples."""
    inputs = math.prod(spec.model.input_shape) * np.dtype(spec.input_dtype).itemsize
    targets = math.prod(spec.target_shape) * np.dtype(spec.target_dtype).itemsize
    return samples * (inputs + targets + 8)


@functools.lru_cache(maxsize=256)
def passes(
    spec: TrainSpec, samples: int, checkpoints: frozenset[str] = frozenset(), alone: bool = True
) -> Memory:
    """What a forward and backward pass over some samples of a resolved spec keep and hold at most.

    checkpoints: paths of the layers that keep only their input. alone: on the only replica.
    """
    itemsize, low = itemsizes(spec)
    model, is_padded = spec.model, spec.model.pad_id is not None
    tape = Tape(samples, itemsize, low, model.inputs == "tokens", is_padded, checkpoints, alone)
    batch = tape.new(model.input_shape, grad=False, itemsize=np.dtype(spec.input_dtype).itemsize)
    tape.given = batch.storage
    outputs = record(tape, model.tree(), batch)
    _loss(tape, spec.loss, outputs)
    return tape.memory()


def _loss(tape: Tape, loss: losses.LossBase, y: Value) -> None:
    rows, size = y.shape[:-1], tape.bytes_of(y.shape)
    if isinstance(loss, losses.SoftmaxCrossEntropy):
        log_p = tape.new(y.shape)
        kept = (log_p,) if loss.is_plain or loss.outputs == "logits" else (y, log_p)
        log_p = tape.apply(y, log_p, *kept)
        if loss.is_plain:
            # The index of each class, and what the kernel divides by.
            scalar = Storage(tape.itemsize)
            tape.apply(log_p, Value(scalar, (), grad=True), tape.kept(rows, 8), Storage(tape.itemsize))
        elif loss.targets == "classes":
            # Each class as an index, and a weight.
            tape.apply(log_p, tape.new(rows), tape.kept(rows, 8), tape.kept(rows))
        else:
            tape.apply(log_p, tape.new(rows), tape.kept(y.shape), tape.kept(rows))
    elif isinstance(loss, losses.BinaryCrossEntropy):
        # Both logarithms keep their operand and a buffer, both products the target; at the end there are the
        # logarithms and products too.
        saved = [tape.kept(y.shape) for _ in range(5)]
        tape.apply(y, tape.new(y.shape), y, *saved, scratch=2 * size, forward_scratch=4 * size)
    elif isinstance(loss, losses.KLDivergence):
        log_p = tape.new(y.shape)
        tape.apply(y, log_p, log_p, tape.kept(y.shape))
    elif isinstance(loss, losses.Huber):
        tape.apply(y, tape.new(y.shape), tape.kept(y.shape), tape.kept(y.shape, 1))
    else:
        assert isinstance(loss, losses.MeanAbsoluteError | losses.MeanSquaredError)
        tape.apply(y, tape.new(y.shape), tape.kept(y.shape), scratch=size)
