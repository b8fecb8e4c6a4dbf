"""A driven pendulum with unknown friction: a neural right-hand side, integrated by classical Runge-Kutta."""

import keras
from keras import layers, ops

STEPS, H = 6, 0.25


class Pendulum(layers.Layer):
    """drive is sampled every half step: 2 * STEPS + 1 values."""

    def build(self, input_shape):
        self.log_stiffness = self.add_weight(
            shape=(), name="log_stiffness", initializer=keras.initializers.Constant(0.3)
        )
        self.log_damping = self.add_weight(
            shape=(), name="log_damping", initializer=keras.initializers.Constant(-1.2)
        )
        self.hidden = layers.Dense(14, activation="tanh", name="hidden")
        self.hidden.build((None, 3))
        self.force = layers.Dense(1, name="force")
        self.force.build((None, 14))

    def slope(self, state, drive):
        angle, speed = state[:, :1], state[:, 1:]
        residual = self.force(self.hidden(ops.concatenate([ops.sin(angle), speed, drive], axis=-1)))
        acceleration = (
            residual
            + drive
            - ops.exp(self.log_stiffness) * ops.sin(angle)
            - ops.exp(self.log_damping) * speed
        )
        return ops.concatenate([speed, acceleration], axis=-1)

    def call(self, state, drive):
        path = []
        for i in range(STEPS):
            start, middle, end = (drive[:, 2 * i + j : 2 * i + j + 1] for j in range(3))
            k1 = self.slope(state, start)
            k2 = self.slope(state + H / 2 * k1, middle)
            k3 = self.slope(state + H / 2 * k2, middle)
            k4 = self.slope(state + H * k3, end)
            state = state + H / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
            path.append(state)
        return ops.stack(path, axis=1)


def build():
    state = keras.Input((2,), name="state")
    drive = keras.Input((2 * STEPS + 1,), name="drive")
    return keras.Model([state, drive], Pendulum(name="pendulum")(state, drive))
