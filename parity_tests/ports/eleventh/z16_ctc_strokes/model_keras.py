"""Reads signs from pen strokes: a convolutional network, and connectionist temporal classification by hand."""

import keras
from keras import layers, ops

FRAMES, SIGNS, LONGEST = 24, 6, 5
NEVER = -1e30


def gated(x, width, dilation, name):
    h = layers.LayerNormalization(epsilon=1e-5, name=f"{name}_norm")(x)
    h = layers.Conv1D(width, 3, padding="same", dilation_rate=dilation, name=f"{name}_conv")(h)
    gate = layers.Conv1D(width, 1, activation="sigmoid", name=f"{name}_gate")(x)
    return layers.Add()([x, layers.Multiply()([ops.tanh(h), gate])])


def build():
    strokes = keras.Input((FRAMES, 4), name="strokes")
    x = layers.Conv1D(20, 5, padding="same", activation="relu", name="stem")(strokes)
    for i, dilation in enumerate((1, 2)):
        x = gated(x, 20, dilation, f"block{i}")
    # 0 is the blank
    return keras.Model(strokes, layers.Dense(1 + SIGNS, name="signs")(x))


def ctc(labels, logits):
    """labels (batch, LONGEST), 0 after the last: the negative log-likelihood of each row."""
    labels = ops.cast(labels, "int32")
    states = 2 * LONGEST + 1
    between = ops.reshape(ops.stack([ops.zeros_like(labels), labels], axis=-1), (-1, 2 * LONGEST))
    between = ops.pad(between, [[0, 0], [0, 1]])
    before = ops.pad(between[:, :-2], [[0, 0], [2, 0]])
    may_skip = ops.logical_and(between != 0, between != before)

    log_p = ops.log_softmax(logits, axis=-1)
    emit = ops.einsum("ntc,nsc->nts", log_p, ops.one_hot(between, 1 + SIGNS, dtype=log_p.dtype))
    alpha = ops.where(ops.arange(states) < 2, emit[:, 0], NEVER)
    for t in range(1, FRAMES):
        one = ops.pad(alpha[:, :-1], [[0, 0], [1, 0]], constant_values=NEVER)
        two = ops.pad(alpha[:, :-2], [[0, 0], [2, 0]], constant_values=NEVER)
        two = ops.where(may_skip, two, NEVER)
        alpha = ops.logsumexp(ops.stack([alpha, one, two], axis=-1), axis=-1) + emit[:, t]

    last = 2 * ops.sum(ops.cast(labels != 0, "int32"), axis=1, keepdims=True)
    position = ops.arange(states, dtype="int32")
    final = ops.logical_or(position == last, position == last - 1)
    return -ops.logsumexp(ops.where(final, alpha, NEVER), axis=-1)
