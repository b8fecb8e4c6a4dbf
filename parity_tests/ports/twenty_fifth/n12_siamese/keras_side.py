"""Self-supervised learning on wrist sensors: two views of a window, each predicts the other (SimSiam)."""

import keras
from keras import layers, ops


def encoder():
    return keras.Sequential(
        [
            keras.Input((16, 4)),
            layers.Conv1D(12, 3, padding="same", activation="tanh", name="conv1"),
            layers.Conv1D(16, 3, strides=2, padding="same", activation="tanh", name="conv2"),
            layers.Conv1D(16, 3, padding="same", activation="relu", name="conv3"),
            layers.GlobalAveragePooling1D(),
            layers.Dense(10, name="project"),
        ],
        name="encoder",
    )


def predictor():
    return keras.Sequential(
        [
            keras.Input((10,)),
            layers.Dense(6, activation="swish", name="squeeze"),
            layers.Dense(10, name="expand"),
        ],
        name="predictor",
    )


def build():
    view_a, view_b = keras.Input((16, 4), name="view_a"), keras.Input((16, 4), name="view_b")
    encode, predict = encoder(), predictor()
    z_a, z_b = encode(view_a), encode(view_b)
    return keras.Model([view_a, view_b], ops.stack([predict(z_a), z_a, predict(z_b), z_b], axis=1))


def unit(v):
    return v / ops.sqrt(ops.sum(ops.square(v), axis=-1, keepdims=True) + 1e-12)


def simsiam(targets, outputs):
    """targets: how far the window is trusted."""
    p_a, z_a, p_b, z_b = ops.unstack(outputs, axis=1)
    alike = ops.sum(unit(p_a) * unit(ops.stop_gradient(z_b)), axis=-1) + ops.sum(
        unit(p_b) * unit(ops.stop_gradient(z_a)), axis=-1
    )
    return ops.reshape(ops.cast(targets, outputs.dtype), (-1,)) * (1 - alike / 2)
