"""Ratings: generalised matrix factorisation beside an MLP, user and movie offsets, genre features."""

import keras
from keras import layers

USERS, MOVIES, GENRES = 30, 40, 6


class Table(layers.Layer):
    """rows of a trained table by one-hot product: dense gradients, so that clipping sees each row once"""

    def __init__(self, rows, dim, **kw):
        super().__init__(**kw)
        self.rows, self.dim = rows, dim

    def build(self, shape):
        self.table = self.add_weight(shape=(self.rows, self.dim), initializer="random_normal", name="table")

    def call(self, ids):
        return keras.ops.matmul(keras.ops.one_hot(ids, self.rows, dtype=self.compute_dtype), self.table)


def build():
    user = keras.Input((), dtype="int32", name="user")
    movie = keras.Input((), dtype="int32", name="movie")
    genres = keras.Input((GENRES,), name="genres")

    p = Table(USERS, 8, name="user_mf")(user)
    q = Table(MOVIES, 8, name="movie_mf")(movie)
    side = layers.Dense(8, use_bias=False, name="genre_mf")(genres)
    gmf = layers.Multiply()([p, layers.Add()([q, side])])

    h = layers.Concatenate()(
        [Table(USERS, 6, name="user_mlp")(user), Table(MOVIES, 6, name="movie_mlp")(movie), genres]
    )
    for i, units in enumerate((24, 12)):
        h = layers.Dense(units, activation="relu", name=f"mlp{i}")(h)
    rating = layers.Dense(1, name="rating")(layers.Concatenate()([gmf, h]))
    offsets = [Table(USERS, 1, name="user_offset")(user), Table(MOVIES, 1, name="movie_offset")(movie)]
    return keras.Model([user, movie, genres], layers.Add(name="score")([rating, *offsets]))


def optimizer():
    rate = keras.optimizers.schedules.PiecewiseConstantDecay([6, 12], [0.5, 0.125, 0.03125])
    return keras.optimizers.SGD(rate, clipnorm=0.5)
