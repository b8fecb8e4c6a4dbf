"""Two-tower rating model: user and item ids in, a rating out."""

import keras
from keras import layers, regularizers


def tower(ids, rows, name):
    x = layers.Embedding(rows, 16, name=f"{name}_embedding")(ids)
    x = layers.Dense(32, activation="relu", kernel_regularizer=regularizers.L2(0.01), name=f"{name}_dense1")(
        x
    )
    return layers.Dense(16, kernel_regularizer=regularizers.L2(0.01), name=f"{name}_dense2")(x)


def build(users=60, items=80):
    user_id = keras.Input((), dtype="int32", name="user_id")
    item_id = keras.Input((), dtype="int32", name="item_id")
    user = tower(user_id, users, "user")
    item = tower(item_id, items, "item")
    difference = layers.Subtract(name="difference")([user, item])
    product = layers.Multiply(name="product")([user, item])
    x = layers.Concatenate(name="features")([user, item, difference, product])
    x = layers.Dense(32, activation="relu", name="hidden")(x)
    rating = layers.Dense(1, name="rating")(x)
    return keras.Model([user_id, item_id], rating, name="two_tower")
