"""Plain Keras trainings, written as its documentation writes them: no part of ours takes part."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import layers

from parity.common.execution.pass_context import Context
from parity.common.spec import layers as spec
from parity.tf_impl.layers import build_layer
from parity.tf_impl.layers.random import keep_mask
from parity_tests.peers import Arrays


def cnn() -> keras.Model:
    """Convolution, batch norm, pooling, dense."""
    return keras.Sequential(
        [
            keras.Input((8, 8, 1)),
            layers.Conv2D(8, 3, padding="same", activation="relu"),
            layers.BatchNormalization(momentum=np.float64(0.99), epsilon=np.float64(1e-3)),
            layers.Conv2D(8, 3, strides=2, padding="same"),
            layers.LeakyReLU(),
            layers.AveragePooling2D(2),
            layers.Flatten(),
            layers.Dense(10),
        ]
    )


def mlp() -> keras.Model:
    """Flatten, dense, layer norm, dense."""
    return keras.Sequential(
        [
            keras.Input((8, 8, 1)),
            layers.Flatten(),
            layers.Dense(16, activation="tanh"),
            layers.LayerNormalization(),
            layers.Dense(10),
        ]
    )


def recurrent() -> keras.Model:
    """An image read row by row: LSTM, GRU, dense."""
    return keras.Sequential(
        [
            keras.Input((8, 8, 1)),
            layers.Reshape((8, 8)),
            layers.LSTM(12, return_sequences=True),
            layers.GRU(8),
            layers.Dense(10),
        ]
    )


def optimizer(facts: dict[str, Any]) -> keras.optimizers.Optimizer:
    """The stock class.

    Keras passes Python floats through float32 (0.9 becomes 0.89999998) on their way into a float64
    variable; NumPy's float64 it leaves alone. Observed with Keras 3.15.
    """
    options = {name: np.float64(v) if isinstance(v, float) else v for name, v in facts["options"].items()}
    stock: keras.optimizers.Optimizer = getattr(keras.optimizers, facts["optimizer"])(**options)
    return stock


def train(facts: dict[str, Any], arrays: Arrays) -> Arrays:
    """compile and fit on the batches in order; the weights afterwards, in Keras's order.

    facts: model, optimizer, options, batch_size; low: a policy for a float32 model.
    arrays: inputs and targets, one batch after the other, and weight_0, weight_1, ...
    """
    low = facts.get("low")
    keras.config.set_floatx("float32" if low else "float64")
    keras.config.set_dtype_policy(low or "float64")
    model = {"cnn": cnn, "mlp": mlp, "recurrent": recurrent}[facts["model"]]()
    model.set_weights([arrays[f"weight_{i}"] for i in range(len(model.weights))])
    model.compile(
        optimizer=optimizer(facts), loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    )
    model.fit(
        arrays["inputs"],
        arrays["targets"],
        batch_size=facts["batch_size"],
        shuffle=False,
        epochs=1,
        verbose=0,
    )
    return {f"weight_{i}": np.array(weight) for i, weight in enumerate(model.get_weights())}


def dropped(facts: dict[str, Any], arrays: Arrays) -> Arrays:
    """An array through Keras's Dropout and through our layers' mask, from the same seed, and once more."""
    x = tf.constant(arrays["x"])
    keras.config.set_dtype_policy("float32")
    theirs = layers.Dropout(facts["rate"], seed=facts["seed"])(x, training=True)
    context = Context(True, seed=keras.random.SeedGenerator(facts["seed"]))
    ours, again = (x * keep_mask(x, context, "dropout", tuple(x.shape[1:]), facts["rate"]) for _ in range(2))
    return {"theirs": theirs.numpy(), "ours": ours.numpy(), "again": again.numpy()}


def scales(facts: dict[str, Any], arrays: Arrays) -> Arrays:
    """The scale of a LossScaleOptimizer after each step, of which some have gradients that are not finite."""
    del arrays
    keras.config.set_floatx("float32")
    keras.config.set_dtype_policy("float32")
    growth = facts["growth_interval"]
    scaler = keras.optimizers.LossScaleOptimizer(
        keras.optimizers.SGD(0.1), initial_scale=1024.0, dynamic_growth_steps=growth
    )
    weight = keras.Variable(np.ones(2, np.float32))
    scaler.build([weight])
    found = []
    for finite in facts["finite"]:
        scaler.apply([tf.constant([1.0, 1.0 if finite else float("inf")])], [weight])
        found.append(float(scaler.dynamic_scale.numpy()))
    return {"scales": np.array(found)}


PARTS = ("query", "key", "value", "output")


def attended(facts: dict[str, Any], arrays: Arrays) -> Arrays:
    """What Keras's attention and ours give without training, under a policy, with the same weights; and gradients of these."""
    keras.config.set_floatx("float32")
    keras.config.set_dtype_policy(facts["low"])
    x = tf.cast(arrays["x"], "bfloat16")
    causal, features, heads = facts["causal"], x.shape[-1], 2
    theirs = layers.MultiHeadAttention(heads, features // heads, dropout=facts["dropout"])
    theirs(x, x)
    random = np.random.default_rng(0)
    weights = [0.3 * random.standard_normal(weight.shape) for weight in theirs.weights]
    theirs.set_weights(weights)
    layer = spec.SelfAttention(heads=heads, causal=causal, dropout=facts["dropout"])
    ours = build_layer(layer.node("attention", tuple(x.shape[1:])))
    for place, part in enumerate(PARTS):
        for name, value in (("kernel", weights[2 * place]), ("bias", weights[2 * place + 1])):
            variable = getattr(ours, f"{part}_{name}")
            variable.assign(value.reshape(variable.shape))
    calls = {
        "ours": lambda: ours(x, context=Context(False)),
        "theirs": lambda: theirs(x, x, use_causal_mask=causal),
    }
    own = [getattr(ours, f"{part}_{name}") for part in PARTS for name in ("kernel", "bias")]
    found = {}
    for name, variables in (("ours", own), ("theirs", theirs.weights)):
        with tf.GradientTape() as tape:
            y = calls[name]()
            total = tf.reduce_sum(tf.cast(y, "float32") * arrays["x"])
        found[name] = tf.cast(y, "float32").numpy()
        gradients = tape.gradient(total, [variable.value for variable in variables])
        found[f"{name}_gradients"] = np.concatenate([gradient.numpy().ravel() for gradient in gradients])
    keras.config.set_dtype_policy("float32")
    return found
