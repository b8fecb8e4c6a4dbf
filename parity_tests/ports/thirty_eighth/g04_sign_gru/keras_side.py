"""A sign of a sign language from the joints of a hand, frames padded with zeros."""

import keras
import tensorflow as tf
from keras import layers, ops

FRAMES = 24


class AttentionPool(layers.Layer):
    def __init__(self, units, **kw):
        super().__init__(**kw)
        self.units = units

    def build(self, shape):
        self.w = self.add_weight(shape=(shape[-1], self.units), initializer="glorot_uniform", name="w")
        self.b = self.add_weight(shape=(self.units,), initializer="zeros", name="b")
        self.v = self.add_weight(
            shape=(self.units,), initializer=keras.initializers.RandomNormal(stddev=0.5), name="v"
        )

    def call(self, seq, mask=None):
        score = tf.tensordot(tf.tanh(tf.einsum("btf,fu->btu", seq, self.w) + self.b), self.v, axes=1)
        if mask is not None:
            score += (1.0 - ops.cast(mask, "float32")) * -1e9
        return tf.einsum("bt,btf->bf", tf.nn.softmax(score, axis=1), seq)

    def compute_mask(self, inputs, mask=None):
        return None

    def compute_output_shape(self, shape):
        return (shape[0], shape[-1])


def build():
    keras.utils.set_random_seed(9)
    x = keras.Input((FRAMES, 10), name="x")
    real = layers.Lambda(lambda t: ops.any(ops.not_equal(t, 0.0), axis=-1), name="real")(x)
    h = layers.Masking(0.0, name="mask")(x)
    h = layers.TimeDistributed(layers.Dense(14, activation="tanh"), name="embed")(h)
    seq = layers.Bidirectional(layers.GRU(12, return_sequences=True), merge_mode="ave", name="birnn")(h)
    context = AttentionPool(8, name="attend")(seq)
    gate = layers.Dense(12, activation="sigmoid", name="gate")(context)
    gate = layers.RepeatVector(FRAMES, name="repeat")(gate)
    seq = layers.Multiply(name="gated")([seq, gate])
    last = layers.GRU(10, name="rnn")(seq, mask=real)  # Multiply has lost the mask
    h = layers.Concatenate(name="both")([last, context])
    model = keras.Model(x, layers.Dense(5, name="sign")(h))
    model.compile(keras.optimizers.Adam(2e-3), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model
