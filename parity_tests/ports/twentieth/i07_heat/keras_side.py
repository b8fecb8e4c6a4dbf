"""Heat equation u_t = 0.1 u_xx, u(0, x) = sin(pi x), u = 0 at both ends; columns are time and place."""

import math

import keras
import tensorflow as tf
from keras import layers, ops


class Heat(keras.Model):
    def __init__(self):
        super().__init__()
        self.first = layers.Dense(20, activation="tanh")
        self.second = layers.Dense(20, activation="tanh")
        self.out = layers.Dense(1)

    def call(self, points):
        t, x = points[:, :1], points[:, 1:]
        net = self.out(self.second(self.first(points)))
        return ops.sin(math.pi * x) + t * x * (1 - x) * net

    def train_step(self, data):
        points, observed = data
        with tf.GradientTape() as outer:
            with tf.GradientTape() as tape_2:
                tape_2.watch(points)
                with tf.GradientTape() as tape_1:
                    tape_1.watch(points)
                    u = self(points, training=True)
                slopes = tape_1.gradient(u, points)
                along = slopes[:, 1]
            u_t = slopes[:, 0]
            u_xx = tape_2.gradient(along, points)[:, 1]
            residual = u_t - 0.1 * u_xx
            fit = tf.reduce_mean(tf.square(u[:, 0] - tf.reshape(observed, (-1,))))
            loss = fit + 0.5 * tf.reduce_mean(tf.square(residual))
        weights = self.trainable_variables
        self.optimizer.apply_gradients(zip(outer.gradient(loss, weights), weights))
        return {"loss": loss}


def build():
    model = Heat()
    model.compile(optimizer="sgd")
    return model
