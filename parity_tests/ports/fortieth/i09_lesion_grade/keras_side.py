import keras
import numpy as np
from keras import layers, ops

NUM_GRADES = 4
SIZE = 28
# a missed severe case costs more than a missed mild one
LINK_WEIGHTS = np.array([0.7, 1.1, 1.9], dtype=np.float32)
SMOOTH = 0.04


class PerImageStandardize(layers.Layer):
    def call(self, x):
        mean = ops.mean(x, axis=(1, 2, 3), keepdims=True)
        std = ops.std(x, axis=(1, 2, 3), keepdims=True)
        return (x - mean) / ops.maximum(std, 1.0 / SIZE)


class CumulativeLinks(layers.Layer):
    """P(y > k) = sigmoid(score - theta_k), theta increasing by construction."""

    def __init__(self, grades, **kw):
        super().__init__(**kw)
        self.grades = grades

    def build(self, shape):
        self.first = self.add_weight(
            shape=(1,), initializer=keras.initializers.Constant(-0.6), name="first_cut"
        )
        self.gaps = self.add_weight(
            shape=(self.grades - 2,), initializer=keras.initializers.Constant(0.3), name="gaps"
        )

    def call(self, score):
        cuts = ops.cumsum(ops.concatenate([self.first, ops.softplus(self.gaps)], axis=0))
        return score - ops.expand_dims(cuts, 0)


def squeeze_excite(x, ratio, name):
    c = x.shape[-1]
    s = layers.GlobalAveragePooling2D(keepdims=True, name=name + "_squeeze")(x)
    s = layers.Dense(c // ratio, activation="swish", name=name + "_reduce")(s)
    s = layers.Dense(c, activation="hard_sigmoid", name=name + "_expand")(s)
    return layers.Multiply(name=name + "_scale")([x, s])


def block(x, filters, stride, name):
    y = layers.Conv2D(filters, 3, strides=stride, padding="same", use_bias=False, name=name + "_conv1")(x)
    y = layers.GroupNormalization(groups=4, name=name + "_gn1")(y)
    y = layers.Activation("silu")(y)
    y = layers.Conv2D(filters, 3, padding="same", use_bias=False, name=name + "_conv2")(y)
    y = layers.GroupNormalization(groups=4, name=name + "_gn2")(y)
    y = squeeze_excite(y, 4, name + "_se")
    sc = layers.AveragePooling2D(stride, name=name + "_pool")(x) if stride > 1 else x
    if sc.shape[-1] != filters:
        sc = layers.Conv2D(filters, 1, name=name + "_proj")(sc)
    return layers.Activation("silu")(layers.Add()([y, sc]))


def build():
    inp = keras.Input((SIZE, SIZE, 1), name="scan")
    x = PerImageStandardize(name="standardize")(inp)
    x = layers.Conv2D(8, 5, padding="same", name="stem")(x)
    x = block(x, 8, 1, "b0")
    x = block(x, 16, 2, "b1")
    x = block(x, 16, 2, "b2")
    x = layers.GlobalAveragePooling2D()(x)
    score = layers.Dense(1, use_bias=False, name="severity")(x)
    return keras.Model(inp, CumulativeLinks(NUM_GRADES, name="links")(score))


def ordinal_loss(y_true, logits):
    k = ops.arange(NUM_GRADES - 1)
    t = ops.cast(ops.cast(ops.reshape(y_true, (-1, 1)), "int32") > ops.cast(k, "int32"), logits.dtype)
    t = t * (1.0 - SMOOTH) + 0.5 * SMOOTH
    ce = ops.maximum(logits, 0.0) - logits * t + ops.log1p(ops.exp(-ops.abs(logits)))
    w = ops.cast(ops.convert_to_tensor(LINK_WEIGHTS), logits.dtype)
    return ops.mean(ops.sum(ce * w, axis=-1))
