import keras
from keras import layers, ops


class GraphConv(layers.Layer):
    def __init__(self, units, activation=None, **kwargs):
        super().__init__(**kwargs)
        self.units = units
        self.activation = keras.activations.get(activation)

    def build(self, shapes):
        self.kernel = self.add_weight(
            shape=(shapes[0][-1], self.units), initializer="glorot_uniform", name="kernel"
        )
        self.bias = self.add_weight(shape=(self.units,), initializer="zeros", name="bias")

    def call(self, inputs):
        h, a = inputs
        return self.activation(ops.matmul(a, ops.matmul(h, self.kernel)) + self.bias)


class NormalizeAdjacency(layers.Layer):
    def call(self, adj):
        adj = adj + ops.eye(adj.shape[-1], dtype=adj.dtype)
        inv = 1.0 / ops.sqrt(ops.sum(adj, axis=-1))
        return adj * inv[:, :, None] * inv[:, None, :]


def build(nodes=9, features=6, hidden=(12, 12, 10), classes=3):
    x = keras.Input((nodes, features), name="atoms")
    adj = keras.Input((nodes, nodes), name="bonds")
    a = NormalizeAdjacency()(adj)
    h, levels = x, []
    for i, units in enumerate(hidden):
        h = GraphConv(units, "elu", name=f"gc{i}")([h, a])
        levels.append(h)
    h = layers.Concatenate(axis=-1)(levels)
    gate = layers.Dense(1, activation="sigmoid", name="gate")(h)
    value = layers.Dense(16, activation="tanh", name="value")(h)
    pooled = ops.sum(gate * value, axis=1)
    peak = ops.max(h, axis=1)
    z = layers.Concatenate()([pooled, peak])
    z = layers.Dense(14, activation="elu", name="fc")(z)
    return keras.Model([x, adj], layers.Dense(classes, name="logits")(z))
