"""Top-2 mixture of experts on tabular data with a load balancing loss."""

import keras
from keras import layers, ops


class MoE(layers.Layer):
    def __init__(self, n_experts, hidden, dim, k=2, balance=0.1, **kw):
        super().__init__(**kw)
        self.n, self.k, self.balance = n_experts, k, balance
        self.router = layers.Dense(n_experts, use_bias=False, name="router")
        self.experts = [
            keras.Sequential([layers.Dense(hidden, activation="silu"), layers.Dense(dim)], name=f"expert_{i}")
            for i in range(n_experts)
        ]

    def build(self, shape):
        self.router.build(shape)
        for e in self.experts:
            e.build(shape)

    def call(self, x):
        probs = ops.softmax(self.router(x), axis=-1)
        _, top = ops.top_k(probs, self.k)
        chosen = ops.sum(ops.one_hot(top, self.n, dtype=probs.dtype), axis=1)
        gates = probs * chosen
        gates = gates / ops.sum(gates, axis=-1, keepdims=True)

        load = ops.mean(chosen, axis=0) / self.k
        importance = ops.mean(probs, axis=0)
        self.add_loss(self.balance * self.n * ops.sum(load * importance))

        y = ops.stack([e(x) for e in self.experts], axis=1)
        return ops.sum(gates[..., None] * y, axis=1)


def build():
    inp = keras.Input((9,), name="features")
    x = layers.Dense(16, name="in_proj")(inp)
    h = layers.LayerNormalization(name="pre_moe")(x)
    x = layers.Add()([x, MoE(4, 24, 16, name="moe")(h)])
    x = layers.LayerNormalization(name="post")(x)
    out = layers.Dense(1, name="target")(x)
    return keras.Model(inp, out)


def loss(y_true, y_pred):
    e = ops.reshape(y_pred, (-1,)) - ops.reshape(y_true, (-1,))
    a = ops.abs(e)
    return ops.where(a <= 1.0, 0.5 * e * e, a - 0.5)
