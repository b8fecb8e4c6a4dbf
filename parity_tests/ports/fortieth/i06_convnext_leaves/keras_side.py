import keras
from keras import layers

MEAN, STD = (0.24, 0.33, 0.21), (0.18, 0.24, 0.17)


class LayerScale(layers.Layer):
    def __init__(self, init=0.2, **kw):
        super().__init__(**kw)
        self.init = init

    def build(self, shape):
        self.gamma = self.add_weight(
            name="gamma", shape=(shape[-1],), initializer=keras.initializers.Constant(self.init)
        )

    def call(self, x):
        return x * self.gamma


def ln(name):
    return layers.LayerNormalization(epsilon=1e-6, name=name)


def block(x, dim, name):
    y = layers.DepthwiseConv2D(7, padding="same", name=f"{name}_dw")(x)
    y = ln(f"{name}_ln")(y)
    y = layers.Dense(4 * dim, activation="gelu", name=f"{name}_expand")(y)
    y = layers.Dense(dim, name=f"{name}_shrink")(y)
    return layers.Add(name=name)([x, LayerScale(name=f"{name}_scale")(y)])


def build():
    inp = keras.Input((28, 28, 3), name="picture")
    x = layers.Normalization(mean=MEAN, variance=[s * s for s in STD], name="standardise")(inp)
    x = layers.Conv2D(16, 4, strides=4, name="patchify")(x)
    x = ln("patchify_ln")(x)
    for i in range(2):
        x = block(x, 16, f"stage1_{i}")
    x = ln("down_ln")(x)
    x = layers.Conv2D(24, 2, strides=2, padding="same", name="down")(x)
    for i in range(2):
        x = block(x, 24, f"stage2_{i}")
    x = ln("head_ln")(layers.GlobalAveragePooling2D()(x))
    return keras.Model(inp, layers.Dense(5, name="species")(x))


def optimizer():
    lr = keras.optimizers.schedules.CosineDecay(1.5e-3, decay_steps=20, alpha=0.02)
    opt = keras.optimizers.AdamW(lr, weight_decay=0.05)
    opt.exclude_from_weight_decay(var_names=["bias", "gamma", "beta"])
    return opt
