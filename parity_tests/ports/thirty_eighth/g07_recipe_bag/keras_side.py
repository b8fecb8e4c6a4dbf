"""The cuisine a recipe belongs to, from its ingredients (0 pads) and its tags."""

import keras
from keras import layers

VOCAB, DIM = 80, 16


def build():
    keras.utils.set_random_seed(17)
    ids = keras.Input((12,), dtype="int32", name="ingredients")
    tags = keras.Input((8,), name="tags")
    table = layers.Embedding(
        VOCAB,
        DIM,
        mask_zero=True,
        embeddings_initializer=keras.initializers.RandomUniform(-0.5, 0.5),
        name="embedding",
    )
    bag = layers.GlobalAveragePooling1D(name="bag")(table(ids))
    t = layers.Dense(DIM, activation="softsign", name="tag_dense")(tags)
    both = layers.Multiply(name="cross")([bag, t])
    low = layers.Minimum(name="low")([bag, t])
    h = layers.Concatenate(name="all")([bag, t, both, low])
    h = layers.Dense(24, activation="gelu", name="hidden")(h)
    h = layers.LayerNormalization(epsilon=1e-5, name="ln")(h)
    return keras.Model({"ingredients": ids, "tags": tags}, layers.Dense(6, name="cuisine")(h))


def optimizer():
    opt = keras.optimizers.SGD(0.2, weight_decay=0.02)
    opt.exclude_from_weight_decay(var_names=["embedding", "bias", "gamma", "beta"])
    return opt
