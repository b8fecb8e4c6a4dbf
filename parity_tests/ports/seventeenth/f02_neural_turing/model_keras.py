"""A neural Turing machine with one writing and one reading head, for the copy task."""

import keras
from keras import layers, ops

SLOTS, WIDTH = 8, 6


class Head(layers.Layer):
    """Where to look: by content, kept or not, shifted, sharpened."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.key = layers.Dense(WIDTH, name="key")
        self.strength = layers.Dense(1, name="strength")
        self.gate = layers.Dense(1, name="gate")
        self.shift = layers.Dense(3, name="shift")
        self.sharpen = layers.Dense(1, name="sharpen")

    def call(self, h, memory, previous):
        key = ops.tanh(self.key(h))
        dot = ops.einsum("bm,bnm->bn", key, memory)
        norms = ops.sqrt(ops.sum(key**2, -1, keepdims=True) * ops.sum(memory**2, -1) + 1e-6)
        content = ops.softmax(ops.softplus(self.strength(h)) * dot / norms)
        gate = ops.sigmoid(self.gate(h))
        mixed = gate * content + (1 - gate) * previous
        shift = ops.softmax(self.shift(h))
        moved = (
            shift[:, 0:1] * ops.roll(mixed, -1, axis=1)
            + shift[:, 1:2] * mixed
            + shift[:, 2:3] * ops.roll(mixed, 1, axis=1)
        )
        powered = ops.power(moved + 1e-8, 1 + ops.softplus(self.sharpen(h)))
        return powered / ops.sum(powered, -1, keepdims=True)


class TuringMachine(keras.Model):
    def __init__(self):
        super().__init__()
        self.controller = layers.Dense(32, activation="tanh", name="controller")
        self.write_head = Head(name="write_head")
        self.read_head = Head(name="read_head")
        self.erase = layers.Dense(WIDTH, activation="sigmoid", name="erase")
        self.add = layers.Dense(WIDTH, activation="tanh", name="add")
        self.out = layers.Dense(4, name="out")
        self.memory = self.add_weight(
            shape=(SLOTS, WIDTH),
            initializer=keras.initializers.RandomUniform(-0.5, 0.5, seed=3),
            name="memory",
        )

    def call(self, x):
        rows = ops.shape(x)[0]
        memory = ops.repeat(self.memory[None], rows, axis=0)
        write = ops.ones((rows, SLOTS), dtype=x.dtype) / SLOTS
        read = write
        vector = ops.zeros((rows, WIDTH), dtype=x.dtype)
        outputs = []
        for t in range(x.shape[1]):
            h = self.controller(ops.concatenate([x[:, t], vector], -1))
            write = self.write_head(h, memory, write)
            memory = memory * (1 - write[:, :, None] * self.erase(h)[:, None])
            memory = memory + write[:, :, None] * self.add(h)[:, None]
            read = self.read_head(h, memory, read)
            vector = ops.einsum("bn,bnm->bm", read, memory)
            outputs.append(self.out(ops.concatenate([h, vector], -1)))
        return ops.stack(outputs, axis=1)


def build():
    return TuringMachine()
