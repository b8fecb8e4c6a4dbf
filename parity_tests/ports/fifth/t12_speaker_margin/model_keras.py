"""Speaker vectors: time-delay layers, statistics of the utterance, and an additive angular margin."""

import math

import keras
from keras import layers, ops

FRAMES, BANDS, SPEAKERS, SIZE = 30, 16, 12, 24
SCALE, MARGIN = 16.0, 0.3


@keras.saving.register_keras_serializable("speakers")
class AttentiveStatistics(layers.Layer):
    """Mean and deviation over time, weighted by what a small network finds important."""

    def __init__(self, hidden, **kwargs):
        super().__init__(**kwargs)
        self.hidden = layers.Dense(hidden, activation="tanh", name="hidden")

    def build(self, shape):
        self.hidden.build(shape)
        self.score = layers.Dense(shape[-1], name="score")
        self.score.build((*shape[:-1], self.hidden.units))

    def call(self, x):
        weights = ops.softmax(self.score(self.hidden(x)), axis=1)
        mean = ops.sum(weights * x, axis=1)
        variance = ops.sum(weights * ops.square(x - ops.expand_dims(mean, 1)), axis=1)
        plain = ops.sqrt(ops.var(x, axis=1) + 1e-5)
        return ops.concatenate([mean, ops.sqrt(variance + 1e-5), plain], axis=-1)


@keras.saving.register_keras_serializable("speakers")
class Cosines(layers.Layer):
    def __init__(self, classes, **kwargs):
        super().__init__(**kwargs)
        self.classes = classes

    def build(self, shape):
        self.centers = self.add_weight(
            shape=(shape[-1], self.classes), initializer="glorot_uniform", name="centers"
        )

    def call(self, x):
        return ops.matmul(ops.normalize(x, axis=1), ops.normalize(self.centers, axis=0))


def build():
    return keras.Sequential(
        [
            keras.Input((FRAMES, BANDS), name="frames"),
            layers.Conv1D(32, 5, activation="relu", name="tdnn1"),
            layers.LayerNormalization(name="ln1"),
            layers.Conv1D(32, 3, dilation_rate=2, activation="relu", name="tdnn2"),
            layers.LayerNormalization(name="ln2"),
            layers.Conv1D(32, 3, dilation_rate=3, activation="relu", name="tdnn3"),
            AttentiveStatistics(16, name="statistics"),
            layers.Dense(SIZE, name="vector"),
            Cosines(SPEAKERS, name="cosines"),
        ],
        name="speakers",
    )


def margin_loss(y_true, y_pred):
    label = ops.one_hot(ops.cast(ops.reshape(y_true, (-1,)), "int32"), SPEAKERS, dtype=y_pred.dtype)
    cosine = ops.clip(y_pred, -1 + 1e-6, 1 - 1e-6)
    sine = ops.sqrt(1 - ops.square(cosine))
    widened = cosine * math.cos(MARGIN) - sine * math.sin(MARGIN)
    # past pi - margin the angle's cosine would rise again
    widened = ops.where(
        cosine > math.cos(math.pi - MARGIN), widened, cosine - MARGIN * math.sin(math.pi - MARGIN)
    )
    logits = SCALE * ops.where(label > 0, widened, cosine)
    return keras.losses.categorical_crossentropy(label, logits, from_logits=True)
