import keras
from keras import layers, ops


class RelativeAttention(layers.Layer):
    def __init__(self, dim, heads, clip, **kw):
        super().__init__(**kw)
        self.dim, self.heads, self.clip = dim, heads, clip
        self.dh = dim // heads

    def build(self, shape):
        self.q = layers.Dense(self.dim, use_bias=False, name="q")
        self.k = layers.Dense(self.dim, use_bias=False, name="k")
        self.v = layers.Dense(self.dim, use_bias=False, name="v")
        self.o = layers.Dense(self.dim, name="o")
        for l in (self.q, self.k, self.v, self.o):
            l.build(shape)
        init = keras.initializers.RandomNormal(stddev=0.3)
        self.rel_k = self.add_weight(shape=(2 * self.clip + 1, self.dh), initializer=init, name="rel_k")
        self.rel_v = self.add_weight(shape=(2 * self.clip + 1, self.dh), initializer=init, name="rel_v")
        self.built = True

    def call(self, x):
        t = x.shape[1]
        split = lambda a: ops.reshape(a, (-1, t, self.heads, self.dh))
        q, k, v = split(self.q(x)), split(self.k(x)), split(self.v(x))
        pos = ops.arange(t)
        idx = ops.clip(pos[None, :] - pos[:, None], -self.clip, self.clip) + self.clip
        rk = ops.take(self.rel_k, idx, axis=0)
        rv = ops.take(self.rel_v, idx, axis=0)
        s = ops.einsum("bihd,bjhd->bhij", q, k) + ops.einsum("bihd,ijd->bhij", q, rk)
        s = s / self.dh**0.5
        causal = pos[None, :] <= pos[:, None]
        s = ops.where(causal, s, -1e9)
        a = ops.softmax(s, axis=-1)
        y = ops.einsum("bhij,bjhd->bihd", a, v) + ops.einsum("bhij,ijd->bihd", a, rv)
        return self.o(ops.reshape(y, (-1, t, self.dim)))


class RelLM(keras.Model):
    def __init__(self, vocab=30, dim=20, heads=2, clip=4, depth=2):
        super().__init__(name="rel_lm")
        self.emb = layers.Embedding(
            vocab, dim, embeddings_initializer=keras.initializers.RandomNormal(stddev=0.2), name="emb"
        )
        self.parts = []
        for i in range(depth):
            self.parts.append(
                (
                    layers.LayerNormalization(epsilon=1e-5, name=f"ln_a{i}"),
                    RelativeAttention(dim, heads, clip, name=f"attn{i}"),
                    layers.LayerNormalization(epsilon=1e-5, name=f"ln_b{i}"),
                    layers.Dense(2 * dim, activation="relu", name=f"fc_a{i}"),
                    layers.Dense(dim, name=f"fc_b{i}"),
                )
            )
        self.all_parts = [p for group in self.parts for p in group]
        self.last = layers.LayerNormalization(epsilon=1e-5, name="last")

    def call(self, x, training=None):
        h = self.emb(x)
        for na, att, nb, up, down in self.parts:
            h = h + att(na(h))
            h = h + down(up(nb(h)))
        h = self.last(h)
        return ops.matmul(h, ops.transpose(self.emb.embeddings))


def build():
    m = RelLM()
    m(ops.zeros((2, 12), dtype="int32"))
    return m
