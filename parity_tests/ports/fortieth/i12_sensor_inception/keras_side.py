import keras
import numpy as np
from keras import layers, ops

STEPS, CHANNELS, CLASSES = 40, 5, 4
D, HEADS = 24, 3
GAMMA = 2.0
ALPHA = np.asarray([0.4, 0.9, 1.1, 1.6], dtype="float32")


def sinusoids(length, depth):
    pos = np.arange(length)[:, None]
    i = np.arange(depth)[None, :]
    angle = pos / np.power(10000.0, 2 * (i // 2) / depth)
    angle[:, 0::2] = np.sin(angle[:, 0::2])
    angle[:, 1::2] = np.cos(angle[:, 1::2])
    return angle.astype("float32")


class AddPositions(layers.Layer):
    def build(self, shape):
        self.table = ops.convert_to_tensor(sinusoids(shape[1], shape[2]))

    def call(self, x):
        return x * np.sqrt(D).astype("float32") + ops.cast(self.table, x.dtype)


class EncoderLayer(layers.Layer):
    def __init__(self, d, heads, ff, **kw):
        super().__init__(**kw)
        self.heads = heads
        self.q, self.k, self.v = (layers.Dense(d, name=n) for n in "qkv")
        self.o = layers.Dense(d, name="o")
        self.ff1 = layers.Dense(ff, activation="relu", name="ff1")
        self.ff2 = layers.Dense(d, name="ff2")
        self.n1 = layers.LayerNormalization(epsilon=1e-6, name="n1")
        self.n2 = layers.LayerNormalization(epsilon=1e-6, name="n2")
        self.drop = layers.Dropout(0.1)

    def _heads(self, x):
        return ops.transpose(
            ops.reshape(x, (-1, x.shape[1], self.heads, x.shape[2] // self.heads)), (0, 2, 1, 3)
        )

    def call(self, x, training=None):
        q, k, v = self._heads(self.q(x)), self._heads(self.k(x)), self._heads(self.v(x))
        a = ops.softmax(ops.matmul(q, ops.transpose(k, (0, 1, 3, 2))) / float(np.sqrt(q.shape[-1])), axis=-1)
        z = ops.reshape(ops.transpose(ops.matmul(a, v), (0, 2, 1, 3)), (-1, x.shape[1], x.shape[2]))
        x = self.n1(x + self.drop(self.o(z), training=training))
        return self.n2(x + self.drop(self.ff2(self.ff1(x)), training=training))


def inception(x, n, name):
    b = layers.Conv1D(n, 1, use_bias=False, name=f"{name}_bottleneck")(x)
    branches = [
        layers.Conv1D(n, k, padding="same", use_bias=False, name=f"{name}_k{k}")(b) for k in (3, 5, 9)
    ]
    p = layers.MaxPooling1D(3, strides=1, padding="same")(x)
    branches.append(layers.Conv1D(n, 1, use_bias=False, name=f"{name}_pool")(p))
    y = layers.Concatenate()(branches)
    y = layers.BatchNormalization(momentum=0.95, name=f"{name}_bn")(y)
    return layers.ReLU()(y)


def build():
    inp = keras.Input((STEPS, CHANNELS), name="window")
    x = inception(inp, 6, "inc0")
    x = inception(x, 6, "inc1")
    x = layers.AveragePooling1D(2, name="halve")(x)
    x = AddPositions(name="positions")(x)
    x = EncoderLayer(D, HEADS, 40, name="encoder")(x)
    x = layers.GlobalAveragePooling1D()(x)
    return keras.Model(inp, layers.Dense(CLASSES, activation="softmax", name="state")(x))


def focal(y_true, probs):
    y = ops.one_hot(ops.cast(ops.reshape(y_true, (-1,)), "int32"), CLASSES, dtype=probs.dtype)
    p_t = ops.clip(ops.sum(y * probs, axis=-1), 1e-7, 1.0)
    a_t = ops.matmul(y, ops.cast(ALPHA, probs.dtype)[:, None])[:, 0]
    return ops.mean(-a_t * ops.power(1.0 - p_t, GAMMA) * ops.log(p_t))
