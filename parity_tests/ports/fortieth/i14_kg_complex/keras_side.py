"""Link prediction: a learned mixture of RotatE and ComplEx over one entity table.
First column of `tails` is the true tail, the rest are corrupted ones. Target: subsampling weight of the triple."""

import keras
import numpy as np
import tensorflow as tf

N_ENT, N_REL, DIM, N_TAILS = 50, 7, 12, 9
MARGIN = tf.constant(np.float32(4.0))
TEMPERATURE = 0.7


class EntityTable(keras.layers.Layer):
    """All entity vectors, [re | im], normalised before they are looked up."""

    def build(self, _):
        self.table = self.add_weight(
            shape=(N_ENT, 2 * DIM), initializer=keras.initializers.RandomUniform(-0.7, 0.7), name="table"
        )
        self.norm = keras.layers.LayerNormalization(name="table_norm")
        self.norm.build((None, 2 * DIM))
        self.mlp = keras.layers.Dense(2 * DIM, activation="tanh", name="table_mlp")
        self.mlp.build((None, 2 * DIM))

    def call(self, ids):
        e = self.table + self.mlp(self.norm(self.table))
        return tf.gather(e, tf.cast(ids, tf.int32))


class KGScorer(keras.Model):
    def __init__(self):
        super().__init__()
        self.entities = EntityTable(name="entities")
        self.phase = keras.layers.Dense(
            DIM, use_bias=False, kernel_initializer=keras.initializers.RandomUniform(-1, 1), name="phase"
        )
        self.bilinear = keras.layers.Dense(
            2 * DIM,
            use_bias=False,
            kernel_initializer=keras.initializers.RandomNormal(stddev=0.3),
            name="bilinear",
        )
        self.gate_hidden = keras.layers.Dense(10, activation="selu", name="gate_hidden")
        self.gate = keras.layers.Dense(1, activation="sigmoid", name="gate")
        self.temperature = self.add_weight(shape=(), initializer="ones", name="complex_scale")

    def call(self, inputs):
        h = self.entities(inputs["head"])  # (B,1,2D)
        t = self.entities(inputs["tails"])  # (B,K,2D)
        which = tf.one_hot(tf.cast(inputs["relation"], tf.int32), N_REL, dtype=h.dtype)
        ph = self.phase(which) * np.pi  # (B,1,D)
        w = self.bilinear(which)
        h_re, h_im = tf.split(h, 2, axis=-1)
        t_re, t_im = tf.split(t, 2, axis=-1)
        w_re, w_im = tf.split(w, 2, axis=-1)
        c, s = tf.cos(ph), tf.sin(ph)
        d_re = h_re * c - h_im * s - t_re
        d_im = h_re * s + h_im * c - t_im
        rotate = tf.cast(MARGIN, h.dtype) - tf.reduce_sum(
            tf.sqrt(tf.square(d_re) + tf.square(d_im)), -1
        ) / np.sqrt(DIM)
        cplx = tf.reduce_sum(
            h_re * w_re * t_re + h_im * w_re * t_im + h_re * w_im * t_im - h_im * w_im * t_re, -1
        )
        g = self.gate(self.gate_hidden(tf.concat([c, s, w], axis=-1)))[:, :, 0]
        return g * rotate + (1.0 - g) * self.temperature * cplx


def build():
    m = KGScorer()
    m(
        {
            "head": np.zeros((1, 1), "int32"),
            "relation": np.zeros((1, 1), "int32"),
            "tails": np.zeros((1, N_TAILS), "int32"),
        }
    )
    return m


def self_adversarial(weight, scores):
    pos, neg = scores[:, 0], scores[:, 1:]
    p = tf.stop_gradient(tf.nn.softmax(neg * TEMPERATURE, axis=-1))
    l_neg = -tf.reduce_sum(p * tf.math.log_sigmoid(-neg), axis=-1)
    l_pos = -tf.math.log_sigmoid(pos)
    w = tf.cast(weight, scores.dtype)[:, 0]
    return tf.reduce_mean(w * 0.5 * (l_pos + l_neg))


def optimizer():
    lr = keras.optimizers.schedules.InverseTimeDecay(0.05, decay_steps=20, decay_rate=0.5)
    return keras.optimizers.Adagrad(lr, initial_accumulator_value=0.05)
