"""DiffPool (Ying et al.): a graph is classified through coarser and coarser graphs of clusters."""

import keras
import tensorflow as tf
from keras import layers


class Sage(layers.Layer):
    """A node and the mean of its neighbours."""

    def __init__(self, units, activation=None, **kwargs):
        super().__init__(**kwargs)
        self.own = layers.Dense(units, name="own")
        self.neighbours = layers.Dense(units, use_bias=False, name="neighbours")
        self.activation = keras.activations.get(activation)

    def call(self, x, adjacency):
        degree = tf.reduce_sum(adjacency, axis=-1, keepdims=True)
        mean = tf.matmul(adjacency, x) / tf.maximum(degree, 1e-6)
        return self.activation(self.own(x) + self.neighbours(mean))


class DiffPool(layers.Layer):
    def __init__(self, clusters, units, **kwargs):
        super().__init__(**kwargs)
        self.embed = Sage(units, "relu", name="embed")
        self.assign = Sage(clusters, name="assign")

    def call(self, x, adjacency, mask):
        z = self.embed(x, adjacency)
        s = tf.nn.softmax(self.assign(x, adjacency)) * mask[..., None]
        together = tf.matmul(s, s, transpose_b=True)
        nodes = tf.reduce_sum(mask, axis=-1)
        link = tf.reduce_sum(tf.square(adjacency - together), axis=(1, 2)) / tf.square(nodes)
        entropy = -tf.reduce_sum(s * tf.math.log(s + 1e-12), axis=(1, 2)) / nodes
        self.add_loss(0.5 * tf.reduce_mean(link))
        self.add_loss(0.1 * tf.reduce_mean(entropy))
        s_t = tf.transpose(s, (0, 2, 1))
        return s_t @ z, s_t @ adjacency @ s


class GraphClassifier(keras.Model):
    def __init__(self, classes=3):
        super().__init__()
        self.first = Sage(12, "relu", name="first")
        self.pool = DiffPool(4, 16, name="pool")
        self.second = Sage(16, "relu", name="second")
        self.hidden = layers.Dense(16, activation="relu", name="hidden")
        self.out = layers.Dense(classes, name="out")

    def call(self, inputs):
        nodes, adjacency, mask = inputs["nodes"], inputs["adjacency"], inputs["mask"]
        x = self.first(nodes, adjacency) * mask[..., None]
        x, adjacency = self.pool(x, adjacency, mask)
        x = self.second(x, adjacency)
        x = tf.concat([tf.reduce_max(x, axis=1), tf.reduce_mean(x, axis=1)], axis=-1)
        return self.out(self.hidden(x))


def build():
    model = GraphClassifier()
    model.compile(
        optimizer=keras.optimizers.Adam(2e-3),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )
    return model
