"""Does a peptide bind to an MHC molecule? Peptides of 8 to 11 residues (0 pads) look at the groove's
residues with 1.5-entmax attention (Peters et al. 2019), whose gradient is written by hand."""

import keras
import tensorflow as tf

RESIDUES = 21
PEPTIDE, GROOVE = 11, 24


@tf.custom_gradient
def entmax15(scores):
    """p = [scores / 2 - tau]_+ ** 2 over the last axis."""
    z = (scores - tf.reduce_max(scores, axis=-1, keepdims=True)) / 2
    n = z.shape[-1]
    ordered = tf.sort(z, axis=-1, direction="DESCENDING")
    rho = tf.cast(tf.range(1, n + 1), z.dtype)
    mean = tf.cumsum(ordered, axis=-1) / rho
    mean_of_squares = tf.cumsum(ordered**2, axis=-1) / rho
    delta = (1 - rho * (mean_of_squares - mean**2)) / rho
    taus = mean - tf.sqrt(tf.maximum(delta, 0))
    support = tf.reduce_sum(tf.cast(taus <= ordered, tf.int32), axis=-1, keepdims=True)
    tau = tf.gather(taus, support - 1, batch_dims=len(z.shape) - 1)
    p = tf.maximum(z - tau, 0) ** 2

    def grad(upstream):
        s = tf.sqrt(p)
        d = upstream * s
        return d - s * tf.reduce_sum(d, axis=-1, keepdims=True) / tf.reduce_sum(s, axis=-1, keepdims=True)

    return p, grad


class Linear(keras.layers.Layer):
    """Kernel kept as (units, inputs)."""

    def __init__(self, units, bias=True, **kwargs):
        super().__init__(**kwargs)
        self.units, self.bias = units, bias

    def build(self, input_shape):
        self.kernel = self.add_weight(
            name="kernel",
            shape=(self.units, input_shape[-1]),
            initializer=keras.initializers.RandomNormal(stddev=0.3),
        )
        if self.bias:
            self.offset = self.add_weight(name="offset", shape=(self.units,), initializer="zeros")

    def call(self, x):
        x = tf.einsum("...i,oi->...o", x, self.kernel)
        return x + self.offset if self.bias else x


class Scale(keras.layers.Layer):
    """Layer norm."""

    def build(self, input_shape):
        self.g = self.add_weight(name="g", shape=(input_shape[-1],), initializer="ones")
        self.b = self.add_weight(name="b", shape=(input_shape[-1],), initializer="zeros")

    def call(self, x):
        mean, variance = tf.nn.moments(x, axes=[-1], keepdims=True)
        return tf.nn.batch_normalization(x, mean, variance, self.b, self.g, 1e-5)


class GrooveAttention(keras.layers.Layer):
    def __init__(self, dim, heads, **kwargs):
        super().__init__(**kwargs)
        self.dim, self.heads = dim, heads
        self.query = Linear(dim, name="query")
        self.key_value = Linear(2 * dim, bias=False, name="key_value")
        self.merge = Linear(dim, name="merge")

    def split(self, x, length):
        return tf.transpose(tf.reshape(x, (-1, length, self.heads, self.dim // self.heads)), (0, 2, 1, 3))

    def call(self, peptide, groove):
        q = self.split(self.query(peptide), PEPTIDE)
        k, v = tf.split(self.key_value(groove), 2, axis=-1)
        k, v = self.split(k, GROOVE), self.split(v, GROOVE)
        scores = tf.matmul(q, k, transpose_b=True) * (self.dim // self.heads) ** -0.5
        x = tf.matmul(entmax15(scores), v)
        x = tf.reshape(tf.transpose(x, (0, 2, 1, 3)), (-1, PEPTIDE, self.dim))
        return self.merge(x)


class Binder(keras.Model):
    def __init__(self, dim=16, heads=2, **kwargs):
        super().__init__(**kwargs)
        self.residue = keras.layers.Embedding(
            RESIDUES, dim, embeddings_initializer="random_normal", name="residue"
        )
        self.site = self.add_weight(name="site", shape=(GROOVE, dim), initializer="random_normal")
        self.position = self.add_weight(name="position", shape=(PEPTIDE, dim), initializer="random_normal")
        self.attention = GrooveAttention(dim, heads, name="attention")
        self.norm = Scale(name="norm")
        self.score = Linear(1, bias=False, name="score")
        self.hidden = Linear(12, name="hidden")
        self.out = Linear(1, name="out")

    def call(self, inputs):
        ids = inputs["peptide"]
        peptide = self.residue(ids) * 4.0 + self.position
        groove = self.residue(inputs["groove"]) * 4.0 + self.site
        x = self.norm(peptide + self.attention(peptide, groove))
        score = tf.squeeze(self.score(x), -1)
        weights = entmax15(tf.where(ids > 0, score, tf.constant(-100.0, score.dtype)))
        pooled = tf.einsum("bl,bld->bd", weights, x)
        return self.out(tf.nn.elu(self.hidden(pooled)))


def build():
    return Binder()
