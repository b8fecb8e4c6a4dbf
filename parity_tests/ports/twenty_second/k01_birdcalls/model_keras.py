import keras
from keras import layers, ops


class AttentionPool(layers.Layer):
    def __init__(self, units, **kw):
        super().__init__(**kw)
        self.supports_masking = True
        self.proj = layers.Dense(units, activation="tanh")
        self.score = layers.Dense(1, use_bias=False)

    def build(self, shape):
        self.proj.build(shape)
        self.score.build((None, None, self.proj.units))

    def compute_mask(self, x, mask=None):
        return None

    def call(self, x, mask=None):
        s = self.score(self.proj(x))
        if mask is not None:
            keep = ops.cast(mask, x.dtype)[..., None]
            s = s - 1e9 * (1.0 - keep)
        w = ops.softmax(s, axis=1)
        return ops.sum(w * x, axis=1)


def build():
    mel = keras.Input((20, 10), name="mel")
    h = layers.Masking(0.0)(mel)
    h = layers.Bidirectional(layers.GRU(12, return_sequences=True))(h)
    h = layers.LayerNormalization(epsilon=1e-5)(h)
    h = AttentionPool(16)(h)
    h = layers.Dense(24, activation="elu")(h)
    return keras.Model(mel, layers.Dense(5)(h))
