"""What a layer may know besides its input."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any


@dataclass(frozen=True)
class Context:
    """The step that a forward pass belongs to. Arrays are tensors of the framework.

    training: whether dropout drops and batch norm takes the statistics of the batch.
    seed: the spec's. Where dropout is stock: in TensorFlow Keras's generator, in PyTorch None for its global one.
    step: from 0; a number or an int64 scalar.
    sample_ids: (batch,) int64.
    token_mask: (batch, tokens) bool, False where the input is padding; None where nothing can be.
    penalties: what layers add to the loss sum: scalars, summed over the local samples.
    taps: called with (path, input, output) of every layer, gives the output to go on with; None: no taps.
        What it has as `again` is called in its place where a pass is repeated.
    recomputing: whether this repeats a pass that has been made, for its backward pass; only PyTorch does.
    """

    training: bool
    seed: Any = 0
    step: Any = 0
    sample_ids: Any = None
    token_mask: Any = None
    penalties: list[Any] = field(default_factory=list)
    taps: Any = None
    recomputing: bool = False

    def again(self) -> Context:
        """For the same pass once more: it must leave nothing behind that the first has left already."""
        return replace(self, penalties=[], recomputing=True, taps=getattr(self.taps, "again", None))
