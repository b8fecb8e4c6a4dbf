"""Set Transformer: one attention block among the items, pooling by a learnt seed."""

import keras
from keras import layers, ops


class Seed(layers.Layer):
    def build(self, shape):
        self.seed = self.add_weight(shape=(1, shape[-1]), initializer="glorot_uniform", name="seed")

    def call(self, x):
        return ops.tile(ops.expand_dims(self.seed, 0), [ops.shape(x)[0], 1, 1])


def build():
    items = keras.Input((8, 3), name="items")
    valid = keras.Input((8,), dtype="bool", name="valid")
    seen = layers.Reshape((1, 8))(valid)
    x = layers.Dense(16)(items)
    x = layers.Add()([x, layers.MultiHeadAttention(4, 4)(x, x, attention_mask=seen)])
    x = layers.LayerNormalization(epsilon=1e-5)(x)
    x = layers.Add()([x, layers.Dense(16, activation="relu")(x)])
    x = layers.LayerNormalization(epsilon=1e-5)(x)
    seed = Seed()(x)
    x = layers.Add()([seed, layers.MultiHeadAttention(4, 4)(seed, x, attention_mask=seen)])
    return keras.Model([items, valid], layers.Dense(2)(layers.Flatten()(x)))


def optimizer():
    return keras.optimizers.SGD(0.05, global_clipnorm=0.5)
