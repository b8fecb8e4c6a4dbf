"""GPT-like decoder with causal attention and tied embeddings (subclassed Keras)."""

import keras
from keras import layers, ops


def gelu_new(x):
    return keras.activations.gelu(x, approximate=True)


class Block(layers.Layer):
    def __init__(self, dim, heads, **kw):
        super().__init__(**kw)
        self.ln_1 = layers.LayerNormalization(epsilon=1e-5, name="ln_1")
        self.attn = layers.MultiHeadAttention(heads, dim // heads, name="attn")
        self.ln_2 = layers.LayerNormalization(epsilon=1e-5, name="ln_2")
        self.fc = layers.Dense(4 * dim, activation=gelu_new, name="fc")
        self.proj = layers.Dense(dim, name="proj")

    def call(self, x):
        h = self.ln_1(x)
        x = x + self.attn(h, h, use_causal_mask=True)
        return x + self.proj(self.fc(self.ln_2(x)))


class GPT(keras.Model):
    def __init__(self, vocabulary=64, context=24, dim=32, heads=4, depth=2):
        super().__init__()
        self.wte = layers.Embedding(vocabulary, dim, name="wte")
        self.wpe = layers.Embedding(context, dim, name="wpe")
        self.blocks = [Block(dim, heads, name=f"h{i}") for i in range(depth)]
        self.ln_f = layers.LayerNormalization(epsilon=1e-5, name="ln_f")

    def call(self, ids):
        x = self.wte(ids) + self.wpe(ops.arange(ops.shape(ids)[1]))
        for block in self.blocks:
            x = block(x)
        return ops.matmul(self.ln_f(x), ops.transpose(self.wte.embeddings))
