"""Pictures and captions in one space; pairs of the same topic in a batch count as positives of each other."""

import keras
import numpy as np
from keras import layers, ops


class Temperature(layers.Layer):
    def build(self, shape):
        start = keras.initializers.Constant(float(np.log(8.0)))
        self.log_scale = self.add_weight(shape=(), initializer=start, name="log_scale")

    def call(self, x):
        return x * ops.exp(ops.minimum(self.log_scale, 4.6))


def image_tower(image):
    x = layers.Conv2D(12, 3, strides=2, padding="same", activation="relu", name="conv0")(image)
    x = layers.LayerNormalization(epsilon=1e-5, name="conv_norm")(x)
    x = layers.Conv2D(16, 3, strides=2, padding="same", activation="relu", name="conv1")(x)
    x = layers.GlobalAveragePooling2D()(x)
    return layers.UnitNormalization(name="image_unit")(layers.Dense(16, use_bias=False, name="image_out")(x))


def text_tower(text):
    x = layers.Embedding(25, 10, mask_zero=True, name="words")(text)
    x = layers.GRU(18, name="reader")(x)
    return layers.UnitNormalization(name="text_unit")(layers.Dense(16, use_bias=False, name="text_out")(x))


def build():
    image = keras.Input((12, 12, 3), name="image")
    text = keras.Input((8,), dtype="int32", name="text")
    left = Temperature(name="temperature")(image_tower(image))
    right = text_tower(text)
    return keras.Model([image, text], ops.stack([left, right], axis=1))


def contrastive(topic, outputs):
    """Of the batch as a whole: cross-entropy of rows and of columns with equal shares for the same topic."""
    topic = ops.reshape(topic, (-1,))
    logits = ops.matmul(outputs[:, 0], ops.transpose(outputs[:, 1]))
    same = ops.cast(ops.equal(topic[:, None], topic[None, :]), logits.dtype)
    share = same / ops.sum(same, axis=1, keepdims=True)
    by_row = -ops.sum(share * ops.log_softmax(logits, axis=1), axis=1)
    by_column = -ops.sum(share * ops.log_softmax(ops.transpose(logits), axis=1), axis=1)
    return ops.mean(by_row + by_column) / 2
