"""FocalNet for microscope pictures of pollen grains: focal modulation in place of attention."""

import keras
import numpy as np
from keras import layers, ops

SIZE = 32
CLASSES = 7
MEAN = np.array([0.5, 0.4375, 0.40625], np.float32)
VARIANCE = np.array([0.0625, 0.0625, 0.0625], np.float32)


class FocalModulation(layers.Layer):
    """y = q * h(sum over levels of gate * context), then a projection."""

    def __init__(self, dim, levels=2, window=3, factor=2, **kwargs):
        super().__init__(**kwargs)
        self.dim = dim
        self.levels = levels
        self.query = layers.Dense(dim, name="query")
        self.context = layers.Dense(dim, name="context")
        self.gates = layers.Dense(levels + 1, name="gates")
        self.focal = [
            layers.DepthwiseConv2D(
                window + factor * level,
                padding="same",
                use_bias=False,
                activation="silu",
                name=f"focal_{level}",
            )
            for level in range(levels)
        ]
        self.modulator = layers.Conv2D(dim, 1, name="modulator")
        self.norm = layers.LayerNormalization(epsilon=1e-5, name="norm")
        self.out = layers.Dense(dim, name="out")

    def call(self, x):
        q, context, gates = self.query(x), self.context(x), self.gates(x)
        total = 0.0
        for level, conv in enumerate(self.focal):
            context = conv(context)
            total = total + context * gates[..., level : level + 1]
        everywhere = ops.silu(ops.mean(context, axis=(1, 2), keepdims=True))
        total = total + everywhere * gates[..., self.levels :]
        modulator = self.modulator(total / (self.levels + 1))
        return self.out(self.norm(q * modulator))


class LayerScale(layers.Layer):
    def __init__(self, initial=0.5, **kwargs):
        super().__init__(**kwargs)
        self.initial = initial

    def build(self, shape):
        self.gamma = self.add_weight(
            shape=(shape[-1],), initializer=keras.initializers.Constant(self.initial), name="gamma"
        )

    def call(self, x):
        return x * self.gamma


def block(x, dim, name):
    y = layers.LayerNormalization(epsilon=1e-5, name=f"{name}_norm1")(x)
    y = FocalModulation(dim, name=f"{name}_modulation")(y)
    x = layers.Add()([x, LayerScale(name=f"{name}_scale1")(y)])
    y = layers.LayerNormalization(epsilon=1e-5, name=f"{name}_norm2")(x)
    y = layers.Dense(2 * dim, activation="silu", name=f"{name}_mlp1")(y)
    y = layers.Dense(dim, name=f"{name}_mlp2")(y)
    return layers.Add()([x, LayerScale(name=f"{name}_scale2")(y)])


def build(widths=(24, 40), depths=(2, 2)):
    image = keras.Input((SIZE, SIZE, 3), name="image")
    x = layers.Normalization(mean=MEAN, variance=VARIANCE, name="standardise")(image)
    for stage, (dim, depth) in enumerate(zip(widths, depths)):
        patch = 4 if stage == 0 else 2
        x = layers.Conv2D(dim, patch, strides=patch, name=f"embed_{stage}")(x)
        x = layers.LayerNormalization(epsilon=1e-5, name=f"embed_{stage}_norm")(x)
        for i in range(depth):
            x = block(x, dim, f"stage{stage}_block{i}")
    x = layers.LayerNormalization(epsilon=1e-5, name="final_norm")(x)
    x = layers.GlobalAveragePooling2D(name="pool")(x)
    return keras.Model(image, layers.Dense(CLASSES, name="head")(x), name="focalnet")
