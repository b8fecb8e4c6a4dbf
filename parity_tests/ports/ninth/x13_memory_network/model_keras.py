import keras
import numpy as np
from keras import layers, ops


class MemoryNetwork(keras.Model):
    def __init__(self, vocabulary=23, dim=12, hops=3, sentences=6, words=5):
        super().__init__()
        self.hops, self.vocabulary = hops, vocabulary
        self.tables = [layers.Embedding(vocabulary, dim, name=f"table{i}") for i in range(hops + 1)]
        self.times = [
            self.add_weight(shape=(sentences, dim), initializer="random_normal", name=f"time{i}")
            for i in range(hops + 1)
        ]
        j, k = np.arange(1, words + 1)[:, None], np.arange(1, dim + 1)[None]
        self.position = (1 - j / words) - (k / dim) * (1 - 2 * j / words)

    def bag(self, table, ids):
        weights = ops.cast(ops.not_equal(ids, 0), table.compute_dtype)[..., None]
        return ops.sum(table(ids) * weights * ops.cast(self.position, table.compute_dtype), axis=-2)

    def call(self, inputs):
        story, query = inputs["story"], inputs["query"]
        u = self.bag(self.tables[0], query)
        empty = ops.all(ops.equal(story, 0), axis=-1)
        for hop in range(self.hops):
            m = self.bag(self.tables[hop], story) + self.times[hop]
            c = self.bag(self.tables[hop + 1], story) + self.times[hop + 1]
            scores = ops.einsum("bsd,bd->bs", m, u)
            p = ops.softmax(ops.where(empty, -1e9, scores), axis=-1)
            u = u + ops.einsum("bs,bsd->bd", p, c)
        return ops.matmul(u, ops.transpose(self.tables[-1].embeddings))


def build():
    model = MemoryNetwork()
    model({"story": ops.ones((1, 6, 5), dtype="int32"), "query": ops.ones((1, 5), dtype="int32")})
    return model
