"""ViT with a class token, 24x24 grey pictures in 6x6 patches."""

import keras
from keras import layers, ops


class ClassToken(layers.Layer):
    def build(self, shape):
        self.token = self.add_weight(shape=(1, 1, shape[-1]), initializer="random_normal", name="token")

    def call(self, x):
        token = ops.broadcast_to(self.token, (ops.shape(x)[0], 1, x.shape[-1]))
        return ops.concatenate([token, x], axis=1)


class PositionEmbedding(layers.Layer):
    def build(self, shape):
        self.table = self.add_weight(shape=(1, *shape[1:]), initializer="random_normal", name="table")

    def call(self, x):
        return x + self.table


def block(x, dim, heads, name):
    y = layers.LayerNormalization(epsilon=1e-6, name=f"{name}_norm1")(x)
    y = layers.MultiHeadAttention(heads, dim // heads, name=f"{name}_attention")(y, y)
    x = layers.Add(name=f"{name}_add1")([x, y])
    y = layers.LayerNormalization(epsilon=1e-6, name=f"{name}_norm2")(x)
    y = layers.Dense(2 * dim, activation="gelu", name=f"{name}_mlp1")(y)
    y = layers.Dense(dim, name=f"{name}_mlp2")(y)
    return layers.Add(name=f"{name}_add2")([x, y])


def vit(dim=32, heads=4, depth=3, classes=10):
    image = keras.Input((24, 24, 1), name="image")
    x = layers.Conv2D(dim, 6, strides=6, name="patch_embedding")(image)
    x = layers.Reshape((16, dim), name="to_sequence")(x)
    x = ClassToken(name="class_token")(x)
    x = PositionEmbedding(name="positions")(x)
    for i in range(depth):
        x = block(x, dim, heads, f"block{i}")
    x = layers.LayerNormalization(epsilon=1e-6, name="norm")(x)
    x = layers.Dense(classes, name="head")(x[:, 0])
    return keras.Model(image, x, name="vit")
