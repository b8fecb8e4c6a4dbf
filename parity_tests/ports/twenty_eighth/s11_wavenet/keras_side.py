import keras
from keras import layers, ops

QUANTILES = (0.1, 0.5, 0.9)


class GatedResidual(layers.Layer):
    def __init__(self, channels, dilation, skip, **kw):
        super().__init__(**kw)
        self.channels, self.skip_channels = channels, skip
        self.filt = layers.Conv1D(channels, 2, padding="causal", dilation_rate=dilation, name="filt")
        self.gate = layers.Conv1D(channels, 2, padding="causal", dilation_rate=dilation, name="gate")
        self.res = layers.Conv1D(channels, 1, name="res")
        self.skip = layers.Conv1D(skip, 1, name="skip")

    def build(self, shape):
        for l in (self.filt, self.gate, self.res, self.skip):
            l.build(shape)
        self.built = True

    def call(self, x):
        z = ops.tanh(self.filt(x)) * ops.sigmoid(self.gate(x))
        return x + self.res(z), self.skip(z)


class WaveNet(keras.Model):
    def __init__(self, channels=12, skip=10, dilations=(1, 2, 4, 8)):
        super().__init__(name="wavenet")
        self.front = layers.Conv1D(channels, 3, padding="causal", name="front")
        self.stack = [GatedResidual(channels, d, skip, name=f"d{d}") for d in dilations]
        self.post = layers.Conv1D(skip, 1, activation="relu", name="post")
        self.quant = layers.Dense(len(QUANTILES), name="quant")

    def call(self, x, training=None):
        h = self.front(x)
        total = 0.0
        for layer in self.stack:
            h, s = layer(h)
            total = total + s
        h = self.post(ops.relu(total))
        return self.quant(h[:, -1])


def build():
    m = WaveNet()
    m(ops.zeros((2, 24, 2)))
    return m


def pinball(y_true, y_pred):
    q = ops.convert_to_tensor(QUANTILES, dtype=y_pred.dtype)
    e = y_true - y_pred
    return ops.mean(ops.maximum(q * e, (q - 1.0) * e), axis=-1)
