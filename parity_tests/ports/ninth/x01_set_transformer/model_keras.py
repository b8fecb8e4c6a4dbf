import keras
from keras import layers, ops


class MAB(layers.Layer):
    def __init__(self, dim, heads, **kwargs):
        super().__init__(**kwargs)
        self.dim, self.heads = dim, heads
        self.fc_q = layers.Dense(dim)
        self.fc_k = layers.Dense(dim)
        self.fc_v = layers.Dense(dim)
        self.fc_o = layers.Dense(dim)
        self.ln0 = layers.LayerNormalization(epsilon=1e-5)
        self.ln1 = layers.LayerNormalization(epsilon=1e-5)

    def split(self, x):
        x = ops.reshape(x, (-1, x.shape[1], self.heads, self.dim // self.heads))
        return ops.transpose(x, (0, 2, 1, 3))

    def call(self, x, y, valid=None):
        q = self.fc_q(x)
        k, v = self.split(self.fc_k(y)), self.split(self.fc_v(y))
        scores = ops.matmul(self.split(q), ops.transpose(k, (0, 1, 3, 2))) / self.dim**0.5
        if valid is not None:
            scores = ops.where(ops.cast(valid, "bool")[:, None, None, :], scores, -1e9)
        heads = ops.matmul(ops.softmax(scores, axis=-1), v)
        heads = ops.reshape(ops.transpose(heads, (0, 2, 1, 3)), (-1, q.shape[1], self.dim))
        h = self.ln0(q + heads)
        return self.ln1(h + ops.relu(self.fc_o(h)))


class Seeds(layers.Layer):
    def __init__(self, count, dim, **kwargs):
        super().__init__(**kwargs)
        self.count, self.dim = count, dim

    def build(self, shape):
        self.points = self.add_weight(
            shape=(self.count, self.dim), initializer="glorot_uniform", name="points"
        )

    def call(self, x):
        return ops.broadcast_to(self.points[None], (ops.shape(x)[0], self.count, self.dim))


def build(dim=16, heads=4):
    points = keras.Input((12, 5), name="points")
    valid = keras.Input((12,), name="valid", dtype="int32")
    x = layers.Dense(dim, name="embed")(points)
    for i in range(2):
        induced = Seeds(4, dim, name=f"inducing{i}")(x)
        h = MAB(dim, heads, name=f"down{i}")(induced, x, valid=valid)
        x = MAB(dim, heads, name=f"up{i}")(x, h)
    seed = Seeds(1, dim, name="seed")(x)
    pooled = MAB(dim, heads, name="pool")(seed, x, valid=valid)
    return keras.Model([points, valid], layers.Dense(3, name="head")(layers.Flatten()(pooled)))
