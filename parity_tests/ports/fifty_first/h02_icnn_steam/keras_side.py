"""Internal energy of a fluid as a convex function of entropy and volume.

Fitted to energy, to temperature and pressure (first derivatives) and to the
two measured curvatures (second derivatives by entropy and by volume).
"""

import keras
import tensorflow as tf
from keras import layers, ops

CENTRE = [4.5, 1.2]
SPREAD = [0.8, 0.35]
FIRST_UNITS = [1.5, 2.5]
SECOND_UNITS = [1.0, 4.0]


class ConvexDense(layers.Layer):
    """softplus(K) z + W x + b, activated by a convex growing function."""

    def __init__(self, units, activation=None, use_bias=True, **kwargs):
        super().__init__(**kwargs)
        self.units = units
        self.activation = keras.activations.get(activation)
        self.through = layers.Dense(units, use_bias=use_bias, name="through")

    def build(self, z_shape, x_shape):
        self.kernel = self.add_weight(
            name="kernel",
            shape=(z_shape[-1], self.units),
            initializer=keras.initializers.RandomNormal(-2.5, 0.5),
        )
        self.through.build(x_shape)

    def call(self, z, x):
        return self.activation(ops.matmul(z, ops.softplus(self.kernel)) + self.through(x))


class EnergySurface(keras.Model):
    def __init__(self, widths=(24, 16), **kwargs):
        super().__init__(**kwargs)
        self.first = layers.Dense(widths[0], activation="softplus")
        self.hidden = [ConvexDense(w, "softplus") for w in widths[1:]]
        self.head = ConvexDense(1, use_bias=False)
        self.loss_tracker = keras.metrics.Mean(name="loss")

    @property
    def metrics(self):
        return [self.loss_tracker]

    def build(self, shape):
        self.first.build(shape)
        width = self.first.units
        for layer in [*self.hidden, self.head]:
            layer.build((shape[0], width), shape)
            width = layer.units
        self.bowl = self.add_weight(name="bowl", shape=(2,), initializer=keras.initializers.Constant(-1.0))

    def call(self, state):
        x = (state - ops.convert_to_tensor(CENTRE, dtype=state.dtype)) / ops.convert_to_tensor(
            SPREAD, dtype=state.dtype
        )
        z = self.first(x)
        for layer in self.hidden:
            z = layer(z, x)
        quadratic = ops.sum(ops.softplus(self.bowl) * ops.square(x), axis=-1, keepdims=True)
        return self.head(z, x) + 0.5 * quadratic

    def train_step(self, data):
        state, y = data
        with tf.GradientTape() as tape:
            with tf.GradientTape() as outer:
                outer.watch(state)
                with tf.GradientTape() as inner:
                    inner.watch(state)
                    energy = self(state, training=True)
                slope = inner.gradient(energy, state)
            curvature = tf.linalg.diag_part(outer.batch_jacobian(slope, state))
            dtype = energy.dtype
            # the zero of the energy is arbitrary: an offset is not an error
            off = energy[:, 0] - tf.cast(y["energy"], dtype)
            loss = ops.var(off)
            measured = slope * tf.constant([1.0, -1.0], dtype)
            loss += ops.mean(
                ops.square((measured - tf.cast(y["first"], dtype)) / tf.constant(FIRST_UNITS, dtype))
            )
            loss += 0.5 * ops.mean(
                ops.square((curvature - tf.cast(y["second"], dtype)) / tf.constant(SECOND_UNITS, dtype))
            )
        grads = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(grads, self.trainable_variables))
        self.loss_tracker.update_state(loss)
        return {"loss": self.loss_tracker.result()}


def build():
    model = EnergySurface()
    model.build((None, 2))
    return model
