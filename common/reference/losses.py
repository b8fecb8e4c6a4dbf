"""Losses as (sum, count)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.floating]


def softmax_cross_entropy(logits: Array, labels: NDArray[np.int64]) -> tuple[float, int]:
    """(sum of -log softmax(logits)[label] over the samples, number of samples)."""
    shifted = logits - logits.max(axis=-1, keepdims=True)
    log_partition = np.log(np.exp(shifted).sum(axis=-1))
    losses = log_partition - shifted[np.arange(len(labels)), labels]
    return float(losses.sum()), len(labels)
