"""Secondary structure of short RNA: scores of pairs and of unpaired bases, trained by the
likelihood of the known structure under the nested-pairs partition function."""

import math

import keras
import tensorflow as tf
from keras import layers, ops

LENGTH, HAIRPIN = 12, 3


class FoldScores(layers.Layer):
    """Upper triangle: pairs i < j; diagonal: i unpaired."""

    def __init__(self, width=16, **kwargs):
        super().__init__(**kwargs)
        self.left = layers.Dense(width, name="left")
        self.right = layers.Dense(width, name="right")
        self.free = layers.Dense(1, name="free")
        self.bonus = layers.Embedding(16, 1, name="bonus")
        self.scale = 1.0 / math.sqrt(width)

    def build(self, shapes):
        for layer in (self.left, self.right, self.free):
            layer.build(shapes[0])
        self.bonus.build((None, LENGTH, LENGTH))
        self.built = True

    def call(self, inputs):
        h, bases = inputs
        s = ops.einsum("bif,bjf->bij", self.left(h), self.right(h)) * self.scale
        kind = 4 * ops.expand_dims(bases, 2) + ops.expand_dims(bases, 1)
        s = s + ops.squeeze(self.bonus(kind), -1)
        reach = ops.arange(LENGTH)[None, :] - ops.arange(LENGTH)[:, None]
        s = ops.where(reach > HAIRPIN, s, ops.zeros_like(s))
        return s + ops.eye(LENGTH, dtype=s.dtype) * self.free(h)

    def compute_output_shape(self, shapes):
        return (shapes[0][0], LENGTH, LENGTH)


def build():
    bases = keras.Input((LENGTH,), dtype="int32", name="bases")
    h = layers.Embedding(4, 8, name="embed")(bases)
    h = layers.Conv1D(16, 3, padding="same", activation="silu", name="motif")(h)
    h = layers.Bidirectional(layers.GRU(12, return_sequences=True), name="context")(h)
    return keras.Model(bases, FoldScores(name="fold")([h, bases]), name="rna")


def log_partition(s):
    """All intervals of one span at once; their last base is unpaired or paired with k = i + o."""
    diagonals = [tf.linalg.diag_part(s, k=d) for d in range(LENGTH)]
    inside = []
    for span in range(LENGTH):
        n = LENGTH - span
        free = diagonals[0][:, span:]
        ways = [free + inside[span - 1][:, :n] if span else free]
        for o in range(span - HAIRPIN):
            way = diagonals[span - o][:, o : o + n] + inside[span - o - 2][:, o + 1 : o + 1 + n]
            ways.append(way + inside[o - 1][:, :n] if o else way)
        inside.append(tf.reduce_logsumexp(tf.stack(ways, axis=-1), axis=-1))
    return inside[-1][:, 0]


def loss(targets, outputs):
    partner = tf.cast(targets, tf.int32)
    here = tf.range(LENGTH)[None, :]
    picked = tf.gather(outputs, partner, axis=2, batch_dims=2)
    picked = tf.where(partner >= here, picked, tf.zeros_like(picked))
    return (log_partition(outputs) - tf.reduce_sum(picked, -1)) / float(LENGTH)


class WarmCosine(keras.optimizers.schedules.LearningRateSchedule):
    def __init__(self, peak=0.2, warm=8, total=60):
        self.peak, self.warm, self.total = peak, warm, total

    def __call__(self, step):
        step = ops.cast(step, "float32")
        rise = (step + 1.0) / self.warm
        fall = 0.5 * (1.0 + ops.cos(math.pi * (step - self.warm) / (self.total - self.warm)))
        return self.peak * ops.where(step < self.warm, rise, fall)

    def get_config(self):
        return {"peak": self.peak, "warm": self.warm, "total": self.total}


def optimizer():
    return keras.optimizers.SGD(WarmCosine(), momentum=0.9, nesterov=True)
