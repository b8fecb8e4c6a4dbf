import keras
from keras import layers, ops


class SpectralConv(layers.Layer):
    def __init__(self, width, modes, **kw):
        super().__init__(**kw)
        self.width, self.modes = width, modes

    def build(self, shape):
        s = (shape[-1], self.width, self.modes)
        init = keras.initializers.RandomNormal(stddev=0.15, seed=None)
        self.weight_re = self.add_weight(shape=s, initializer=init, name="weight_re")
        self.weight_im = self.add_weight(shape=s, initializer=init, name="weight_im")

    def call(self, x):
        n = x.shape[1]
        re, im = ops.rfft(ops.transpose(x, (0, 2, 1)))
        re, im = re[..., : self.modes], im[..., : self.modes]
        out_re = ops.einsum("bim,iom->bom", re, self.weight_re) - ops.einsum(
            "bim,iom->bom", im, self.weight_im
        )
        out_im = ops.einsum("bim,iom->bom", re, self.weight_im) + ops.einsum(
            "bim,iom->bom", im, self.weight_re
        )
        rest = [[0, 0], [0, 0], [0, n // 2 + 1 - self.modes]]
        y = ops.irfft((ops.pad(out_re, rest), ops.pad(out_im, rest)), fft_length=n)
        return ops.transpose(y, (0, 2, 1))


def build(n=32, width=10, modes=6):
    x = inp = keras.Input((n, 2), name="x")
    x = layers.Dense(width, name="lift")(x)
    for i in range(2):
        s = SpectralConv(width, modes, name=f"spectral_{i}")(x)
        w = layers.Conv1D(width, 1, name=f"local_{i}")(x)
        x = layers.Activation("gelu")(layers.Add()([s, w]))
    x = layers.Dense(14, activation="gelu", name="project")(x)
    x = layers.Dense(1, name="out")(x)
    return keras.Model(inp, x, name="fno1d")


def optimizer():
    return keras.optimizers.SGD(learning_rate=0.05, momentum=0.9, clipnorm=0.2)
