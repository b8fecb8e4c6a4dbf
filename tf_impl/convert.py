"""A run's model as a file for Keras without this toolkit.

The model is made of stock layers and operations alone, so that plain `keras.models.load_model` opens it. It is
loaded so, and must give what the toolkit's model gives, before the file gets its name.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import keras
import numpy as np

from parity.common.base.errors import CheckpointError
from parity.common.checkpoint.weights import Weights, read_weights
from parity.common.spec import TrainSpec, layers, walk
from parity.common.spec.layers.attention import AttentionBase
from parity.common.state.imported import refuse_imported
from parity.tf_impl.inference import model_of
from parity.tf_impl.stock.model import stock_model

_SAMPLES = 8
# How far, relative to the largest output, stock layers may be from the toolkit's: rounding in another order.
_TOLERANCE = {"float64": 1e-11, "float32": 1e-4}
# Keras's attention rounds 1 / sqrt(head size) to float32, whatever it computes in.
_TOLERANCE_OF_ATTENTION = 1e-7


def export(path: Path, kind: str, out: Path) -> dict[str, Any]:
    """Write the model of a run or a checkpoint as `kind`: keras; returns what was written."""
    del kind
    found = read_weights(path)
    refuse_imported(found.spec, str(path), "'parity export' writes checkpoints of models of one's own")
    # Low products are no property of stock layers; the weights are float32 in any precision but float64.
    spec = found.spec.model_copy(update={"precision": found.spec.master_dtype, "loss_scale": None})
    weights = Weights(spec, found.step, found.source, found.tensors)
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=f".{out.name}-") as folder:
        expected = model_of(weights)
        stock = stock_model(weights)
        temporary = Path(folder) / "model.keras"
        stock.save(temporary)
        deviation = _deviation(expected, keras.models.load_model(temporary), spec)
        attends = any(isinstance(node.spec, AttentionBase) for node in walk(spec.model.tree()))
        if not deviation <= max(_TOLERANCE[spec.master_dtype], _TOLERANCE_OF_ATTENTION * attends):
            raise CheckpointError(
                f"{path}: made of stock Keras layers, the model's outputs are {deviation:.1e} off; not written"
            )
        temporary.replace(out)
    low = (
        "" if spec.precision == found.spec.precision else f"; computes in float32, not {found.spec.precision}"
    )
    return {
        "step": found.step,
        "source": str(found.source),
        "passed_over": found.passed_over,
        "said": f"{stock.count_params()} numbers, loaded again, outputs within {deviation:.1e} of the toolkit's{low}",
    }


def _deviation(expected: keras.Model, stock: keras.Model, spec: TrainSpec) -> float:
    """The largest difference of outputs over the largest output."""
    batch = _samples(spec)
    ours, theirs = (np.asarray(model(batch), np.float64) for model in (expected, stock))
    if ours.shape != theirs.shape:
        return np.inf
    return float(np.abs(ours - theirs).max() / max(np.abs(ours).max(), np.finfo(np.float64).tiny))


def _samples(spec: TrainSpec) -> np.ndarray:
    """Numbers, or tokens of which each sample has another number of padding at its end."""
    model, draw = spec.model, np.random.default_rng(0)
    shape = (_SAMPLES, *model.input_shape)
    sizes = [
        node.spec.vocabulary
        for node in walk(model.tree())
        if isinstance(node.spec, layers.Embedding | layers.TiedEmbedding)
    ]
    if model.inputs == "numbers" and not sizes:
        return draw.normal(size=shape).astype(spec.input_dtype)
    tokens = draw.integers(0, min(sizes), shape)
    if model.pad_id is not None:
        tokens[tokens == model.pad_id] = (model.pad_id + 1) % min(sizes)
        kept = np.arange(1, _SAMPLES + 1) * shape[1] // _SAMPLES
        tokens[np.arange(shape[1]) >= np.maximum(kept, 1)[:, None]] = model.pad_id
    return tokens.astype(spec.input_dtype)
