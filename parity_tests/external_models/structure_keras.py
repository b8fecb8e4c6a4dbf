"""Small models of Keras's for `structure_torch`, which has each once right and several times wrong."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf
from keras import layers, ops


def towers() -> keras.Model:
    """Two branches of one input: their difference and themselves, concatenated."""
    x = keras.Input((6,))
    left = layers.Dense(4, activation="relu", name="left")(x)
    right = layers.Dense(4, activation="gelu", name="right")(x)
    apart = layers.Subtract(name="apart")([left, right])
    joined = layers.Concatenate(name="joined")([left, right, apart])
    return keras.Model(x, layers.Dense(3, name="head")(layers.Dense(5, name="mixed")(joined)))


def attention() -> keras.Model:
    """Tokens that are padded with zeros, attended over, and their mean without padding."""
    x = keras.Input((7, 6))
    valid = ops.any(ops.not_equal(x, 0.0), axis=-1)
    y = layers.LayerNormalization(epsilon=1e-5, name="norm")(layers.Dense(8, name="embedded")(x))
    scores = layers.Dense(1, name="score")(y)[..., 0]
    weights = layers.Softmax(name="weights")(ops.where(valid, scores, -1e9))
    pooled = layers.Dot((1, 1), name="pooled")([y, weights])
    return keras.Model(x, layers.Dense(3, name="head")(pooled))


def batched() -> keras.Model:
    """Attention whose heads stand behind one another in the batch."""
    x = keras.Input((7, 6))
    projected = [layers.Dense(8, name=name)(x) for name in ("query", "key", "value")]
    query, key, value = (ops.concatenate(ops.split(each, 2, axis=2), axis=0) for each in projected)
    weights = ops.softmax(ops.matmul(query, ops.transpose(key, (0, 2, 1))) / 8**0.5, axis=-1)
    y = ops.concatenate(ops.split(query + ops.matmul(weights, value), 2, axis=0), axis=2)[:, 0]
    return keras.Model(x, layers.Dense(3, name="head")(y))


def images() -> keras.Model:
    """A pyramid: pooled, upsampled, cropped to one corner, merged."""
    x = keras.Input((8, 8, 3))
    y = layers.Conv2D(4, 3, padding="same", activation="relu", name="first")(x)
    small = layers.Conv2D(4, 1, name="small")(layers.MaxPooling2D(2, name="pool")(y))
    large = layers.UpSampling2D(2, interpolation="bilinear", name="up")(small)
    z = layers.Conv2D(4, 3, padding="same", name="merged")(large)
    z = layers.ZeroPadding2D(((1, 0), (1, 0)), name="pad")(z)
    z = layers.Conv2D(4, 2, name="padded")(z)
    z = layers.Cropping2D(((0, 2), (0, 2)), name="crop")(z)
    z = layers.Conv2D(4, 3, name="cropped")(z)
    return keras.Model(x, layers.Dense(5, name="head")(layers.GlobalAveragePooling2D(name="mean")(z)))


def masked() -> keras.Model:
    """A GRU over what is not padding."""
    x = keras.Input((7, 6))
    y = layers.Masking(name="masking")(x)
    y = layers.GRU(5, name="gru")(y)
    return keras.Model(x, layers.Dense(3, name="head")(y))


def rolled() -> keras.Model:
    """A residual block whose shortcut passes an activation by, and whose sum is rolled along its features."""
    x = keras.Input((6,))
    y = layers.Dense(8, name="first")(x)
    z = layers.Dense(8, name="second")(layers.Activation("relu", name="function")(y))
    z = ops.roll(layers.Add(name="sum")([y, z]), 3, axis=1)
    return keras.Model(x, layers.Dense(3, name="head")(z))


def block() -> keras.Model:
    """A residual block before its norm, in which scale and shift are halves of one tensor."""
    x = keras.Input((6,))
    y = layers.Dense(8, name="first")(x)
    z = layers.LayerNormalization(epsilon=1e-5, name="norm")(y)
    both = layers.Dense(16, name="both")(z)
    z = layers.Dense(8, name="second")(z * both[:, :8] + both[:, 8:])
    return keras.Model(x, layers.Dense(3, name="head")(layers.Add(name="sum")([y, z])))


def sequence() -> keras.Model:
    """The last outputs of both directions, without their mean."""
    x = keras.Input((7, 6))
    y = layers.Bidirectional(layers.GRU(4, name="cell"), name="both")(x)
    y = layers.Dense(5, name="mixed")(y)
    return keras.Model(x, layers.Dense(3, name="head")(y - ops.mean(y, axis=1, keepdims=True)))


def heads() -> keras.Model:
    """Attention of two heads, split and joined by hand."""
    x = keras.Input((7, 6))
    q, k, v = (
        ops.transpose(ops.reshape(layers.Dense(8, name=name)(x), (-1, 7, 2, 4)), (0, 2, 1, 3))
        for name in ("query", "key", "value")
    )
    weights = ops.softmax(ops.matmul(q, ops.transpose(k, (0, 1, 3, 2))) / 2.0)
    joined = ops.reshape(ops.transpose(ops.matmul(weights, v), (0, 2, 1, 3)), (-1, 7, 8))
    y = layers.Dense(5, name="joined")(joined)
    return keras.Model(x, layers.Dense(3, name="head")(layers.GlobalAveragePooling1D(name="mean")(y)))


def formulas() -> keras.Model:
    """Attention on numbers that are standardised by hand."""
    x = keras.Input((7, 6))
    z = (x - ops.mean(x, axis=1, keepdims=True)) / (ops.std(x, axis=1, keepdims=True) + 0.1)
    queries, keys = layers.Dense(5, name="left")(z), layers.Dense(5, name="right")(z)
    weights = ops.softmax(ops.einsum("bid,bjd->bij", queries, keys) * 0.5)
    y = ops.einsum("bij,bjd->bid", weights, keys)
    y = ops.mean(y, axis=1) / ops.sqrt(ops.var(y, axis=1) + 1.0)
    return keras.Model(x, layers.Dense(3, name="head")(y))


def grouped() -> keras.Model:
    """A convolution of groups, of which TensorFlow has no gradients on a CPU."""
    x = keras.Input((8, 8, 3))
    y = layers.Conv2D(8, 3, groups=1, name="first")(x)
    y = layers.Conv2D(12, 3, groups=4, activation="tanh", name="grouped")(y)
    return keras.Model(x, layers.Dense(3, name="head")(layers.GlobalAveragePooling2D(name="mean")(y)))


class Packs(layers.Layer):
    """Each two by two pixels as the channels of one."""

    def call(self, x: Any) -> Any:
        _, height, width, channels = x.shape
        x = ops.reshape(x, (-1, height // 2, 2, width // 2, 2, channels))
        x = ops.transpose(x, (0, 1, 3, 2, 4, 5))
        return ops.reshape(x, (-1, height // 2, width // 2, 4 * channels))


def packed() -> keras.Model:
    """A norm of groups of what stands in that order."""
    x = keras.Input((8, 8, 3))
    y = Packs(name="pack")(layers.Conv2D(4, 3, padding="same", name="stem")(x))
    y = layers.Activation("tanh")(layers.GroupNormalization(4, epsilon=1e-5, name="norm")(y))
    return keras.Model(x, layers.Dense(3, name="head")(layers.GlobalAveragePooling2D(name="mean")(y)))


def norms(trainable: bool = True) -> keras.Model:
    """Two batch norms."""
    x = y = keras.Input((6,))
    for number in range(2):
        y = layers.Dense(4, name=f"dense{number}")(y)
        y = layers.BatchNormalization(trainable=trainable, name=f"norm{number}")(y)
    return keras.Model(x, layers.Dense(3, name="head")(y))


def twins() -> keras.Model:
    """Two steps through one norm: the one kept where its input is positive, over what is made of the other."""
    x = keras.Input((7, 6))
    shared, norm = layers.Dense(4, name="shared"), layers.BatchNormalization(name="norm")
    one, other = norm(shared(x[:, 0])), norm(shared(x[:, 1]))
    kept, spread = one * ops.cast(x[:, 0, :4] > 0, one.dtype), ops.softplus(other) + 0.5
    return keras.Model(
        x, layers.Dense(3, name="head")(ops.concatenate([kept / spread, ops.log(spread)], axis=1))
    )


def frozen_norms() -> keras.Model:
    """They run in inference mode in training too."""
    return norms(trainable=False)


def tokens() -> keras.Model:
    x = keras.Input((7,), dtype="int32")
    y = layers.Embedding(10, 4, name="embedded")(x)
    y = layers.Dense(4, name="first")(y)
    return keras.Model(x, layers.Dense(3, name="head")(layers.GlobalAveragePooling1D(name="mean")(y)))


def _waves(shape, dtype=None):
    rows, columns = shape
    angles = ops.cast(ops.reshape(ops.arange(rows), (-1, 1)), dtype or "float64") / (
        1.0 + ops.cast(ops.arange(columns), dtype or "float64")
    )
    return ops.sin(angles)


def clocked() -> keras.Model:
    """Tokens with a row of a table that nothing trains."""
    x = keras.Input((7,), dtype="int32")
    y = layers.Embedding(10, 4, name="embedded")(x)
    clock = layers.Embedding(10, 4, embeddings_initializer=_waves, trainable=False, name="clock")(x)
    y = layers.Dense(4, activation="tanh", name="first")(layers.Add(name="both")([y, clock]))
    return keras.Model(x, layers.Dense(3, name="head")(layers.GlobalAveragePooling1D(name="mean")(y)))


class Stopped(layers.Layer):
    """Lets no gradient through."""

    def call(self, x):
        return ops.stop_gradient(x)


def forked() -> keras.Model:
    """Two heads of one layer, which one alone trains."""
    x = keras.Input((6,))
    shared = layers.Dense(4, activation="relu", name="shared")(x)
    score = layers.Dense(3, name="score")(Stopped()(shared))
    return keras.Model(x, layers.Add(name="both")([layers.Dense(3, name="head")(shared), score]))


class MeanOfTokens(layers.Layer):
    """The mean of what is no padding: id 0."""

    def call(self, y, ids):
        there = ops.cast(ops.not_equal(ids, 0), y.dtype)[..., None]
        return ops.sum(y * there, axis=1) / ops.sum(there, axis=1)


def padded() -> keras.Model:
    """Tokens and the mean of those that are no padding."""
    x = keras.Input((7,), dtype="int32")
    y = layers.Dense(4, name="first")(layers.Embedding(10, 4, name="embedded")(x))
    return keras.Model(x, layers.Dense(3, name="head")(MeanOfTokens(name="mean")(y, x)))


def steps(place: int = 0, **dropout) -> keras.Model:
    """One step of what a GRU gives, without its largest number."""
    x = keras.Input((7, 6))
    y = layers.GRU(4, return_sequences=True, name="gru", **dropout)(x)[:, place]
    y = layers.Dense(5, name="mixed")(y)
    return keras.Model(x, layers.Dense(3, name="head")(y - ops.max(y, axis=1, keepdims=True)))


def dropping_steps() -> keras.Model:
    """The last step, with a dropout of its inputs and its state."""
    return steps(-1, dropout=0.3, recurrent_dropout=0.2)


def step_dropout() -> keras.Model:
    """The last step, with a dropout of its inputs."""
    return steps(-1, dropout=0.3)


def last_steps() -> keras.Model:
    """The last step of both directions."""
    x = keras.Input((7, 6))
    y = layers.Bidirectional(layers.GRU(4, return_sequences=True, name="cell"), name="both")(x)[:, -1]
    return keras.Model(x, layers.Dense(3, name="head")(layers.Dense(5, name="mixed")(y)))


def plain(frozen: str = "") -> keras.Model:
    x = keras.Input((6,))
    first = layers.Dense(4, trainable=not frozen, name="first")
    return keras.Model(x, layers.Dense(3, name="head")(first(x)))


def still() -> keras.Model:
    """Its first layer is not trained."""
    return plain("first")


def penalized() -> keras.Model:
    """A penalty that torch's does not have."""
    x = keras.Input((6,))
    y = layers.Dense(4, kernel_regularizer=keras.regularizers.L2(0.1), name="first")(x)
    return keras.Model(x, layers.Dense(3, name="head")(y))


