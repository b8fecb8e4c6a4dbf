"""PatchTST with reversible instance normalisation: 12 hours of three meters from their last 64."""

import keras
from keras import layers, ops

LENGTH, HORIZON, SERIES, PATCH, STRIDE, DIM, HEADS = 64, 12, 3, 16, 8, 32, 2
PATCHES = (LENGTH - PATCH) // STRIDE + 2


class RevIN(layers.Layer):
    def __init__(self, eps=1e-5, **kwargs):
        super().__init__(**kwargs)
        self.eps = eps

    def build(self, shape):
        self.gamma = self.add_weight(shape=(shape[-1],), initializer="ones", name="gamma")
        self.beta = self.add_weight(shape=(shape[-1],), initializer="zeros", name="beta")

    def call(self, x):
        mean = ops.stop_gradient(ops.mean(x, axis=1, keepdims=True))
        std = ops.stop_gradient(ops.sqrt(ops.var(x, axis=1, keepdims=True) + self.eps))
        return (x - mean) / std * self.gamma + self.beta, mean, std

    def denormalize(self, x, mean, std):
        return (x - self.beta) / (self.gamma + self.eps**2) * std + mean


class Patches(layers.Layer):
    """(batch, time, series) -> (batch * series, patches, PATCH); the end is repeated for one more patch."""

    def call(self, x):
        x = ops.transpose(x, (0, 2, 1))
        x = ops.concatenate([x, ops.repeat(x[..., -1:], STRIDE, axis=-1)], axis=-1)
        x = ops.stack([x[..., i * STRIDE : i * STRIDE + PATCH] for i in range(PATCHES)], axis=2)
        return ops.reshape(x, (-1, PATCHES, PATCH))


class Position(layers.Layer):
    def build(self, shape):
        self.table = self.add_weight(shape=shape[1:], initializer="random_normal", name="table")

    def call(self, x):
        return x + self.table


class PatchTST(keras.Model):
    def __init__(self, depth=2, dropout=0.1):
        super().__init__()
        self.revin, self.patches = RevIN(), Patches()
        self.embed, self.position = layers.Dense(DIM), Position()
        self.attention = [
            layers.MultiHeadAttention(HEADS, DIM // HEADS, dropout=dropout) for _ in range(depth)
        ]
        self.norm1 = [layers.LayerNormalization() for _ in range(depth)]
        self.up = [layers.Dense(2 * DIM, activation="gelu") for _ in range(depth)]
        self.down = [layers.Dense(DIM) for _ in range(depth)]
        self.norm2 = [layers.LayerNormalization() for _ in range(depth)]
        self.drop = layers.Dropout(dropout)
        self.head = layers.Dense(HORIZON)

    def call(self, x, training=None):
        x, mean, std = self.revin(x)
        h = self.drop(self.position(self.embed(self.patches(x))), training=training)
        for att, norm1, up, down, norm2 in zip(self.attention, self.norm1, self.up, self.down, self.norm2):
            h = norm1(h + self.drop(att(h, h, training=training), training=training))
            f = down(self.drop(up(h), training=training))
            h = norm2(h + self.drop(f, training=training))
        y = self.head(ops.reshape(h, (-1, SERIES, PATCHES * DIM)))
        return self.revin.denormalize(ops.transpose(y, (0, 2, 1)), mean, std)


def build():
    model = PatchTST()
    model(ops.zeros((1, LENGTH, SERIES)))
    schedule = keras.optimizers.schedules.CosineDecay(1e-3, decay_steps=100, alpha=0.1)
    model.compile(keras.optimizers.Adam(schedule, global_clipnorm=1.0), loss=keras.losses.Huber(delta=0.5))
    return model


training_loss = keras.losses.Huber(delta=0.5)
