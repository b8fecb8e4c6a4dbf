import keras
from keras import layers, ops

# Dense-batch message passing on small molecules (<= 9 atoms, 0 = padding),
# GINE update + a virtual node that talks to everybody.

HID = 10
ROUNDS = 2


class GraphRound(layers.Layer):
    def __init__(self, last=False, **kw):
        super().__init__(**kw)
        self.last = last
        self.bond = layers.Embedding(4, HID, name="bond")
        self.f1 = layers.Dense(2 * HID, activation="relu", name="f1")
        self.f2 = layers.Dense(HID, name="f2")
        if not last:
            self.v1 = layers.Dense(HID, activation="relu", name="v1")

    def build(self, *_):
        self.eps = self.add_weight(name="eps", shape=(), initializer="zeros")
        self.bond.build(None)
        self.f1.build((None, HID))
        self.f2.build((None, 2 * HID))
        if not self.last:
            self.v1.build((None, HID))
        self.built = True

    def call(self, h, virtual, bonds, alive):
        h = (h + virtual[:, None, :]) * alive
        edge = ops.cast(bonds > 0, h.dtype)
        msg = ops.relu(h[:, None, :, :] + self.bond(bonds))
        agg = ops.einsum("bij,bijc->bic", edge, msg)
        new = self.f2(self.f1((1.0 + self.eps) * h + agg)) * alive
        new = ops.relu(new) if not self.last else new
        if not self.last:
            virtual = self.v1(virtual + ops.sum(h, axis=1) / ops.sum(alive, axis=1))
        return new, virtual


class Alive(layers.Layer):
    def call(self, atoms):
        return ops.cast(ops.expand_dims(atoms > 0, -1), self.compute_dtype)


class Readout(layers.Layer):
    def call(self, h, alive):
        return ops.sum(h, axis=1) / ops.sqrt(ops.sum(alive, axis=1))


class Seed(layers.Layer):
    def build(self, s):
        self.seed = self.add_weight(name="seed", shape=(HID,), initializer="random_normal")

    def call(self, h):
        return ops.zeros_like(h[:, 0]) + self.seed


def build():
    atoms = keras.Input((9,), dtype="int32", name="atoms")
    bonds = keras.Input((9, 9), dtype="int32", name="bonds")
    alive = Alive()(atoms)
    h = layers.Embedding(6, HID, name="atom")(atoms)
    virtual = Seed(name="seed")(h)
    for r in range(ROUNDS):
        h, virtual = GraphRound(last=r == ROUNDS - 1, name=f"round{r}")(h, virtual, bonds, alive)
    z = Readout()(h, alive)
    return keras.Model([atoms, bonds], layers.Dense(1, name="out")(z))