def constrained() -> keras.Model:
    """Kernels of unit norm, which torch's does not have."""
    x = keras.Input((6,))
    y = layers.Dense(4, kernel_constraint="unit_norm", name="first")(x)
    return keras.Model(x, layers.Dense(3, name="head")(y))


def scaled() -> keras.Model:
    """It scales its input, which torch's leaves to the samples."""
    x = keras.Input((6,))
    y = layers.Dense(4, name="first")(layers.Rescaling(0.3, 0.1, name="scale")(x))
    return keras.Model(x, layers.Dense(3, name="head")(y))


def ordered(first: bool = True) -> keras.Model:
    """Norm, then function, twice; where not `first`, once the other way round."""
    x = keras.Input((6,))
    y = x
    for number in range(2):
        norm = layers.LayerNormalization(epsilon=1e-5, name=f"norm{number}")
        function = layers.Activation("tanh", name=f"function{number}")
        y = layers.Dense(5, name=f"dense{number}")(y)
        y = function(norm(y)) if first else norm(function(y))
    return keras.Model(x, layers.Dense(3, name="head")(y))


def reordered() -> keras.Model:
    """Function, then norm, twice."""
    return ordered(first=False)


def drops() -> keras.Model:
    """Whole channels are dropped, then single elements, of a flattened tensor and behind an activation."""
    x = keras.Input((8, 8, 3))
    y = layers.Conv2D(4, 3, strides=2, activation="tanh", name="first")(x)
    y = layers.Flatten(name="flat")(layers.SpatialDropout2D(0.25, name="channels")(y))
    y = layers.Dense(6, name="middle")(layers.Dropout(0.2, name="elements")(y))
    y = layers.Dropout(0.4, name="last")(layers.Activation("sigmoid", name="bent")(y))
    return keras.Model(x, layers.Dense(3, name="head")(y))


