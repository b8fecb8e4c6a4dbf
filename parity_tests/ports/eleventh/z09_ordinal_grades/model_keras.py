"""Grades from 0 to 4 out of measurements: a latent score, and ordered thresholds that it has to pass."""

import keras
from keras import layers, ops

GRADES = 5


class FeatureGate(layers.Layer):
    """Lets every row say which of its features count."""

    def build(self, shape):
        self.squeeze = layers.Dense(4, activation="tanh", name="squeeze")
        self.excite = layers.Dense(shape[-1], activation="sigmoid", name="excite")
        self.squeeze.build(shape)
        self.excite.build((*shape[:-1], 4))

    def call(self, x):
        return 2 * x * self.excite(self.squeeze(x))


class CumulativeLink(layers.Layer):
    """Score (batch, 1) -> logits of "at most k" for all grades but the last."""

    def build(self, shape):
        self.first = self.add_weight(shape=(1,), initializer=keras.initializers.Constant(-1.5), name="first")
        self.gaps = self.add_weight(shape=(GRADES - 2,), initializer="zeros", name="gaps")

    def call(self, score):
        thresholds = ops.cumsum(ops.concatenate([self.first, ops.softplus(self.gaps)]))
        return thresholds - score


def build():
    x = keras.Input((10,), name="x")
    h = FeatureGate(name="gate")(x)
    h = layers.Dense(32, activation="silu", name="hidden")(h)
    h = layers.LayerNormalization(epsilon=1e-5, name="norm")(h)
    h = h + layers.Dense(32, activation="silu", name="residual")(h)
    score = layers.Dense(1, use_bias=False, name="score")(h)
    return keras.Model(x, CumulativeLink(name="link")(score))


def probabilities(logits):
    below = ops.sigmoid(logits)
    below = ops.concatenate([ops.zeros_like(below[:, :1]), below, ops.ones_like(below[:, :1])], axis=-1)
    return below[:, 1:] - below[:, :-1]


def ordinal_loss(grade, logits):
    """Log-likelihood; rows whose expected grade is far off count more, but are no other goal for that."""
    grade = ops.reshape(grade, (-1,))
    p = probabilities(logits)
    expected = ops.sum(p * ops.arange(GRADES, dtype=p.dtype), axis=-1)
    weight = 1 + 0.5 * ops.stop_gradient(ops.square(expected - ops.cast(grade, p.dtype)))
    likelihood = ops.sum(p * ops.one_hot(ops.cast(grade, "int32"), GRADES, dtype=p.dtype), axis=-1)
    return -weight * ops.log(likelihood + 1e-9)


def optimizer():
    return keras.optimizers.SGD(0.125, momentum=0.875, nesterov=True, global_clipnorm=0.5)
