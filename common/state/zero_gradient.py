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
from parity.common.state.canonical import parameter_specs

# Units in the last place of the largest gradient that a sum over a batch and its tokens rounds: what a spec claims is
# held against, and, stricter, what a live pair's first batch decides at once (1e-13 in float64).
CLAIMED_ULPS, PAIR_ULPS = 1e4, 450.0


def zero_gradient_directions(spec: TrainSpec) -> dict[str, str]:
    """Return the spec's zero-gradient directions, and what follows them (a moving mean): name -> reason.

    Names leave out `parameters/` and `buffers/`.
    """
    return {
        name.partition("/")[2]: parameter.null_direction
        for name, parameter in parameter_specs(spec).items()
        if parameter.null_direction is not None
    }


def rounding_elements(*passes: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[np.bool_]]:
    """Return bool of its shape by tensor: the elements whose gradients are rounding in every pass, and in one of them not exactly zero.

    passes: first gradients of trainings in float64, by name; tensors that not all of them have, of one shape, are left out.
    """
    least = [
        PAIR_ULPS
        * float(np.finfo(np.float64).eps)
        * max((_largest(g) for g in gradients.values()), default=0.0)
        for gradients in passes
    ]
    found = {}
    for name, first in passes[0].items():
        arrays = [gradients[name] for gradients in passes if name in gradients]
        if len(arrays) < len(passes) or any(array.shape != first.shape for array in arrays):
            continue
        small = np.all([np.abs(array) <= most for array, most in zip(arrays, least, strict=True)], axis=0)
        found[name] = small & np.any([array != 0 for array in arrays], axis=0)
    return found


def _largest(array: NDArray[Any]) -> float:
    return float(np.abs(array).max(initial=0.0))


def measured_zero_gradients(*passes: Mapping[str, NDArray[Any]]) -> dict[str, str]:
    """Return the tensors whose gradients are rounding in every pass, and in one of them not exactly zero: name -> reason.

    passes: the gradients of a training batch each, computed in float64, by name, each of the shape of its tensor.
    """
    shares: dict[str, list[float]] = {}
    for gradients in passes:
        sizes = {name: _largest(value) for name, value in gradients.items()}
        largest = max(sizes.values(), default=0.0)
        for name, size in sizes.items():
            shares.setdefault(name, []).append(size / largest if largest else 0.0)
    return {
        name: f"its gradient on the first batch is rounding: {max(found):.0e} of the largest"
        for name, found in shares.items()
        if 0 < max(found) <= PAIR_ULPS * float(np.finfo(np.float64).eps)
    }
