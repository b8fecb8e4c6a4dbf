"""Autoformer in small: decomposition and auto-correlation, for the hourly load of three feeders."""

import math

import keras
from keras import layers, ops

PAST, LABEL, FUTURE = 48, 24, 12
FEEDERS = 3
MARKS = 4
WIDTH = 24
HEADS = 4
WINDOW = 13
FACTOR = 1.3


def circular_conv(x, filters, name):
    """Convolution of width 3 on a ring, without bias."""
    x = ops.concatenate([x[:, -1:], x, x[:, :1]], axis=1)
    return layers.Conv1D(filters, 3, use_bias=False, name=name)(x)


class Decomposition(layers.Layer):
    """Splits a series into what is left and its moving average; the ends are repeated."""

    def __init__(self, window, **kwargs):
        super().__init__(**kwargs)
        self.side = (window - 1) // 2
        self.average = layers.AveragePooling1D(window, strides=1, padding="valid")

    def call(self, x):
        padded = ops.concatenate(
            [ops.repeat(x[:, :1], self.side, axis=1), x, ops.repeat(x[:, -1:], self.side, axis=1)], axis=1
        )
        trend = self.average(padded)
        return x - trend, trend


class AutoCorrelation(layers.Layer):
    """Attention over delays: the series, shifted by the delays at which query and key agree best."""

    def __init__(self, width, heads, factor, **kwargs):
        super().__init__(**kwargs)
        self.heads, self.factor = heads, factor
        self.query = layers.Dense(width, name="query")
        self.key = layers.Dense(width, name="key")
        self.value = layers.Dense(width, name="value")
        self.out = layers.Dense(width, name="out")

    def build(self, query_shape, source_shape):
        shapes = (query_shape, source_shape, source_shape, query_shape)
        for layer, shape in zip((self.query, self.key, self.value, self.out), shapes):
            layer.build(shape)

    def call(self, query, source):
        length = query.shape[1]
        source = source[:, :length]
        q = ops.transpose(self.query(query), (0, 2, 1))
        k = ops.transpose(self.key(source), (0, 2, 1))
        v = self.value(source)

        q_re, q_im = ops.rfft(q)
        k_re, k_im = ops.rfft(k)
        # q * conj(k)
        spectrum = (q_re * k_re + q_im * k_im, q_im * k_re - q_re * k_im)
        correlation = ops.irfft(spectrum, fft_length=length)
        head = q.shape[1] // self.heads
        correlation = ops.reshape(correlation, (-1, self.heads, head, length))
        mean = ops.mean(correlation, axis=2)

        count = int(self.factor * math.log(length))
        best, delays = ops.top_k(mean, count)
        weights = ops.softmax(best, axis=-1)
        index = (ops.arange(length, dtype="int32") + ops.cast(delays, "int32")[..., None]) % length
        v = ops.transpose(ops.reshape(v, (-1, length, self.heads, head)), (0, 2, 1, 3))
        shifted = ops.take_along_axis(ops.expand_dims(v, 2), index[..., None], axis=3)
        mixed = ops.einsum("bhk,bhkld->blhd", weights, shifted)
        return self.out(ops.reshape(mixed, (-1, length, self.heads * head)))


class SeasonalNorm(layers.Layer):
    """Layer normalisation, then each channel without its mean over time."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.norm = layers.LayerNormalization(epsilon=1e-5, name="norm")

    def build(self, shape):
        self.norm.build(shape)

    def call(self, x):
        x = self.norm(x)
        return x - ops.mean(x, axis=1, keepdims=True)


def feed_forward(x, name):
    y = layers.Conv1D(2 * WIDTH, 1, use_bias=False, activation="silu", name=f"{name}_up")(x)
    return layers.Conv1D(WIDTH, 1, use_bias=False, name=f"{name}_down")(y)


def embed(values, marks, name):
    return circular_conv(values, WIDTH, f"{name}_values") + layers.Dense(
        WIDTH, use_bias=False, name=f"{name}_marks"
    )(marks)


def build():
    load = keras.Input((PAST, FEEDERS), name="load")
    marks = keras.Input((PAST + FUTURE, MARKS), name="marks")
    split = Decomposition(WINDOW)

    seasonal, trend = split(load)
    level = ops.repeat(ops.mean(load, axis=1, keepdims=True), FUTURE, axis=1)
    seasonal = ops.pad(seasonal[:, -LABEL:], ((0, 0), (0, FUTURE), (0, 0)))
    trend = ops.concatenate([trend[:, -LABEL:], level], axis=1)

    x = embed(load, marks[:, :PAST], "encoder")
    for i in range(2):
        x, _ = split(x + AutoCorrelation(WIDTH, HEADS, FACTOR, name=f"encoder{i}_correlation")(x, x))
        x, _ = split(x + feed_forward(x, f"encoder{i}"))
    memory = SeasonalNorm(name="encoder_norm")(x)

    x = embed(seasonal, marks[:, PAST - LABEL :], "decoder")
    x, trend_1 = split(x + AutoCorrelation(WIDTH, HEADS, FACTOR, name="decoder_self")(x, x))
    x, trend_2 = split(x + AutoCorrelation(WIDTH, HEADS, FACTOR, name="decoder_cross")(x, memory))
    x, trend_3 = split(x + feed_forward(x, "decoder"))
    trend = trend + circular_conv(trend_1 + trend_2 + trend_3, FEEDERS, "decoder_trend")
    x = layers.Dense(FEEDERS, name="decoder_out")(SeasonalNorm(name="decoder_norm")(x))
    return keras.Model([load, marks], (x + trend)[:, -FUTURE:])
