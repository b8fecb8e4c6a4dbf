"""Keyword spotting on log-mel frames: deltas, a causal TDNN, statistics pooling over the valid frames."""

import keras
from keras import layers, ops

FRAMES, MELS, WORDS = 30, 10, 6


def deltas(x):
    padded = ops.concatenate([x[:, :1], x, x[:, -1:]], axis=1)
    return (padded[:, 2:] - padded[:, :-2]) / 2


def tdnn(h, channels, dilation, name):
    h = layers.Conv1D(channels, 3, padding="causal", dilation_rate=dilation, name=f"{name}_conv")(h)
    h = layers.LayerNormalization(name=f"{name}_norm")(h)
    return layers.Activation("relu")(h)


def statistics(h, lengths):
    lengths = ops.cast(lengths, "int32")
    valid = ops.cast(ops.less(ops.expand_dims(ops.arange(FRAMES), 0), lengths), h.dtype)[..., None]
    n = ops.cast(lengths, h.dtype)
    mean = ops.sum(h * valid, axis=1) / n
    spread = ops.sum(valid * ops.square(h - mean[:, None]), axis=1) / n
    return ops.concatenate([mean, ops.sqrt(spread + 1e-5)], axis=-1)


def build():
    frames = keras.Input((FRAMES, MELS), name="frames")
    n_frames = keras.Input((1,), dtype="int32", name="n_frames")
    h = ops.concatenate([frames, deltas(frames)], axis=-1)
    h = tdnn(h, 16, 1, "tdnn1")
    h = h + tdnn(h, 16, 2, "tdnn2")
    h = layers.Dense(20, activation="gelu", name="frame_embedding")(h)
    pooled = statistics(h, n_frames)
    logits = layers.Dense(WORDS, name="words")(layers.Dense(24, activation="tanh", name="segment")(pooled))
    return keras.Model([frames, n_frames], logits)
