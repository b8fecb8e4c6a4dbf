import keras
from keras import layers


def residual_block(x, filters, kernel_size, dilation):
    res = x
    for _ in range(2):
        x = layers.Conv1D(filters, kernel_size, padding="causal", dilation_rate=dilation)(x)
        x = layers.LayerNormalization(epsilon=1e-6)(x)
        x = layers.Activation("relu")(x)
    if res.shape[-1] != filters:
        res = layers.Conv1D(filters, 1)(res)
    out = layers.Activation("relu")(layers.add([x, res]))
    return out, x


def build(horizon=3, filters=(10, 10, 10)):
    window = keras.Input((48, 5), name="window")
    x, skips = window, []
    for i, f in enumerate(filters):
        x, skip = residual_block(x, f, 3, 2**i)
        skips.append(layers.Conv1D(8, 1)(skip))
    x = layers.Activation("relu")(layers.add(skips))
    last = layers.Lambda(lambda t: t[:, -1, :])(x)
    base = layers.Lambda(lambda t: t[:, -24, 0:1])(window)
    out = layers.Dense(horizon)(layers.concatenate([last, base]))
    return keras.Model(window, out)
