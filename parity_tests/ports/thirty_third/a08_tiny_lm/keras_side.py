"""A very small decoder-only language model: pre-RMSNorm, SwiGLU, tied output head."""

import keras
from keras import layers, ops

VOCAB, LENGTH, DIM, HEADS, FFN = 40, 12, 32, 2, 32


class Block(layers.Layer):
    def __init__(self, dropout=0.1, **kw):
        super().__init__(**kw)
        self.norm_attn = layers.RMSNormalization(epsilon=1e-6)
        self.attn = layers.MultiHeadAttention(HEADS, DIM // HEADS, dropout=dropout)
        self.norm_ffn = layers.RMSNormalization(epsilon=1e-6)
        self.gate = layers.Dense(FFN, use_bias=False, activation="silu")
        self.up = layers.Dense(FFN, use_bias=False)
        self.down = layers.Dense(DIM, use_bias=False)
        self.drop = layers.Dropout(dropout)

    def call(self, x, training=None):
        h = self.norm_attn(x)
        x = x + self.drop(self.attn(h, h, use_causal_mask=True, training=training), training=training)
        h = self.norm_ffn(x)
        return x + self.drop(self.down(self.gate(h) * self.up(h)), training=training)


class TinyLM(keras.Model):
    def __init__(self, blocks=2, **kw):
        super().__init__(**kw)
        self.embed = layers.Embedding(VOCAB, DIM, name="embed")
        self.blocks = [Block(name=f"block{i}") for i in range(blocks)]
        self.norm = layers.RMSNormalization(epsilon=1e-6, name="final_norm")

    def build(self, input_shape):
        self.positions = self.add_weight(shape=(LENGTH, DIM), initializer="random_normal", name="positions")
        super().build(input_shape)

    def call(self, tokens, training=None):
        x = self.embed(tokens) * DIM**0.5 + self.positions[: ops.shape(tokens)[1]]
        for block in self.blocks:
            x = block(x, training=training)
        return ops.matmul(self.norm(x), ops.transpose(self.embed.embeddings))


def build():
    model = TinyLM()
    model(ops.zeros((1, LENGTH), dtype="int32"))
    return model


def next_token_loss(y_true, y_pred):
    """mean over the real tokens of each sequence; 0 pads"""
    y_true = ops.cast(y_true, "int32")
    real = ops.cast(ops.not_equal(y_true, 0), y_pred.dtype)
    nll = keras.losses.sparse_categorical_crossentropy(y_true, y_pred, from_logits=True)
    return ops.sum(nll * real, axis=-1) / ops.sum(real, axis=-1)
