"""A small FastSpeech: phonemes to mel frames, lengthened by the durations that an aligner gave."""

import keras
import numpy as np
from keras import layers, ops

PADDING = -11.5  # log-mel of silence behind the end


def sinusoids(length, width):
    position = np.arange(length)[:, None] / 10000 ** (np.arange(0, width, 2) / width)
    return np.concatenate([np.sin(position), np.cos(position)], -1)[None]


@keras.saving.register_keras_serializable()
class Block(layers.Layer):
    """Self-attention, then two convolutions; padding is zero behind each."""

    def __init__(self, width, heads=2, **kwargs):
        super().__init__(**kwargs)
        self.attention = layers.MultiHeadAttention(heads, 4, name="attention")
        self.norm_1 = layers.LayerNormalization(epsilon=1e-5)
        self.norm_2 = layers.LayerNormalization(epsilon=1e-5)
        self.widen = layers.Conv1D(2 * width, 3, padding="same", activation="relu", name="widen")
        self.narrow = layers.Conv1D(width, 1, name="narrow")
        self.dropout = layers.Dropout(0.1)

    def call(self, x, real, training=None):
        keep = ops.cast(real, x.dtype)[..., None]
        y = self.attention(x, x, attention_mask=real[:, None, :])
        x = self.norm_1(x + self.dropout(y, training=training)) * keep
        y = self.narrow(self.widen(x))
        return self.norm_2(x + self.dropout(y, training=training)) * keep


class FastSpeech(keras.Model):
    def __init__(self, symbols=20, width=16, mels=8, frames=24):
        super().__init__()
        self.frames, self.width = frames, width
        self.embedding = layers.Embedding(symbols, width, name="embedding")
        self.encoder = Block(width, name="encoder")
        self.decoder = Block(width, name="decoder")
        self.predictor = [
            layers.Conv1D(12, 3, padding="same", activation="relu", name="predictor_conv"),
            layers.LayerNormalization(epsilon=1e-5, name="predictor_norm"),
            layers.Dense(1, name="predictor_out"),
        ]
        self.to_mel = layers.Dense(mels, name="to_mel")

    def call(self, inputs, training=None):
        phonemes, durations = inputs["phonemes"], inputs["durations"]
        real = phonemes > 0
        x = self.embedding(phonemes) + sinusoids(phonemes.shape[1], self.width)
        x = x * ops.cast(real, x.dtype)[..., None]
        x = self.encoder(x, real, training=training)

        # the aligner's errors shall not reach the encoder
        d = ops.stop_gradient(x)
        for layer in self.predictor:
            d = layer(d)

        ends = ops.cumsum(durations, axis=1)
        frame = ops.arange(self.frames, dtype=ends.dtype)
        spoken = frame[None] < ends[:, -1:]
        index = ops.sum(ops.cast(ends[:, None] <= frame[None, :, None], "int32"), -1)
        index = ops.minimum(index, phonemes.shape[1] - 1)
        x = ops.take_along_axis(x, index[..., None], axis=1) + sinusoids(self.frames, self.width)
        x = x * ops.cast(spoken, x.dtype)[..., None]
        x = self.decoder(x, spoken, training=training)
        return {"mel": self.to_mel(x), "log_duration": d[..., 0]}


def build():
    return FastSpeech()


def mel_loss(y_true, y_pred):
    real = ops.cast(y_true[..., 0] > PADDING, y_pred.dtype)
    error = ops.mean(ops.abs(y_true - y_pred), -1)
    return ops.sum(error * real) / ops.sum(real)


def duration_loss(y_true, y_pred):
    error = ops.square(ops.log(ops.cast(y_true, y_pred.dtype) + 1) - y_pred)
    return ops.mean(error, -1)
