"""Will a loan default? Gated residual network over numbers and categories; few default, hence a focal loss."""

import keras
from keras import layers, ops

NUMBERS, SIZES, WIDTH = 6, (5, 9, 4), 16
MEAN = [0.5, 12.0, -1.0, 0.0, 3.0, 100.0]
VARIANCE = [1.0, 25.0, 0.25, 4.0, 1.0, 900.0]


def gated(x, name):
    h = layers.Dense(WIDTH, activation="elu", name=name + "_hidden")(x)
    h = layers.Dropout(0.1)(h)
    value = layers.Dense(WIDTH, name=name + "_value")(h)
    gate = layers.Dense(WIDTH, activation="sigmoid", name=name + "_gate")(h)
    h = layers.Multiply(name=name + "_glu")([value, gate])
    return layers.LayerNormalization(epsilon=1e-5, name=name + "_norm")(layers.Add(name=name)([x, h]))


def build():
    numbers = keras.Input((NUMBERS,), name="numbers")
    categories = keras.Input((len(SIZES),), dtype="int32", name="categories")
    parts = [layers.Normalization(mean=MEAN, variance=VARIANCE, name="scale")(numbers)]
    for i, size in enumerate(SIZES):
        parts.append(layers.Embedding(size, 3, name=f"category{i}")(categories[:, i]))
    x = layers.Dense(WIDTH, name="enter")(layers.Concatenate(name="features")(parts))
    x = gated(x, "grn1")
    x = gated(x, "grn2")
    return keras.Model([numbers, categories], layers.Dense(1, name="default")(x), name="loans")


def focal(default, logit, alpha=0.75, gamma=2.0):
    y = ops.cast(ops.reshape(default, (-1, 1)), logit.dtype)
    p = ops.sigmoid(logit)
    pt = y * p + (1 - y) * (1 - p)
    weight = y * alpha + (1 - y) * (1 - alpha)
    ce = ops.binary_crossentropy(y, logit, from_logits=True)
    return ops.mean(weight * ops.power(1 - pt, gamma) * ce)
