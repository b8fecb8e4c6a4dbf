"""A user's model or optimizer, imported and built in a precision; what is wrong is one line of ExternalModelError."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

os.environ["KERAS_BACKEND"] = "tensorflow"
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import tensorflow as tf

from parity.common.base.errors import ExternalModelError
from parity.common.external.process.float64_code import CODE
from parity.common.external.process.resolve import made, resolve
from parity.common.spec.external.target import Target
from parity.common.state.imported import forget_object
from parity.tf_impl.external.built_lines import remember_lines
from parity.tf_impl.external.exact import EXACT
from parity.tf_impl.external.widening import WIDE
from parity.tf_impl.graphs.eager import run_eagerly
from parity.tf_impl.legacy import keras2
from parity.tf_impl.legacy.adopted import adopted
from parity.tf_impl.private_names import reset_uids, whole_numbers_in_32_bits


def prepare(precision: str) -> None:
    """Settings of this process, made before any of the user's code is imported: one thread, and a precision."""
    tf.get_logger().setLevel("ERROR")
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    # Taps need values, also of what a user has made a graph of.
    run_eagerly(True)
    # It hides frames, and adds paragraphs to the messages of the user's own errors.
    keras.config.disable_traceback_filtering()
    remember_lines()
    WIDE.switch(precision == "float64")
    set_default(precision)


def _max_pool(
    input: Any,
    ksize: Any,
    strides: Any,
    padding: str,
    data_format: str | None = None,
    name: str | None = None,
) -> Any:
    """As `tf.nn.max_pool`, of volumes in float64 too, of which TensorFlow has no kernel: height and width first, then depth.

    Of equal elements the gradient goes to the first, as torch and cuDNN have it; TensorFlow's kernel for float32 on a CPU gives each all of it.
    """
    input = tf.convert_to_tensor(input)
    known = input.shape.rank == 5 and None not in input.shape[1:] and data_format in (None, "NDHWC")
    if not known or input.dtype != tf.float64:
        return _stock_max_pool(input, ksize, strides, padding, data_format, name)
    sizes, steps = ([each] * 3 if isinstance(each, int) else list(each) for each in (ksize, strides))
    (deep, *flat), (down, *along) = (each[1:4] if len(each) == 5 else each for each in (sizes, steps))
    depth, *_, channels = input.shape[1:]
    planes = tf.nn.max_pool2d(
        tf.reshape(input, (-1, *input.shape[2:])), flat, along, padding, data_format="NHWC"
    )
    height, width = planes.shape[1:3]
    columns = tf.reshape(planes, (-1, depth, height * width, channels))
    pooled = tf.nn.max_pool2d(columns, (deep, 1), (down, 1), padding)
    return tf.reshape(pooled, (-1, pooled.shape[1], height, width, channels), name)


_stock_max_pool = tf.nn.max_pool


# Trackables of TensorFlow are of it, too: what tf.saved_model.load gives.
_INSTEAD: dict[type, str] = {
    tf.Module: "make its variables weights of a keras.layers.Layer, of which a Keras model can be made",
    tf.__internal__.tracking.AutoTrackable: "a SavedModel has no layers; give the Keras model that it was made of, or load it from"
    " .keras or .h5",
}


def build(target: Target, precision: str, seed: int, exact: bool = False) -> keras.Layer:
    """The model that a target names: a Keras model or layer, or what a function or class gives when it is called.

    Args:
        target: imported here; its arguments are passed on.
        precision: 'float64' or 'float32', of all floating tensors.
        seed: of the initial values.
        exact: float64 also where its code asks NumPy for float32, while it is imported and built.

    Raises:
        ExternalModelError: it cannot be imported, fails, or is no model.
    """
    CODE.switch(exact)
    # Names count up within a process, and are to be the same in each. Not by clear_session, which would end the
    # scope of a strategy that the model is built in.
    reset_uids()
    tf.nn.max_pool = _max_pool
    set_default(precision)
    seed_all(seed)
    resolve(target, "tensorflow")
    # Importing the user's code may have changed it.
    set_default(precision)
    wanted = (keras.Layer, *keras2.layer_classes())
    model: keras.Layer = made(target, "tensorflow", wanted, "a keras.Model", instead=_INSTEAD)
    if any(isinstance(each, keras.layers.TFSMLayer) for each in model._flatten_layers()):
        raise ExternalModelError(
            f"{target} holds a SavedModel (TFSMLayer), whose weights nobody can see or train; give the Keras model that it was made of"
        )
    if keras2.is_keras2(model) and keras2.is_stock(model):
        model = keras2.rebuilt(model, target, precision)
    elif keras2.is_keras2(model):
        keras2.begin(precision)
        forget_object(target, wanted)
        seed_all(seed)
        model = adopted(made(target, "tensorflow", wanted, "a keras.Model"), target)
    if not tf.executing_eagerly():
        raise ExternalModelError(
            f"{target} has switched TensorFlow's eager execution off (tf.compat.v1), so that nothing has a value;"
            " build the model without that"
        )
    set_default(precision)
    convert(model, precision)
    own_loss = isinstance(model, keras.Model) and type(model).compute_loss is not keras.Model.compute_loss
    if own_loss and not model.compiled:
        # Keras's train_step counts the mean loss by what compiling makes.
        keras.Model.compile(model, optimizer=None)
    return model


