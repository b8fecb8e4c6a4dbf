"""Values to try a mapping with: random, of a size that keeps activations in bounds, and no two tensors alike."""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence

import numpy as np

from parity.common.external.mapping.graphs import connected
from parity.common.external.process.pass_result import Array
from parity.common.spec.external.outline import TensorInfo
from parity.common.spec.external.rules import Constant, parse_rule

# Of larger tensors no orbits are computed: they get one value.
_ORBIT_SIZE = 20_000_000


def draw(info: TensorInfo, key: object) -> Array:
    """Values for a tensor; equal keys and shapes give equal values."""
    random = np.random.default_rng(zlib.crc32(repr(key).encode()))
    role, shape = info.role, info.shape
    positive: Array = random.uniform(0.5, 1.5, shape)
    normal: Array = random.standard_normal(shape)
    scale = random.uniform(0.8, 1.25)
    one_weight = role.endswith("weight") and len(shape) == 1
    if "var" in role or role.endswith(("gamma", "scale", "alpha")) or one_weight:
        return positive
    size = 1.3 / max(1.0, math.prod(shape[:-1])) ** 0.5
    if len(shape) < 2 or role.endswith(("bias", "beta", "mean")):
        size = 0.2
    elif "embedding" in role:
        size = 0.5
    found: Array = normal * (scale * size)
    return found


def constant_of(rule: str) -> float | None:
    """What a tensor of one side must be by its rule, None where it is free."""
    parsed = parse_rule(rule)
    return parsed.value if isinstance(parsed, Constant) else None


def levelled(arrays: Sequence[Array], rules: Sequence[str], count: int) -> list[Array]:
    """The arrays with equal values wherever rules disagree, so that it does not matter which of them is right.

    Args:
        arrays: of Keras, of any shapes; those that are returned have the same.
        rules: the first is the one that the others are compared with.
        count: of torch tensors.
    """
    sizes = [array.size for array in arrays]
    total = sum(sizes)
    if total > _ORBIT_SIZE:
        return [np.full(array.shape, array.flat[0]) for array in arrays]
    starts = np.cumsum([0, *sizes[:-1]])
    indices = [
        np.arange(start, start + array.size, dtype=np.int64).reshape(array.shape)
        for start, array in zip(starts, arrays, strict=True)
    ]
    places = [
        np.concatenate([part.ravel() for part in parse_rule(rule).to_torch(indices, count)]) for rule in rules
    ]
    # Equal for elements that any two rules put into the same place.
    labels = np.arange(total)
    for other in places[1:]:
        labels = connected(labels[places[0]], labels[other], total)[labels]
    flat = np.concatenate([np.asarray(array).ravel() for array in arrays])
    sums = np.zeros(total)
    counts = np.zeros(total)
    np.add.at(sums, labels, flat)
    np.add.at(counts, labels, 1.0)
    # The mean of many is small; of the root of their number it is as large as one of them.
    level = (sums / np.sqrt(np.maximum(counts, 1.0)))[labels]
    return [
        level[start : start + array.size].reshape(array.shape)
        for start, array in zip(starts, arrays, strict=True)
    ]
