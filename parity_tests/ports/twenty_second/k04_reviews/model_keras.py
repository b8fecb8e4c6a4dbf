import keras
from keras import layers, ops


class ReviewNet(keras.Model):
    def __init__(self, vocab=50, dim=12, filters=16, classes=3):
        super().__init__()
        self.emb = layers.Embedding(vocab, dim)
        self.conv = layers.Conv1D(filters, 3, padding="same", activation="tanh")
        self.transform = layers.Dense(filters, activation="relu")
        self.gate = layers.Dense(
            filters, activation="sigmoid", bias_initializer=keras.initializers.Constant(-1.0)
        )
        self.out = layers.Dense(classes)

    def call(self, tokens):
        keep = ops.not_equal(tokens, 0)[:, :, None]
        e = self.emb(tokens)
        e = ops.where(keep, e, ops.zeros_like(e))
        h = self.conv(e)
        t = self.gate(h)
        h = t * self.transform(h) + (1.0 - t) * h
        m = ops.cast(keep, h.dtype)
        top = ops.max(h - 1e4 * (1.0 - m), axis=1)
        mean = ops.sum(h * m, axis=1) / ops.sum(m, axis=1)
        return self.out(ops.concatenate([top, mean], axis=-1))


def build():
    model = ReviewNet()
    model(ops.ones((1, 15), dtype="int32"))
    return model