class AlwaysDrops(keras.Model):
    """One layer drops in inference, too."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.head = layers.Dense(8, activation="tanh", name="first"), layers.Dense(3, name="head")
        self.drop = layers.Dropout(0.4, name="drop")

    def call(self, x):
        return self.head(self.drop(self.first(x), training=True))


def attends() -> keras.Model:
    """Attention that drops among its weights, and a dropout before the sum with its input."""
    x = keras.Input((7, 6))
    y = layers.MultiHeadAttention(2, 3, dropout=0.3, name="attention")(x, x)
    y = layers.Dropout(0.2, name="drop")(y)
    y = layers.LayerNormalization(epsilon=1e-5, name="norm")(layers.Add(name="sum")([x, y]))
    y = layers.SpatialDropout1D(0.2, name="whole")(y)
    return keras.Model(x, layers.Dense(3, name="head")(layers.GlobalAveragePooling1D(name="mean")(y)))


def moving():
    """A norm with moving statistics."""
    x = keras.Input((6,))
    y = layers.BatchNormalization(name="norm")(layers.Dense(4, name="hidden")(x))
    return keras.Model(x, layers.Dense(3, name="head")(y))


class Standardizer(layers.Layer):
    """Takes off a moving mean, over a moving deviation, both of them moved before they are used."""

    def build(self, shape):
        self.mean = self.add_weight(shape=shape[-1:], initializer="zeros", trainable=False, name="mean")
        self.variance = self.add_weight(
            shape=shape[-1:], initializer="ones", trainable=False, name="variance"
        )

    def call(self, x, training=False):
        if training:
            mean = ops.mean(x, axis=0)
            self.mean.assign(0.9 * self.mean + 0.1 * mean)
            self.variance.assign(0.9 * self.variance + 0.1 * ops.mean(ops.square(x - mean), axis=0))
        return (x - self.mean) / ops.sqrt(self.variance + 1e-3)


class Pool(layers.Layer):
    """The mean of a sequence, by weights that are learned."""

    def __init__(self, **options):
        super().__init__(**options)
        self.score = layers.Dense(1, name="score")

    def call(self, x):
        return ops.sum(ops.softmax(self.score(x), axis=1) * x, axis=1)


def pooled() -> keras.Model:
    """Tokens, and their mean by weights."""
    x = keras.Input((7, 6))
    y = layers.Dense(8, name="token")(x)
    return keras.Model(x, layers.Dense(3, name="head")(Pool(name="pool")(y)))


def standardized() -> keras.Model:
    """A norm of one's own before a dense layer."""
    x = keras.Input((6,))
    return keras.Model(x, layers.Dense(3, name="head")(Standardizer(name="norm")(x)))


