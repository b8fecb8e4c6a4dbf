"""Support-ticket urgency: a set of learned queries reads the (padded) ticket, then the
queries talk to each other twice through one shared block."""

import keras
from keras import layers, ops

VOCAB, LEN, D, LATENTS, HEADS = 25, 12, 12, 3, 2


class Positional(layers.Layer):
    def build(self, shape):
        self.table = self.add_weight(name="table", shape=(LEN, D), initializer="random_normal")

    def call(self, x):
        return x + self.table


class Latents(layers.Layer):
    def build(self, shape):
        self.q = self.add_weight(name="q", shape=(LATENTS, D), initializer="random_normal")

    def call(self, x):
        return ops.tile(self.q[None], (ops.shape(x)[0], 1, 1))


class SelfMix(layers.Layer):
    """Multi-head self attention, one fused kernel."""

    def build(self, shape):
        dh = D // HEADS
        self.w_in = self.add_weight(name="w_in", shape=(3, HEADS, D, dh), initializer="glorot_uniform")
        self.b_in = self.add_weight(name="b_in", shape=(3, HEADS, dh), initializer="zeros")
        self.w_out = self.add_weight(name="w_out", shape=(HEADS, dh, D), initializer="glorot_uniform")
        self.b_out = self.add_weight(name="b_out", shape=(D,), initializer="zeros")

    def call(self, x):
        qkv = ops.einsum("bnd,khde->kbhne", x, self.w_in) + self.b_in[:, None, :, None, :]
        q, k, v = qkv[0], qkv[1], qkv[2]
        p = ops.softmax(ops.einsum("bhqe,bhke->bhqk", q, k) / (D // HEADS) ** 0.5, axis=-1)
        o = ops.einsum("bhqk,bhke->bqhe", p, v)
        return ops.einsum("bqhe,hed->bqd", o, self.w_out) + self.b_out


def build():
    ids = keras.Input((LEN,), dtype="int32", name="x")
    seen = layers.Lambda(lambda t: ops.not_equal(t, 0)[:, None, :], name="seen")(ids)
    tok = Positional(name="pos")(layers.Embedding(VOCAB, D, name="tok")(ids))
    tok = layers.LayerNormalization(name="ln_tok")(tok)
    lat = Latents(name="latents")(tok)
    lat = lat + layers.MultiHeadAttention(HEADS, D // HEADS, name="read")(
        layers.LayerNormalization(name="ln_lat")(lat), tok, attention_mask=seen
    )
    ln_a, mix = layers.LayerNormalization(name="ln_a"), SelfMix(name="mix")
    ln_b = layers.LayerNormalization(name="ln_b")
    up = layers.Dense(2 * D, name="up", activation=lambda t: ops.gelu(t, approximate=True))
    down = layers.Dense(D, name="down")
    for _ in range(2):
        lat = lat + mix(ln_a(lat))
        lat = lat + down(up(ln_b(lat)))
    return keras.Model(ids, layers.Dense(3, name="urgency")(layers.Flatten()(lat)))
