import keras
from keras import layers


class Stage(layers.Layer):
    def __init__(self, filters, **kw):
        super().__init__(**kw)
        self.c1 = layers.Conv1D(filters, 3, padding="same", name="c1")
        self.n1 = layers.GroupNormalization(2, epsilon=1e-5, name="n1")
        self.c2 = layers.Conv1D(filters, 3, padding="same", activation="leaky_relu", name="c2")
        self.filters = filters

    def build(self, shape):
        self.c1.build(shape)
        mid = (*shape[:-1], self.filters)
        self.n1.build(mid)
        self.c2.build(mid)
        self.built = True

    def call(self, x):
        return self.c2(keras.ops.relu(self.n1(self.c1(x))))

    def compute_output_shape(self, shape):
        return (*shape[:-1], self.filters)


def build():
    inp = keras.Input((32, 2), name="x")
    d1 = Stage(8, name="down1")(inp)
    p1 = layers.AveragePooling1D(3, strides=2, padding="same", name="pool1")(d1)
    d2 = Stage(12, name="down2")(p1)
    p2 = layers.AveragePooling1D(3, strides=2, padding="same", name="pool2")(d2)
    mid = Stage(16, name="mid")(p2)
    u2 = layers.Conv1DTranspose(12, 3, strides=2, padding="same", name="up2")(mid)
    u2 = Stage(12, name="dec2")(layers.Concatenate(name="cat2")([u2, d2]))
    u1 = layers.Conv1DTranspose(8, 3, strides=2, padding="same", name="up1")(u2)
    u1 = Stage(8, name="dec1")(layers.Concatenate(name="cat1")([u1, d1]))
    out = layers.Conv1D(1, 1, name="out")(u1)
    return keras.Model(inp, out, name="denoiser")
