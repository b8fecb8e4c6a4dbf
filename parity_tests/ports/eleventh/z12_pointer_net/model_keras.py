"""Pointer network that says in which order points come around their centre; `order` is the teacher."""

import keras
from keras import layers, ops

WIDTH = 20


class Pointer(layers.Layer):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.cell = layers.GRUCell(WIDTH, name="cell")
        self.keys = layers.Dense(WIDTH, use_bias=False, name="keys")
        self.query = layers.Dense(WIDTH, name="query")
        self.energy = layers.Dense(1, use_bias=False, name="energy")

    def build(self, memory_shape, state_shape, order_shape):
        self.go = self.add_weight(shape=(1, memory_shape[-1]), initializer="glorot_uniform", name="go")
        self.cell.build((None, memory_shape[-1]))
        self.keys.build(memory_shape)
        self.query.build(state_shape)
        self.energy.build((None, None, WIDTH))

    def call(self, memory, state, order):
        count = memory.shape[1]
        hot = ops.one_hot(order, count, dtype=memory.dtype)
        # what is chosen already, before each step
        used = ops.cumsum(hot, axis=1) - hot
        keys = self.keys(memory)
        x = ops.zeros_like(memory[:, 0]) + self.go
        logits = []
        for t in range(count):
            state, _ = self.cell(x, [state])
            energy = self.energy(ops.tanh(keys + self.query(state)[:, None]))[..., 0]
            logits.append(ops.where(used[:, t] > 0, -100.0, energy))
            x = ops.einsum("np,npc->nc", hot[:, t], memory)
        return ops.stack(logits, axis=1)


def build():
    points = keras.Input((7, 2), name="points")
    order = keras.Input((7,), dtype="int32", name="order")
    x = layers.Dense(16, activation="tanh", name="embed")(points)
    memory, forward, backward = layers.Bidirectional(
        layers.GRU(10, return_sequences=True, return_state=True), name="encoder"
    )(x)
    state = layers.Dense(WIDTH, activation="tanh", name="bridge")(
        ops.concatenate([forward, backward], axis=-1)
    )
    return keras.Model([points, order], Pointer(name="pointer")(memory, state, order))
