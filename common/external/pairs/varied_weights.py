"""Weights that hide nothing: with ones, zeros or equal tensors a wrong cause may do what the right one does.

A gain of one divides as it multiplies, and a bias of zero may stand anywhere. So a search begins with both models a little
elsewhere, in the same way.
"""

from __future__ import annotations

import numpy as np

from parity.common.external.pairs.bench import Bench
from parity.common.external.process.pass_result import Array, Arrays

_SEED = 1
# Shares and sizes that change every number, and keep what is positive so.
_FACTOR, _OFFSET = 0.1, 0.02


def vary_weights(bench: Bench) -> None:
    """Give both models other weights, of all that both train; not where that would break a rule.

    A layer that Keras shares and torch does not, weights that Keras constrains, and buffers keep what they have.
    """
    if bench.unshared is not None:
        return
    kept = {
        info.name
        for outline in bench.outlines
        for info in outline.tensors
        if info.constraint or info.buffer or not info.trainable
    }
    names = [
        name
        for pair in bench.mapping.tensors
        if pair.torch and not kept & {*pair.keras, *pair.torch}
        for name in pair.keras
    ]
    state = bench.keras.read()
    bench.keras.write(varied({name: state[name] for name in names if name in state}))
    bench.torch.write(bench.mapping.to_torch(bench.keras.read(), partial=True))


def varied(state: Arrays) -> Arrays:
    """Return other numbers for tensors of any shape: each a little larger, no two by as much; the same ones every time."""
    generator = np.random.default_rng(_SEED)

    def other(value: Array) -> Array:
        factor, offset = generator.random(value.shape), generator.random(value.shape)
        return np.asarray(value * (1 + _FACTOR * factor) + _OFFSET * offset, value.dtype)

    return {name: other(value) for name, value in state.items() if value.dtype.kind == "f"}
