"""Dropout and its relatives: masks keyed by (seed, layer, step, sample id).

An element is kept where its 32-bit word is at least round(rate * 2^32), so a mask is the same, bit
for bit, in NumPy, TensorFlow and PyTorch, in any precision and on any number of replicas.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from parity.common.spec.base import Number
from parity.common.spec.layers.base import LayerSpec, Shape


class Dropout(LayerSpec):
    """Zero with probability `rate` in training, and scale the rest by 1 / (1 - rate).

    `whole: channels` drops whole feature maps, as spatial dropout does (Tompson et al., CVPR 2015).
    """

    kind: Literal["dropout"] = "dropout"
    rate: Number = Field(ge=0, lt=1, description="probability that an element is dropped")
    whole: Literal["elements", "channels"] = Field(
        default="elements", description="what is dropped as one: single elements, or whole channels"
    )

    def mask_shape(self, input_shape: Shape) -> Shape:
        """Shape of one sample's mask."""
        if self.whole == "elements":
            return input_shape
        return (*(1 for _ in input_shape[:-1]), input_shape[-1])


def threshold(rate: float) -> int:
    """The smallest 32-bit word that keeps an element."""
    return round(rate * 2**32)
