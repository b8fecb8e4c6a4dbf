"""Point clouds: what the object is, and which part each point belongs to."""

import keras
from keras import layers, ops

POINTS, OBJECTS, PARTS = 40, 4, 3


def shared(x, units, name):
    x = layers.Dense(units, use_bias=False, name=f"{name}_dense")(x)
    x = layers.BatchNormalization(momentum=0.9, epsilon=1e-4, name=f"{name}_norm")(x)
    return layers.Activation("relu", name=f"{name}_relu")(x)


class Align(layers.Layer):
    """Turns the points by a matrix, which begins as the identity."""

    def __init__(self, size, **kwargs):
        super().__init__(**kwargs)
        self.size = size
        self.matrix = layers.Dense(
            size * size, kernel_initializer=keras.initializers.RandomNormal(stddev=0.01), name="matrix"
        )

    def call(self, points, features):
        matrix = ops.reshape(self.matrix(features), (-1, self.size, self.size)) + ops.eye(
            self.size, dtype=points.dtype
        )
        return ops.einsum("bni,bij->bnj", points, matrix)


def build():
    points = keras.Input((POINTS, 3), name="points")
    colors = keras.Input((POINTS, 2), name="colors")
    centered = points - ops.mean(points, axis=1, keepdims=True)
    pose = layers.GlobalMaxPooling1D(name="pose_pool")(shared(centered, 24, "pose"))
    turned = Align(3, name="align")(centered, layers.Dense(16, activation="relu", name="pose_hidden")(pose))

    x = layers.Concatenate(name="in")([turned, colors, ops.norm(turned, axis=-1, keepdims=True)])
    local = shared(x, 24, "local")
    wide = shared(local, 48, "wide")
    whole = layers.Concatenate(name="whole")(
        [
            layers.GlobalMaxPooling1D(name="whole_max")(wide),
            layers.GlobalAveragePooling1D(name="whole_mean")(wide),
        ]
    )
    object_ = layers.Dense(24, activation="tanh", name="object_hidden")(whole)
    object_ = layers.Dense(OBJECTS, name="object")(object_)

    each = layers.Concatenate(name="each")([local, layers.RepeatVector(POINTS, name="spread")(whole)])
    part = shared(each, 32, "part")
    part = layers.Dense(PARTS, name="part")(part)
    return keras.Model([points, colors], {"object": object_, "part": part}, name="points")
