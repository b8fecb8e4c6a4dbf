"""Separating two vessels in a hydrophone's recording: dual-path recurrent masks on a learned basis."""

import keras
from keras import layers, ops

SAMPLES = 256
BASIS = 12
WINDOW = 16
HOP = 8
FRAMES = (SAMPLES - WINDOW) // HOP + 1  # 31
WIDTH = 8
CHUNK = 8
STRIDE = CHUNK // 2
CHUNKS = 9  # half a chunk of zeros in front, the rest behind
VESSELS = 2


@keras.saving.register_keras_serializable("hydrophones")
class GlobalNorm(layers.Layer):
    """Normalises over all axes but the first; scale and shift a channel."""

    def __init__(self, epsilon=1e-8, **kwargs):
        super().__init__(**kwargs)
        self.epsilon = epsilon

    def build(self, shape):
        self.gamma = self.add_weight(name="gamma", shape=(shape[-1],), initializer="ones")
        self.beta = self.add_weight(name="beta", shape=(shape[-1],), initializer="zeros")

    def call(self, x):
        axes = tuple(range(1, len(x.shape)))
        mean, variance = ops.moments(x, axes=axes, keepdims=True)
        return (x - mean) * ops.rsqrt(variance + self.epsilon) * self.gamma + self.beta


@keras.saving.register_keras_serializable("hydrophones")
class Segment(layers.Layer):
    """(B, frames, C) -> (B, chunks, chunk, C), chunks that overlap by half."""

    def call(self, x):
        total = STRIDE * (CHUNKS + 1)
        x = ops.pad(x, [[0, 0], [STRIDE, total - STRIDE - FRAMES], [0, 0]])
        halves = ops.reshape(x, (-1, CHUNKS + 1, STRIDE, x.shape[-1]))
        return ops.concatenate([halves[:, :-1], halves[:, 1:]], axis=2)


@keras.saving.register_keras_serializable("hydrophones")
class OverlapAdd(layers.Layer):
    def call(self, x):
        first, second = ops.split(x, 2, axis=2)
        first = ops.pad(first, [[0, 0], [0, 1], [0, 0], [0, 0]])
        second = ops.pad(second, [[0, 0], [1, 0], [0, 0], [0, 0]])
        flat = ops.reshape(first + second, (-1, STRIDE * (CHUNKS + 1), x.shape[-1]))
        return flat[:, STRIDE : STRIDE + FRAMES]


@keras.saving.register_keras_serializable("hydrophones")
class DualPath(layers.Layer):
    def __init__(self, units, width, **kwargs):
        super().__init__(**kwargs)
        self.width = width
        self.within = layers.Bidirectional(layers.LSTM(units, return_sequences=True), name="within")
        self.within_out = layers.Dense(width, name="within_out")
        self.within_norm = GlobalNorm(name="within_norm")
        self.across = layers.Bidirectional(layers.LSTM(units, return_sequences=True), name="across")
        self.across_out = layers.Dense(width, name="across_out")
        self.across_norm = GlobalNorm(name="across_norm")

    def call(self, x):
        y = ops.reshape(x, (-1, CHUNK, self.width))
        y = self.within_out(self.within(y))
        x = x + self.within_norm(ops.reshape(y, (-1, CHUNKS, CHUNK, self.width)))
        y = ops.reshape(ops.transpose(x, (0, 2, 1, 3)), (-1, CHUNKS, self.width))
        y = self.across_out(self.across(y))
        y = ops.transpose(ops.reshape(y, (-1, CHUNK, CHUNKS, self.width)), (0, 2, 1, 3))
        return x + self.across_norm(y)

    def compute_output_shape(self, shape):
        return shape


@keras.saving.register_keras_serializable("hydrophones")
class Masks(layers.Layer):
    """Gated masks of each vessel, applied to the mixture's frames."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.value = layers.Dense(VESSELS * BASIS, activation="tanh", name="value")
        self.gate = layers.Dense(VESSELS * BASIS, activation="sigmoid", name="gate")

    def call(self, features, frames):
        masks = ops.relu(self.value(features) * self.gate(features))
        masks = ops.reshape(masks, (-1, FRAMES, VESSELS, BASIS))
        masked = ops.expand_dims(frames, 2) * masks
        masked = ops.transpose(masked, (0, 2, 1, 3))
        return ops.reshape(masked, (-1, FRAMES, BASIS))


def build():
    wave = keras.Input((SAMPLES,), name="wave")
    frames = layers.Reshape((SAMPLES, 1), name="as_channel")(wave)
    frames = layers.Conv1D(BASIS, WINDOW, strides=HOP, use_bias=False, name="analysis")(frames)
    x = layers.LayerNormalization(epsilon=1e-5, name="frame_norm")(frames)
    x = layers.Dense(WIDTH, name="bottleneck")(x)
    x = Segment(name="segment")(x)
    for i in range(2):
        x = DualPath(6, WIDTH, name=f"path{i}")(x)
    x = layers.PReLU(shared_axes=[1, 2, 3], name="slope")(x)
    x = OverlapAdd(name="overlap_add")(x)
    masked = Masks(name="masks")(x, frames)
    waves = layers.Conv1DTranspose(1, WINDOW, strides=HOP, use_bias=False, name="synthesis")(masked)
    waves = layers.Reshape((VESSELS, SAMPLES), name="vessels")(
        layers.Lambda(lambda t: ops.reshape(t, (-1, VESSELS * SAMPLES)), output_shape=(VESSELS * SAMPLES,))(
            waves
        )
    )
    return keras.Model(wave, waves, name="hydrophones")


def negative_si_sdr(reference, estimate, floor=1e-3):
    reference = reference - ops.mean(reference, axis=-1, keepdims=True)
    estimate = estimate - ops.mean(estimate, axis=-1, keepdims=True)
    scale = ops.sum(reference * estimate, axis=-1, keepdims=True)
    scale = scale / (ops.sum(ops.square(reference), axis=-1, keepdims=True) + floor)
    target = scale * reference
    noise = estimate - target
    ratio = (ops.sum(ops.square(target), axis=-1) + floor) / (ops.sum(ops.square(noise), axis=-1) + floor)
    return -10.0 * ops.log10(ratio)


def loss(targets, outputs):
    """The better of both assignments of the outputs to the vessels, for each sample."""
    straight = ops.mean(negative_si_sdr(targets, outputs), axis=-1)
    crossed = ops.mean(negative_si_sdr(targets, ops.flip(outputs, axis=1)), axis=-1)
    return ops.minimum(straight, crossed)
