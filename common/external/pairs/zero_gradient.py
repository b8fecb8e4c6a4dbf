"""Trained tensors whose gradient is nothing but rounding."""

from __future__ import annotations

import numpy as np

from parity.common.external.process.pass_result import Arrays

# So small a share of the largest gradient; `parity.common.parity.compare` holds a run to what is claimed here.
_NULL_SHARE = 1e-13


def zero_gradient_directions(gradients: Arrays) -> dict[str, str]:
    """Trained tensors whose gradient is nothing but rounding, such as a bias before batch norm: name -> why."""
    sizes = {name: float(np.abs(value).max(initial=0.0)) for name, value in gradients.items()}
    largest = max(sizes.values(), default=0.0)
    return {
        name: f"its gradient is rounding: {size / largest:.0e} of the largest"
        for name, size in sizes.items()
        if largest and 0 < size <= _NULL_SHARE * largest
    }
