"""Demand of a shop for the next days as quantiles: a recurrent encoder and a known future."""

import keras
from keras import layers, ops

PAST, FUTURE, KNOWN, SHOPS = 21, 7, 3, 15
QUANTILES = (0.1, 0.5, 0.75, 0.9)


def build():
    past = keras.Input((PAST, 1 + KNOWN), name="past")
    known = keras.Input((FUTURE, KNOWN), name="known")
    shop = keras.Input((), dtype="int32", name="shop")

    level = ops.mean(past[:, :, :1], axis=1, keepdims=True)
    spread = ops.std(past[:, :, :1], axis=1, keepdims=True) + 0.125
    scaled = ops.concatenate([(past[:, :, :1] - level) / spread, past[:, :, 1:]], axis=-1)

    who = layers.Embedding(SHOPS, 6, name="shop_table")(shop)
    start = layers.Dense(20, activation="tanh", name="start")(who)
    encoded, state = layers.GRU(20, return_sequences=True, return_state=True, name="encoder")(
        scaled, initial_state=start
    )
    decoded = layers.GRU(20, return_sequences=True, name="decoder")(known, initial_state=state)
    context = layers.Attention(use_scale=True, name="look_back")([decoded, encoded])
    merged = layers.Concatenate(name="merged")([decoded, context, layers.RepeatVector(FUTURE)(who)])
    hidden = layers.TimeDistributed(layers.Dense(24, activation="softsign"), name="hidden")(merged)
    steps = layers.Dense(len(QUANTILES), name="steps")(hidden)
    # the first quantile, and then how far each lies above the one before
    ordered = ops.concatenate([steps[..., :1], ops.softplus(steps[..., 1:])], axis=-1)
    quantiles = ops.cumsum(ordered, axis=-1)
    return keras.Model([past, known, shop], quantiles * spread + level, name="demand")


def pinball(y_true, y_pred):
    q = ops.convert_to_tensor(QUANTILES, dtype=y_pred.dtype)
    error = ops.expand_dims(ops.cast(y_true, y_pred.dtype), -1) - y_pred
    return ops.mean(ops.maximum(q * error, (q - 1) * error), axis=-1)
