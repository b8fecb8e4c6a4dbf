"""Small Perceiver over an irregular set of sensor readings."""

import math

import keras
import numpy as np
from keras import layers, ops

TOKENS, SENSORS, LATENTS, DIM, TOKEN_DIM, ROUNDS = 24, 10, 6, 24, 20, 2
BANDS = np.float32(math.pi) * np.geomspace(1.0, 16.0, 5, dtype="float32")


class Fourier(layers.Layer):
    def __init__(self, **kw):
        super().__init__(**kw)
        self.bands = ops.convert_to_tensor(BANDS)

    def call(self, t):
        a = ops.expand_dims(t, -1) * self.bands
        return ops.concatenate([ops.expand_dims(t, -1), ops.sin(a), ops.cos(a)], axis=-1)


class Latents(layers.Layer):
    def build(self, shape):
        self.array = self.add_weight(
            name="array", shape=(LATENTS, DIM), initializer=keras.initializers.TruncatedNormal(stddev=0.2)
        )

    def call(self, tokens):
        return ops.tile(self.array[None], (ops.shape(tokens)[0], 1, 1))


class Block(layers.Layer):
    """Pre-norm attention and MLP; with a context it is cross attention."""

    def __init__(self, heads, cross=False, **kw):
        super().__init__(**kw)
        self.cross = cross
        self.norm_q = layers.LayerNormalization(name="norm_q")
        self.norm_kv = layers.LayerNormalization(name="norm_kv") if cross else None
        self.attend = layers.MultiHeadAttention(heads, DIM // heads, name="attend")
        self.norm_ff = layers.LayerNormalization(name="norm_ff")
        self.ff1 = layers.Dense(2 * DIM, activation="gelu", name="ff1")
        self.ff2 = layers.Dense(DIM, name="ff2")

    def call(self, z, context=None, mask=None):
        q = self.norm_q(z)
        kv = self.norm_kv(context) if self.cross else q
        z = z + self.attend(q, kv, attention_mask=mask)
        return z + self.ff2(self.ff1(self.norm_ff(z)))


def build():
    sensor = keras.Input((TOKENS,), dtype="int32", name="sensor")
    reading = keras.Input((TOKENS,), name="reading")
    when = keras.Input((TOKENS,), name="when")
    present = ops.expand_dims(ops.not_equal(sensor, 0), 1)  # batch, 1, tokens

    kind = layers.Embedding(SENSORS + 1, 8, name="kind")(sensor)
    x = layers.Concatenate()([kind, ops.expand_dims(reading, -1), Fourier(name="fourier")(when)])
    x = layers.Dense(TOKEN_DIM, name="tokens")(x)

    z = Latents(name="latents")(x)
    cross = Block(2, cross=True, name="cross")
    selves = [Block(4, name=f"self_{i}") for i in range(2)]
    for _ in range(ROUNDS):
        z = cross(z, context=x, mask=present)
        for block in selves:
            z = block(z)
    z = layers.LayerNormalization(name="final")(z)
    pooled = layers.GlobalAveragePooling1D()(z)
    life = layers.Dense(1, name="life")(pooled)
    fault = layers.Dense(4, name="fault")(layers.Flatten()(z))
    return keras.Model(
        {"sensor": sensor, "reading": reading, "when": when}, {"life": life, "fault": fault}, name="perceiver"
    )
