"""Fingerprints of taps in NumPy: the reference for the frameworks."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from parity.common.record import taps


def sample_weights(sample_ids: NDArray[np.int64]) -> taps.Array:
    """Return the weight w of each sample, float64, of the shape of `sample_ids`."""
    result = np.ones(len(sample_ids))
    for part, table in enumerate(taps.sample_tables()):
        result *= table[sample_ids >> (taps.ID_BITS * part) & ((1 << taps.ID_BITS) - 1)]
    return result


def activation_fingerprint(
    path: str, values: NDArray[np.floating], sample_ids: NDArray[np.int64]
) -> taps.Array:
    """The two numbers of (samples, *output shape) in canonical layout: the reference for the frameworks."""
    doubles = np.asarray(values, np.float64)
    vector = taps.vector_of(path, doubles.shape[1:]).ravel()
    rows = doubles.reshape(len(doubles), len(vector)) @ vector
    return np.array([np.sum(doubles**2), sample_weights(sample_ids) @ rows])


def gradient_fingerprint(name: str, gradient: NDArray[np.floating]) -> taps.Array:
    """The two numbers of a parameter's gradient in canonical layout: the reference for the frameworks."""
    doubles = np.asarray(gradient, np.float64)
    return np.array([np.sum(doubles**2), np.sum(doubles * taps.vector_of(name, doubles.shape))])
