"""What a layer may know besides its input."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import tensorflow as tf


@dataclass(frozen=True)
class Context:
    """The step that a forward pass belongs to.

    training: whether dropout drops and batch norm takes the statistics of the batch.
    seed: the spec's.
    step: from 0; a number or an int64 scalar.
    sample_ids: (batch,) int64.
    token_mask: (batch, tokens) bool, False where the input is padding; None where nothing can be.
    penalties: what layers add to the loss sum: scalars, summed over the local samples.
    taps: called with (path, input, output) of every layer, gives the output to go on with; None: no taps.
    """

    training: bool
    seed: int = 0
    step: Any = 0
    sample_ids: tf.Tensor | None = None
    token_mask: tf.Tensor | None = None
    penalties: list[tf.Tensor] = field(default_factory=list)
    taps: Any = None
