"""Models of Keras 2: `tf_keras`, and tf.keras where TF_USE_LEGACY_KERAS is set. They are made again in Keras 3."""

from __future__ import annotations

import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

import h5py
import keras
import numpy as np
import tensorflow as tf

from parity.common.base.errors import ExternalModelError
from parity.common.spec.external.target import Target

# Of what float32 is computed with in either version, at random inputs.
_APART = 1e-4


class FusedBatchNormalization(keras.layers.BatchNormalization):
    """As Keras 2's batch norm of images, whose kernel keeps the unbiased variance, as torch's does (row 3)."""

    def call(self, inputs: tf.Tensor, training: bool | None = None, mask: Any = None) -> tf.Tensor:
        """Normalise (..., channels), and in training keep the batch's statistics."""
        before = tf.identity(self.moving_variance)
        outputs = super().call(inputs, training=training, mask=mask)
        if training and self.trainable:
            channels = inputs.shape[self.axis]
            count = tf.cast(tf.size(inputs) // channels, before.dtype)
            kept = before * self.momentum
            # The kernel, too, divides by one at least.
            self.moving_variance.assign(
                kept + (self.moving_variance - kept) * count / tf.maximum(count - 1, 1)
            )
        return outputs


def layer_classes() -> tuple[type, ...]:
    """Keras 2's class of layers and models, where the user's code has imported it."""
    keras2 = sys.modules.get("tf_keras")
    return () if keras2 is None else (keras2.layers.Layer,)


def begin(precision: str) -> None:
    """Have Keras 2 make the next model of a precision, with the names of the first one in a process."""
    backend = sys.modules["tf_keras"].backend
    backend.reset_uids()
    backend.set_floatx(precision)


def is_stock(model: Any) -> bool:
    """Whether a model of Keras 2 is made of its own layers alone."""
    return all(type(each).__module__.startswith("tf_keras.") for each in model._flatten_layers())


def is_keras2(model: object) -> bool:
    """Whether a model is of Keras 2."""
    return isinstance(model, layer_classes())


def rebuilt(model: Any, target: Target, precision: str) -> keras.Model:
    """A functional or sequential model of Keras 2 as one of Keras 3, with its weights, and tried on random inputs.

    By the file in which Keras 2 keeps models and which Keras 3 reads, .h5. What it was compiled with is left out. precision: of its inputs and layers, which
    the file has as float32.

    Raises:
        ExternalModelError: it is a model with code of its own, has layers that Keras 3 does not have, or computes something else there.
    """
    name = f"{target} is a model of Keras 2 (tf_keras)"
    with tempfile.TemporaryDirectory(prefix="parity-keras2-") as folder:
        path = Path(folder) / "model.h5"
        try:
            with warnings.catch_warnings():
                # Both versions say that the format is an old one.
                warnings.simplefilter("ignore")
                model.save(path, save_format="h5", include_optimizer=False)
                with h5py.File(path, "r+") as file:
                    said = file.attrs["model_config"]
                    file.attrs["model_config"] = said.replace('"dtype": "float32"', f'"dtype": "{precision}"')
                found = keras.models.load_model(path, compile=False, custom_objects=_own_layers(model))
        except NotImplementedError:
            raise ExternalModelError(
                f"{name} with a call of its own, which Keras 3 cannot rebuild; build it of layers (functional or Sequential), or"
                " derive it from Keras 3's keras.Model"
            ) from None
        except Exception as error:
            said = next(iter(str(error).splitlines()), "").partition(". ")[0][:200]
            raise ExternalModelError(
                f"{name} that Keras 3 cannot rebuild: {type(error).__name__}: {said}; derive its own layers from Keras 3's"
                " keras.layers.Layer"
            ) from None
    apart = _apart(model, found)
    if not apart <= _APART:
        raise ExternalModelError(
            f"{name}; rebuilt in Keras 3 its outputs differ by {apart:.1g}: a layer of it has changed between the two; compare layer by layer"
        )
    found.rebuilt_from = f"{target} is of Keras 2: it was built again in Keras 3 with its weights, and the same inputs give the same outputs"
    return found


def _own_layers(model: Any) -> dict[str, type[keras.Layer]]:
    """The layers of Keras 3's that a model needs instead of the stock ones; raises TypeError where some of a kind do and others do not."""
    fused = {
        bool(each.fused) for each in model._flatten_layers() if type(each).__name__ == "BatchNormalization"
    }
    if len(fused) > 1:
        raise TypeError("batch norms of images and of other inputs in one model")
    return {"BatchNormalization": FusedBatchNormalization} if fused == {True} else {}


def _apart(one: Any, other: keras.Model) -> float:
    """The largest deviation of two models' outputs relative to the largest of these, at two random samples."""
    draw = np.random.default_rng(0)
    arrays = [_drawn(draw, each) for each in one.inputs]
    outputs = []
    for model in (one, other):
        given = [tf.cast(array, each.dtype) for array, each in zip(arrays, model.inputs, strict=True)]
        outputs.append(tf.nest.flatten(model(given[0] if len(given) == 1 else given, training=False)))
    ours, theirs = outputs
    pairs = [
        (np.asarray(a, np.float64), np.asarray(b, np.float64)) for a, b in zip(ours, theirs, strict=True)
    ]
    return max(float(np.abs(a - b).max(initial=0.0) / (np.abs(a).max(initial=0.0) or 1.0)) for a, b in pairs)


def _drawn(draw: np.random.Generator, tensor: Any) -> np.ndarray:
    shape = [2, *(8 if size is None else size for size in tensor.shape[1:])]
    # Of whole numbers small ones: they may be rows of a table.
    return draw.normal(size=shape) if tensor.dtype.is_floating else draw.integers(0, 2, shape)
