import keras
from keras import layers, ops

VOCAB, LENGTH, TAGS = 60, 12, 5


class CRF(layers.Layer):
    def build(self, shape):
        self.trans = self.add_weight(shape=(TAGS, TAGS), initializer="random_normal", name="trans")
        self.first = self.add_weight(shape=(TAGS,), initializer="random_normal", name="first")
        self.last = self.add_weight(shape=(TAGS,), initializer="random_normal", name="last")

    def call(self, emit, tags, mask):
        hot = ops.one_hot(tags, TAGS, dtype=emit.dtype) * mask[:, :, None]
        ends = mask - ops.pad(mask[:, 1:], ((0, 0), (0, 1)))
        gold = ops.sum(emit * hot, axis=(1, 2))
        gold += ops.einsum("bti,ij,btj->b", hot[:, :-1], self.trans, hot[:, 1:])
        gold += ops.matmul(hot[:, 0], self.first)
        gold += ops.einsum("bt,bti,i->b", ends, hot, self.last)

        alpha = self.first + emit[:, 0]
        for t in range(1, LENGTH):
            score = alpha[:, :, None] + self.trans + emit[:, t, None, :]
            keep = mask[:, t, None] > 0
            alpha = ops.where(keep, ops.logsumexp(score, axis=1), alpha)
        return ops.logsumexp(alpha + self.last, axis=1) - gold


class Tagger(keras.Model):
    def __init__(self):
        super().__init__()
        self.embed = layers.Embedding(VOCAB, 20)
        self.context = layers.Conv1D(24, 3, padding="same", activation="relu")
        self.emit = layers.Dense(TAGS)
        self.crf = CRF()

    def call(self, inputs):
        mask = ops.cast(inputs["words"] > 0, self.compute_dtype)
        x = self.embed(inputs["words"]) * mask[:, :, None]
        return self.crf(self.emit(self.context(x)), inputs["tags"], mask)


def build():
    return Tagger()


def weighted(trust, nll):
    return ops.reshape(trust, (-1,)) * nll
