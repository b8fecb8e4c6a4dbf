"""Recurrent independent mechanisms over pantograph sensor frames; regresses contact force and uplift."""

import math

import keras
from keras import layers, ops

MECHANISMS = 4
ACTIVE = 2
HIDDEN = 10
KEY = 6
VALUE = 8


class Mechanism(layers.Layer):
    """One of the mechanisms: its query on the input, its gated cell and its talk to the others."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.query = layers.Dense(KEY, use_bias=False, name="query")
        self.cell_in = layers.Dense(3 * HIDDEN, name="cell_in")
        self.cell_rec = layers.Dense(
            3 * HIDDEN, use_bias=False, kernel_initializer="orthogonal", name="cell_rec"
        )
        self.ask = layers.Dense(KEY, use_bias=False, name="ask")
        self.tell = layers.Dense(KEY, use_bias=False, name="tell")
        self.say = layers.Dense(HIDDEN, use_bias=False, name="say")

    def build(self, shape=None):
        for part in (self.query, self.cell_rec, self.ask, self.tell, self.say):
            part.build((None, HIDDEN))
        self.cell_in.build((None, VALUE))
        self.built = True

    def step(self, v, h):
        xu, xr, xc = ops.split(self.cell_in(v), 3, axis=-1)
        hu, hr, hc = ops.split(self.cell_rec(h), 3, axis=-1)
        u = ops.sigmoid(xu + hu)
        r = ops.sigmoid(xr + hr)
        c = ops.tanh(xc + r * hc)
        return u * h + (1.0 - u) * c


class PantographRIM(keras.Model):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.mechanisms = [Mechanism(name=f"mechanism_{i}") for i in range(MECHANISMS)]
        self.key = layers.Dense(KEY, use_bias=False, name="key")
        self.value = layers.Dense(VALUE, use_bias=False, name="value")
        self.norm = layers.LayerNormalization(epsilon=1e-5, name="norm")
        self.read = layers.Dense(2, name="read")

    def build(self, shape):
        self.start = self.add_weight(
            name="start", shape=(MECHANISMS, HIDDEN), initializer=keras.initializers.RandomNormal(stddev=0.7)
        )
        for m in self.mechanisms:
            m.build()
        self.key.build((None, shape[-1]))
        self.value.build((None, shape[-1]))
        self.norm.build((None, HIDDEN))
        self.read.build((None, MECHANISMS * HIDDEN))
        self.built = True

    def call(self, frames):
        batch, steps = ops.shape(frames)[0], frames.shape[1]
        hs = [ops.tile(self.start[i : i + 1], (batch, 1)) for i in range(MECHANISMS)]
        for t in range(steps):
            x = frames[:, t]
            k = self.key(x)
            v = self.value(x)
            # attention of every mechanism over (the frame, nothing)
            shares = []
            for m, h in zip(self.mechanisms, hs):
                score = ops.sum(m.query(h) * k, axis=-1, keepdims=True) / math.sqrt(KEY)
                shares.append(ops.softmax(ops.concatenate([score, ops.zeros_like(score)], axis=-1))[:, :1])
            everyone = ops.concatenate(shares, axis=-1)
            least = ops.top_k(everyone, ACTIVE)[0][:, -1:]
            on = ops.cast(everyone >= least, everyone.dtype)

            moved = []
            for i, (m, h) in enumerate(zip(self.mechanisms, hs)):
                gate = on[:, i : i + 1]
                moved.append(gate * m.step(shares[i] * v, h) + (1.0 - gate) * h)

            # the active ones read from all
            tells = ops.stack([m.tell(h) for m, h in zip(self.mechanisms, moved)], axis=1)
            says = ops.stack([m.say(h) for m, h in zip(self.mechanisms, moved)], axis=1)
            hs = []
            for i, (m, h) in enumerate(zip(self.mechanisms, moved)):
                a = ops.sum(m.ask(h)[:, None] * tells, axis=-1) / math.sqrt(KEY)
                heard = ops.sum(ops.softmax(a)[..., None] * says, axis=1)
                hs.append(h + on[:, i : i + 1] * heard)
        return self.read(ops.concatenate([self.norm(h) for h in hs], axis=-1))


def build():
    model = PantographRIM(name="pantograph")
    model.build((None, 9, 5))
    return model
