import keras
import numpy as np
from keras import layers, ops

QUANTILES = np.array([0.1, 0.5, 0.9], dtype=np.float32)
T, H = 28, 6


class QuantileLoss(keras.losses.Loss):
    def call(self, y_true, y_pred):
        q = ops.cast(QUANTILES, y_pred.dtype)
        e = ops.expand_dims(ops.cast(y_true, y_pred.dtype), -1) - y_pred
        e = e / (1.0 + ops.mean(ops.abs(y_true), axis=1)[:, None, None])
        return ops.mean(ops.maximum(q * e, (q - 1.0) * e), axis=(1, 2))


pinball = QuantileLoss(name="pinball")


class MeanScale(layers.Layer):
    """Divides the first channel by its mean over time, and gives that mean."""

    def call(self, hist):
        scale = 1.0 + ops.mean(hist[..., :1], axis=1, keepdims=True)
        return ops.concatenate([hist[..., :1] / scale, hist[..., 1:]], axis=-1), scale


def build():
    hist = keras.Input((T, 3), name="hist")
    item = keras.Input((), dtype="int32", name="item")
    store = keras.Input((), dtype="int32", name="store")
    static = keras.Input((4,), name="static")

    ctx = layers.Concatenate(name="ctx")(
        [
            layers.Embedding(30, 6, name="item_emb")(item),
            layers.Embedding(8, 3, name="store_emb")(store),
            layers.Dense(5, activation="tanh", name="static_fc")(static),
        ]
    )
    h0 = layers.Dense(16, activation="tanh", name="init_h")(ctx)
    c0 = layers.Dense(16, name="init_c")(ctx)

    x, scale = MeanScale(name="scale")(hist)
    seq, h, c = layers.LSTM(16, return_sequences=True, return_state=True, name="encoder")(
        x, initial_state=[h0, c0]
    )
    week = layers.AveragePooling1D(7, name="weekly")(seq)
    z = layers.Concatenate()([h, layers.Flatten()(week), ctx])
    z = layers.Dense(32, activation="elu", name="mix")(z)
    z = layers.Dropout(0.1)(z)
    z = layers.Dense(H * 3, name="head")(z)
    z = layers.Reshape((H, 3))(z)
    base = z[:, :, :1]
    steps = ops.cumsum(ops.softplus(z[:, :, 1:]), axis=-1)
    out = ops.concatenate([base, base + steps], axis=-1) * scale
    return keras.Model({"hist": hist, "item": item, "store": store, "static": static}, out)
