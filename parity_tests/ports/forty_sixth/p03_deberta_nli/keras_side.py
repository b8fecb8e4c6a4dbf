"""A small DeBERTa for entailment: content and relative position attend apart, keys and queries shared by both."""

import keras
import numpy as np
from keras import layers, ops

VOCABULARY = 400
LENGTH = 24
BUCKETS = 8
MAX_DISTANCE = 32
CLASSES = 3


def log_buckets(length, buckets, max_distance):
    """Near distances have a bucket each, far ones share by their logarithm; shifted to 0 .. 2 * buckets - 1."""
    distance = np.arange(length)[:, None] - np.arange(length)[None, :]
    mid = buckets // 2
    size = np.where(np.abs(distance) < mid, mid - 1, np.abs(distance))
    far = np.ceil(np.log(size / mid) / np.log((max_distance - 1) / mid) * (mid - 1)) + mid
    bucket = np.where(size <= mid, distance, far * np.sign(distance))
    return np.clip(bucket + buckets, 0, 2 * buckets - 1).astype("int32")


RELATIVE = log_buckets(LENGTH, BUCKETS, MAX_DISTANCE)


class DisentangledAttention(layers.Layer):
    def __init__(self, dim, heads, rate=0.1, **kwargs):
        super().__init__(**kwargs)
        shape = dict(output_shape=(None, heads, dim // heads), bias_axes="he")
        self.query = layers.EinsumDense("bnd,dhe->bnhe", name="query", **shape)
        self.key = layers.EinsumDense("bnd,dhe->bnhe", name="key", **shape)
        self.value = layers.EinsumDense("bnd,dhe->bnhe", name="value", **shape)
        self.merge = layers.EinsumDense(
            "bnhe,hed->bnd", output_shape=(None, dim), bias_axes="d", name="merge"
        )
        self.dropout = layers.Dropout(rate)
        self.scale = 1.0 / np.sqrt(3.0 * (dim // heads))

    def call(self, x, positions, mask, training=None):
        q, k, v = self.query(x), self.key(x), self.value(x)
        table = positions[None]
        at_key = ops.take(self.key(table)[0], RELATIVE, axis=0)
        at_query = ops.take(self.query(table)[0], RELATIVE, axis=0)
        scores = ops.einsum("bihe,bjhe->bhij", q, k)
        scores = scores + ops.einsum("bihe,ijhe->bhij", q, at_key)
        scores = scores + ops.einsum("bjhe,ijhe->bhij", k, at_query)
        scores = scores * float(self.scale)
        pair = ops.logical_and(mask[:, None, :, None], mask[:, None, None, :])
        weights = ops.softmax(ops.where(pair, scores, -1e9), axis=-1)
        weights = ops.where(pair, weights, 0.0)
        weights = self.dropout(weights, training=training)
        return self.merge(ops.einsum("bhij,bjhe->bihe", weights, v))


class Encoder(layers.Layer):
    def __init__(self, dim, heads, rate=0.1, **kwargs):
        super().__init__(**kwargs)
        self.attention = DisentangledAttention(dim, heads, rate, name="attention")
        self.norm1 = layers.LayerNormalization(epsilon=1e-7, name="norm1")
        self.norm2 = layers.LayerNormalization(epsilon=1e-7, name="norm2")
        self.inner = layers.Dense(2 * dim, activation="silu", name="inner")
        self.outer = layers.Dense(dim, name="outer")
        self.dropout = layers.Dropout(rate)

    def call(self, x, positions, mask, training=None):
        y = self.attention(x, positions, mask, training=training)
        x = self.norm1(x + self.dropout(y, training=training))
        y = self.outer(self.inner(x))
        return self.norm2(x + self.dropout(y, training=training))


class Deberta(keras.Model):
    def __init__(self, dim=48, heads=4, depth=3, rate=0.1, **kwargs):
        super().__init__(**kwargs)
        self.dim = dim
        self.tokens = layers.Embedding(VOCABULARY, dim, name="tokens")
        self.segments = layers.Embedding(2, dim, name="segments")
        self.norm = layers.LayerNormalization(epsilon=1e-7, name="norm")
        self.dropout = layers.Dropout(rate)
        self.relative = self.add_weight(
            shape=(2 * BUCKETS, dim), initializer=keras.initializers.RandomNormal(stddev=0.5), name="relative"
        )
        self.relative_norm = layers.LayerNormalization(epsilon=1e-7, name="relative_norm")
        self.encoders = [Encoder(dim, heads, rate, name=f"encoder_{i}") for i in range(depth)]
        self.local = layers.Conv1D(dim, 3, padding="same", activation="tanh", name="local")
        self.local_norm = layers.LayerNormalization(epsilon=1e-7, name="local_norm")
        self.pooler = layers.Dense(dim, activation="silu", name="pooler")
        self.classifier = layers.Dense(CLASSES, name="classifier")

    def call(self, inputs, training=None):
        if isinstance(inputs, dict):
            tokens, segments = inputs["tokens"], inputs["segments"]
        else:
            tokens, segments = inputs
        mask = ops.not_equal(tokens, 0)
        x = self.norm(self.tokens(tokens) + self.segments(segments))
        keep = ops.cast(mask, x.dtype)[..., None]
        x = self.dropout(x * keep, training=training)
        positions = self.relative_norm(ops.convert_to_tensor(self.relative))
        embedded = x
        for i, encoder in enumerate(self.encoders):
            x = encoder(x, positions, mask, training=training)
            if i == 0:
                x = self.local_norm(x + self.local(embedded * keep)) * keep
        return self.classifier(self.dropout(self.pooler(x[:, 0]), training=training))


def build():
    model = Deberta(name="deberta")
    model({"tokens": np.ones((1, LENGTH), "int32"), "segments": np.zeros((1, LENGTH), "int32")})
    return model
