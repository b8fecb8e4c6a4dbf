"""gMLP: classifies short texts without attention, words mix through a spatial gate."""

import keras
from keras import layers, ops

TOKENS, LENGTH, CLASSES = 30, 12, 4


@keras.saving.register_keras_serializable("gmlp")
class SpatialGate(layers.Layer):
    def build(self, shape):
        _, length, width = shape
        self.norm = layers.LayerNormalization(epsilon=1e-6)
        self.norm.build((None, length, width // 2))
        self.mix = self.add_weight(
            shape=(length, length), initializer=keras.initializers.RandomNormal(stddev=1e-3), name="mix"
        )
        self.shift = self.add_weight(shape=(length,), initializer="ones", name="shift")

    def call(self, x):
        u, v = ops.split(x, 2, axis=-1)
        v = ops.einsum("mn,bnd->bmd", self.mix, self.norm(v)) + self.shift[:, None]
        return u * v

    def compute_output_shape(self, shape):
        return (*shape[:-1], shape[-1] // 2)


def block(x, hidden, name):
    shortcut = x
    x = layers.LayerNormalization(epsilon=1e-6, name=f"{name}_norm")(x)
    x = layers.Dense(2 * hidden, activation="silu", name=f"{name}_up")(x)
    x = SpatialGate(name=f"{name}_gate")(x)
    x = layers.Dropout(0.1, name=f"{name}_drop")(x)
    x = layers.Dense(shortcut.shape[-1], name=f"{name}_down")(x)
    return layers.Add()([shortcut, x])


def build():
    text = keras.Input((LENGTH,), dtype="int32", name="text")
    x = layers.Embedding(TOKENS, 12, name="tokens")(text)
    for i in range(2):
        x = block(x, 16, f"block_{i}")
    x = layers.LayerNormalization(epsilon=1e-6, name="norm")(x)
    x = layers.GlobalAveragePooling1D()(x)
    x = layers.Dropout(0.2, name="drop")(x)
    return keras.Model(text, layers.Dense(CLASSES, name="label")(x))
