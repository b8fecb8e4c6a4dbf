"""Bookings per hotel, country and channel: DeepFM with a Poisson loss (the model gives the log of the rate)."""

import itertools

import keras
from keras import layers, ops

FIELDS = {"hotel": 40, "country": 12, "channel": 5}


def build():
    ids = {name: keras.Input((), dtype="int64", name=name) for name in FIELDS}
    dense = keras.Input((3,), name="dense")
    vectors, linear = [], []
    for name, n in FIELDS.items():
        vectors.append(
            layers.Embedding(
                n,
                6,
                name=f"{name}_vector",
                embeddings_initializer=keras.initializers.RandomNormal(stddev=0.2),
            )(ids[name])
        )
        linear.append(
            layers.Embedding(
                n,
                1,
                name=f"{name}_linear",
                embeddings_initializer=keras.initializers.RandomNormal(stddev=0.05),
            )(ids[name])
        )
    vectors.append(layers.Dense(6, use_bias=False, name="dense_vector")(dense))
    linear.append(layers.Dense(1, name="dense_linear")(dense))
    pairs = [
        layers.Dot(axes=-1, name=f"pair_{i}{j}")([vectors[i], vectors[j]])
        for i, j in itertools.combinations(range(4), 2)
    ]
    h = layers.Concatenate(name="all")(vectors)
    h = layers.Dense(16, activation="relu", name="deep1")(h)
    h = layers.Dense(8, activation="relu", name="deep2")(h)
    out = layers.Add(name="log_rate")(linear + pairs + [layers.Dense(1, use_bias=False, name="deep_out")(h)])
    return keras.Model([*ids.values(), dense], out)


def poisson(y, log_rate):
    y = ops.cast(y, log_rate.dtype)
    return ops.mean(ops.exp(log_rate) - y * log_rate)
