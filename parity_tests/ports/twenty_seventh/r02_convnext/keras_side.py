import keras
from keras import layers, ops


class ResponseNorm(layers.Layer):
    def build(self, shape):
        self.gamma = self.add_weight(shape=(shape[-1],), initializer="ones", name="gamma")
        self.beta = self.add_weight(shape=(shape[-1],), initializer="zeros", name="beta")

    def call(self, x):
        energy = ops.sqrt(ops.sum(ops.square(x), axis=(1, 2), keepdims=True) + 1e-12)
        ratio = energy / (ops.mean(energy, axis=-1, keepdims=True) + 1e-6)
        return self.gamma * (x * ratio) + self.beta + x


def block(x, name):
    d = x.shape[-1]
    h = layers.DepthwiseConv2D(5, padding="same", name=f"{name}_dw")(x)
    h = layers.LayerNormalization(epsilon=1e-6, name=f"{name}_norm")(h)
    h = layers.Dense(4 * d, activation="gelu", name=f"{name}_pw1")(h)
    h = ResponseNorm(name=f"{name}_grn")(h)
    h = layers.Dense(d, name=f"{name}_pw2")(h)
    return layers.Add(name=f"{name}_add")([x, h])


def build():
    inp = keras.Input((16, 16, 3), name="x")
    x = layers.Conv2D(8, 2, strides=2, name="stem")(inp)
    x = layers.LayerNormalization(epsilon=1e-6, name="stem_norm")(x)
    x = block(x, "s0b0")
    x = block(x, "s0b1")
    x = layers.LayerNormalization(epsilon=1e-6, name="down_norm")(x)
    x = layers.Conv2D(12, 2, strides=2, name="down")(x)
    x = block(x, "s1b0")
    x = layers.GlobalAveragePooling2D()(x)
    x = layers.LayerNormalization(epsilon=1e-6, name="head_norm")(x)
    return keras.Model(inp, layers.Dense(5, name="head")(x))
