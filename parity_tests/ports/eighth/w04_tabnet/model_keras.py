"""TabNet: sparse masks choose the columns of each decision step."""

import keras
from keras import layers, ops


def sparsemax(z):
    ordered = ops.flip(ops.sort(z, axis=-1), axis=-1)
    total = ops.cumsum(ordered, axis=-1)
    k = ops.arange(1, z.shape[-1] + 1, dtype=z.dtype)
    inside = ops.cast(1 + k * ordered > total, z.dtype)
    size = ops.sum(inside, axis=-1, keepdims=True)
    threshold = (ops.sum(ordered * inside, axis=-1, keepdims=True) - 1) / size
    return ops.maximum(z - threshold, 0)


class GatedBlock(layers.Layer):
    """Dense layer (which others may use, too), a batch norm of its own, gated linear unit."""

    def __init__(self, dense, width, **kwargs):
        super().__init__(**kwargs)
        self.dense, self.width = dense, width
        self.norm = layers.BatchNormalization(momentum=0.95, name="norm")

    def build(self, shape):
        if not self.dense.built:
            self.dense.build(shape)
        self.norm.build((None, 2 * self.width))

    def call(self, x, training=None):
        y = self.norm(self.dense(x), training=training)
        return y[:, : self.width] * ops.sigmoid(y[:, self.width :])


class FeatureTransformer(layers.Layer):
    def __init__(self, shared, width, **kwargs):
        super().__init__(**kwargs)
        self.blocks = [GatedBlock(dense, width, name=f"shared_{i}") for i, dense in enumerate(shared)]
        own = layers.Dense(2 * width, use_bias=False, name="own_dense")
        self.blocks.append(GatedBlock(own, width, name="own"))
        self.width = width

    def build(self, shape):
        for block in self.blocks:
            block.build(shape)
            shape = (None, self.width)

    def call(self, x, training=None):
        x = self.blocks[0](x, training=training)
        for block in self.blocks[1:]:
            x = (x + block(x, training=training)) * 0.5**0.5
        return x


class TabNet(keras.Model):
    def __init__(self, columns=10, decision=8, attention=8, steps=3, gamma=1.4, classes=3, **kwargs):
        super().__init__(**kwargs)
        self.decision, self.gamma = decision, gamma
        width = decision + attention
        shared = [layers.Dense(2 * width, use_bias=False, name=f"shared_dense_{i}") for i in range(2)]
        self.first_norm = layers.BatchNormalization(momentum=0.95, name="first_norm")
        self.transformers = [
            FeatureTransformer(shared, width, name=f"transformer_{i}") for i in range(steps + 1)
        ]
        self.attend = [layers.Dense(columns, use_bias=False, name=f"attend_{i}") for i in range(steps)]
        self.attend_norms = [
            layers.BatchNormalization(momentum=0.95, name=f"attend_norm_{i}") for i in range(steps)
        ]
        self.final = layers.Dense(classes, use_bias=False, name="final")

    def call(self, x, training=None):
        x = self.first_norm(x, training=training)
        prior = ops.ones_like(x)
        a = self.transformers[0](x, training=training)[:, self.decision :]
        out = 0.0
        for transformer, attend, norm in zip(self.transformers[1:], self.attend, self.attend_norms):
            mask = sparsemax(prior * norm(attend(a), training=training))
            prior = prior * (self.gamma - mask)
            y = transformer(mask * x, training=training)
            out = out + ops.relu(y[:, : self.decision])
            a = y[:, self.decision :]
        return self.final(out)


def build():
    model = TabNet()
    model(ops.zeros((2, 10)))
    return model