def modulated() -> keras.Model:
    """A scale that is learned as the difference from one, a shortcut, a norm of one's own, and a mean over time."""
    x = keras.Input((7, 6))
    scale = layers.Dense(6, name="scale")(x)
    y = layers.Dense(6, name="second")(layers.Dense(6, name="first")(x) * (1 + scale))
    y = layers.Dense(6, name="third")(ops.relu(y + x))
    y = y / ops.sqrt(ops.mean(ops.square(y), axis=-1, keepdims=True) + 0.5)
    y = layers.Dense(7, name="mixed")(y) * ops.reshape(ops.arange(7, dtype="float64") / 7, (1, 7, 1))
    y = layers.Dense(4, name="narrow")(ops.transpose(y, (0, 2, 1)))
    y = layers.Dense(5, name="wide")(ops.repeat(y, 2, axis=-1))
    y = layers.LayerNormalization(epsilon=1e-5, name="norm")(y)
    return keras.Model(x, layers.Dense(3, name="head")(ops.mean(y, axis=1)))


class UnitKernel(layers.Layer):
    """A product with kernels of length one."""

    def build(self, shape):
        self.kernel = self.add_weight(shape=(shape[-1], 4), name="kernel")

    def call(self, x):
        return ops.matmul(x, ops.normalize(self.kernel, axis=0))


