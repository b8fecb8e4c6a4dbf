import keras
import numpy as np
from keras import layers, ops

VOCAB, WIDTH, HEADS, LENGTH = 16, 16, 2, 8


def positions(length, width):
    angle = np.arange(length)[:, None] / 10000 ** (np.arange(0, width, 2)[None] / width)
    table = np.zeros((length, width))
    table[:, 0::2], table[:, 1::2] = np.sin(angle), np.cos(angle)
    return table


class TokenAndPosition(layers.Layer):
    def __init__(self, vocab, length, width, **kwargs):
        super().__init__(**kwargs)
        self.width = width
        self.embedding = layers.Embedding(vocab, width, name="embedding")
        self.table = positions(length, width)

    def build(self, shape):
        self.embedding.build(shape)
        self.built = True

    def call(self, tokens):
        x = self.embedding(tokens) * self.width**0.5
        return x + ops.convert_to_tensor(self.table, dtype=x.dtype)


class TiedLogits(layers.Layer):
    def __init__(self, embedding, **kwargs):
        super().__init__(**kwargs)
        self.embedding = embedding

    def build(self, shape):
        self.bias = self.add_weight(shape=(VOCAB,), initializer="zeros", name="bias")

    def call(self, x):
        return ops.matmul(x, ops.transpose(self.embedding.embeddings)) + self.bias


def feed_forward(x, name):
    h = layers.Dense(32, activation="relu", name=f"{name}_in")(x)
    return layers.Dense(WIDTH, name=f"{name}_out")(h)


def norm(a, b, name):
    return layers.LayerNormalization(epsilon=1e-6, name=name)(layers.add([a, b]))


def attention(name):
    return layers.MultiHeadAttention(HEADS, WIDTH // HEADS, name=name)


def build():
    source = keras.Input((LENGTH,), dtype="int32", name="source")
    target = keras.Input((LENGTH,), dtype="int32", name="target")
    keep = layers.Lambda(lambda t: ops.expand_dims(ops.not_equal(t, 0), 1), name="keep")(source)

    tokens = TokenAndPosition(VOCAB, LENGTH, WIDTH, name="tokens")
    x = tokens(source)
    x = norm(x, attention("encoder_attention")(x, x, attention_mask=keep), "encoder_norm_1")
    memory = norm(x, feed_forward(x, "encoder_ffn"), "encoder_norm_2")

    x = tokens(target)
    x = norm(x, attention("self_attention")(x, x, use_causal_mask=True), "decoder_norm_1")
    x = norm(x, attention("cross_attention")(x, memory, attention_mask=keep), "decoder_norm_2")
    x = norm(x, feed_forward(x, "decoder_ffn"), "decoder_norm_3")
    return keras.Model([source, target], TiedLogits(tokens.embedding, name="logits")(x))


def masked_loss(y_true, y_pred):
    y_true = ops.cast(y_true, "int32")
    losses = keras.losses.sparse_categorical_crossentropy(y_true, y_pred, from_logits=True)
    mask = ops.cast(ops.not_equal(y_true, 0), losses.dtype)
    return ops.sum(losses * mask) / ops.sum(mask)


class Noam(keras.optimizers.schedules.LearningRateSchedule):
    def __init__(self, width=WIDTH, warmup=8, factor=0.2):
        self.width, self.warmup, self.factor = width, warmup, factor

    def __call__(self, step):
        step = ops.cast(step, "float32") + 1
        return self.factor * self.width**-0.5 * ops.minimum(step**-0.5, step * self.warmup**-1.5)

    def get_config(self):
        return {"width": self.width, "warmup": self.warmup, "factor": self.factor}


def adam():
    return keras.optimizers.Adam(Noam(), beta_2=0.98, epsilon=1e-8)
