import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops

T, VOCAB, EMB = 16, 61, 10
USER_MEAN, USER_STD = np.array([35.0, 0.5, 0.5], np.float32), np.array([10.0, 0.3, 0.5], np.float32)
HOURS = np.stack([f(2 * np.pi * k * np.arange(24) / 24) for k in (1, 2) for f in (np.sin, np.cos)], 1).astype(
    np.float32
)


class Dice(layers.Layer):
    """x * (p + alpha * (1 - p)), p the sigmoid of the normalized x."""

    def __init__(self, **kw):
        super().__init__(**kw)
        self.bn = layers.BatchNormalization(center=False, scale=False, momentum=0.9, epsilon=1e-4)

    def build(self, shape):
        self.alpha = self.add_weight(
            shape=(shape[-1],), initializer=keras.initializers.Constant(0.25), name="alpha"
        )
        self.bn.build(shape)

    def call(self, x, training=None):
        p = tf.sigmoid(self.bn(x, training=training))
        return self.alpha * (1.0 - p) * x + p * x


class TargetAttention(layers.Layer):
    def __init__(self, **kw):
        super().__init__(**kw)
        self.fc1 = layers.Dense(20)
        self.dice = Dice()
        self.fc2 = layers.Dense(8)
        self.prelu = layers.PReLU(shared_axes=[1], alpha_initializer=keras.initializers.Constant(0.2))
        self.score = layers.Dense(1, use_bias=False)
        self.softmax = layers.Softmax()

    def call(self, query, keys, dwell, mask, training=None):
        q = tf.tile(query[:, None, :], [1, T, 1])
        h = ops.concatenate([q, keys, q - keys, q * keys, dwell], axis=-1)
        h = self.prelu(self.fc2(self.dice(self.fc1(h), training=training)))
        w = self.softmax(tf.squeeze(self.score(h), -1), mask=mask)
        return tf.einsum("bt,btd->bd", w, keys)


def build():
    hist = keras.Input((T,), dtype="int32", name="hist")
    dwell = keras.Input((T,), name="dwell")
    item = keras.Input((), dtype="int32", name="item")
    hour = keras.Input((), dtype="int32", name="hour")
    user = keras.Input((3,), name="user")

    emb = layers.Embedding(
        VOCAB, EMB, embeddings_initializer=keras.initializers.RandomNormal(stddev=0.3), name="items"
    )
    target = emb(item)
    interest = TargetAttention(name="attention")(
        target, emb(hist), ops.expand_dims(ops.log1p(dwell) / 4.0, -1), ops.not_equal(hist, 0)
    )
    clock = layers.Embedding(
        24,
        4,
        embeddings_initializer=lambda shape, dtype=None: ops.cast(HOURS, dtype or "float32"),
        trainable=False,
        name="clock",
    )(hour)
    u = layers.Lambda(
        lambda a: (a - ops.cast(USER_MEAN, a.dtype)) / ops.cast(USER_STD, a.dtype), name="user_scale"
    )(user)
    x = layers.Concatenate()([interest, target, interest * target, u, clock])
    x = layers.Dense(32, name="deep1")(x)
    x = Dice(name="deep1_dice")(x)
    x = layers.Dense(16, name="deep2")(x)
    x = layers.PReLU(name="deep2_prelu")(x)
    deep = layers.Dense(1, name="deep_out")(x)
    popularity = layers.Embedding(VOCAB, 1, embeddings_initializer="zeros", name="item_bias")(item)
    return keras.Model([hist, dwell, item, hour, user], layers.Add(name="logit")([deep, popularity]))
