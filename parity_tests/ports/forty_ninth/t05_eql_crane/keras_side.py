"""Equation learner for the sway of a gantry crane: layers of sines, cosines, copies and
products, with the smoothed L0.5 penalty; trained by AdaBelief."""

import keras
import tensorflow as tf
from keras import layers, ops

EDGE = 0.05


def smooth_half_norm(w):
    a = EDGE
    size = tf.abs(w)
    inner = -tf.pow(w, 4) / (8.0 * a**3) + 3.0 * tf.square(w) / (4.0 * a) + 3.0 * a / 8.0
    inner = tf.where(size < a, inner, size)
    return tf.reduce_sum(tf.sqrt(inner))


class Equations(layers.Layer):
    def __init__(self, copies=3, sines=3, cosines=2, products=3, **kwargs):
        super().__init__(**kwargs)
        self.sizes = [copies, sines, cosines, products, products]
        self.mix = layers.Dense(
            sum(self.sizes), kernel_initializer=keras.initializers.RandomNormal(0.0, 0.4, seed=3), name="mix"
        )

    def build(self, shape):
        self.mix.build(shape)
        self.built = True

    def call(self, x):
        same, s, c, a, b = tf.split(self.mix(x), self.sizes, axis=-1)
        return tf.concat([same, tf.sin(s), tf.cos(c), a * b], axis=-1)


class EquationLearner(keras.Model):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.first = Equations(name="first")
        self.second = Equations(copies=4, sines=2, cosines=2, products=4, name="second")
        self.readout = layers.Dense(2, name="readout")

    def call(self, x):
        return self.readout(self.second(self.first(x)))

    def train_step(self, data):
        x, y, _ = keras.utils.unpack_x_y_sample_weight(data)
        with tf.GradientTape() as tape:
            y_hat = self(x, training=True)
            loss = tf.reduce_mean(tf.square(y - y_hat))
            for layer in (self.first.mix, self.second.mix, self.readout):
                loss += 1e-3 * smooth_half_norm(layer.kernel)
        grads = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(grads, self.trainable_variables))
        return {"loss": loss}


class AdaBelief(keras.optimizers.Optimizer):
    def __init__(self, learning_rate=1e-3, beta_1=0.9, beta_2=0.999, epsilon=1e-8, **kwargs):
        super().__init__(learning_rate=learning_rate, name="adabelief", **kwargs)
        self.beta_1, self.beta_2, self.epsilon = beta_1, beta_2, epsilon

    def build(self, variables):
        if self.built:
            return
        super().build(variables)
        self.means = [self.add_variable_from_reference(v, name="mean") for v in variables]
        self.beliefs = [self.add_variable_from_reference(v, name="belief") for v in variables]

    def update_step(self, gradient, variable, learning_rate):
        k = self._get_variable_index(variable)
        m, s = self.means[k], self.beliefs[k]
        lr = ops.cast(learning_rate, variable.dtype)
        t = ops.cast(self.iterations + 1, variable.dtype)
        m.assign(self.beta_1 * m + (1.0 - self.beta_1) * gradient)
        s.assign(self.beta_2 * s + (1.0 - self.beta_2) * ops.square(gradient - m) + self.epsilon)
        m_hat = m / (1.0 - self.beta_1**t)
        s_hat = s / (1.0 - self.beta_2**t)
        variable.assign(variable - lr * m_hat / (ops.sqrt(s_hat) + self.epsilon))


def optimizer():
    return AdaBelief(learning_rate=5e-3)


def build():
    model = EquationLearner(name="eql")
    model(tf.zeros((1, 5), dtype=keras.config.floatx()))
    return model
