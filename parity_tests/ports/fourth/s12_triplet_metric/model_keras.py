import keras
from keras import layers, ops


class Freeze(layers.Layer):
    def call(self, x):
        return ops.stop_gradient(x)


class Stack(layers.Layer):
    def call(self, vectors):
        return ops.stack(vectors, axis=1)


def encoder(features=18, width=16):
    return keras.Sequential(
        [
            keras.Input((features,)),
            layers.Dense(40, name="wide"),
            layers.LayerNormalization(epsilon=1e-5, name="norm"),
            layers.LeakyReLU(negative_slope=0.125, name="act"),
            layers.Dense(width, use_bias=False, name="code"),
            layers.UnitNormalization(name="unit"),
        ],
        name="encoder",
    )


def build():
    sides = [keras.Input((18,), name=name) for name in ("anchor", "positive", "negative")]
    encode = encoder()
    anchor, positive, negative = (encode(side) for side in sides)
    return keras.Model(sides, Stack(name="codes")([anchor, positive, Freeze(name="freeze")(negative)]))


def triplet(margin, codes):
    """Hinge on squared distances; each sample has a margin of its own."""
    anchor, positive, negative = ops.unstack(codes, 3, axis=1)
    near = ops.sum(ops.square(anchor - positive), axis=-1)
    far = ops.sum(ops.square(anchor - negative), axis=-1)
    return ops.relu(near - far + ops.reshape(margin, (-1,)))
