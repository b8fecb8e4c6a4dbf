"""Neural algorithmic reasoning: predecessors of a shortest-path tree on a directed graph,
encode - process (four rounds, one set of weights) - decode."""

import keras
import tensorflow as tf
from keras import layers

NODES, WIDTH, ROUNDS = 9, 24, 4


class Processor(layers.Layer):
    def __init__(self, width, **kwargs):
        super().__init__(**kwargs)
        self.width = width
        self.message_in = layers.Dense(width, activation="relu", name="message_in")
        self.message_out = layers.Dense(width, name="message_out")
        self.candidate = layers.Dense(width, name="candidate")
        self.gate = layers.Dense(
            width, activation="sigmoid", bias_initializer=keras.initializers.Constant(-1.0), name="gate"
        )
        self.norm = layers.LayerNormalization(epsilon=1e-3, name="norm")

    def build(self, shapes):
        w = self.width
        self.message_in.build((None, None, 3 * w))
        self.message_out.build((None, None, w))
        self.candidate.build((None, None, 2 * w))
        self.gate.build((None, None, 2 * w))
        self.norm.build((None, None, w))
        self.built = True

    def compute_output_shape(self, shapes):
        return shapes[0]

    def call(self, inputs):
        h, e, src, dst = inputs
        n = h.shape[1]
        count = tf.shape(h)[0]
        sender = tf.gather(h, src, batch_dims=1)
        receiver = tf.gather(h, dst, batch_dims=1)
        m = self.message_out(self.message_in(tf.concat([sender, receiver, e], axis=-1)))
        rows = tf.reshape(dst + n * tf.range(count)[:, None], [-1])
        pooled = tf.math.unsorted_segment_max(tf.reshape(m, [-1, self.width]), rows, count * n)
        pooled = tf.where(pooled > pooled.dtype.min, pooled, tf.zeros_like(pooled))
        both = tf.concat([h, tf.reshape(pooled, [-1, n, self.width])], axis=-1)
        new = tf.nn.relu(self.norm(self.candidate(both)))
        g = self.gate(both)
        return g * new + (1.0 - g) * h


class PointerScores(layers.Layer):
    def call(self, inputs):
        a, b = inputs
        return tf.einsum("bif,bjf->bij", a, b) / float(WIDTH) ** 0.5


def build():
    nodes = keras.Input((NODES, 3), name="nodes")
    lengths = keras.Input((None,), name="lengths")
    src = keras.Input((None,), dtype="int32", name="src")
    dst = keras.Input((None,), dtype="int32", name="dst")
    h = layers.Dense(WIDTH, name="encode_nodes")(nodes)
    e = layers.Dense(WIDTH, name="encode_edges")(layers.Reshape((-1, 1))(lengths))
    processor = Processor(WIDTH, name="processor")
    for _ in range(ROUNDS):
        h = processor([h, e, src, dst])
    scores = PointerScores(name="pointer")(
        [layers.Dense(WIDTH, name="query")(h), layers.Dense(WIDTH, use_bias=False, name="key")(h)]
    )
    return keras.Model([nodes, lengths, src, dst], scores, name="reasoner")


def loss(targets, outputs):
    logp = tf.nn.log_softmax(outputs, axis=-1)
    picked = tf.gather(logp, tf.cast(targets, "int32"), batch_dims=2)
    return -tf.reduce_mean(picked, axis=-1)