def states(kind: str = "GRU") -> keras.Model:
    """A recurrent layer that starts where another one ends."""
    x = keras.Input((7, 6))
    layer = getattr(layers, kind)
    y, *ends = layer(5, return_sequences=True, return_state=True, name="first")(x)
    y = layer(5, name="second")(y, initial_state=ends if kind == "LSTM" else ends[0])
    return keras.Model(x, layers.Dense(3, name="head")(UnitKernel(name="unit")(y)))


def lstm_states() -> keras.Model:
    return states("LSTM")


def encoded() -> keras.Model:
    """Waves by turns, sums of what comes before, halves of the channels, the last step of each sequence, bins of a number."""
    x = keras.Input((7, 6))
    y = layers.Dense(4, name="first")(x)
    waves = ops.reshape(ops.stack([ops.sin(y), ops.cos(y)], axis=-1), (-1, 7, 8))
    y = layers.Dense(6, name="second")(ops.concatenate([y, waves], axis=-1))
    y = layers.Dense(8, name="third")(ops.cumsum(y, axis=1) - y)
    halves = ops.reshape(y, (-1, 7, 2, 4))
    y = layers.Dense(5, name="fourth")(halves[:, :, 0] * halves[:, :, 1])
    lengths = ops.sum(ops.cast(ops.any(ops.not_equal(x, 0.0), axis=-1), "int32"), axis=1)
    y = ops.take_along_axis(y, (lengths - 1)[:, None, None], axis=1)[:, 0]
    y = layers.Dense(6, name="fifth")(y)
    bins = layers.Discretization([3, 4, 5, 6], name="bins")(lengths)
    return keras.Model(x, layers.Dense(3, name="head")(y * (1.0 + ops.cast(bins, "float64"))[:, None]))


class Activated(layers.Layer):
    """A product with its activation inside, which a port has outside."""

    def build(self, shape):
        self.kernel = self.add_weight(shape=(shape[-1], 8), name="kernel")

    def call(self, x):
        return ops.elu(ops.matmul(x, self.kernel))


def gained() -> keras.Model:
    """Two inputs, each with a layer of its own, their sum, and a norm whose gain begins as one."""
    x, z = keras.Input((6,), name="x"), keras.Input((5,), name="z")
    y = layers.Add(name="sum")([Activated(name="product")(x), layers.Dense(8, name="other")(z)])
    y = layers.LayerNormalization(epsilon=1e-5, name="norm")(y)
    return keras.Model([x, z], layers.Dense(3, name="head")(y))


def strided() -> keras.Model:
    """A convolution with a stride, which Keras pads on one side."""
    x = keras.Input((8, 8, 3))
    y = layers.Conv2D(4, 3, strides=2, padding="same", name="strided")(x)
    return keras.Model(x, layers.Dense(5, name="head")(layers.GlobalAveragePooling2D(name="mean")(y)))


def windowed() -> keras.Model:
    """Two convolutions, of a picture with as many channels as rows and columns."""
    x = keras.Input((8, 8, 3))
    y = layers.Conv2D(4, 3, padding="same", name="outer")(layers.Conv2D(8, 1, name="inner")(x))
    return keras.Model(x, layers.Dense(5, name="head")(layers.GlobalAveragePooling2D(name="mean")(y)))


def scored() -> keras.Model:
    """Attention without a scale, a gate, shares of a whole, and logarithms that keep the sign."""
    x = keras.Input((7, 6))
    query, key = (layers.Dense(5, name=name)(x) for name in ("query", "key"))
    y = ops.softmax(ops.matmul(query, ops.transpose(key, (0, 2, 1))), axis=-1)
    y = layers.Dense(4, name="read")(ops.matmul(y, x)) * layers.Dense(4, name="gate")(x)
    y = ops.exp(layers.Dense(5, name="first")(y))
    y = layers.Dense(6, name="second")(y / ops.sum(y, axis=-1, keepdims=True))
    y = layers.Dense(4, name="third")(ops.sign(y) * ops.log1p(ops.abs(y)))
    return keras.Model(x, layers.Dense(3, name="head")(ops.mean(y, axis=1)))


