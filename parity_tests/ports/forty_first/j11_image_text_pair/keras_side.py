"""Product pictures and titles in one space. Items of the same group are no negatives of each other."""

import keras
import tensorflow as tf
from keras import layers, ops

VOCAB, LENGTH, DIM = 40, 12, 16


class TitleEmbedding(layers.Layer):
    """Token + position vectors, zero at the padding."""

    def build(self, shape):
        self.tokens = self.add_weight(
            name="tokens", shape=(VOCAB, DIM), initializer=keras.initializers.RandomNormal(stddev=0.5)
        )
        self.positions = self.add_weight(
            name="positions", shape=(LENGTH, DIM), initializer=keras.initializers.RandomNormal(stddev=0.2)
        )

    def call(self, ids):
        ids = tf.cast(ids, tf.int32)
        v = tf.gather(self.tokens, ids) + self.positions
        return tf.where((ids > 0)[..., None], v, tf.zeros_like(v))


class PadAwareMean(layers.Layer):
    def call(self, x, ids):
        m = ops.cast(ops.not_equal(ids, 0), x.dtype)[..., None]
        return ops.sum(x * m, 1) / ops.maximum(ops.sum(m, 1), 1.0)


class Standardise(layers.Layer):
    def call(self, x):
        return tf.image.per_image_standardization(x)


class Temperature(layers.Layer):
    def build(self, shape):
        self.log_scale = self.add_weight(
            name="log_scale", shape=(), initializer=keras.initializers.Constant(2.0)
        )

    def call(self, x):
        return x * tf.exp(tf.minimum(self.log_scale, 4.6))


class Pair(keras.Model):
    @property
    def metrics(self):
        return []

    def train_step(self, data):
        x, group, _ = keras.utils.unpack_x_y_sample_weight(data)
        with tf.GradientTape() as tape:
            out = self(x, training=True)
            loss = info_nce(out["image"], out["text"], group)
        w = self.trainable_variables
        self.optimizer.apply(tape.gradient(loss, w), w)
        return {"loss": loss}


def info_nce(img, txt, group):
    group = tf.reshape(group, [-1])
    logits = tf.matmul(img, txt, transpose_b=True)
    n = tf.shape(logits)[0]
    twins = (group[:, None] == group[None]) & ~tf.eye(n, dtype=tf.bool)
    logits = tf.where(twins, tf.constant(-1e4, logits.dtype), logits)
    who = tf.range(n)
    ce = tf.nn.sparse_softmax_cross_entropy_with_logits
    return 0.5 * (tf.reduce_mean(ce(who, logits)) + tf.reduce_mean(ce(who, tf.transpose(logits))))


def build():
    image = keras.Input((16, 16, 3), name="image")
    text = keras.Input((LENGTH,), dtype="int32", name="text")
    x = Standardise(name="standardise")(image)
    x = layers.Conv2D(8, 3, strides=2, padding="same", activation="gelu", name="v1")(x)
    x = layers.Conv2D(12, 3, strides=2, padding="same", activation="gelu", name="v2")(x)
    x = layers.Flatten(name="v_flat")(x)
    x = layers.Dense(24, activation="gelu", name="v3")(x)
    x = layers.Dense(DIM, use_bias=False, name="v_proj")(x)
    v = layers.UnitNormalization(name="v_unit")(x)
    t = TitleEmbedding(name="title")(text)
    t = layers.Conv1D(24, 3, padding="same", activation="gelu", name="t1")(t)
    t = PadAwareMean(name="t_pool")(t, text)
    t = layers.LayerNormalization(epsilon=1e-5, name="t_norm")(t)
    t = layers.Dense(DIM, use_bias=False, name="t_proj")(t)
    t = layers.UnitNormalization(name="t_unit")(t)
    return Pair({"image": image, "text": text}, {"image": Temperature(name="temperature")(v), "text": t})
