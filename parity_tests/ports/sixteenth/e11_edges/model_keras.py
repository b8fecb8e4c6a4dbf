"""Edges by deep supervision (HED, Xie and Tu 2015): a map from each stage, and one that fuses them."""

import keras
from keras import layers, ops

SIZE = 16


def build():
    image = keras.Input((SIZE, SIZE, 3), name="image")
    x, sides = image, []
    for stage, filters in enumerate((8, 12, 16), start=1):
        if stage > 1:
            x = layers.MaxPooling2D(2, padding="same", name=f"pool{stage - 1}")(x)
        x = layers.Conv2D(filters, 3, padding="same", activation="relu", name=f"conv{stage}_1")(x)
        x = layers.Conv2D(filters, 3, padding="same", activation="relu", name=f"conv{stage}_2")(x)
        side = layers.Conv2D(1, 1, name=f"score{stage}")(x)
        if stage > 1:
            side = layers.UpSampling2D(2 ** (stage - 1), interpolation="bilinear", name=f"up{stage}")(side)
        sides.append(side)
    fuse = layers.Conv2D(
        1, 1, use_bias=False, kernel_initializer=keras.initializers.Constant(1 / 3), name="fuse"
    )(layers.Concatenate()(sides))
    return keras.Model(image, layers.Concatenate(name="maps")([*sides, fuse]))


def balanced(y_true, y_pred):
    """Cross-entropy of all four maps; within a picture, edges and the rest count alike."""
    positive = ops.sum(y_true, axis=(1, 2), keepdims=True)
    negative = ops.sum(1 - y_true, axis=(1, 2), keepdims=True)
    beta = negative / (positive + negative)
    weight = beta * y_true + (1.1 - beta) * (1 - y_true)
    entropy = ops.relu(y_pred) - y_pred * y_true + ops.log1p(ops.exp(-ops.abs(y_pred)))
    return ops.mean(ops.sum(weight * entropy, axis=-1), axis=(1, 2))
