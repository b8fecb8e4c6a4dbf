"""The tensors of a user's model, read, written, and updated by the user's optimizer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import keras
import tensorflow as tf

from parity.common.base.errors import ExternalModelError
from parity.common.external.process.pass_result import Array, Arrays
from parity.tf_impl.external import names


def stored(model: keras.Layer) -> dict[str, keras.Variable]:
    """Return all weights and buffers by native name; raises ExternalModelError where some have no shape yet."""
    found = names.tensors(model)
    if not found and not model.built:
        raise ExternalModelError(
            "the model has no weights before the first pass; ask for the outline with inputs first"
        )
    return found


def assign(tensor: keras.Variable, array: Array) -> None:
    """Set a tensor to values of its shape."""
    tensor.assign(array)


def update(
    optimizer: keras.Optimizer, trained: Mapping[str, keras.Variable], gradients: Sequence[Arrays]
) -> None:
    """Make one update by each set of gradients.

    Args:
        optimizer: a new one.
        trained: the trained tensors by native name, which are changed.
        gradients: by native name, of the tensor's shape; a tensor that a set leaves out has no gradient in that update.
    """
    optimizer.build(list(trained.values()))
    for given in gradients:
        present = [name for name in trained if name in given]
        tensors = [tf.constant(given[name], trained[name].dtype) for name in present]
        optimizer.apply(tensors, [trained[name] for name in present])
