import keras
from keras import layers, ops

HEADS, DIM = 2, 8


class GatedRetention(layers.Layer):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.norm = layers.LayerNormalization(epsilon=1e-5)
        self.query = layers.Dense(HEADS * DIM, use_bias=False)
        self.key = layers.Dense(HEADS * DIM, use_bias=False)
        self.value = layers.Dense(HEADS * DIM, use_bias=False)
        self.gate = layers.Dense(HEADS * DIM, activation="silu")
        self.out = layers.Dense(HEADS * DIM)

    def build(self, shape):
        self.forget = self.add_weight(shape=(HEADS,), initializer="ones", name="forget")
        self.scale = self.add_weight(shape=(HEADS, DIM), initializer="ones", name="scale")

    def call(self, x):
        y = self.norm(x)
        time = x.shape[1]
        split = (-1, time, HEADS, DIM)
        q = ops.reshape(self.query(y), split) * DIM**-0.5
        k = ops.reshape(self.key(y), split)
        v = ops.reshape(self.value(y), split)

        steps = ops.cast(ops.arange(time), x.dtype)
        lag = steps[:, None] - steps[None, :]
        fade = ops.log(ops.sigmoid(self.forget))[:, None, None] * ops.maximum(lag, 0.0)
        fade = ops.where(lag >= 0, ops.exp(fade), 0.0)
        o = ops.einsum("bthd,bshd,hts,bshe->bthe", q, k, fade, v)

        o = o / ops.sqrt(ops.mean(o**2, axis=-1, keepdims=True) + 1e-5) * self.scale
        o = ops.reshape(o, (-1, time, HEADS * DIM))
        return x + self.out(self.gate(y) * o)


def build():
    spec = keras.Input((20, 16), name="spec")
    x = GatedRetention()(spec)
    x = GatedRetention()(x)
    gain = layers.Dense(16, activation="sigmoid")(x)
    return keras.Model(spec, gain * spec)


def optimizer():
    return keras.optimizers.SGD(learning_rate=0.1, momentum=0.9, clipnorm=0.02)
