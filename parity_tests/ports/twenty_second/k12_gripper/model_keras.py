import keras
from keras import layers, ops


class ChunkedLSTM(layers.Layer):
    def __init__(self, units, chunk, **kw):
        super().__init__(**kw)
        self.units, self.chunk = units, chunk
        self.cell = layers.LSTMCell(units)

    def build(self, shape):
        self.cell.build((None, shape[-1]))
        self.h0 = self.add_weight(shape=(self.units,), initializer="zeros", name="h0")
        self.c0 = self.add_weight(shape=(self.units,), initializer="zeros", name="c0")

    def call(self, x):
        zeros = ops.zeros_like(x[:, 0, :1])
        h, c = zeros + self.h0, zeros + self.c0
        outs = []
        for t in range(x.shape[1]):
            if t > 0 and t % self.chunk == 0:
                h, c = ops.stop_gradient(h), ops.stop_gradient(c)
            _, (h, c) = self.cell(x[:, t], [h, c])
            outs.append(h)
        return ops.stack(outs, axis=1)


def build(steps=12):
    joints = keras.Input((steps, 6), name="joints")
    goal = keras.Input((4,), name="goal")
    p = layers.Dense(14, activation="tanh", name="embed")(joints)
    g = layers.Dense(20, activation="relu", name="goal_embed")(goal)
    gamma = layers.Dense(14, name="gamma")(g)
    beta = layers.Dense(14, name="beta")(g)
    film = p * ops.expand_dims(1.0 + gamma, 1) + ops.expand_dims(beta, 1)
    h = ChunkedLSTM(14, chunk=4)(film)
    h = layers.LayerNormalization(epsilon=1e-5, name="norm")(h + p)
    action = layers.Dense(3, activation="tanh", name="action")(h)
    return keras.Model([joints, goal], action)
