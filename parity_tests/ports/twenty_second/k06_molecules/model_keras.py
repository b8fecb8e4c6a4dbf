import keras
from keras import layers, ops


class BondMessages(layers.Layer):
    def __init__(self, dim, kinds, rounds, **kw):
        super().__init__(**kw)
        self.dim, self.kinds, self.rounds = dim, kinds, rounds
        self.cell = layers.GRUCell(dim)

    def build(self, h_shape, bonds_shape, alive_shape):
        d = self.dim
        self.w = self.add_weight(shape=(self.kinds, d, d), initializer="glorot_uniform", name="w")
        self.cell.build((None, d))

    def call(self, h, bonds, alive):
        d = self.dim
        adj = ops.one_hot(bonds, self.kinds + 1, dtype=h.dtype)[..., 1:]
        degree = ops.maximum(ops.sum(adj, axis=(2, 3)), 1.0)[..., None]
        n = h.shape[1]
        for _ in range(self.rounds):
            msg = ops.einsum("bijr,rde,bjd->bie", adj, self.w, h) / degree
            new, _ = self.cell(ops.reshape(msg, (-1, d)), [ops.reshape(h, (-1, d))])
            h = ops.reshape(new, (-1, n, d)) * alive
        return h


def huber(y_true, y_pred):
    return keras.losses.huber(y_true, y_pred, delta=0.5)


def build(n=9, dim=14):
    atoms = keras.Input((n,), dtype="int32", name="atoms")
    bonds = keras.Input((n, n), dtype="int32", name="bonds")
    h = layers.Embedding(7, dim)(atoms)
    alive = ops.cast(ops.not_equal(atoms, 0), h.dtype)[..., None]
    h0 = h * alive
    h = BondMessages(dim, kinds=3, rounds=2)(h0, bonds, alive)
    both = ops.concatenate([h, h0], axis=-1)
    gated = layers.Dense(16, activation="sigmoid")(both) * layers.Dense(16)(h)
    mol = ops.sum(gated * alive, axis=1)
    mol = layers.Dense(16, activation="softplus")(mol)
    return keras.Model([atoms, bonds], layers.Dense(2)(mol))
