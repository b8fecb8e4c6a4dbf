"""ViT after Dosovitskiy et al., reduced. Subclassed."""

import keras
from keras import layers, ops

NUM_CLASSES = 5


@keras.saving.register_keras_serializable("vit")
class SelfAttention(layers.Layer):
    def __init__(self, dim, heads, **kw):
        super().__init__(**kw)
        self.dim, self.heads = dim, heads
        self.head_dim = dim // heads
        self.qkv = layers.Dense(3 * dim, name="qkv")
        self.proj = layers.Dense(dim, name="proj")

    def call(self, x):
        b, n = ops.shape(x)[0], x.shape[1]
        qkv = ops.reshape(self.qkv(x), (b, n, 3, self.heads, self.head_dim))
        q, k, v = ops.unstack(ops.transpose(qkv, (2, 0, 3, 1, 4)), axis=0)
        logits = ops.matmul(q, ops.swapaxes(k, -1, -2)) / self.head_dim**0.5
        y = ops.matmul(ops.softmax(logits, axis=-1), v)
        y = ops.reshape(ops.transpose(y, (0, 2, 1, 3)), (b, n, self.dim))
        return self.proj(y)

    def get_config(self):
        return {**super().get_config(), "dim": self.dim, "heads": self.heads}


@keras.saving.register_keras_serializable("vit")
class Block(layers.Layer):
    def __init__(self, dim, heads, ratio=2, **kw):
        super().__init__(**kw)
        self.dim, self.heads, self.ratio = dim, heads, ratio
        self.ln1 = layers.LayerNormalization(epsilon=1e-6, name="ln1")
        self.attn = SelfAttention(dim, heads, name="attn")
        self.ln2 = layers.LayerNormalization(epsilon=1e-6, name="ln2")
        self.fc1 = layers.Dense(dim * ratio, activation="gelu", name="fc1")
        self.fc2 = layers.Dense(dim, name="fc2")

    def call(self, x):
        x = x + self.attn(self.ln1(x))
        return x + self.fc2(self.fc1(self.ln2(x)))

    def get_config(self):
        return {**super().get_config(), "dim": self.dim, "heads": self.heads, "ratio": self.ratio}


class ViT(keras.Model):
    def __init__(self, image=12, patch=4, dim=24, depth=2, heads=3, classes=NUM_CLASSES):
        super().__init__(name="vit")
        self.tokens = (image // patch) ** 2
        self.dim = dim
        self.patch_embed = layers.Conv2D(dim, patch, strides=patch, name="patch_embed")
        self.blocks = [Block(dim, heads, name=f"block{i}") for i in range(depth)]
        self.norm = layers.LayerNormalization(epsilon=1e-6, name="norm")
        self.head = layers.Dense(classes, name="head")

    def build(self, input_shape):
        self.cls = self.add_weight(shape=(1, 1, self.dim), initializer="random_normal", name="cls")
        self.pos = self.add_weight(
            shape=(1, self.tokens + 1, self.dim), initializer="random_normal", name="pos"
        )
        super().build(input_shape)

    def call(self, images):
        x = self.patch_embed(images)
        b = ops.shape(x)[0]
        x = ops.reshape(x, (b, self.tokens, self.dim))
        x = ops.concatenate([ops.repeat(self.cls, b, axis=0), x], axis=1) + self.pos
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x)[:, 0])


def build():
    return ViT()


def loss(y_true, y_pred):
    labels = ops.one_hot(ops.cast(ops.reshape(y_true, (-1,)), "int32"), NUM_CLASSES)
    return keras.losses.categorical_crossentropy(labels, y_pred, from_logits=True, label_smoothing=0.1)
