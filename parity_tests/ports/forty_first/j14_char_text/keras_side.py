"""Words from characters by convolutions, gated residual blocks over the words, a topic at the end."""

import keras
import numpy as np
from keras import layers, ops

WORDS, CHARS, ALPHABET, CLASSES = 10, 8, 27, 4
SMOOTH = 0.1
TABLE = (np.full((CLASSES, CLASSES), SMOOTH / CLASSES) + np.eye(CLASSES) * (1 - SMOOTH)).astype("float32")


class CharCNN(keras.Model):
    """(batch, words, chars) of letters to a vector a word."""

    def __init__(self, dim=12, **kw):
        super().__init__(**kw)
        self.embed = layers.Embedding(ALPHABET, dim, name="letters")
        self.convs = [layers.Conv1D(8 * w, w, activation="relu", name=f"width{w}") for w in (1, 2, 3)]
        self.carry = layers.Dense(
            48, activation="sigmoid", bias_initializer=keras.initializers.Constant(-1.0), name="carry"
        )
        self.change = layers.Dense(48, activation="relu", name="change")

    def call(self, ids):
        c = self.embed(ops.reshape(ids, (-1, CHARS)))
        w = ops.concatenate([ops.max(conv(c), axis=1) for conv in self.convs], axis=-1)
        g = self.carry(w)
        w = g * self.change(w) + (1 - g) * w
        return ops.reshape(w, (-1, WORDS, 48))


def gated(x, i, keep):
    h = layers.LayerNormalization(name=f"norm{i}", epsilon=1e-6)(x)
    h = h * keep
    value = layers.Conv1D(24, 3, padding="same", dilation_rate=i + 1, name=f"value{i}")(h)
    gate = layers.Conv1D(24, 3, padding="same", dilation_rate=i + 1, activation="sigmoid", name=f"gate{i}")(h)
    return (x + value * gate) * np.float32(np.sqrt(0.5))


def build():
    text = keras.Input((WORDS, CHARS), dtype="int32", name="text")
    keep = ops.cast(ops.any(text > 0, axis=-1, keepdims=True), "float32")
    x = layers.Dense(24, name="reduce")(CharCNN(name="chars")(text))
    for i in range(3):
        x = gated(x, i, keep)
    mean = ops.sum(x * keep, axis=1) / ops.sum(keep, axis=1)
    top = ops.max(x + (keep - 1.0) * 1e4, axis=1)
    h = layers.Dense(20, activation="mish", name="fc")(ops.concatenate([mean, top], axis=-1))
    return keras.Model(text, layers.Dense(CLASSES, name="topic")(h))


def loss(y, logits):
    p = ops.take(ops.convert_to_tensor(TABLE), ops.cast(ops.reshape(y, (-1,)), "int32"), axis=0)
    return -ops.sum(p * ops.log_softmax(logits), axis=-1)


class WarmUp(keras.optimizers.schedules.LearningRateSchedule):
    def __init__(self, peak, warm):
        self.peak, self.warm = peak, warm

    def __call__(self, step):
        s = ops.cast(step, "float32") + 1.0
        return self.peak * ops.minimum(s / self.warm, ops.rsqrt(s / self.warm))

    def get_config(self):
        return {"peak": self.peak, "warm": self.warm}


def optimizer():
    return keras.optimizers.AdamW(WarmUp(0.004, 8), weight_decay=0.02, beta_2=0.98, epsilon=1e-6)
