"""Infer from values by which rule they were drawn: torch keeps no initialiser."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

# A rule that fits is refused once in 10^8 tensors or so: six standard deviations of the mean square, and as many
# values as give a uniform draw its peak.
_DEVIATIONS = 6
_PEAK = 20
# Of those that fit, the one by which the values are likeliest is taken. Another than the usual rule has to be so by
# this factor, in logarithms: where the usual one is the truth, that happens once in 10^5 tensors at most.
_FOR_THE_USUAL = 12.0
# With fewer values only the usual rule is taken for an answer.
_FEW = 2 * _PEAK


def drawn(values: NDArray[Any], fan_in: int, fan_out: int, usual: str) -> str | None:
    """The canonical name of an initialiser (`common/spec/initializers.py`); None where no known one fits.

    Normal draws that are not cut off, which have no canonical name there, are called `..._uncut`.

    Args:
        values: as they are at the start of training, in the shape of the tensor.
        fan_in, fan_out: of the tensor, as its framework counts them.
        usual: the layer's default rule.
    """
    flat = np.asarray(values, np.float64).ravel()
    if not flat.size or not np.isfinite(flat).all():
        return None
    if (flat == flat[0]).all():
        value = float(flat[0])
        return {0.0: "zeros", 1.0: "ones"}.get(value, f"constant_{value:g}")
    if values.ndim == 2 and min(values.shape) > 1 and _is_orthogonal(values):
        return "orthogonal"
    both, size = fan_in + fan_out, flat.size
    limits = {
        "uniform_fan_in": 1 / math.sqrt(fan_in),
        "glorot_uniform": math.sqrt(6 / both),
        "he_uniform": math.sqrt(6 / fan_in),
        "lecun_uniform": math.sqrt(3 / fan_in),
        "uniform_0.05": 0.05,
    }
    deviations = {f"normal_{number:g}": number for number in (1.0, 0.1, 0.05, 0.02, 0.01, 0.001)}
    # Keras cuts those of its own that are called so off at two standard deviations.
    deviations["he_normal_uncut"] = math.sqrt(2 / fan_in)
    deviations["he_normal_uncut of fan-out"] = math.sqrt(2 / fan_out)
    deviations["glorot_normal_uncut"] = math.sqrt(2 / both)
    squares = float(np.sum(flat**2))
    found: dict[str, float] = {}  # logarithm of the density of the values
    for name in [*limits, *deviations] if size >= _FEW else [usual]:
        if name in limits and _is_uniform(flat, limits[name]):
            found[name] = -size * math.log(2 * limits[name])
        elif name in deviations and _is_normal(flat, deviations[name]):
            deviation = deviations[name]
            found[name] = -size * math.log(math.sqrt(2 * math.pi) * deviation) - squares / (2 * deviation**2)
    if usual in found:
        found[usual] += _FOR_THE_USUAL
    return max(found, key=found.__getitem__, default=None)


def _is_uniform(flat: NDArray[np.float64], limit: float) -> bool:
    peak = float(np.abs(flat).max())
    if not limit * (1 - min(1.0, _PEAK / flat.size)) <= peak <= limit * (1 + 1e-6):
        return False
    return bool(abs(np.mean(flat**2) / (limit**2 / 3) - 1) < _DEVIATIONS * math.sqrt(0.8 / flat.size))


def _is_normal(flat: NDArray[np.float64], deviation: float) -> bool:
    square = float(np.mean(flat**2))
    kurtosis = float(np.mean(flat**4)) / square**2
    slack = _DEVIATIONS / math.sqrt(flat.size)
    return abs(square / deviation**2 - 1) < slack * 2**0.5 and abs(kurtosis - 3) < slack * 24**0.5


def _is_orthogonal(values: NDArray[Any]) -> bool:
    """Whether its rows or its columns, whichever are fewer, are orthonormal."""
    matrix = np.asarray(values, np.float64)
    matrix = matrix if matrix.shape[0] <= matrix.shape[1] else matrix.T
    return bool(np.abs(matrix @ matrix.T - np.eye(len(matrix))).max() < 1e-5)
