"""Character-level GPT with tied input/output embeddings; 0 is the padding id."""

import keras
from keras import layers, ops

VOCAB, CONTEXT, WIDTH, HEADS, DEPTH = 29, 20, 24, 3, 2


def gelu(x):
    return 0.5 * x * (1.0 + ops.erf(x / 2.0**0.5))


class Block(layers.Layer):
    def __init__(self, **kw):
        super().__init__(**kw)
        self.ln1 = layers.LayerNormalization(epsilon=1e-5)
        self.qkv = layers.Dense(3 * WIDTH, use_bias=False, name="qkv")
        self.proj = layers.Dense(WIDTH, name="proj")
        self.ln2 = layers.LayerNormalization(epsilon=1e-5)
        self.up = layers.Dense(4 * WIDTH, activation=gelu, name="up")
        self.down = layers.Dense(WIDTH, name="down")

    def attend(self, x):
        t, hd = x.shape[1], WIDTH // HEADS
        q, k, v = ops.split(self.qkv(x), 3, axis=-1)
        q, k, v = (ops.transpose(ops.reshape(a, (-1, t, HEADS, hd)), (0, 2, 1, 3)) for a in (q, k, v))
        s = ops.matmul(q, ops.swapaxes(k, -1, -2)) / hd**0.5
        causal = ops.tril(ops.ones((t, t), dtype="bool"))
        s = ops.where(causal, s, -1e9)
        o = ops.matmul(ops.softmax(s, axis=-1), v)
        return self.proj(ops.reshape(ops.transpose(o, (0, 2, 1, 3)), (-1, t, WIDTH)))

    def call(self, x):
        x = x + self.attend(self.ln1(x))
        return x + self.down(self.up(self.ln2(x)))


class GPT(keras.Model):
    def __init__(self):
        super().__init__()
        self.wte = layers.Embedding(VOCAB, WIDTH, name="wte")
        self.wpe = layers.Embedding(CONTEXT, WIDTH, name="wpe")
        self.blocks = [Block(name=f"block{i}") for i in range(DEPTH)]
        self.ln_f = layers.LayerNormalization(epsilon=1e-5, name="ln_f")

    def call(self, ids):
        x = self.wte(ids) * WIDTH**0.5 + self.wpe(ops.arange(CONTEXT))
        for block in self.blocks:
            x = block(x)
        return ops.matmul(self.ln_f(x), ops.transpose(self.wte.embeddings))


def lm_loss(y_true, y_pred):
    keep = ops.cast(ops.not_equal(y_true, 0), y_pred.dtype)
    ce = keras.losses.sparse_categorical_crossentropy(y_true, y_pred, from_logits=True)
    return ops.sum(ce * keep) / ops.sum(keep)


def build():
    model = GPT()
    model(ops.zeros((1, CONTEXT), dtype="int64"))
    return model
