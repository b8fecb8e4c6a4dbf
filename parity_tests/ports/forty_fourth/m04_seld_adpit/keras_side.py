"""Sound event localisation and detection: a convolutional recurrent network with attention over first-order ambisonics
(4 log-mel and 3 intensity maps), activity-coupled directions for 3 tracks, and the auxiliary-duplicating permutation
invariant loss."""

from itertools import permutations

import keras
from keras import layers, ops

FRAMES, BANDS, MAPS = 40, 16, 7
CLASSES, TRACKS = 4, 3
UNITS, HEADS = 32, 4


def conv_block(x, filters, pool, name):
    x = layers.Conv2D(filters, 3, padding="same", use_bias=False, name=f"{name}_conv")(x)
    x = layers.LayerNormalization(axis=(2, 3), epsilon=1e-5, name=f"{name}_norm")(x)
    x = layers.ReLU(name=f"{name}_relu")(x)
    x = layers.MaxPooling2D(pool, name=f"{name}_pool")(x)
    return layers.Dropout(0.05, name=f"{name}_dropout")(x)


def build():
    features = keras.Input((FRAMES, BANDS, MAPS), name="features")
    x = conv_block(features, 16, (5, 2), "conv0")
    x = conv_block(x, 24, (1, 2), "conv1")
    x = conv_block(x, 32, (1, 2), "conv2")
    x = layers.Reshape((FRAMES // 5, -1), name="frames")(x)
    for i in range(2):
        x = layers.Bidirectional(layers.GRU(UNITS, return_sequences=True), merge_mode="mul", name=f"gru{i}")(
            x
        )
    a = layers.MultiHeadAttention(HEADS, UNITS // HEADS, name="attention")(x, x)
    x = layers.LayerNormalization(epsilon=1e-5, name="attention_norm")(layers.Add(name="attended")([x, a]))
    x = layers.Dense(48, name="fnn")(x)
    x = layers.Dense(TRACKS * 3 * CLASSES, activation="tanh", name="directions")(x)
    x = layers.Reshape((FRAMES // 5, TRACKS, 3, CLASSES), name="tracks")(x)
    return keras.Model(features, x, name="seld")


def adpit_loss(targets, outputs):
    """targets: (batch, frames, 6 dummy tracks A0 B0 B1 C0 C1 C2, activity and x y z, classes)."""
    vectors = targets[:, :, :, :1] * targets[:, :, :, 1:]
    a0, b0, b1, c0, c1, c2 = ops.unstack(vectors, axis=2)
    one = [(a0, a0, a0)]
    two = [(b0, b0, b1), (b0, b1, b0), (b0, b1, b1), (b1, b0, b0), (b1, b0, b1), (b1, b1, b0)]
    three = list(permutations((c0, c1, c2)))
    one, two, three = ([ops.stack(tracks, axis=2) for tracks in group] for group in (one, two, three))
    # a class has events of one group only; the first of each of the others keeps its zeros from being chosen
    candidates = (
        [c + two[0] + three[0] for c in one]
        + [c + one[0] + three[0] for c in two]
        + [c + one[0] + two[0] for c in three]
    )
    errors = ops.stack([ops.mean(ops.square(outputs - c), axis=(2, 3)) for c in candidates], axis=-1)
    best = ops.one_hot(ops.argmin(errors, axis=-1), len(candidates), dtype=errors.dtype)
    return ops.mean(ops.sum(errors * best, axis=-1))
