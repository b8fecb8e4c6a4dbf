import keras
from keras import layers, ops


class DepthToSpace(layers.Layer):
    def __init__(self, factor, **kwargs):
        super().__init__(**kwargs)
        self.factor = factor

    def call(self, x):
        r = self.factor
        _, h, w, c = x.shape
        x = ops.reshape(x, (-1, h, w, r, r, c // (r * r)))
        x = ops.transpose(x, (0, 1, 3, 2, 4, 5))
        return ops.reshape(x, (-1, h * r, w * r, c // (r * r)))


class ChannelAttention(layers.Layer):
    def __init__(self, channels, reduction=4, **kwargs):
        super().__init__(**kwargs)
        self.squeeze = layers.Conv2D(channels // reduction, 1, activation="relu", name="squeeze")
        self.excite = layers.Conv2D(channels, 1, activation="sigmoid", name="excite")

    def call(self, x):
        return x * self.excite(self.squeeze(ops.mean(x, axis=(1, 2), keepdims=True)))


def residual_block(x, channels, name):
    h = layers.Conv2D(channels, 3, padding="same", name=f"{name}_conv1")(x)
    h = layers.LeakyReLU(name=f"{name}_act")(h)
    h = layers.Conv2D(channels, 3, padding="same", name=f"{name}_conv2")(h)
    h = ChannelAttention(channels, name=f"{name}_attention")(h)
    return layers.Add()([x, layers.Rescaling(0.25)(h)])


def build(channels=16, factor=2):
    low = keras.Input((12, 12, 3), name="low")
    features = layers.Conv2D(channels, 3, padding="same", name="head")(low)
    x = features
    for i in range(3):
        x = residual_block(x, channels, f"block{i}")
    x = layers.Conv2D(channels, 3, padding="same", name="body")(x)
    x = layers.Add()([x, features])
    x = layers.Conv2D(3 * factor**2, 3, padding="same", name="tail")(x)
    x = DepthToSpace(factor)(x)
    base = layers.UpSampling2D(factor, interpolation="nearest")(low)
    return keras.Model(low, layers.Add(name="high")([x, base]))


def charbonnier(y_true, y_pred):
    return ops.mean(ops.sqrt(ops.square(y_true - y_pred) + 1e-4), axis=(1, 2, 3))
