"""A loss of the user's own, called as Keras's `fit` calls it."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf

from parity.common.base.errors import ExternalModelError
from parity.common.external.process.exact import ExactFunctions
from parity.common.external.process.resolve import function_of
from parity.common.spec.external.target import Target
from parity.tf_impl.private_names import LossFunctionWrapper, loss_module

# Within a strategy, Keras divides a mean by the number of replicas, so that a sum over them is right where all have as
# many samples. We sum over samples, and need the mean of this replica's.
WHOLE = ExactFunctions()
WHOLE.replacements = tuple(
    (loss_module, name, lambda value: value)
    for name in ("scale_loss_for_distribution", "unscale_loss_for_distribution")
    # Versions before 3.8 divide nothing.
    if hasattr(loss_module, name)
)
_WANTED = "a loss: a keras.losses.Loss, or a function of targets and outputs"


def mean(target: Target, outputs: Any, targets: Any, weights: tf.Tensor | None) -> tf.Tensor:
    """Return the mean of a loss over a batch, a scalar.

    Args:
        target: what names the loss, called as `loss(targets, outputs)`. It gives a mean, or a value for each sample.
        outputs: a tensor, or what a model gives.
        targets: a tensor, or several in a list or dict, (batch, ...).
        weights: of the samples, (batch,), or None.

    Raises:
        ExternalModelError: the loss cannot be imported, takes no weights here, or gives no tensor of floats.
    """
    loss = function_of(target, "tensorflow", _WANTED)
    if isinstance(loss, keras.Layer):
        raise ExternalModelError(f"{target} gives a model or layer; it must give {_WANTED}")
    if not isinstance(loss, keras.losses.Loss) and tf.is_tensor(outputs) and tf.is_tensor(targets):
        outputs = _masked_as_taken(loss, outputs, targets)
        loss = LossFunctionWrapper(loss)  # as `compile` has it
    if weights is not None and not isinstance(loss, keras.losses.Loss):
        raise ExternalModelError(f"{target} takes all outputs at once, for which Keras has no sample weights")
    with WHOLE.within():
        value = loss(targets, outputs) if weights is None else loss(targets, outputs, sample_weight=weights)
    if not tf.is_tensor(value) or not value.dtype.is_floating:
        raise ExternalModelError(
            f"{target} gives {type(value).__name__}; it must give numbers, a mean or one for each sample"
        )
    return tf.reduce_mean(value)


def _masked_as_taken(loss: Any, outputs: Any, targets: Any) -> Any:
    """The outputs without their mask where the loss gives one number for all that it is of, as for a whole sequence: `fit` would fail,
    so that a loop of the user's own takes that loss, without a mask.
    """
    mask = getattr(outputs, "_keras_mask", None)
    if mask is None:
        return outputs
    rank = len(loss(targets, outputs).shape)
    return tf.identity(outputs) if 0 < rank < len(mask.shape) else outputs


def added(model: keras.Layer) -> Any:
    """Return what regularizers and add_loss add to the mean loss of the latest pass, a scalar; of several elements their sum, as Keras does."""
    return sum((tf.reduce_sum(each) if each.shape.rank else each for each in model.losses), 0.0)
