import keras
from keras import layers, ops


def shared(x, units, name, activation="relu"):
    x = layers.Dense(units, use_bias=False, name=name)(x)
    x = layers.BatchNormalization(momentum=0.95, epsilon=1e-4, name=f"{name}_bn")(x)
    return layers.Activation(activation, name=f"{name}_act")(x)


class Align(layers.Layer):
    """Turns the points by a matrix of their own, the identity plus what is learnt."""

    def build(self, points_shape, features_shape):
        self.size = points_shape[-1]
        self.kernel = self.add_weight(
            shape=(features_shape[-1], self.size**2), initializer="zeros", name="kernel"
        )

    def call(self, points, features):
        turn = ops.reshape(ops.matmul(features, self.kernel), (-1, self.size, self.size))
        return ops.matmul(points, turn + ops.eye(self.size, dtype=points.dtype))


def build():
    points = keras.Input((48, 3), name="points")
    t = shared(points, 16, "t1")
    t = shared(t, 32, "t2")
    t = layers.GlobalMaxPooling1D(name="t_pool")(t)
    x = Align(name="align")(points, t)
    local = shared(x, 24, "local")
    x = shared(local, 32, "wide1")
    x = shared(x, 64, "wide2", activation="tanh")
    whole = layers.GlobalMaxPooling1D(name="whole")(x)
    label = layers.Dense(32, activation="relu", name="label_hidden")(whole)
    label = layers.Dropout(0.3, name="label_drop")(label)
    label = layers.Dense(5, name="label")(label)
    repeated = layers.RepeatVector(48, name="repeat")(whole)
    part = layers.Concatenate(name="part_features")([local, repeated])
    part = shared(part, 32, "part1")
    part = layers.Dense(3, name="part")(part)
    return keras.Model(points, {"label": label, "part": part})
