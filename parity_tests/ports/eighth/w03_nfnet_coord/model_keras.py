"""Where is the spot? A normaliser-free net (scaled weight standardisation) with coordinate channels."""

import keras
from keras import layers, ops

GAMMA = 1.7139588594436646  # of ReLU


class WSConv2D(layers.Layer):
    def __init__(self, filters, size, strides=1, **kwargs):
        super().__init__(**kwargs)
        self.filters, self.size, self.strides = filters, size, strides

    def build(self, shape):
        self.kernel = self.add_weight(
            name="kernel", shape=(self.size, self.size, shape[-1], self.filters), initializer="he_normal"
        )
        self.gain = self.add_weight(name="gain", shape=(self.filters,), initializer="ones")
        self.bias = self.add_weight(name="bias", shape=(self.filters,), initializer="zeros")
        self.fan_in = self.size * self.size * shape[-1]

    def call(self, x):
        mean, var = ops.moments(self.kernel, axes=[0, 1, 2], keepdims=True)
        scale = ops.rsqrt(ops.maximum(var * self.fan_in, 1e-4)) * self.gain
        return ops.conv(x, (self.kernel - mean) * scale, self.strides, "same") + self.bias


class AddCoordinates(layers.Layer):
    def call(self, x):
        height, width = x.shape[1:3]
        across, down = ops.meshgrid(ops.linspace(-1.0, 1.0, width), ops.linspace(-1.0, 1.0, height))
        grid = ops.cast(ops.stack([across, down], axis=-1), x.dtype)[None]
        return ops.concatenate([x, ops.zeros_like(x[..., :1]) + grid], axis=-1)


class NFBlock(layers.Layer):
    def __init__(self, width, beta, alpha=0.2, **kwargs):
        super().__init__(**kwargs)
        self.alpha, self.beta = alpha, beta
        self.squeeze_in = WSConv2D(width // 2, 1, name="squeeze_in")
        self.spatial = WSConv2D(width // 2, 3, name="spatial")
        self.squeeze_out = WSConv2D(width, 1, name="squeeze_out")
        self.se_down = layers.Dense(width // 4, activation="relu", name="se_down")
        self.se_up = layers.Dense(width, activation="sigmoid", name="se_up")
        self.skip_gain = None

    def build(self, shape):
        half = (*shape[:-1], self.spatial.filters)
        self.squeeze_in.build(shape)
        self.spatial.build(half)
        self.squeeze_out.build(half)
        self.se_down.build((None, shape[-1]))
        self.se_up.build((None, self.se_down.units))
        self.skip_gain = self.add_weight(name="skip_gain", shape=(), initializer="ones")

    def call(self, x):
        y = self.squeeze_in(ops.relu(x) * GAMMA * self.beta)
        y = self.spatial(ops.relu(y) * GAMMA)
        y = self.squeeze_out(ops.relu(y) * GAMMA)
        gate = self.se_up(self.se_down(ops.mean(y, axis=[1, 2])))
        y = y * 2.0 * gate[:, None, None, :]
        return x + self.alpha * self.skip_gain * y


def build(size=16):
    picture = keras.Input((size, size, 1), name="picture")
    x = AddCoordinates(name="coordinates")(picture)
    x = WSConv2D(16, 3, name="stem")(x)
    x = NFBlock(16, 1.0, name="block_0")(x)
    x = NFBlock(16, 0.98, name="block_1")(x)
    x = WSConv2D(24, 3, strides=2, name="transition")(x)
    x = NFBlock(24, 1.0, name="block_2")(x)
    x = layers.Activation("relu", name="last")(x)
    x = layers.GlobalAveragePooling2D(name="pool")(x)
    x = layers.Dropout(0.2, name="drop")(x)
    return keras.Model(picture, layers.Dense(2, name="position")(x))
