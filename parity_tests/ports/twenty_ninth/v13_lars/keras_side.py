"""Two-lead heartbeat loops (periodic signals) -> rhythm class; trained with LARS."""

import keras
from keras import ops
from keras.layers import Conv1D, Dense, Layer


class Wrap(Layer):
    def __init__(self, n, **kw):
        super().__init__(**kw)
        self.n = n

    def call(self, x):
        return ops.concatenate([x[:, -self.n :], x, x[:, : self.n]], axis=1)


class BeatNorm(Layer):
    """Per beat and channel, over time."""

    def build(self, shape):
        self.gamma = self.add_weight(name="gamma", shape=(shape[-1],), initializer="ones")
        self.beta = self.add_weight(name="beta", shape=(shape[-1],), initializer="zeros")

    def call(self, x):
        m, v = ops.moments(x, axes=[1], keepdims=True)
        return (x - m) / ops.sqrt(v + 1e-4) * self.gamma + self.beta


class StatPool(Layer):
    def call(self, x, w):
        w = ops.softmax(w, axis=1)
        m = ops.sum(w * x, axis=1)
        s = ops.sqrt(ops.sum(w * ops.square(x - m[:, None]), axis=1) + 1e-5)
        return ops.concatenate([m, s], axis=-1)


def build():
    inp = keras.Input((24, 2), name="x")
    h = inp
    for i, (width, dil) in enumerate([(8, 1), (10, 2)]):
        h = Wrap(2 * dil, name=f"wrap{i}")(h)
        h = Conv1D(width, 5, dilation_rate=dil, use_bias=False, name=f"conv{i}")(h)
        h = BeatNorm(name=f"norm{i}")(h)
        h = ops.silu(h)
    score = Dense(1, use_bias=False, name="att2")(Dense(6, activation="tanh", name="att1")(h))
    pooled = StatPool(name="pool")(h, score)
    return keras.Model(inp, Dense(3, name="rhythm")(pooled))


class LARS(keras.optimizers.Optimizer):
    def __init__(self, learning_rate=0.5, momentum=0.9, trust=0.1, l2=0.02, name="lars", **kw):
        super().__init__(learning_rate=learning_rate, name=name, **kw)
        self.mom, self.trust, self.l2 = momentum, trust, l2

    def build(self, variables):
        if self.built:
            return
        super().build(variables)
        self.velocity = [self.add_variable_from_reference(v, name="velocity") for v in variables]

    def update_step(self, gradient, variable, learning_rate):
        lr = ops.cast(learning_rate, variable.dtype)
        g = ops.cast(gradient, variable.dtype)
        vel = self.velocity[self._get_variable_index(variable)]
        if len(variable.shape) > 1:
            wn = ops.sqrt(ops.sum(ops.square(variable)))
            gn = ops.sqrt(ops.sum(ops.square(g)))
            local = self.trust * wn / (gn + self.l2 * wn + 1e-9)
            g = local * (g + self.l2 * variable)
        self.assign(vel, self.mom * vel + lr * g)
        self.assign_sub(variable, vel)


def make_optimizer():
    return LARS()
