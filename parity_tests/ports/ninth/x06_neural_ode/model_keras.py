import keras
from keras import layers, ops


class Field(layers.Layer):
    def __init__(self, dim, hidden, **kwargs):
        super().__init__(**kwargs)
        self.inner = layers.Dense(hidden, activation="tanh", name="inner")
        self.outer = layers.Dense(dim, name="outer")

    def call(self, h, t=0.0):
        clock = ops.full_like(h[:, :1], t)
        return self.outer(self.inner(ops.concatenate([h, clock], axis=-1)))


class NeuralODE(keras.Model):
    def __init__(self, dim=6, hidden=18, steps=6, classes=3):
        super().__init__()
        self.steps = steps
        self.encode = layers.Dense(dim, name="encode")
        self.field = Field(dim, hidden, name="field")
        self.decode = layers.Dense(classes, name="decode")

    def call(self, x):
        h = self.encode(x)
        dt = 1.0 / self.steps
        for i in range(self.steps):
            t = i * dt
            k1 = self.field(h, t=t)
            k2 = self.field(h + dt / 2 * k1, t=t + dt / 2)
            k3 = self.field(h + dt / 2 * k2, t=t + dt / 2)
            k4 = self.field(h + dt * k3, t=t + dt)
            h = h + dt / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
        return self.decode(h)


def build():
    model = NeuralODE()
    model(ops.zeros((1, 4)))
    return model


def optimizer():
    adam = keras.optimizers.AdamW(learning_rate=0.0078125, weight_decay=0.0625, epsilon=1e-7)
    adam.exclude_from_weight_decay(var_names=["bias"])
    return adam
