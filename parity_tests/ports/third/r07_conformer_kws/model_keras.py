import keras
from keras import layers, ops


class FeedForward(layers.Layer):
    def __init__(self, dim, mult=2, **kwargs):
        super().__init__(**kwargs)
        self.norm = layers.LayerNormalization(epsilon=1e-5)
        self.up = layers.Dense(dim * mult, activation="swish")
        self.down = layers.Dense(dim)

    def call(self, x):
        return self.down(self.up(self.norm(x)))


class ConvModule(layers.Layer):
    def __init__(self, dim, kernel_size, **kwargs):
        super().__init__(**kwargs)
        self.norm = layers.LayerNormalization(epsilon=1e-5)
        self.pointwise1 = layers.Dense(2 * dim)
        self.depthwise = layers.DepthwiseConv1D(kernel_size, padding="same")
        self.bn = layers.BatchNormalization(momentum=0.9, epsilon=1e-5)
        self.pointwise2 = layers.Dense(dim)

    def call(self, x, training=None):
        a, b = ops.split(self.pointwise1(self.norm(x)), 2, axis=-1)
        x = self.depthwise(a * ops.sigmoid(b))
        x = ops.silu(self.bn(x, training=training))
        return self.pointwise2(x)


class ConformerBlock(layers.Layer):
    def __init__(self, dim, heads, kernel_size, **kwargs):
        super().__init__(**kwargs)
        self.ff1 = FeedForward(dim)
        self.attn_norm = layers.LayerNormalization(epsilon=1e-5)
        self.attn = layers.MultiHeadAttention(heads, dim // heads)
        self.conv = ConvModule(dim, kernel_size)
        self.ff2 = FeedForward(dim)
        self.norm = layers.LayerNormalization(epsilon=1e-5)

    def call(self, x, training=None):
        x = x + 0.5 * self.ff1(x)
        n = self.attn_norm(x)
        x = x + self.attn(n, n, training=training)
        x = x + self.conv(x, training=training)
        x = x + 0.5 * self.ff2(x)
        return self.norm(x)


def build(classes=10, dim=16, blocks=2):
    mel = keras.Input((41, 20), name="mel")
    x = layers.Conv1D(dim, 5, strides=2, activation="relu", name="subsample")(mel)
    for i in range(blocks):
        x = ConformerBlock(dim, 2, 7, name=f"block_{i}")(x)
    x = layers.GlobalAveragePooling1D()(x)
    return keras.Model(mel, layers.Dense(classes, name="classifier")(x))
