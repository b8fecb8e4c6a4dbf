"""Hamiltonian network with friction: learns an energy, moves the state along its gradient (two midpoint steps)."""

import keras
import tensorflow as tf
from keras import layers, ops

DOF, HIDDEN, DT = 2, 16, 0.1


class Energy(layers.Layer):
    """V(q) + p' L(q) L(q)' p / 2"""

    def __init__(self, **kw):
        super().__init__(**kw)
        self.potential = [
            layers.Dense(HIDDEN, activation="tanh", name="potential_in"),
            layers.Dense(1, name="potential_out"),
        ]
        self.mass = [
            layers.Dense(HIDDEN, activation="softplus", name="mass_in"),
            layers.Dense(3, name="mass_out"),
        ]

    def build(self, shape=None):
        for first, second in (self.potential, self.mass):
            first.build((None, 2 * DOF))
            second.build((None, HIDDEN))
        self.built = True

    def call(self, q, p):
        angles = ops.concatenate([ops.sin(q), ops.cos(q)], axis=-1)
        v = self.potential[1](self.potential[0](angles))[:, 0]
        a, b, c = ops.unstack(self.mass[1](self.mass[0](angles)), axis=-1)
        a, c = ops.softplus(a), ops.softplus(c)
        # L = [[a, 0], [b, c]], so L'p = (a p1 + b p2, c p2)
        first, second = a * p[:, 0] + b * p[:, 1], c * p[:, 1]
        return v + 0.5 * (ops.square(first) + ops.square(second))


class Pendulum(keras.Model):
    def __init__(self):
        super().__init__(name="pendulum")
        self.energy = Energy(name="energy")

    def build(self, shape):
        self.energy.build()
        self.friction = self.add_weight(
            name="friction", shape=(DOF,), initializer=keras.initializers.Constant(-3.0)
        )
        self.built = True

    def flow(self, state):
        q, p = state[:, :DOF], state[:, DOF:]
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch([q, p])
            h = self.energy(q, p)
        to_q, to_p = tape.gradient(h, [q, p])
        return ops.concatenate([to_p, -to_q - ops.softplus(self.friction) * to_p], axis=-1)

    def call(self, state, training=None):
        for _ in range(2):
            half = state + 0.5 * DT * self.flow(state)
            state = state + DT * self.flow(half)
        return state


def build():
    model = Pendulum()
    model.build((None, 2 * DOF))
    return model
