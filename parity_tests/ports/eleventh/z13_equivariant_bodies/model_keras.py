"""Charged bodies and where they go: an equivariant network over all pairs, absent bodies masked."""

import keras
from keras import layers, ops

BODIES, WIDTH = 6, 16


class EquivariantLayer(layers.Layer):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.message = keras.Sequential(
            [layers.Dense(24, activation="silu"), layers.Dense(24, activation="silu")], name="message"
        )
        self.pull = layers.Dense(1, use_bias=False, name="pull")
        self.drift = layers.Dense(1, name="drift")
        self.node = keras.Sequential([layers.Dense(24, activation="silu"), layers.Dense(WIDTH)], name="node")

    def call(self, h, x, v, present):
        difference = x[:, :, None] - x[:, None]
        near = 1 / (1 + ops.sum(ops.square(difference), axis=-1, keepdims=True))
        here = ops.repeat(h[:, :, None], BODIES, axis=2)
        there = ops.repeat(h[:, None], BODIES, axis=1)
        message = self.message(ops.concatenate([here, there, near], axis=-1))
        linked = present[:, :, None] * present[:, None] * (1 - ops.eye(BODIES, dtype=h.dtype))
        message = message * linked[..., None]
        others = ops.maximum(ops.sum(present, axis=1) - 1, 1)[:, None, None]
        v = self.drift(h) * v + ops.sum(difference * near * self.pull(message), axis=2) / others
        h = h + self.node(ops.concatenate([h, ops.sum(message, axis=2)], axis=-1))
        return h, x + v, v


def build():
    position = keras.Input((BODIES, 3), name="position")
    velocity = keras.Input((BODIES, 3), name="velocity")
    charge = keras.Input((BODIES,), name="charge")
    present = ops.cast(ops.not_equal(charge, 0), charge.dtype)
    speed = ops.sum(ops.square(velocity), axis=-1)
    h = layers.Dense(WIDTH, name="embed")(ops.stack([charge, speed], axis=-1))
    x, v = position, velocity
    for i in range(2):
        h, x, v = EquivariantLayer(name=f"layer{i}")(h, x, v, present)
    moved = x - position + layers.Dense(1, name="further")(h) * v
    return keras.Model([position, velocity, charge], moved * present[..., None])