class Experts(layers.Layer):
    """Two of four matrices answer, by shares of both; two slopes of the same layer."""

    def build(self, shape):
        self.gate = self.add_weight(shape=(shape[-1], 4), name="gate")
        self.experts = self.add_weight(shape=(4, shape[-1], shape[-1]), name="experts")

    def call(self, x):
        values, places = ops.top_k(ops.matmul(x, self.gate), 2)
        chosen = ops.one_hot(places, 4, dtype=x.dtype) * ops.softmax(values, axis=-1)[..., None]
        return ops.sum(
            ops.sum(chosen, axis=1)[..., None] * ops.einsum("bi,eij->bej", x, self.experts), axis=1
        )


class Slopes(layers.Layer):
    def __init__(self, **options):
        super().__init__(**options)
        self.field = layers.Dense(5, activation="tanh", name="field")

    def call(self, x):
        first = self.field(x)
        second = self.field(x + 0.5 * first)
        third = self.field(x + 0.5 * second)
        return x + first + 2.0 * third


def experts() -> keras.Model:
    x = keras.Input((6,))
    y = layers.Dense(5, name="before")(x)
    y = Slopes(name="slopes")(layers.Add()([y, Experts(name="mixture")(y)]))
    return keras.Model(x, layers.Dense(3, name="head")(y))


def hidden() -> keras.Model:
    """Attention of two heads over what is no padding."""
    x = keras.Input((7, 6))
    valid = ops.any(ops.not_equal(x, 0.0), axis=-1)
    query, key, value = (layers.Dense(8, name=name)(x) for name in ("query", "key", "value"))
    query, key, value = (
        ops.transpose(ops.reshape(y, (-1, 7, 2, 4)), (0, 2, 1, 3)) for y in (query, key, value)
    )
    scores = ops.matmul(query * 0.5, ops.transpose(key, (0, 1, 3, 2)))
    shares = ops.softmax(ops.where(valid[:, None, None], scores, -1e9), axis=-1)
    y = ops.reshape(ops.transpose(ops.matmul(shares, value), (0, 2, 1, 3)), (-1, 7, 8))
    return keras.Model(x, layers.Dense(3, name="head")(ops.mean(y, axis=1)))


def resized() -> keras.Model:
    """Pictures made larger by cubic splines."""
    x = keras.Input((8, 8, 3))
    y = layers.Conv2D(4, 3, name="first")(x)
    y = layers.Lambda(lambda h: tf.image.resize(h, (12, 12), "bicubic"), name="larger")(y)
    y = layers.Conv2D(5, 3, activation="relu", name="mixed")(y)
    return keras.Model(x, layers.Dense(3, name="head")(layers.GlobalAveragePooling2D(name="pooled")(y)))


def capped() -> keras.Model:
    """Two halves, each of at most a half."""
    x = keras.Input((6,))
    parts = ops.unstack(ops.reshape(ops.minimum(x, 0.5), (-1, 2, 3)), axis=1)
    first, second = (
        layers.Dense(4, name=name)(part) for name, part in zip(("first", "second"), parts, strict=False)
    )
    return keras.Model(x, layers.Dense(3, name="head")(first * second))


class Gain(layers.Layer):
    """A norm that is divided by the deviation alone."""

    def build(self, shape: Any) -> None:
        self.gain = self.add_weight(shape=(shape[-1],), initializer="ones", name="gain")

    def call(self, x: Any) -> Any:
        apart = x - ops.mean(x, axis=-1, keepdims=True)
        return self.gain * x / ops.sqrt(ops.mean(apart * apart, axis=-1, keepdims=True) + 1e-5)


def gains() -> keras.Model:
    """Three norms of one kind."""
    x = y = keras.Input((6,))
    for number in range(3):
        y = Gain(name=f"norm_{number}")(
            layers.Dense(5 + number, activation="tanh", name=f"dense_{number}")(y)
        )
    return keras.Model(x, layers.Dense(3, name="head")(y))


def turns() -> keras.Model:
    """Two layers, each called twice in a row."""
    x = y = keras.Input((6,))
    for name in ("a", "b"):
        layer = layers.Dense(6, activation="tanh", name=name)
        y = layer(layer(y))
    return keras.Model(x, layers.Dense(3, name="head")(y))
