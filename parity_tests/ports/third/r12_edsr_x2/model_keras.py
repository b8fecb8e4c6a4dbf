import keras
from keras import layers, ops


class DepthToSpace(layers.Layer):
    def __init__(self, scale, **kwargs):
        super().__init__(**kwargs)
        self.scale = scale

    def call(self, x):
        r = self.scale
        _, h, w, c = x.shape
        x = ops.reshape(x, (-1, h, w, r, r, c // (r * r)))
        x = ops.transpose(x, (0, 1, 3, 2, 4, 5))
        return ops.reshape(x, (-1, h * r, w * r, c // (r * r)))


def residual(x, filters, scaling, name):
    y = layers.Activation("relu")(x)
    y = layers.Conv2D(filters, 3, padding="same", activation="relu", name=f"{name}_a")(y)
    y = layers.Conv2D(filters, 3, padding="same", name=f"{name}_b")(y)
    y = layers.Lambda(lambda t: t * scaling)(y)
    return layers.Add()([x, y])


def build(filters=12, blocks=3, scaling=0.25):
    low = keras.Input((12, 12, 1), name="low")
    x = head = layers.Conv2D(filters, 3, padding="same", name="head")(low)
    for i in range(blocks):
        x = residual(x, filters, scaling, f"res{i}")
    x = layers.Conv2D(filters, 3, padding="same", name="body_out")(x)
    x = layers.Add()([x, head])
    x = layers.Conv2D(4, 3, padding="same", name="tail")(x)
    x = DepthToSpace(2)(x)
    base = layers.UpSampling2D(2, interpolation="bilinear")(low)
    return keras.Model(low, layers.Add()([x, base]), name="edsr")
