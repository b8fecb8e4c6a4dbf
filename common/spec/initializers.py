"""Initial values: by name, keyed, drawn in float64, the same bits for both frameworks."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from parity.common.base import rng

if TYPE_CHECKING:
    from parity.common.spec.layers import ParameterSpec

Array = NDArray[np.float64]

# Standard deviation of a standard normal cut off at two; Keras divides by it, PyTorch does not (row 44).
_TRUNCATED_STD = 0.87962566103423978

NAMED = (
    "zeros",
    "ones",
    "glorot_uniform",
    "glorot_normal",
    "he_uniform",
    "he_normal",
    "lecun_normal",
    "uniform_fan_in",
    "orthogonal",
    "forget_ones",
)
# name_X: the number X is the constant, the limit of the uniform, the standard deviation of the normals.
PARAMETRIC = ("constant", "uniform", "normal", "truncated_normal")


def check_initializer(text: str) -> str:
    """`text` where it names an initializer; raises ValueError that lists the known ones."""
    kind, number = _split(text)
    if text in NAMED or (kind in PARAMETRIC and number is not None):
        return text
    forms = [f"{name}_X" for name in PARAMETRIC]
    raise ValueError(f"an initializer is one of {', '.join([*NAMED, *forms])} (X a number)")


def _split(text: str) -> tuple[str, float | None]:
    kind, _, number = text.rpartition("_")
    try:
        value = float(number)
    except ValueError:
        return text, None
    return kind, value if math.isfinite(value) else None


def initial_value(parameter: ParameterSpec, key: rng.Key) -> Array:
    """Return the initial values of one tensor, float64 of its canonical shape; `_drawn` says what each name means."""
    values = _drawn(parameter, key)
    if parameter.zero_row is not None:
        values[parameter.zero_row] = 0
    return values


def _drawn(parameter: ParameterSpec, key: rng.Key) -> Array:
    """Float64 initial values of one tensor.

    glorot_uniform: U(+-sqrt(6 / (fan_in + fan_out))), Glorot and Bengio 2010, Keras's default.
    glorot_normal, he_normal, lecun_normal: truncated at two standard deviations and corrected for it, as Keras's.
    he_*: He et al. 2015, variance 2 / fan_in. lecun_normal: variance 1 / fan_in.
    uniform_fan_in: U(+-1 / sqrt(fan_in)), PyTorch's default for kernels and biases.
    orthogonal: orthonormal rows or columns, whichever are fewer (Saxe et al. 2014).
    forget_ones: zeros, but ones in the second quarter, an LSTM's forget gate; Keras's default for its bias.
    truncated_normal_X: normal with standard deviation X before it is cut off at 2 X.
    """
    shape, fan_in, fan_out = parameter.shape, parameter.fan_in, parameter.fan_out
    kind, number = _split(parameter.initializer)
    if kind in ("zeros", "ones"):
        return np.full(shape, float(kind == "ones"))
    if kind == "forget_ones":
        return np.repeat([0.0, 1.0, 0.0, 0.0], shape[-1] // 4)
    if kind == "constant":
        return np.full(shape, number)
    if kind == "orthogonal":
        return _orthogonal(key, shape)
    if kind == "normal":
        return (number or 0.0) * rng.normal(key, shape)
    if kind == "truncated_normal":
        return (number or 0.0) * _truncated(key, shape)
    if kind.endswith("_normal"):
        variance = {"glorot": 2 / (fan_in + fan_out), "he": 2 / fan_in, "lecun": 1 / fan_in}
        return math.sqrt(variance[kind.removesuffix("_normal")]) / _TRUNCATED_STD * _truncated(key, shape)
    limits = {
        "glorot_uniform": math.sqrt(6 / (fan_in + fan_out)),
        "he_uniform": math.sqrt(6 / fan_in),
        "uniform_fan_in": 1 / math.sqrt(fan_in),
        "uniform": number,
    }
    return (limits[kind] or 0.0) * (2 * rng.uniform(key, shape) - 1)


def _truncated(key: rng.Key, shape: tuple[int, ...]) -> Array:
    """Standard normal values, each drawn anew until it lies within two."""
    values = rng.normal(key, shape)
    attempt = 0
    while (outside := np.abs(values) >= 2).any():
        attempt += 1
        again = rng.normal((key[0], (key[1] + attempt) & 0xFFFFFFFF), shape)
        values = np.where(outside, again, values)
    return values


def _orthogonal(key: rng.Key, shape: tuple[int, ...]) -> Array:
    """Gram-Schmidt, twice, in sums that no BLAS reorders: the bits must not depend on threads."""
    rows, columns = math.prod(shape[:-1]), shape[-1]
    vectors = rng.normal(key, (min(rows, columns), max(rows, columns)))
    for number in range(len(vectors)):
        for _ in range(2):
            for before in vectors[:number]:
                vectors[number] -= (vectors[number] * before).sum() * before
        vectors[number] /= math.sqrt((vectors[number] ** 2).sum())
    return (vectors if rows < columns else vectors.T).reshape(shape)