def build_optimizer(target: Target, model: keras.Layer) -> keras.Optimizer:
    """Return the optimizer that a target names.

    A function or class is called with the target's arguments, and with the model before them where its first
    parameter is called 'model', 'module' or 'net'.

    Raises:
        ExternalModelError: the target cannot be imported, fails, or gives no keras.Optimizer.
    """
    return made(target, "tensorflow", keras.Optimizer, "a keras.Optimizer", model)


def with_scheduler(
    target: Target, model: keras.Layer
) -> tuple[keras.Optimizer, keras.optimizers.schedules.LearningRateSchedule | None]:
    """Return the optimizer that a target names, as `build_optimizer` does, and the schedule that it follows."""
    optimizer = build_optimizer(target, model)
    scaled = isinstance(optimizer, keras.optimizers.LossScaleOptimizer)
    schedule = getattr(optimizer.inner_optimizer if scaled else optimizer, "_learning_rate", None)
    followed = isinstance(schedule, keras.optimizers.schedules.LearningRateSchedule)
    return optimizer, schedule if followed else None


def seed_all(seed: int) -> None:
    """Begin all streams of random numbers anew."""
    keras.utils.set_random_seed(seed)


def set_default(precision: str) -> None:
    """What Keras makes layers of, unless told otherwise."""
    whole_numbers_in_32_bits()
    keras.config.set_floatx(precision)
    keras.config.set_dtype_policy(precision)


def convert(model: keras.Layer, precision: str) -> None:
    """Have every floating layer, tensor and input of a model in a precision, whatever its code has fixed."""
    for layer in model._flatten_layers():
        if _other(layer.compute_dtype, precision) or _other(layer.variable_dtype, precision):
            layer.dtype_policy = keras.DTypePolicy(precision)
        # By which a Sequential that was loaded from a file casts what it is given.
        if isinstance(layer, keras.layers.InputLayer) and _other(layer.dtype, precision):
            layer._dtype = precision
        # The inputs of a functional model, as it was made; a Sequential has one within.
        for functional in (layer, getattr(layer, "_functional", None)):
            for tensor in getattr(functional, "_inputs", None) or ():
                if _other(tensor.dtype, precision):
                    tensor._dtype = precision
    for variable in model.weights:
        if _other(variable.dtype, precision):
            _widen(variable, precision)


def _other(dtype: Any, precision: str) -> bool:
    return str(dtype).startswith(("float", "bfloat")) and str(dtype) != precision


def _widen(variable: Any, precision: str) -> None:
    """Give a Keras variable a store of another type, with the same numbers."""
    kept = variable._value
    variable._dtype = precision
    variable._value = tf.Variable(
        tf.cast(kept, precision), trainable=kept.trainable, name=variable.name, aggregation=kept.aggregation
    )


def exact_constants(on: bool) -> list[str]:
    """Whether constants of float64 models are in float64 too, from now on.

    Stock TensorFlow takes Python's numbers through float32 where it casts them (GELU's constants, attention's
    scale, an optimizer's decays), keeps the slope of LeakyReLU and the factor of L1 as one, and resizes images in it: errors of up to 6e-8
    that no port has. What is gone with this came from there.

    Returns:
        What stock TensorFlow would have rounded since it was switched on: 'NUMBER in LAYER', each once.
    """
    return EXACT.switch(on)


@contextmanager
def in_float64() -> Iterator[None]:
    """Within, whatever a float64 model computes is float64: constants, and what its code asks float32 for."""
    with WIDE.within(), EXACT.within():
        yield
