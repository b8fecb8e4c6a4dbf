"""CRNN for reading short numbers from text lines, trained with CTC (blank = 0)."""

import keras
from keras import layers, ops

HEIGHT, WIDTH, SYMBOLS = 16, 48, 11
NEVER = -1e30


def build():
    img = keras.Input((HEIGHT, WIDTH, 1), name="x")
    h = layers.Conv2D(8, 3, padding="same", activation="relu", name="conv1")(img)
    h = layers.MaxPooling2D((2, 2))(h)
    h = layers.Conv2D(12, 3, padding="same", use_bias=False, name="conv2")(h)
    h = layers.BatchNormalization(name="bn")(h)
    h = layers.ReLU()(h)
    h = layers.MaxPooling2D((2, 1))(h)
    h = layers.Permute((2, 1, 3))(h)
    h = layers.Reshape((WIDTH // 2, (HEIGHT // 4) * 12))(h)
    h = layers.Dense(24, activation="relu", name="columns")(h)
    h = layers.Bidirectional(layers.LSTM(16, return_sequences=True), name="lstm")(h)
    return keras.Model(img, layers.Dense(SYMBOLS, name="symbols")(h), name="crnn")


def shift(a, n):
    return ops.pad(a, [[0, 0], [n, 0]], constant_values=NEVER)[:, : a.shape[1]]


def ctc(y_true, y_pred):
    """forward algorithm in log space over the label string interleaved with blanks"""
    labels = ops.cast(y_true, "int32")
    length = ops.sum(ops.cast(labels > 0, "int32"), axis=1)
    size = 2 * labels.shape[1] + 1
    ext = ops.reshape(ops.stack([ops.zeros_like(labels), labels], axis=2), (-1, size - 1))
    ext = ops.pad(ext, [[0, 0], [0, 1]])
    before = ops.pad(ext, [[0, 0], [2, 0]])[:, :size]
    may_skip = ops.logical_and(ext > 0, ops.not_equal(ext, before))
    logp = ops.matmul(
        ops.log_softmax(y_pred, axis=-1),
        ops.transpose(ops.one_hot(ext, SYMBOLS, dtype=y_pred.dtype), (0, 2, 1)),
    )
    alpha = ops.where(ops.arange(size)[None, :] < 2, logp[:, 0], NEVER)
    for t in range(1, y_pred.shape[1]):
        jump = ops.where(may_skip, shift(alpha, 2), NEVER)
        alpha = ops.logsumexp(ops.stack([alpha, shift(alpha, 1), jump], axis=0), axis=0) + logp[:, t]
    last = 2 * length[:, None]
    position = ops.arange(size)[None, :]
    final = ops.logical_or(ops.equal(position, last), ops.equal(position, last - 1))
    return -ops.mean(ops.logsumexp(ops.where(final, alpha, NEVER), axis=1))
