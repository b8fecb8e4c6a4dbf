"""A policy for placing offers, learnt from logs of another policy (self-normalised inverse propensities)."""

import keras
import tensorflow as tf
from keras import layers

ACTIONS = 6


class ActionScores(layers.Layer):
    """A bilinear score of each action's vector, and how liked an action is anyway."""

    def __init__(self, actions, width, **kwargs):
        super().__init__(**kwargs)
        self.vectors = self.add_weight(shape=(actions, width), initializer="glorot_normal", name="vectors")
        self.popularity = self.add_weight(shape=(actions,), initializer="zeros", name="popularity")

    def call(self, x):
        return tf.matmul(x, self.vectors, transpose_b=True) + self.popularity


def build():
    place = keras.Input((2,), dtype="int32", name="place")
    context = keras.Input((7,), name="context")
    device = layers.Embedding(5, 6, name="device")(place[:, 0])
    hour = layers.Embedding(8, 6, name="hour")(place[:, 1])
    x = layers.Concatenate()([device, hour, layers.BatchNormalization(name="standardise")(context)])
    x = layers.Dense(24, activation="elu", name="hidden")(x)
    x = layers.Dense(10, name="user")(x)
    return keras.Model([place, context], ActionScores(ACTIONS, 10, name="scores")(x), name="policy")


def snips(y_true, scores):
    """The reward that the policy would have got, of the whole batch, and a little for being undecided."""
    action = tf.cast(y_true[:, 0], tf.int32)
    reward, propensity = y_true[:, 1], y_true[:, 2]
    log_policy = tf.nn.log_softmax(scores)
    chosen = tf.exp(tf.gather(log_policy, action, batch_dims=1))
    weight = tf.minimum(chosen / propensity, 8)
    value = tf.reduce_sum(weight * reward) / tf.reduce_sum(weight)
    entropy = -tf.reduce_mean(tf.reduce_sum(tf.exp(log_policy) * log_policy, axis=-1))
    return -value - 0.01 * entropy
