"""keras.applications' models, and ours with the same weights."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import tensorflow as tf

from parity.common.execution.pass_context import Context
from parity.common.spec import ModelSpec
from parity.tf_impl.layers import build_layer
from parity.tf_impl.model import tensors_of
from parity_tests import published
from parity_tests.peers import Arrays


def ours(facts: dict[str, Any], arrays: Arrays) -> Arrays:
    """The outputs of a model with weights drawn from a seed, in inference mode."""
    del arrays
    _float64()
    model = ModelSpec.parse(facts["model"])
    tree = model.tree()
    layer = build_layer(tree)
    drawn = published.weights(model, facts["seed"])
    for name, variable in tensors_of(tree, layer).items():
        variable.assign(drawn.pop(name.partition("/")[2]))
    x = tf.constant(published.inputs(model, facts["seed"]))
    mask = None if model.pad_id is None else x != model.pad_id
    y = layer(x, context=Context(False, sample_ids=tf.range(len(x), dtype=tf.int64), token_mask=mask))
    return {"y": y.numpy()}


def size(facts: dict[str, Any], arrays: Arrays) -> Arrays:
    """The number of trained parameters of one of keras.applications' models."""
    del arrays
    keras.config.set_floatx("float32")
    keras.config.set_dtype_policy("float32")
    model = getattr(keras.applications, facts["class"])(weights=None)
    return {"parameters": np.array(sum(int(np.prod(w.shape)) for w in model.trainable_weights))}


def theirs(facts: dict[str, Any], arrays: Arrays) -> Arrays:
    """The outputs of one of keras.applications' models with the same weights, in inference mode."""
    del arrays
    _float64()
    model = ModelSpec.parse(facts["model"])
    drawn = published.weights(model, facts["seed"])
    stock = getattr(keras.applications, facts["class"])(
        weights=None,
        input_shape=tuple(model.input_shape),
        classes=model.output_shape()[0],
        classifier_activation=None,
    )
    layers = getattr(published, facts["state"])(drawn)
    for layer in stock.layers:
        if layer.weights:
            layer.set_weights(layers.pop(layer.name))
    assert not layers, sorted(layers)
    return {"y": stock(published.inputs(model, facts["seed"]), training=False).numpy()}


def _float64() -> None:
    keras.config.set_floatx("float64")
    keras.config.set_dtype_policy("float64")
