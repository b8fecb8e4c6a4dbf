"""Post-processing of an ensemble of wind forecasts at stations; a normal, censored at zero, scored by CRPS."""

import math

import keras
from keras import layers, ops

MEMBERS = 10
FEATURES = 5
STATIONS = 20
WIDTH = 32
HEADS = 2
FILL = -999.0


def presence(members):
    """1 where a member was delivered."""
    return ops.cast(members[..., 0] > FILL + 1.0, members.dtype)


def clean(inputs):
    members, there = inputs
    return members * there[..., None]


def pool(inputs):
    x, there = inputs
    weight = there[..., None]
    count = ops.sum(weight, axis=1)
    mean = ops.sum(x * weight, axis=1) / count
    variance = ops.sum(ops.square(x - mean[:, None]) * weight, axis=1) / count
    return ops.concatenate([mean, ops.sqrt(variance + 1e-5)], axis=-1)


def block(x, mask, name):
    h = layers.LayerNormalization(epsilon=1e-6, name=f"{name}_norm1")(x)
    h = layers.MultiHeadAttention(HEADS, WIDTH // HEADS, name=f"{name}_attention")(h, h, attention_mask=mask)
    x = layers.Add()([x, h])
    h = layers.LayerNormalization(epsilon=1e-6, name=f"{name}_norm2")(x)
    h = layers.Dense(2 * WIDTH, activation="silu", name=f"{name}_expand")(h)
    h = layers.Dense(WIDTH, name=f"{name}_reduce")(h)
    return layers.Add()([x, h])


def build():
    members = keras.Input((MEMBERS, FEATURES), name="members")
    station = keras.Input((), dtype="int32", name="station")
    season = keras.Input((2,), name="season")
    there = layers.Lambda(presence, output_shape=(MEMBERS,), name="presence")(members)
    known = layers.Lambda(clean, output_shape=(MEMBERS, FEATURES), name="clean")([members, there])
    place = layers.Embedding(STATIONS, 6, name="station_embedding")(station)
    side = layers.Concatenate(name="side")([place, season])
    x = layers.Dense(WIDTH, name="lift")(known)
    scale = layers.Dense(WIDTH, name="film_scale")(side)
    shift = layers.Dense(WIDTH, name="film_shift")(side)
    x = x * (1.0 + ops.expand_dims(scale, 1)) + ops.expand_dims(shift, 1)
    mask = ops.expand_dims(there > 0.5, 1)
    for i in range(2):
        x = block(x, mask, f"block{i}")
    x = layers.LayerNormalization(epsilon=1e-6, name="final_norm")(x)
    x = layers.Lambda(pool, output_shape=(2 * WIDTH,), name="pool")([x, there])
    x = layers.Concatenate(name="joined")([x, side])
    x = layers.Dense(32, activation="silu", name="hidden")(x)
    location = layers.Dense(1, name="location")(x)
    spread = layers.Dense(1, activation="softplus", name="spread")(x)
    raw = ops.sum(known[..., 0] * there, axis=1, keepdims=True) / ops.sum(there, axis=1, keepdims=True)
    output = ops.concatenate([location + raw, spread + 0.05], axis=-1)
    return keras.Model({"members": members, "station": station, "season": season}, output, name="wind_crps")


def cdf(z):
    return 0.5 * (1.0 + ops.erf(z / math.sqrt(2.0)))


def density(z):
    return ops.exp(-0.5 * ops.square(z)) / math.sqrt(2.0 * math.pi)


def loss(targets, outputs):
    """CRPS of a normal that is left-censored at zero."""
    y = ops.cast(ops.reshape(targets, (-1,)), outputs.dtype)
    mu, sigma = outputs[:, 0], outputs[:, 1]
    z, a = (y - mu) / sigma, -mu / sigma
    full = z * (2.0 * cdf(z) - 1.0) + 2.0 * density(z) - 1.0 / math.sqrt(math.pi)
    below = a * ops.square(cdf(a)) + 2.0 * density(a) * cdf(a) - cdf(math.sqrt(2.0) * a) / math.sqrt(math.pi)
    return ops.mean(sigma * (full - below))
