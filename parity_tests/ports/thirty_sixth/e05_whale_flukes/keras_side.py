"""Which whale is it? A backbone learnt elsewhere (and left as it is) and a new embedding with a cosine margin."""

import keras
from keras import layers, ops

SIZE, WHALES, MARGIN, SCALE = 16, 6, 0.2, 12.0


def backbone():
    x = inputs = keras.Input((SIZE, SIZE, 1))
    for i, width in enumerate((6, 8, 12)):
        x = layers.Conv2D(width, 3, strides=2 if i else 1, padding="same", use_bias=False, name=f"conv{i}")(x)
        x = layers.BatchNormalization(name=f"bn{i}")(x)
        x = layers.Activation("relu")(x)
    x = layers.GlobalAveragePooling2D()(x)
    return keras.Model(inputs, x, name="backbone")


@keras.saving.register_keras_serializable("whales")
class CosineScores(layers.Layer):
    def build(self, shape):
        self.proxies = self.add_weight(
            name="proxies", shape=(shape[-1], WHALES), initializer="glorot_uniform"
        )

    def call(self, x):
        unit = lambda v, axis: v / ops.sqrt(ops.sum(ops.square(v), axis=axis, keepdims=True) + 1e-6)
        return ops.matmul(unit(x, -1), unit(self.proxies, 0))


def build():
    fluke = keras.Input((SIZE, SIZE, 1), name="fluke")
    base = backbone()
    base.trainable = False
    x = base(fluke)
    x = layers.Dense(24, name="project")(x)
    x = layers.PReLU(name="prelu")(x)
    x = layers.Dense(10, use_bias=False, name="embed")(x)
    return keras.Model(fluke, CosineScores(name="scores")(x), name="fluke_net")


def cosine_margin(whale, cosines):
    hot = ops.one_hot(ops.cast(ops.reshape(whale, (-1,)), "int32"), WHALES, dtype=cosines.dtype)
    logits = SCALE * (cosines - MARGIN * hot)
    return ops.mean(keras.losses.categorical_crossentropy(hot, logits, from_logits=True))
