"""A small Restormer that takes the fog from grey road camera patches."""

import keras
from keras import layers, ops

SIZE = 16


class BiasFreeNorm(layers.Layer):
    """Divides by the standard deviation over the channels; the mean stays."""

    def build(self, shape):
        self.gain = self.add_weight(name="gain", shape=(shape[-1],), initializer="ones")

    def call(self, x):
        variance = ops.var(x, axis=-1, keepdims=True)
        return x * ops.rsqrt(variance + 1e-5) * self.gain


def conv(filters, size, name):
    return layers.Conv2D(filters, size, padding="same", use_bias=False, name=name)


class TransposedAttention(layers.Layer):
    """Attention between channels."""

    def __init__(self, dim, heads, **kwargs):
        super().__init__(**kwargs)
        self.dim, self.heads = dim, heads
        self.qkv = conv(3 * dim, 1, "qkv")
        self.qkv_spatial = layers.DepthwiseConv2D(3, padding="same", use_bias=False, name="qkv_spatial")
        self.project = conv(dim, 1, "project")

    def build(self, shape):
        self.qkv.build(shape)
        self.qkv_spatial.build((*shape[:-1], 3 * self.dim))
        self.project.build(shape)
        self.temperature = self.add_weight(name="temperature", shape=(self.heads,), initializer="ones")

    def call(self, x):
        _, rows, cols, _ = x.shape
        z = self.qkv_spatial(self.qkv(x))
        z = ops.reshape(z, (-1, rows * cols, 3, self.heads, self.dim // self.heads))
        q, k, v = [ops.transpose(z[:, :, i], (0, 2, 3, 1)) for i in range(3)]
        q = q / ops.sqrt(ops.sum(ops.square(q), axis=-1, keepdims=True) + 1e-6)
        k = k / ops.sqrt(ops.sum(ops.square(k), axis=-1, keepdims=True) + 1e-6)
        score = ops.matmul(q, ops.transpose(k, (0, 1, 3, 2))) * self.temperature[:, None, None]
        z = ops.matmul(ops.softmax(score, axis=-1), v)
        z = ops.reshape(ops.transpose(z, (0, 3, 1, 2)), (-1, rows, cols, self.dim))
        return self.project(z)


class GatedFeedForward(layers.Layer):
    def __init__(self, dim, hidden, **kwargs):
        super().__init__(**kwargs)
        self.expand = conv(2 * hidden, 1, "expand")
        self.spatial = layers.DepthwiseConv2D(3, padding="same", use_bias=False, name="spatial")
        self.project = conv(dim, 1, "project")

    def call(self, x):
        a, b = ops.split(self.spatial(self.expand(x)), 2, axis=-1)
        return self.project(ops.gelu(a, approximate=True) * b)


def block(x, heads, name):
    dim = x.shape[-1]
    y = BiasFreeNorm(name=f"{name}_norm1")(x)
    x = layers.Add()([x, TransposedAttention(dim, heads, name=f"{name}_attn")(y)])
    y = BiasFreeNorm(name=f"{name}_norm2")(x)
    return layers.Add()([x, GatedFeedForward(dim, 2 * dim, name=f"{name}_ffn")(y)])


def space_to_depth(x):
    _, rows, cols, chans = x.shape
    x = ops.reshape(x, (-1, rows // 2, 2, cols // 2, 2, chans))
    return ops.reshape(ops.transpose(x, (0, 1, 3, 2, 4, 5)), (-1, rows // 2, cols // 2, 4 * chans))


def depth_to_space(x):
    _, rows, cols, chans = x.shape
    x = ops.reshape(x, (-1, rows, cols, 2, 2, chans // 4))
    return ops.reshape(ops.transpose(x, (0, 1, 3, 2, 4, 5)), (-1, rows * 2, cols * 2, chans // 4))


def build():
    foggy = keras.Input((SIZE, SIZE), name="foggy")
    image = layers.Reshape((SIZE, SIZE, 1))(foggy)
    x = conv(8, 3, "embed")(image)
    x = block(x, 2, "enc")
    skip = x
    x = space_to_depth(conv(4, 3, "shrink")(x))
    x = block(x, 4, "deep0")
    x = block(x, 4, "deep1")
    x = depth_to_space(conv(32, 3, "grow")(x))
    x = conv(8, 1, "reduce")(layers.Concatenate()([x, skip]))
    x = block(x, 2, "dec")
    x = block(x, 2, "refine")
    x = layers.Add()([conv(1, 3, "paint")(x), image])
    return keras.Model(foggy, layers.Reshape((SIZE, SIZE))(x), name="restormer")


def loss(targets, outputs):
    """Charbonnier's, a value a patch."""
    return ops.mean(ops.sqrt(ops.square(outputs - targets) + 1e-4), axis=(1, 2))


class WarmupCosine(keras.optimizers.schedules.LearningRateSchedule):
    def __init__(self, peak=0.01, warmup=8, total=60):
        self.peak, self.warmup, self.total = peak, warmup, total

    def __call__(self, step):
        step = ops.cast(step, "float32")
        rise = (step + 1.0) / self.warmup
        fall = 0.5 * (1.0 + ops.cos(3.14159265 * (step - self.warmup) / (self.total - self.warmup)))
        return self.peak * ops.where(step < self.warmup, rise, fall)

    def get_config(self):
        return {"peak": self.peak, "warmup": self.warmup, "total": self.total}


def optimizer():
    return keras.optimizers.SGD(WarmupCosine(), momentum=0.9, nesterov=True)
