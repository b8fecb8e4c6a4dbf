"""Energy-based density of six magnetometer channels, fitted by sliced score matching;
`v` holds the directions of the slices."""

import keras
import tensorflow as tf
from keras import layers


class Confinement(layers.Layer):
    """A quadratic bowl whose stiffness is learned for each channel."""

    def build(self, shape):
        self.centre = self.add_weight(name="centre", shape=(shape[-1],), initializer="zeros")
        self.stiffness = self.add_weight(name="stiffness", shape=(shape[-1],), initializer="zeros")

    def call(self, x):
        pull = tf.math.softplus(self.stiffness) * tf.square(x - self.centre)
        return 0.5 * tf.reduce_sum(pull, axis=-1, keepdims=True)


class EnergyModel(keras.Model):
    def train_step(self, data):
        x, v, _ = keras.utils.unpack_x_y_sample_weight(data)
        with tf.GradientTape() as tape:
            with tf.GradientTape() as slope:
                slope.watch(x)
                with tf.GradientTape() as field:
                    field.watch(x)
                    energy = self(x, training=True)
                score = -field.gradient(energy, x)
                along = tf.reduce_sum(score * v, axis=-1)
            curvature = tf.reduce_sum(slope.gradient(along, x) * v, axis=-1)
            loss = tf.reduce_mean(curvature + 0.5 * tf.square(along))
            loss += 1e-2 * tf.reduce_mean(tf.square(energy))
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables))
        return {"loss": loss}


def build():
    x = keras.Input((6,), name="x")
    h = layers.Dense(32, activation="swish", name="lift")(x)
    for k in range(2):
        inner = layers.Dense(16, activation="tanh", name=f"squeeze{k}")(h)
        gate = layers.Dense(32, activation="sigmoid", name=f"gate{k}")(inner)
        value = layers.Dense(32, name=f"value{k}")(inner)
        h = layers.Add()([h, layers.Multiply()([gate, value])])
    energy = layers.Dense(1, use_bias=False, name="energy")(h)
    energy = layers.Add(name="total")([energy, Confinement(name="bowl")(x)])
    return EnergyModel(x, energy, name="sliced_score")
