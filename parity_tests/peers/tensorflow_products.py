"""Passes of a model with low products, in TensorFlow."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import keras
import tensorflow as tf

from parity.tf_impl.layers.products import Low, set_low, sums_in_float32
from parity_tests.peers import Arrays, tensorflow_layers


def forward_backward(facts: dict[str, Any], arrays: Arrays) -> Arrays:
    """As `layers:forward_backward` in float32, with products that round to facts["low"]."""
    real = tensorflow_layers.build_layer
    native = facts.get("native", sums_in_float32(facts["low"], False))

    def build(node: Any) -> keras.layers.Layer:
        layer = real(node)
        set_low(layer, Low(tf.as_dtype(facts["low"]), native))
        return layer

    with patch.object(tensorflow_layers, "build_layer", build):
        return tensorflow_layers.forward_backward({**facts, "precision": "float32"}, arrays)
