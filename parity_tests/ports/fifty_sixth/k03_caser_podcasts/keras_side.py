"""Next podcast of a listener: Caser (Tang & Wang 2018), convolutions over the last eight episodes.
Matrices are trained with Adam, vectors with heavy momentum, both on one warm-up and decay schedule."""

import keras
import tensorflow as tf
from keras import layers, ops

EPISODES, LISTENERS = 61, 30
LAST = 8
DIM = 12


class VerticalFilters(layers.Layer):
    """Weighted sums over the history, a filter each."""

    def __init__(self, filters, **kwargs):
        super().__init__(**kwargs)
        self.filters = filters

    def build(self, input_shape):
        self.kernel = self.add_weight(
            name="kernel", shape=(input_shape[1], self.filters), initializer="glorot_uniform"
        )
        self.bias = self.add_weight(name="bias", shape=(self.filters,), initializer="zeros")

    def call(self, x):
        x = ops.einsum("bld,lf->bfd", x, self.kernel) + self.bias[:, None]
        return ops.reshape(x, (-1, self.filters * x.shape[-1]))


class Score(layers.Layer):
    """Scores of candidates from tables of weights and biases, a row an episode."""

    def __init__(self, episodes, **kwargs):
        super().__init__(**kwargs)
        self.episodes = episodes

    def build(self, query_shape, candidates_shape):
        self.table = self.add_weight(
            name="table",
            shape=(self.episodes, query_shape[-1]),
            initializer=keras.initializers.RandomNormal(stddev=0.1),
        )
        self.prior = self.add_weight(name="prior", shape=(self.episodes,), initializer="zeros")

    def call(self, query, candidates):
        w = ops.take(self.table, candidates, axis=0)
        return ops.sum(w * query[:, None], axis=-1) + ops.take(self.prior, candidates)


def build():
    history = keras.Input((LAST,), dtype="int32", name="history")
    listener = keras.Input((), dtype="int32", name="listener")
    candidates = keras.Input((6,), dtype="int32", name="candidates")
    e = layers.Embedding(EPISODES, DIM, name="episode")(history)
    e = e * ops.expand_dims(ops.cast(ops.not_equal(history, 0), e.dtype), -1)
    features = [VerticalFilters(3, name="vertical")(e)]
    for height in (1, 2, 3, 5):
        h = layers.Conv1D(6, height, activation="relu", name=f"horizontal_{height}")(e)
        features.append(layers.GlobalMaxPooling1D()(h))
    z = layers.Concatenate()(features)
    z = layers.Dense(DIM, activation="relu", name="sequence")(z)
    u = layers.Embedding(LISTENERS, DIM, name="taste")(listener)
    scores = Score(EPISODES, name="score")(layers.Concatenate()([z, u]), candidates)
    return keras.Model([history, listener, candidates], scores)


def loss(targets, outputs):
    """The one heard episode against the mean of the sampled others."""
    t = ops.cast(targets, outputs.dtype)
    heard = ops.sum(t * ops.softplus(-outputs), axis=-1)
    others = ops.sum((1 - t) * ops.softplus(outputs), axis=-1) / ops.sum(1 - t, axis=-1)
    return heard + others


class WarmThenRoot(keras.optimizers.schedules.LearningRateSchedule):
    def __init__(self, peak, warm):
        self.peak, self.warm = peak, warm

    def __call__(self, step):
        step = ops.cast(step, "float32") + 1.0
        return self.peak * ops.minimum(step / self.warm, ops.sqrt(self.warm / step))

    def get_config(self):
        return {"peak": self.peak, "warm": self.warm}


class AdamAndMomentum(keras.optimizers.Adam):
    """Adam for tables and kernels; momentum at ten times the rate for biases."""

    def update_step(self, gradient, variable, learning_rate):
        gradient = tf.convert_to_tensor(gradient)  # dense: rows looked up twice count once
        if len(variable.shape) > 1:
            return super().update_step(gradient, variable, learning_rate)
        rate = ops.cast(learning_rate, variable.dtype) * 10.0
        m = self._momentums[self._get_variable_index(variable)]
        self.assign(m, 0.8 * m - rate * gradient)
        self.assign_add(variable, m)


def optimizer():
    return AdamAndMomentum(learning_rate=WarmThenRoot(4e-3, 8.0), beta_2=0.98)
