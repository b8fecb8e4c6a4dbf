import keras
from keras import layers, ops

QUANTILES = (0.1, 0.5, 0.9)


class GatedResidual(layers.Layer):
    def __init__(self, units, **kwargs):
        super().__init__(**kwargs)
        self.units = units
        self.skip = layers.Dense(units, name="skip")
        self.hidden = layers.Dense(units, name="hidden")
        self.context = layers.Dense(units, use_bias=False, name="context")
        self.inner = layers.Dense(units, name="inner")
        self.gate = layers.Dense(2 * units, name="gate")
        self.norm = layers.LayerNormalization(epsilon=1e-5, name="norm")

    def call(self, x, c):
        h = ops.elu(self.hidden(x) + self.context(c))
        h = self.inner(h)
        a, b = ops.split(self.gate(h), 2, axis=-1)
        return self.norm(self.skip(x) + a * ops.sigmoid(b))


class Selection(layers.Layer):
    def __init__(self, n, units, **kwargs):
        super().__init__(**kwargs)
        self.n = n
        self.embed = [layers.Dense(units, name=f"embed_{i}") for i in range(n)]
        self.weigher = GatedResidual(n, name="weigher")

    def call(self, x, c):
        e = ops.stack([self.embed[i](x[..., i : i + 1]) for i in range(self.n)], axis=-2)
        w = ops.softmax(self.weigher(x, c), axis=-1)
        return ops.sum(e * ops.expand_dims(w, -1), axis=-2)


def build(steps=12, features=4, static=5, units=8, horizon=4):
    hist = keras.Input((steps, features), name="history")
    stat = keras.Input((static,), name="static")
    c = layers.Dense(units, activation="elu", name="static_encoder")(stat)
    c_seq = layers.Reshape((1, units))(c)
    sel = Selection(features, units, name="selection")(hist, c_seq)
    h0 = layers.Dense(units, name="init_h")(c)
    c0 = layers.Dense(units, name="init_c")(c)
    seq = layers.LSTM(units, return_sequences=True, name="encoder")(sel, initial_state=[h0, c0])
    seq = layers.LayerNormalization(epsilon=1e-5, name="encoder_norm")(layers.Add()([seq, sel]))
    rich = GatedResidual(units, name="enrich")(seq, c_seq)
    att = layers.MultiHeadAttention(2, units // 2, name="attention")(rich, rich, use_causal_mask=True)
    out = layers.LayerNormalization(epsilon=1e-5, name="attention_norm")(layers.Add()([att, rich]))
    out = layers.Dense(len(QUANTILES), name="quantiles")(out[:, -horizon:])
    return keras.Model([hist, stat], out, name="tft_lite")


def pinball(y_true, y_pred):
    q = ops.convert_to_tensor(QUANTILES, dtype=y_pred.dtype)
    err = y_true - y_pred
    return ops.mean(ops.maximum(q * err, (q - 1.0) * err))
