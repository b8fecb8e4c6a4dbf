"""Weights that hide nothing: with ones, zeros or equal tensors a wrong cause may do what the right one does.

A gain of one divides as it multiplies, and a bias of zero may stand anywhere. So a search begins with both models a little
elsewhere, in the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import numpy as np

from parity.common.external.pairs.bench import Bench
from parity.common.external.process.pass_result import Array, Arrays

_SEED, _OTHER_SEED = 1, 2
# Shares and sizes that change every number, and keep what is positive so.
_FACTOR, _OFFSET = 0.1, 0.02


def varied(state: Arrays, seed: int = _SEED) -> Arrays:
    """Return other numbers for tensors of any shape: each a little larger, no two by as much; of a seed the same ones every time."""
    generator = np.random.default_rng(seed)

    def other(value: Array) -> Array:
        factor, offset = generator.random(value.shape), generator.random(value.shape)
        return np.asarray(value * (1 + _FACTOR * factor) + _OFFSET * offset, value.dtype)

    return {name: other(value) for name, value in state.items() if value.dtype.kind == "f"}


def shuffled(state: Arrays, seed: int) -> Arrays:
    """Return tensors of any shape with what is not zero in another order; of a seed the same one every time.

    A row of padding that is zero may be relied on; signs and sizes are those that the model has.
    """
    generator = np.random.default_rng(seed)

    def other(value: Array) -> Array:
        moved, there = value.copy(), value != 0
        moved[there] = generator.permutation(value[there])
        return moved

    return {name: other(value) for name, value in state.items() if value.dtype.kind == "f"}


def scaled(state: Arrays, factor: float) -> Arrays:
    """Return tensors of any shape times a number."""
    # Of a single number NumPy makes a scalar, which is no array.
    return {
        name: np.asarray(value * factor, value.dtype)
        for name, value in state.items()
        if value.dtype.kind == "f"
    }


# Such as no search begins with.
varied_again = partial(varied, seed=_OTHER_SEED)


def write_weights(bench: Bench, change: Callable[[Arrays], Arrays]) -> bool:
    """Give both models other weights, of all that both train; not where that would break a rule. Returns whether any are.

    A layer that Keras shares and torch does not, weights that Keras constrains, and buffers keep what they have.

    Args:
        bench: both models.
        change: makes the other weights of Keras's tensors by name, such as `varied`.
    """
    if bench.unshared is not None:
        return False
    kept = {
        info.name
        for outline in bench.outlines
        for info in outline.tensors
        if info.constraint or info.buffer or not info.trainable
    }
    # Sorted, since a mapping's order follows from how well each layer agreed, down to rounding.
    names = sorted(
        name
        for pair in bench.mapping.tensors
        if pair.torch and not kept & {*pair.keras, *pair.torch}
        for name in pair.keras
    )
    state = bench.keras.read()
    bench.keras.write(change({name: state[name] for name in names if name in state}))
    bench.torch.write(bench.mapping.to_torch(bench.keras.read(), partial=True))
    return bool(names)


@contextmanager
def other_weights(bench: Bench, change: Callable[[Arrays], Arrays] = varied_again) -> Iterator[bool]:
    """Give both models other weights for a while, as `write_weights`; yields whether there are any."""
    before = bench.keras.read(), bench.torch.read()
    try:
        yield write_weights(bench, change)
    finally:
        bench.keras.write(before[0])
        bench.torch.write(before[1])
