import keras
from keras import layers, ops


class GraphAttention(layers.Layer):
    def __init__(self, units, heads, merge="concat", **kwargs):
        super().__init__(**kwargs)
        self.units, self.heads, self.merge = units, heads, merge

    def build(self, shapes):
        f = shapes[0][-1]
        self.kernel = self.add_weight(
            shape=(f, self.heads, self.units), initializer="glorot_uniform", name="kernel"
        )
        self.attn_self = self.add_weight(
            shape=(self.heads, self.units), initializer="glorot_uniform", name="attn_self"
        )
        self.attn_neigh = self.add_weight(
            shape=(self.heads, self.units), initializer="glorot_uniform", name="attn_neigh"
        )
        size = self.heads * self.units if self.merge == "concat" else self.units
        self.bias = self.add_weight(shape=(size,), initializer="zeros", name="bias")

    def call(self, inputs):
        x, adj = inputs
        h = ops.einsum("bnf,fhu->bnhu", x, self.kernel)
        src = ops.einsum("bnhu,hu->bhn", h, self.attn_self)
        dst = ops.einsum("bnhu,hu->bhn", h, self.attn_neigh)
        e = ops.leaky_relu(src[:, :, :, None] + dst[:, :, None, :], negative_slope=0.2)
        e = ops.where(adj[:, None] > 0, e, -1e9)
        alpha = ops.softmax(e, axis=-1)
        out = ops.einsum("bhij,bjhu->bihu", alpha, h)
        if self.merge == "concat":
            out = ops.reshape(out, (-1, out.shape[1], self.heads * self.units))
        else:
            out = ops.mean(out, axis=2)
        return out + self.bias


def build(sensors=11, features=6, horizon=4):
    x = keras.Input((sensors, features), name="readings")
    adj = keras.Input((sensors, sensors), name="roads")
    h = layers.Dense(12, activation="relu", name="encode")(x)
    h = layers.Activation("elu")(GraphAttention(6, 3, name="gat1")([h, adj]))
    h = layers.Activation("elu")(GraphAttention(10, 2, merge="mean", name="gat2")([h, adj]))
    h = layers.Concatenate()([h, x])
    h = layers.Dense(16, activation="relu", name="decode")(h)
    return keras.Model([x, adj], layers.Dense(horizon, name="forecast")(h))
