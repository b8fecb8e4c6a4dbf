"""A user's model or optimizer, imported and built; what is wrong is one line of ExternalModelError."""

from __future__ import annotations

import os
from typing import Any

os.environ["KERAS_BACKEND"] = "tensorflow"
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import tensorflow as tf
from keras.src.utils.naming import reset_uids

from parity.common.base.errors import ExternalModelError
from parity.common.external.process.resolve import call, resolve, wants
from parity.common.spec.external.target import Target
from parity.tf_impl.external import floating_point


def prepare(precision: str, threads: int) -> None:
    """Settings of this process, made before any of the user's code is imported."""
    tf.get_logger().setLevel("ERROR")
    tf.config.threading.set_intra_op_parallelism_threads(threads)
    tf.config.threading.set_inter_op_parallelism_threads(threads)
    # Taps need values, also of what a user has made a graph of.
    tf.config.run_functions_eagerly(True)
    # It hides frames, and adds paragraphs to the messages of the user's own errors.
    keras.config.disable_traceback_filtering()
    floating_point.set_default(precision)


def build(target: Target, precision: str, seed: int) -> keras.Layer:
    """The model that a target names: a Keras model or layer, or what a function or class gives when it is called.

    Args:
        target: imported here; its arguments are passed on.
        precision: 'float64' or 'float32', of all floating tensors.
        seed: of the initial values.

    Raises:
        ExternalModelError: it cannot be imported, fails, or is no model.
    """
    # Names count up within a process, and are to be the same in each. Not by clear_session, which would end the
    # scope of a strategy that the model is built in.
    reset_uids()
    floating_point.set_default(precision)
    seed_all(seed)
    found = resolve(target, "tensorflow")
    # The user's code may have changed it.
    floating_point.set_default(precision)
    model = found if isinstance(found, keras.Layer) else call(found, target, (), "a keras.Model")
    if not isinstance(model, keras.Layer):
        raise ExternalModelError(
            f"{target} gives an object of type {_type(model)}; it must give a keras.Model"
        )
    if not tf.executing_eagerly():
        raise ExternalModelError(
            f"{target} has switched TensorFlow's eager execution off (tf.compat.v1), so that nothing has a value;"
            " build the model without that"
        )
    floating_point.set_default(precision)
    floating_point.convert(model, precision)
    return model


def build_optimizer(target: Target, model: keras.Layer) -> keras.Optimizer:
    """Return the optimizer that a target names.

    A function or class is called with the target's arguments, and with the model before them where its first
    parameter is called 'model', 'module' or 'net'.

    Raises:
        ExternalModelError: the target cannot be imported, fails, or gives no keras.Optimizer.
    """
    found = resolve(target, "tensorflow")
    first = (model,) if wants(found, ("model", "module", "net")) else ()
    optimizer = found if _is_optimizer(found) else call(found, target, first, "a keras.Optimizer")
    if not _is_optimizer(optimizer):
        raise ExternalModelError(
            f"{target} gives an object of type {_type(optimizer)}; it must give a keras.Optimizer"
        )
    return optimizer


def seed_all(seed: int) -> None:
    """Begin all streams of random numbers anew."""
    keras.utils.set_random_seed(seed)


def _is_optimizer(value: Any) -> bool:
    return isinstance(value, keras.Optimizer)


def _type(value: Any) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}"
