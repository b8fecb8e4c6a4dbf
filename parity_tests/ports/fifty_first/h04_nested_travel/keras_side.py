"""Choice of travel mode: nested logit with tastes that depend on the traveller.

Modes: car, bus, tram, lift with others, train, bicycle.
"""

import keras
import numpy as np
from keras import layers, ops

NEST_OF_MODE = np.array([0, 1, 1, 0, 1, 2])
MEMBER = np.eye(3, dtype=np.float32)[NEST_OF_MODE]  # (modes, nests)


class NestedLogit(layers.Layer):
    def __init__(self, modes=6, nests=3, **kwargs):
        super().__init__(**kwargs)
        self.modes, self.nests = modes, nests

    def build(self, *shapes):
        self.constants = self.add_weight(name="constants", shape=(self.modes - 1,), initializer="zeros")
        self.scale_logit = self.add_weight(
            name="scale_logit", shape=(self.nests,), initializer=keras.initializers.Constant(0.8)
        )

    def call(self, tastes, trip, nest_utility, available):
        zero = ops.zeros((1,), dtype=tastes.dtype)
        utility = ops.sum(tastes[:, None, :] * trip, axis=-1) + ops.concatenate([zero, self.constants])
        scale = ops.sigmoid(self.scale_logit)
        open_ = ops.cast(available, "bool")
        columns, values = [], []
        for k in range(self.nests):
            inside = np.flatnonzero(k == NEST_OF_MODE)
            v = ops.take(utility, inside, axis=1) / scale[k]
            v = ops.where(ops.take(open_, inside, axis=1), v, -1e9)
            total = ops.logsumexp(v, axis=1)
            values.append(nest_utility[:, k] + scale[k] * total)
            columns.append((inside, v - total[:, None]))
        upper = ops.log_softmax(ops.stack(values, axis=1), axis=-1)
        by_mode = [None] * self.modes
        for k, (inside, conditional) in enumerate(columns):
            for j, mode in enumerate(inside):
                by_mode[mode] = conditional[:, j] + upper[:, k]
        return ops.stack(by_mode, axis=1)


def build():
    trip = keras.Input((6, 5), name="trip")
    service = keras.Input((6, 2), name="service")
    person = keras.Input((4,), name="person")
    available = keras.Input((6,), dtype="int32", name="available")

    h = layers.Dense(16, activation="tanh", name="person_1")(person)
    h = layers.Dense(12, activation="tanh", name="person_2")(h)
    tastes = layers.Dense(5, name="tastes")(h)
    tastes = -ops.softplus(tastes)

    # what a whole nest offers: the mean over its modes of frequency and comfort
    summed = ops.einsum("bmf,mk->bkf", service, ops.convert_to_tensor(MEMBER, dtype=service.dtype))
    offer = summed / ops.convert_to_tensor(MEMBER.sum(0)[:, None], dtype=service.dtype)
    nest_utility = layers.Dense(8, activation="silu", name="nest_1")(offer)
    nest_utility = layers.Dense(1, use_bias=False, name="nest_2")(nest_utility)[:, :, 0]

    outputs = NestedLogit(name="nested")(tastes, trip, nest_utility, available)
    return keras.Model([trip, service, person, available], outputs)


def loss(targets, outputs):
    chosen = ops.one_hot(ops.cast(ops.reshape(targets, (-1,)), "int32"), 6, dtype=outputs.dtype)
    return -ops.sum(chosen * outputs, axis=-1)


def optimizer():
    return keras.optimizers.Adagrad(learning_rate=0.05)
