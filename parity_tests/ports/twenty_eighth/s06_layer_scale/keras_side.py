import math

import keras
from keras import layers, ops


class LayerScale(layers.Layer):
    def __init__(self, value=0.3, **kw):
        super().__init__(**kw)
        self.value = value

    def build(self, shape):
        self.gamma = self.add_weight(
            shape=(shape[-1],), initializer=keras.initializers.Constant(self.value), name="gamma"
        )
        self.built = True

    def call(self, x):
        return x * self.gamma


def block(x, dim, name):
    r = layers.DepthwiseConv2D(5, padding="same", name=f"{name}_dw")(x)
    r = layers.LayerNormalization(epsilon=1e-6, name=f"{name}_ln")(r)
    r = layers.Dense(4 * dim, name=f"{name}_pw1")(r)
    r = layers.Activation("gelu", name=f"{name}_gelu")(r)
    r = layers.Dense(dim, name=f"{name}_pw2")(r)
    r = LayerScale(name=f"{name}_scale")(r)
    return layers.Add(name=f"{name}_add")([x, r])


def build():
    inp = keras.Input((16, 16, 3), name="x")
    h = layers.Conv2D(8, 2, strides=2, name="stem")(inp)
    h = layers.LayerNormalization(epsilon=1e-6, name="stem_ln")(h)
    h = block(h, 8, "s1b1")
    h = layers.LayerNormalization(epsilon=1e-6, name="down_ln")(h)
    h = layers.Conv2D(12, 2, strides=2, name="down")(h)
    h = block(h, 12, "s2b1")
    h = block(h, 12, "s2b2")
    h = layers.GlobalAveragePooling2D(name="gap")(h)
    h = layers.LayerNormalization(epsilon=1e-6, name="head_ln")(h)
    return keras.Model(inp, layers.Dense(4, name="head")(h), name="mini_convnext")


class WarmCosine(keras.optimizers.schedules.LearningRateSchedule):
    def __init__(self, peak=0.1, warm=4, total=16):
        self.peak, self.warm, self.total = peak, warm, total

    def __call__(self, step):
        s = ops.cast(step, "float32")
        up = (s + 1.0) / self.warm
        down = 0.5 * (1.0 + ops.cos(math.pi * (s - self.warm) / (self.total - self.warm)))
        return self.peak * ops.where(s < self.warm, up, down)

    def get_config(self):
        return {"peak": self.peak, "warm": self.warm, "total": self.total}


def optimizer():
    return keras.optimizers.SGD(WarmCosine(), momentum=0.9)
