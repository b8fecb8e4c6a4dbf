"""ESIM on token ids; 0 is the padding."""

import keras
from keras import layers, ops

VOCAB, LEN = 80, 12


def attend(args):
    a, b, ma, mb = args
    e = ops.matmul(a, ops.transpose(b, (0, 2, 1))) * 4.0
    from_b = ops.softmax(ops.where(mb[:, None, :], e, -1e9), axis=-1)
    from_a = ops.softmax(ops.where(ma[:, :, None], e, -1e9), axis=1)
    return ops.matmul(from_b, b), ops.einsum("nab,nad->nbd", from_a, a)


def pool(v, m):
    f = ops.cast(m, v.dtype)[..., None]
    mean = ops.sum(v * f, 1) / ops.sum(f, 1)
    return ops.concatenate([mean, ops.max(ops.where(m[..., None], v, -1e9), 1)], -1)


class Esim(keras.Model):
    def __init__(self):
        super().__init__()
        self.embed = layers.Embedding(
            VOCAB, 16, embeddings_initializer=keras.initializers.RandomNormal(stddev=1.5)
        )
        self.encode = layers.Bidirectional(layers.LSTM(12, return_sequences=True), name="encode")
        self.project = layers.Dense(14, activation="relu", name="project")
        self.compose = layers.Bidirectional(layers.LSTM(8, return_sequences=True), name="compose")
        self.hidden = layers.Dense(16, activation="tanh", name="hidden")
        self.out = layers.Dense(3, name="out")

    def side(self, v, w, m):
        z = self.project(ops.concatenate([v, w, v - w, v * w], -1))
        return pool(self.compose(z, mask=m), m)

    def call(self, inputs):
        ia, ib = inputs["premise"], inputs["hypothesis"]
        ma, mb = ops.not_equal(ia, 0), ops.not_equal(ib, 0)
        a = self.encode(self.embed(ia), mask=ma)
        b = self.encode(self.embed(ib), mask=mb)
        wa, wb = attend((a, b, ma, mb))
        return self.out(self.hidden(ops.concatenate([self.side(a, wa, ma), self.side(b, wb, mb)], -1)))


def build():
    model = Esim()
    model({"premise": ops.ones((1, LEN), "int32"), "hypothesis": ops.ones((1, LEN), "int32")})
    return model
