"""Slot attention with learned slots; the gradient goes through the last iteration only."""

import keras
import numpy as np
from keras import layers, ops

SIDE, SLOTS, WIDTH, ITERATIONS = 8, 5, 24, 3


class SlotAttention(layers.Layer):
    def __init__(self, slots, width, iterations, **kwargs):
        super().__init__(**kwargs)
        self.slots, self.width, self.iterations = slots, width, iterations
        self.norm_inputs = layers.LayerNormalization(epsilon=1e-5, name="norm_inputs")
        self.norm_slots = layers.LayerNormalization(epsilon=1e-5, center=False, name="norm_slots")
        self.norm_mlp = layers.LayerNormalization(epsilon=1e-5, name="norm_mlp")
        self.query = layers.Dense(width, use_bias=False, name="query")
        self.key = layers.Dense(width, use_bias=False, name="key")
        self.value = layers.Dense(width, use_bias=False, name="value")
        self.cell = layers.GRUCell(width, name="gru")
        self.expand = layers.Dense(2 * width, activation="relu", name="expand")
        self.contract = layers.Dense(width, name="contract")

    def build(self, input_shape):
        self.start = self.add_weight(
            shape=(self.slots, self.width),
            initializer=keras.initializers.RandomNormal(stddev=1.0),
            name="start",
        )

    def step(self, slots, keys, values):
        queries = self.query(self.norm_slots(slots)) * self.width**-0.5
        attention = ops.softmax(ops.einsum("bnd,bsd->bns", keys, queries), axis=-1) + 1e-6
        attention = attention / ops.sum(attention, axis=1, keepdims=True)
        updates = ops.einsum("bns,bnd->bsd", attention, values)
        updates = ops.reshape(updates, (-1, self.width))
        slots, _ = self.cell(updates, [ops.reshape(slots, (-1, self.width))])
        slots = ops.reshape(slots, (-1, self.slots, self.width))
        return slots + self.contract(self.expand(self.norm_mlp(slots)))

    def call(self, inputs):
        inputs = self.norm_inputs(inputs)
        keys, values = self.key(inputs), self.value(inputs)
        start = ops.broadcast_to(self.start[None], (ops.shape(inputs)[0], self.slots, self.width))
        slots = start
        for _ in range(self.iterations - 1):
            slots = self.step(slots, keys, values)
        # The found slots are a constant; the start learns as if it had been given to the last step.
        slots = ops.stop_gradient(slots) + start - ops.stop_gradient(start)
        return self.step(slots, keys, values)


class SlotClassifier(keras.Model):
    def __init__(self):
        super().__init__()
        self.conv1 = layers.Conv2D(16, 5, padding="same", activation="relu", name="conv1")
        self.conv2 = layers.Conv2D(16, 3, padding="same", activation="relu", name="conv2")
        self.place = layers.Dense(16, name="place")
        self.mix = layers.Dense(WIDTH, activation="relu", name="mix")
        self.attention = SlotAttention(SLOTS, WIDTH, ITERATIONS, name="slots")
        self.classes = layers.Dense(10, name="classes")

    def call(self, x):
        axis = np.linspace(0.0, 1.0, SIDE)
        rows, columns = np.meshgrid(axis, axis, indexing="ij")
        grid = np.stack([rows, columns, 1 - rows, 1 - columns], axis=-1)
        x = self.conv2(self.conv1(x))
        x = x + self.place(ops.convert_to_tensor(grid[None], dtype=x.dtype))
        x = self.mix(ops.reshape(x, (-1, SIDE * SIDE, 16)))
        return self.classes(ops.max(self.attention(x), axis=1))
