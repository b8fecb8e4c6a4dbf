"""xDeepFM for app recommendations, trained on clicks weighted by inverse propensity."""

import keras
import numpy as np
from keras import layers, ops

CARDINALITIES = (40, 25, 60, 12, 7, 31)
GENRES, DIM = 30, 8
OFFSETS = np.cumsum((0,) + CARDINALITIES[:-1]).astype(np.int32)
MEAN = np.array([5.0, 0.3, 60.0, 2.0], dtype=np.float32)
STD = np.array([2.0, 0.2, 25.0, 1.5], dtype=np.float32)
CIN_SIZES = (16, 16, 10)


class CategoricalFields(layers.Layer):
    """All single-valued fields in one table."""

    def __init__(self, dim, **kw):
        super().__init__(**kw)
        self.table = layers.Embedding(sum(CARDINALITIES), dim, name="table")

    def build(self, shape):
        self.table.build(shape)

    def call(self, x):
        return self.table(ops.cast(x, "int32") + OFFSETS)


class GenreBag(layers.Layer):
    """Mean of the embeddings of those that are given; 0 is padding."""

    def build(self, shape):
        self.table = layers.Embedding(GENRES, DIM, name="table")
        self.table.build(shape)

    def call(self, x):
        e = self.table(x)
        m = ops.cast(ops.not_equal(x, 0), e.dtype)[..., None]
        return ops.sum(e * m, axis=1, keepdims=True) / ops.maximum(ops.sum(m, axis=1, keepdims=True), 1.0)


class NumericFields(layers.Layer):
    """value * direction + offset; a field that is missing has a vector of its own."""

    def build(self, shape):
        n = shape[-1]
        self.direction = self.add_weight(shape=(n, DIM), initializer="random_normal", name="direction")
        self.offset = self.add_weight(shape=(n, DIM), initializer="zeros", name="offset")
        self.missing = self.add_weight(shape=(n, DIM), initializer="random_normal", name="missing")

    def call(self, x):
        absent = ops.isnan(x)
        z = ops.where(absent, ops.convert_to_tensor(MEAN, dtype=x.dtype), x) - ops.convert_to_tensor(
            MEAN, dtype=x.dtype
        )
        z = z / ops.convert_to_tensor(STD, dtype=x.dtype)
        z = ops.sign(z) * ops.log1p(ops.abs(z))
        field = z[..., None] * self.direction + self.offset
        return ops.where(absent[..., None], self.missing, field)


class CIN(layers.Layer):
    """Compressed interaction network; half of each but the last layer goes on, the rest is read out."""

    def __init__(self, sizes, **kw):
        super().__init__(**kw)
        self.sizes = sizes

    def build(self, shape):
        fields = hidden = shape[1]
        self.compress = []
        for i, size in enumerate(self.sizes):
            dense = layers.Dense(size, name=f"compress{i}")
            dense.build((None, shape[2], fields * hidden))
            self.compress.append(dense)
            hidden = size // 2

    def call(self, x0):
        base = ops.transpose(x0, (0, 2, 1))
        x, read = base, []
        for i, dense in enumerate(self.compress):
            pairs = base[..., :, None] * x[..., None, :]
            y = ops.relu(dense(ops.reshape(pairs, (-1, x0.shape[2], base.shape[2] * x.shape[2]))))
            if i < len(self.compress) - 1:
                x, direct = ops.split(y, 2, axis=-1)
            else:
                direct = y
            read.append(ops.sum(direct, axis=1))
        return ops.concatenate(read, axis=-1)


def build():
    context = keras.Input((6,), dtype="int32", name="context")
    genres = keras.Input((5,), dtype="int32", name="genres")
    numbers = keras.Input((4,), name="numbers")
    fields = layers.Concatenate(axis=1)(
        [
            CategoricalFields(DIM, name="categorical")(context),
            GenreBag(name="genre_bag")(genres),
            NumericFields(name="numeric")(numbers),
        ]
    )
    linear = ops.sum(CategoricalFields(1, name="linear")(context), axis=1)
    cin = layers.Dense(1, use_bias=False, name="cin_out")(CIN(CIN_SIZES, name="cin")(fields))
    x = layers.Flatten()(fields)
    for i, units in enumerate((48, 24)):
        x = layers.Dense(units, name=f"deep{i}")(x)
        x = layers.PReLU(name=f"prelu{i}")(x)
    deep = layers.Dense(1, name="deep_out")(x)
    return keras.Model([context, genres, numbers], linear + cin + deep, name="xdeepfm")


def loss(targets, outputs):
    """Columns of targets: clicked, weight (inverse propensity of the position shown)."""
    y = ops.cast(targets[:, :1], outputs.dtype)
    w = ops.cast(targets[:, 1], outputs.dtype)
    return ops.mean(w * keras.losses.binary_crossentropy(y, outputs, from_logits=True))
