"""Vision transformer for surface defects on 24x24 grey tiles (4 classes)."""

import keras
from keras import layers, ops

SIZE, PATCH, DIM, HEADS, DEPTH, CLASSES = 24, 6, 32, 2, 2, 4


class ClassToken(layers.Layer):
    """Puts a learned token in front of the patches and adds positions."""

    def build(self, input_shape):
        init = keras.initializers.RandomNormal(stddev=0.2)
        self.token = self.add_weight(shape=(1, 1, DIM), initializer=init, name="token")
        self.position = self.add_weight(shape=(1, input_shape[1] + 1, DIM), initializer=init, name="position")

    def call(self, patches):
        batch = ops.shape(patches)[0]
        token = ops.broadcast_to(self.token, (batch, 1, DIM))
        return ops.concatenate([token, patches], axis=1) + self.position


class LayerScale(layers.Layer):
    """Per-channel gain on a residual branch."""

    def build(self, input_shape):
        self.gain = self.add_weight(
            shape=(input_shape[-1],),
            initializer=keras.initializers.Constant(0.5),
            name="gain",
        )

    def call(self, x):
        return x * self.gain


def block(x, name):
    y = layers.LayerNormalization(epsilon=1e-6, name=f"{name}_norm1")(x)
    y = layers.MultiHeadAttention(HEADS, DIM // HEADS, name=f"{name}_attn")(y, y)
    x = layers.Add(name=f"{name}_add1")([x, LayerScale(name=f"{name}_scale1")(y)])
    y = layers.LayerNormalization(epsilon=1e-6, name=f"{name}_norm2")(x)
    y = layers.Dense(2 * DIM, activation="gelu", name=f"{name}_fc1")(y)
    y = layers.Dense(DIM, name=f"{name}_fc2")(y)
    return layers.Add(name=f"{name}_add2")([x, LayerScale(name=f"{name}_scale2")(y)])


def build():
    image = keras.Input((SIZE, SIZE, 1), name="image")
    x = layers.Conv2D(DIM, PATCH, strides=PATCH, name="patches")(image)
    x = layers.Reshape((-1, DIM), name="tokens")(x)
    x = ClassToken(name="class_token")(x)
    for i in range(DEPTH):
        x = block(x, f"block{i}")
    x = layers.LayerNormalization(epsilon=1e-6, name="norm")(x)
    logits = layers.Dense(CLASSES, name="head")(x[:, 0])
    return keras.Model(image, logits, name="vit")
