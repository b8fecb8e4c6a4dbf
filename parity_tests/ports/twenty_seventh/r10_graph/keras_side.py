import keras
from keras import layers, ops


class GraphAttention(layers.Layer):
    def __init__(self, units, heads, **kw):
        super().__init__(**kw)
        self.units, self.heads = units, heads

    def build(self, h_shape, adj_shape):
        self.lin = layers.Dense(self.units * self.heads, use_bias=False, name="lin")
        self.lin.build(h_shape)
        self.a_to = self.add_weight(shape=(self.heads, self.units), initializer="glorot_uniform", name="a_to")
        self.a_from = self.add_weight(
            shape=(self.heads, self.units), initializer="glorot_uniform", name="a_from"
        )

    def call(self, h, adj):
        n = h.shape[1]
        z = ops.reshape(self.lin(h), (-1, n, self.heads, self.units))
        to = ops.sum(z * self.a_to, axis=-1)
        fro = ops.sum(z * self.a_from, axis=-1)
        e = ops.expand_dims(to, 2) + ops.expand_dims(fro, 1)
        e = ops.leaky_relu(e, negative_slope=0.2)
        has = ops.expand_dims(adj + ops.eye(n, dtype=adj.dtype), -1)
        e = ops.where(has > 0, e, ops.full_like(e, -1e9))
        w = ops.softmax(e, axis=2)
        out = ops.einsum("bijh,bjhu->bihu", w, z)
        return ops.elu(ops.reshape(out, (-1, n, self.heads * self.units)))


class GatedPropagation(layers.Layer):
    """Row normalised messages, GRU update, the same weights in every round."""

    def __init__(self, units, rounds, **kw):
        super().__init__(**kw)
        self.units, self.rounds = units, rounds
        self.message = layers.Dense(units, name="message")
        self.cell = layers.GRUCell(units, name="cell")

    def build(self, h_shape, adj_shape):
        self.message.build(h_shape)
        self.cell.build((None, self.units))

    def call(self, h, adj):
        n = h.shape[1]
        deg = ops.maximum(ops.sum(adj, axis=-1, keepdims=True), 1.0)
        state = ops.reshape(h, (-1, self.units))
        for _ in range(self.rounds):
            m = ops.matmul(adj / deg, self.message(ops.reshape(state, (-1, n, self.units))))
            state, _ = self.cell(ops.reshape(m, (-1, self.units)), [state])
        return ops.reshape(state, (-1, n, self.units))


def build(n=10, f=5):
    adj = keras.Input((n, n), name="adj")
    mask = keras.Input((n,), name="mask")
    nodes = keras.Input((n, f), name="nodes")
    h = GraphAttention(4, 3, name="gat")(nodes, adj)
    h = GatedPropagation(12, 3, name="ggnn")(h, adj)
    gate = layers.Dense(12, activation="sigmoid", name="readout_gate")(layers.Concatenate()([h, nodes]))
    value = layers.Dense(12, activation="tanh", name="readout_value")(h)
    m = layers.Reshape((n, 1))(mask)
    g = ops.sum(gate * value * m, axis=1) / ops.sum(m, axis=1)
    return keras.Model([adj, mask, nodes], layers.Dense(1, name="energy")(g))
