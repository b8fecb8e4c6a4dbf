"""Session graph network: the next spare part that a workshop asks for, from the parts asked for so far."""

import keras
import tensorflow as tf
from keras import layers

PARTS = 24  # 0 is the padding
DIM = 16
ROUNDS = 2


class GatedGraph(layers.Layer):
    """Messages along and against the transitions, and a gated update of the nodes."""

    def __init__(self, rounds, **kwargs):
        super().__init__(**kwargs)
        self.rounds = rounds
        self.edge_in = layers.Dense(DIM, name="edge_in")
        self.edge_out = layers.Dense(DIM, name="edge_out")
        self.from_message = layers.Dense(3 * DIM, name="from_message")
        self.from_node = layers.Dense(3 * DIM, name="from_node")

    def build(self, shape):
        for part in (self.edge_in, self.edge_out, self.from_node):
            part.build((None, None, DIM))
        self.from_message.build((None, None, 2 * DIM))
        self.built = True

    def call(self, nodes, links):
        out_degree = tf.reduce_sum(links, axis=2, keepdims=True)
        in_degree = tf.reduce_sum(links, axis=1, keepdims=True)
        outward = tf.math.divide_no_nan(links, out_degree)
        inward = tf.transpose(tf.math.divide_no_nan(links, in_degree), (0, 2, 1))
        for _ in range(self.rounds):
            message = tf.concat([inward @ self.edge_in(nodes), outward @ self.edge_out(nodes)], axis=-1)
            mr, mu, mc = tf.split(self.from_message(message), 3, axis=-1)
            nr, nu, nc = tf.split(self.from_node(nodes), 3, axis=-1)
            reset = tf.sigmoid(mr + nr)
            update = tf.sigmoid(mu + nu)
            fresh = tf.tanh(mc + reset * nc)
            nodes = fresh + update * (nodes - fresh)
        return nodes


class PartsGraph(keras.Model):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        start = keras.initializers.RandomUniform(-(DIM**-0.5), DIM**-0.5)
        self.parts = layers.Embedding(PARTS, DIM, embeddings_initializer=start, name="parts")
        self.graph = GatedGraph(ROUNDS, name="graph")
        self.of_last = layers.Dense(DIM, name="of_last")
        self.of_each = layers.Dense(DIM, use_bias=False, name="of_each")
        self.worth = layers.Dense(1, use_bias=False, name="worth")
        self.joint = layers.Dense(DIM, use_bias=False, name="joint")

    def call(self, inputs):
        nodes, place, known = inputs["nodes"], inputs["place"], inputs["known"]
        hidden = self.parts(nodes)
        spot = tf.one_hot(place, nodes.shape[1], dtype=hidden.dtype) * tf.cast(known, hidden.dtype)[..., None]
        links = tf.einsum("btu,btv->buv", spot[:, :-1], spot[:, 1:])
        links = tf.minimum(links, 1.0)
        hidden = self.graph(hidden, links)

        steps = tf.gather(hidden, place, batch_dims=1)
        length = tf.reduce_sum(tf.cast(known, "int32"), axis=1)
        last = tf.gather(steps, length - 1, batch_dims=1)
        worth = self.worth(tf.sigmoid(self.of_last(last)[:, None] + self.of_each(steps)))
        whole = tf.reduce_sum(worth * steps * tf.cast(known, steps.dtype)[..., None], axis=1)
        session = self.joint(tf.concat([whole, last], axis=-1))
        return tf.matmul(session, tf.convert_to_tensor(self.parts.embeddings)[1:], transpose_b=True)


def build():
    model = PartsGraph(name="workshop")
    model(
        {
            "nodes": tf.zeros((1, 6), "int32"),
            "place": tf.zeros((1, 8), "int32"),
            "known": tf.ones((1, 8), "int32"),
        }
    )
    return model
