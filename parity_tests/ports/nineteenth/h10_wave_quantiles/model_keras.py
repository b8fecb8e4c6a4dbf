import keras
from keras import layers, ops

QUANTILES = (0.1, 0.5, 0.9)
DILATIONS = (1, 2, 4, 8)


def wavenet(channels=8, skips=12):
    series = keras.Input(shape=(32, 2), name="series")
    x = layers.Conv1D(channels, 1, name="inlet")(series)
    collected = []
    for d in DILATIONS:
        kind = dict(filters=channels, kernel_size=2, dilation_rate=d, padding="causal")
        f = layers.Conv1D(**kind, activation="tanh", name=f"filter_{d}")(x)
        g = layers.Conv1D(**kind, activation="sigmoid", name=f"gate_{d}")(x)
        z = layers.multiply([f, g])
        collected.append(layers.Conv1D(skips, 1, name=f"skip_{d}")(z))
        x = layers.add([layers.Conv1D(channels, 1, name=f"residual_{d}")(z), x]) if d != DILATIONS[-1] else x
    s = layers.Activation("relu")(layers.add(collected))
    s = layers.Conv1D(skips, 1, activation="relu", name="mix")(s)
    last = layers.Lambda(lambda v: v[:, -1, :], name="last")(s)
    return keras.Model(series, layers.Dense(len(QUANTILES), name="quantiles")(last))


class Pinball(keras.losses.Loss):
    def __init__(self, quantiles=QUANTILES, **kwargs):
        super().__init__(**kwargs)
        self.quantiles = quantiles

    def call(self, y_true, y_pred):
        q = ops.convert_to_tensor(self.quantiles, dtype=y_pred.dtype)
        error = ops.cast(y_true, y_pred.dtype) - y_pred
        return ops.mean(ops.maximum(q * error, (q - 1) * error), axis=-1)


def optimizer():
    rate = keras.optimizers.schedules.CosineDecay(
        0.05, decay_steps=40, alpha=0.1, warmup_target=0.2, warmup_steps=5
    )
    return keras.optimizers.SGD(rate)
