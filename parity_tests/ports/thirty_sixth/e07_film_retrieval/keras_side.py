"""Two towers for films: a viewer (id, age, films seen) and five candidates, with the correction for popularity."""

import keras
from keras import layers, ops

VIEWERS, FILMS, SEEN, CANDIDATES, DIM = 20, 30, 7, 5, 8


class Temperature(layers.Layer):
    def build(self, shape):
        self.log_scale = self.add_weight(
            name="log_scale", shape=(), initializer=keras.initializers.Constant(1.5)
        )

    def call(self, x):
        return x * ops.exp(self.log_scale)


def build():
    viewer = keras.Input((), dtype="int32", name="viewer")
    age = keras.Input((1,), name="age")
    seen = keras.Input((SEEN,), dtype="int32", name="seen")
    candidates = keras.Input((CANDIDATES,), dtype="int32", name="candidates")
    popularity = keras.Input((CANDIDATES,), name="log_popularity")

    films = layers.Embedding(FILMS + 1, DIM, mask_zero=True, name="films")
    taste = layers.GlobalAveragePooling1D(name="taste")(films(seen))
    who = layers.Embedding(VIEWERS, DIM, name="viewers")(viewer)
    x = layers.Concatenate(name="viewer_features")([who, taste, age])
    x = layers.Dense(16, activation="elu", name="viewer1")(x)
    x = layers.Dense(DIM, name="viewer2")(x)
    x = layers.UnitNormalization(name="viewer_unit")(x)

    c = films(candidates)
    c = layers.Conv1D(16, 1, activation="elu", name="film1")(c)
    c = layers.Conv1D(DIM, 1, name="film2")(c)
    c = layers.UnitNormalization(name="film_unit")(c)

    scores = layers.Dot(axes=(2, 1), name="match")([c, x])
    scores = Temperature(name="temperature")(scores)
    scores = layers.Subtract(name="corrected")([scores, popularity])
    return keras.Model([viewer, age, seen, candidates, popularity], scores, name="films_two_towers")


def optimizer():
    return keras.optimizers.SGD(learning_rate=0.05, momentum=0.9, weight_decay=0.01)
