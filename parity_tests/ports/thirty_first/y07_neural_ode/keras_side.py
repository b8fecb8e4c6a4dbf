"""Latent neural ODE (fixed-step RK4) reading a decay curve at three times."""

import keras
from keras import layers, ops


class Field(layers.Layer):
    """dz/dt = f(t, z), non-autonomous."""

    def __init__(self, dim, hidden, **kw):
        super().__init__(**kw)
        self.lin1 = layers.Dense(hidden, activation="tanh")
        self.lin2 = layers.Dense(hidden, activation="tanh")
        self.lin3 = layers.Dense(dim)

    def call(self, z, t):
        tt = ops.ones_like(z[:, :1]) * t
        return self.lin3(self.lin2(self.lin1(ops.concatenate([z, tt], axis=-1))))


class LatentODE(keras.Model):
    def __init__(self, latent=6, hidden=24, steps_per_leg=2, times=(0.5, 1.0, 2.0)):
        super().__init__(name="latent_ode")
        self.encode_1 = layers.Dense(16, activation="softplus")
        self.encode_2 = layers.Dense(latent)
        self.field = Field(latent, hidden)
        self.decode = layers.Dense(1)
        self.times = times
        self.steps = steps_per_leg

    def integrate(self, z, t0, t1):
        h = (t1 - t0) / self.steps
        t = t0
        for _ in range(self.steps):
            k1 = self.field(z, t=t)
            k2 = self.field(z + h / 2 * k1, t=t + h / 2)
            k3 = self.field(z + h / 2 * k2, t=t + h / 2)
            k4 = self.field(z + h * k3, t=t + h)
            z = z + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
            t = t + h
        return z

    def call(self, x):
        z = self.encode_2(self.encode_1(x))
        t, readings = 0.0, []
        for t_next in self.times:
            z = self.integrate(z, t, t_next)
            readings.append(self.decode(z))
            t = t_next
        return ops.concatenate(readings, axis=-1)


def build():
    model = LatentODE()
    model(ops.zeros((8, 10)))
    return model
