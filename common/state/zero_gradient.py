"""Zero-gradient directions: tensors whose gradient is zero up to rounding, whatever the data.

Such are a bias before batch norm, or that of attention's keys. An optimizer that normalises gradients turns that
noise into steps, so two exact runs differ there and nowhere else; their loss does not see it. A layer's formulas say
which they are; of an imported layer, whose formulas nobody knows, its gradients on one batch do. Either way the
spec holds the marks, and `parity.common.parity.compare` holds each run's first gradients against them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parity.common.spec import TrainSpec
from parity.common.spec.layers import Imported
from parity.common.state.canonical import parameter_specs

# Units in the last place of the largest gradient that a sum over a batch and its tokens rounds. The claim is made
# ten times more strictly than runs are held to it.
MEASURED_ULPS, CLAIMED_ULPS = 1e3, 1e4
# A live pair's first batch decides at once, and nothing is held against it later: 1e-13 in float64.
PAIR_ULPS = 450.0


def zero_gradient_directions(spec: TrainSpec) -> dict[str, str]:
    """Return the spec's zero-gradient directions, and what follows them (a moving mean): name -> reason.

    Names leave out `parameters/` and `buffers/`.
    """
    return {
        name.partition("/")[2]: parameter.null_direction
        for name, parameter in parameter_specs(spec).items()
        if parameter.null_direction is not None
    }


def measured_zero_gradients(
    gradients: Mapping[str, NDArray[Any]], precision: str = "float64", ulps: float = PAIR_ULPS
) -> dict[str, str]:
    """Return the tensors whose gradient is rounding, but not exactly zero: name -> reason.

    Args:
        gradients: of a training batch, by name, each of the shape of its tensor.
        precision: that they were computed in.
        ulps: units in the last place of the largest gradient that count as rounding.
    """
    sizes = {name: float(np.abs(value).max(initial=0.0)) for name, value in gradients.items()}
    largest = max(sizes.values(), default=0.0)
    return {
        name: f"its gradient on the first batch is rounding: {size / largest:.0e} of the largest"
        for name, size in sizes.items()
        if 0 < size <= ulps * float(np.finfo(precision).eps) * largest
    }


def mark_zero_gradient_directions(
    layer: Imported, gradients: Mapping[str, NDArray[Any]], precision: str
) -> Imported:
    """Return the layer with the trained Keras tensors marked that have a measured zero gradient.

    Args:
        gradients: of a training batch, by Keras name, each of the shape of its tensor.
        precision: that they were computed in.
    """
    measured = measured_zero_gradients(gradients, precision, MEASURED_ULPS)
    tensors = tuple(
        tensor.model_copy(update={"null_direction": measured[tensor.name]})
        if tensor.null_direction is None and tensor.trainable and tensor.name in measured
        else tensor
        for tensor in layer.keras_tensors
    )
    return layer.model_copy(update={"keras_tensors": tensors})
