import keras
from keras import layers, ops


def neighbours(x, k):
    diff = ops.expand_dims(x, 2) - ops.expand_dims(x, 1)
    d = ops.sum(ops.square(diff), axis=-1)
    return ops.top_k(-d, k)[1]


class EdgeConv(layers.Layer):
    def __init__(self, units, k, **kw):
        super().__init__(**kw)
        self.units, self.k = units, k
        self.lin1 = layers.Dense(units, name="lin1")
        self.lin2 = layers.Dense(units, name="lin2")

    def call(self, x):
        n, c = x.shape[1], x.shape[2]
        idx = neighbours(x, self.k)
        flat = ops.reshape(idx, (-1, n * self.k, 1))
        near = ops.reshape(ops.take_along_axis(x, flat, axis=1), (-1, n, self.k, c))
        centre = ops.repeat(ops.expand_dims(x, 2), self.k, axis=2)
        e = ops.concatenate([centre, near - centre], axis=-1)
        e = ops.leaky_relu(self.lin1(e), negative_slope=0.2)
        return ops.max(self.lin2(e), axis=2)


def build(points=24, k=6):
    inp = keras.Input((points, 3), name="x")
    f1 = EdgeConv(10, k, name="edge1")(inp)
    f2 = EdgeConv(14, k, name="edge2")(f1)
    f = layers.Concatenate()([f1, f2])
    f = layers.Dense(20, activation="relu", name="fuse")(f)
    g = layers.Concatenate()([layers.GlobalMaxPooling1D()(f), layers.GlobalAveragePooling1D()(f)])
    g = layers.Dense(12, activation="relu", name="hidden")(g)
    return keras.Model(inp, layers.Dense(3, name="classes")(g), name="dgcnn")
