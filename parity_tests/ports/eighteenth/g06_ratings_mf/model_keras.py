import numpy as np
import tensorflow as tf
from tensorflow import keras


class Factorization(keras.Model):
    """Biased matrix factorization (Koren 2009) with a small time-of-day term."""

    def __init__(self, users=24, items=18, factors=6, reg=0.02, bias_reg=0.005):
        super().__init__()
        self.reg, self.bias_reg = reg, bias_reg
        self.loss_tracker = keras.metrics.Mean(name="loss")
        self.p = keras.layers.Embedding(users, factors, name="p")
        self.q = keras.layers.Embedding(items, factors, name="q")
        self.b_user = keras.layers.Embedding(users, 1, embeddings_initializer="zeros", name="b_user")
        self.b_item = keras.layers.Embedding(items, 1, embeddings_initializer="zeros", name="b_item")
        self.daytime = keras.layers.Dense(1, use_bias=False, name="daytime")
        self.mu = self.add_weight(shape=(1,), initializer=keras.initializers.Constant(3.0), name="mu")

    def parts(self, inputs):
        user = tf.reshape(inputs["user"], [-1])
        item = tf.reshape(inputs["item"], [-1])
        angle = inputs["hour"] * (2 * np.pi / 24)
        clock = tf.concat([tf.sin(angle), tf.cos(angle)], axis=-1)
        return self.p(user), self.q(item), self.b_user(user), self.b_item(item), self.daytime(clock)

    def score(self, p, q, bu, bi, day):
        return self.mu + bu + bi + day + tf.reduce_sum(p * q, axis=-1, keepdims=True)

    def call(self, inputs, training=None):
        return self.score(*self.parts(inputs))

    def train_step(self, data):
        inputs, rating = data
        with tf.GradientTape() as tape:
            parts = self.parts(inputs)
            error = tf.reshape(rating, [-1, 1]) - self.score(*parts)
            p, q, bu, bi, _ = parts
            penalty = self.reg * tf.reduce_sum(p**2 + q**2, axis=-1, keepdims=True)
            penalty += self.bias_reg * (bu**2 + bi**2)
            loss = tf.reduce_mean(error**2 + penalty)
        grads = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(grads, self.trainable_variables))
        self.loss_tracker.update_state(loss)
        return {"loss": self.loss_tracker.result()}

    @property
    def metrics(self):
        return [self.loss_tracker]


def build():
    model = Factorization()
    model.compile(optimizer=keras.optimizers.Adam(0.01))
    return model
