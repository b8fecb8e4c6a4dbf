"""Fills gaps in the readings of a plant: mixing over time and over sensors, with a training step of its own."""

import keras
import tensorflow as tf
from keras import layers, ops

TIME, SENSORS, WIDTH = 24, 5, 16


@keras.saving.register_keras_serializable("plant")
class TimeMixing(layers.Layer):
    """A dense layer over time, the same for all channels, with a gate of its own."""

    def build(self, shape):
        steps = shape[1]
        self.kernel = self.add_weight(shape=(steps, 2, steps), initializer="glorot_uniform", name="kernel")
        self.bias = self.add_weight(shape=(2, steps), initializer="zeros", name="bias")

    def call(self, x):
        y = ops.einsum("btc,tgs->bgsc", x, self.kernel) + self.bias[None, :, :, None]
        return y[:, 0] * ops.sigmoid(y[:, 1])


@keras.saving.register_keras_serializable("plant")
class Mixer(layers.Layer):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.norm_time = layers.LayerNormalization(axis=[1, 2], name="norm_time")
        self.time = TimeMixing(name="time")
        self.norm_width = layers.LayerNormalization(axis=-1, center=False, name="norm_width")
        self.up = layers.Dense(32, activation="mish", name="up")
        self.down = layers.Dense(WIDTH, name="down")

    def call(self, x):
        x = x + self.time(self.norm_time(x))
        return x + self.down(self.up(self.norm_width(x)))


@keras.saving.register_keras_serializable("plant")
class Imputer(keras.Model):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.embed = layers.Dense(WIDTH, name="embed")
        self.mixers = [Mixer(name=f"mixer_{i}") for i in range(2)]
        self.readings = layers.Dense(SENSORS, name="readings")
        self.loss_tracker = keras.metrics.Mean(name="loss")

    @property
    def metrics(self):
        return [self.loss_tracker]

    def build(self, shape=None):
        self.missing = self.add_weight(shape=(SENSORS,), initializer="zeros", name="missing")
        super().build(shape)

    def call(self, inputs):
        series, seen = inputs["series"], ops.cast(inputs["seen"], self.compute_dtype)
        filled = seen * series + (1 - seen) * self.missing
        x = self.embed(ops.concatenate([filled, seen], axis=-1))
        for mixer in self.mixers:
            x = mixer(x)
        return filled + self.readings(x)

    def objective(self, inputs, truth):
        """Gaps count most; a series that runs backwards is to be filled in the same way."""
        out = self(inputs, training=True)
        mirrored = self({k: ops.flip(v, axis=1) for k, v in inputs.items()}, training=True)
        seen = ops.cast(inputs["seen"], out.dtype)
        error = ops.square(out - ops.cast(truth, out.dtype))
        gaps = ops.sum(error * (1 - seen), axis=(1, 2)) / (ops.sum(1 - seen, axis=(1, 2)) + 1)
        rest = ops.mean(error * seen, axis=(1, 2))
        apart = ops.mean(ops.abs(out - ops.flip(mirrored, axis=1)), axis=(1, 2))
        return ops.mean(gaps + 0.25 * rest + 0.125 * apart)

    def train_step(self, data):
        inputs, truth, _ = keras.utils.unpack_x_y_sample_weight(data)
        with tf.GradientTape() as tape:
            loss = self.objective(inputs, truth)
        weights = self.trainable_variables
        self.optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights))
        self.loss_tracker.update_state(loss)
        return {"loss": self.loss_tracker.result()}


def build():
    return Imputer(name="imputer")
