import keras
from keras import layers


class Tokens(layers.Layer):
    """Puts the class token in front, and adds positions."""

    def build(self, shape):
        count, width = shape[1], shape[2]
        self.first = self.add_weight(shape=(1, 1, width), initializer="random_normal", name="first")
        self.position = self.add_weight(
            shape=(1, count + 1, width), initializer="random_normal", name="position"
        )

    def call(self, x):
        first = keras.ops.broadcast_to(self.first, (keras.ops.shape(x)[0], 1, x.shape[-1]))
        return keras.ops.concatenate([first, x], axis=1) + self.position


def encoder_block(x, width, heads, rate, name):
    h = layers.LayerNormalization(epsilon=1e-6, name=f"{name}_norm1")(x)
    h = layers.MultiHeadAttention(heads, width // heads, dropout=rate, name=f"{name}_attention")(h, h)
    h = layers.Dropout(rate, name=f"{name}_drop1")(h)
    x = layers.Add(name=f"{name}_add1")([x, h])
    h = layers.LayerNormalization(epsilon=1e-6, name=f"{name}_norm2")(x)
    h = layers.Dense(2 * width, activation="gelu", name=f"{name}_mlp1")(h)
    h = layers.Dense(width, name=f"{name}_mlp2")(h)
    h = layers.Dropout(rate, name=f"{name}_drop2")(h)
    return layers.Add(name=f"{name}_add2")([x, h])


def build():
    image = keras.Input((16, 16, 3), name="image")
    x = layers.Conv2D(32, 4, 4, name="patches")(image)
    x = layers.Reshape((16, 32), name="sequence")(x)
    x = Tokens(name="tokens")(x)
    x = layers.Dropout(0.1, name="tokens_drop")(x)
    for i in range(2):
        x = encoder_block(x, 32, 4, 0.1, f"block{i}")
    x = layers.LayerNormalization(epsilon=1e-6, name="norm")(x)
    return keras.Model(image, layers.Dense(6, name="head")(x[:, 0]))
