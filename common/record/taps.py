"""Taps: two numbers of every activation and every gradient of a step, the same wherever it was computed.

Of each tensor, in float64: the sum of squares, and a keyed random projection. A norm or a mean does not
see that channels were permuted, samples swapped or a square matrix transposed; the projection does.

    activations: sum over the samples s of w(s) * <x_s, r>       gradients: <g, r>

Every entry of r has a random sign and a magnitude in [0.5, 1), so that none has hardly any weight, and
exchanging two values that differ shows (with signs alone, every other exchange would not). 24 bits:
float32 holds them exactly. They come from the counter-based generator, keyed by the layer's path or the
parameter's name and by the index in canonical layout. w is the product of three such numbers, from
tables, one for each 12 bits of the sample id: to draw it for each sample would take 150 small
operations a step. So neither the framework, its memory layout, the replica count nor the split can
change a projection, and those of the replicas add up to that of one replica with the whole batch.

Names: `forward/PATH` and `backward/PATH` (the gradient of the loss sum with respect to a layer's
output), `local_gradient/PARAMETER` (of the loss sum, on one replica, before anything is reduced) and
`gradient/PARAMETER` (of the global mean loss with its penalties, before clipping). One r for both
directions of a layer, and one for both gradients of a parameter: what the replicas' local projections add
up to, divided by the count, is the projection of the reduced gradient.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from parity.common.base import rng
from parity.common.record.reader import Taps
from parity.common.spec import Node, Placement, TrainSpec
from parity.common.spec.capabilities import STRATEGIES
from parity.common.spec.layers import Add, Concatenate, Repeat, Sequential, Shape, TiedEmbedding
from parity.common.state.canonical import parameter_specs

Array = NDArray[np.float64]

_ID_PARTS, ID_BITS = 3, 12
SUM_OF_SQUARES, PROJECTION = 0, 1
_PART = 1 << 14


@dataclass(frozen=True)
class TappedLayer:
    """A layer whose output is tapped. `differentiable`: the output depends on a trainable tensor."""

    path: str
    output_shape: Shape
    differentiable: bool


def layers_of(tree: Node) -> list[TappedLayer]:
    """The layers that are tapped, in the order in which their outputs are computed.

    All but those whose output is their last child's.
    """
    found: list[TappedLayer] = []
    _visit(tree, False, found)
    return found


def _visit(node: Node, differentiable: bool, found: list[TappedLayer]) -> bool:
    """Append a node's tapped layers; whether its output is differentiable, where its input is or is not."""
    own = any(tensor.trainable for tensor in node.parameters)
    beside = len(node.spec.beside) if isinstance(node.spec, TiedEmbedding) else 0
    branches = isinstance(node.spec, Add | Concatenate)
    result = differentiable
    for place, child in enumerate(node.children):
        if isinstance(node.spec, TiedEmbedding) and place >= beside:
            result = True  # it is given rows of the table
        output = _visit(child, differentiable if branches or place < beside else result, found)
        result = result or output
    if not isinstance(node.spec, Sequential | Repeat):
        found.append(TappedLayer(node.path, node.output_shape, result or own))
    return result or own


def names_of(spec: TrainSpec, placement: Placement) -> list[str]:
    """Names of all that is tapped in a run, in the order of the record."""
    layers = layers_of(spec.model.tree())
    kinds = ("local_gradient", "gradient") if has_local_gradients(placement) else ("gradient",)
    return [
        *(f"forward/{layer.path}" for layer in layers),
        *(f"backward/{layer.path}" for layer in layers if layer.differentiable),
        *(f"{kind}/{name}" for kind in kinds for name in tapped_parameters(spec)),
    ]


def tapped_parameters(spec: TrainSpec) -> list[str]:
    """The trainable tensors, without `parameters/`, in the order of `model.parameters`."""
    names = (name for name, tensor in parameter_specs(spec).items() if tensor.trainable)
    return [name.removeprefix("parameters/") for name in names]


def has_local_gradients(placement: Placement) -> bool:
    """Whether a replica's gradients can be seen before they are reduced.

    Not under FSDP and DeepSpeed, which reduce a sharded parameter's gradient as it arises.
    """
    return STRATEGIES[placement.framework][placement.strategy].local_gradients


def vector_of(name: str, shape: Shape) -> Array:
    """Return the weights r of a layer's output (name: its path) or of a parameter (PARAMETER), of its canonical shape."""
    key, result = rng.derive_key(0, "tap", name), np.empty(math.prod(shape))
    # In parts that stay in the cache.
    for start in range(0, len(result), _PART):
        part = result[start : start + _PART]
        counters = np.arange(start // 4, -(-(start + len(part)) // 4), dtype=np.uint64)
        words = rng.philox(key, counters).reshape(-1)[: len(part)]
        # Magnitudes in [0.5, 1), the sign from the highest bit.
        part[:] = 0.5 + ((words >> np.uint32(8)) & np.uint32(0x7FFFFF)) * 2.0**-24
        part *= 1.0 - 2.0 * (words >> np.uint32(31))
    return result.reshape(shape)


def script_vector(size: int) -> Array:
    """r of a recorded script's outputs with `size` numbers a sample; shorter ones are its beginning."""
    return vector_of("script", (size,))


def sample_tables() -> Array:
    """[parts of an id, 2^ID_BITS], float64: w is the product of one of each, the lowest part first."""
    return vector_of("sample ids", (_ID_PARTS, 1 << ID_BITS))


def totals(taps: Taps) -> dict[str, Array]:
    """[rows, 2] by name, comparable between placements: of the global batch and of reduced gradients.

    Activations are added up over the replicas; a reduced gradient each replica has whole, so it is replica
    0's. Without local gradients, which belong to their replica: the squares of parts of a sum do not add up.
    """
    return {
        name: taps.values[0, :, place] if name.startswith("gradient/") else taps.values[:, :, place].sum(0)
        for place, name in enumerate(taps.names)
        if not name.startswith("local_gradient/")
    }


def deviations(a: Array, b: Array) -> Array:
    """[...]: how far fingerprints [..., 2] of two runs are apart, relative to the norm.

    The larger of the difference of the norms and that of the projections. A projection is relative to the norm,
    not to itself: it is a sum of terms of either sign, typically of the norm's size.
    """
    norms = np.sqrt(np.stack([a[..., SUM_OF_SQUARES], b[..., SUM_OF_SQUARES]]))
    apart = np.maximum(np.abs(norms[0] - norms[1]), np.abs(a - b)[..., PROJECTION])
    result: Array = apart / np.maximum(norms.max(0), np.finfo(np.float64).tiny)
    return result
