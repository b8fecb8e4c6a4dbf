"""Two tasks on one table, joined by cross-stitch units: a grade (ordinal, CORAL) and an amount."""

import keras
from keras import layers, ops

FEATURES, GRADES = 11, 5


class CrossStitch(layers.Layer):
    """Every tower goes on with a mixture of both."""

    def build(self, input_shape):
        self.mixture = self.add_weight(
            shape=(2, 2),
            initializer=keras.initializers.Constant([[0.9, 0.1], [0.1, 0.9]]),
            name="mixture",
        )

    def call(self, towers):
        a, b = towers
        m = self.mixture
        return [m[0, 0] * a + m[0, 1] * b, m[1, 0] * a + m[1, 1] * b]


class Ordinal(layers.Layer):
    """One score, and a threshold for every step between two grades."""

    def __init__(self, grades, **kwargs):
        super().__init__(**kwargs)
        self.grades = grades
        self.score = layers.Dense(1, use_bias=False, name="score")

    def build(self, input_shape):
        self.score.build(input_shape)
        self.thresholds = self.add_weight(
            shape=(self.grades - 1,),
            initializer=keras.initializers.Constant([1.5, 0.5, -0.5, -1.5]),
            name="thresholds",
        )

    def call(self, x):
        return self.score(x) + self.thresholds


def build():
    table = keras.Input((FEATURES,), name="x")
    grade = amount = layers.LayerNormalization(epsilon=1e-5, name="norm")(table)
    for index, units in enumerate((32, 32, 16)):
        grade = layers.Dense(units, activation="elu", name=f"grade_{index}")(grade)
        amount = layers.Dense(units, activation="elu", name=f"amount_{index}")(amount)
        grade, amount = CrossStitch(name=f"stitch_{index}")([grade, amount])
    grade, amount = layers.Dropout(0.1)(grade), layers.Dropout(0.1)(amount)
    logits = Ordinal(GRADES, name="ordinal")(grade)
    return keras.Model(table, layers.Concatenate()([logits, layers.Dense(1, name="value")(amount)]))


def loss(y_true, y_pred):
    """y_true: the grade (0 to 4) and the amount"""
    y_true = ops.cast(y_true, y_pred.dtype)
    above = ops.cast(y_true[:, :1] > ops.arange(GRADES - 1, dtype=y_pred.dtype), y_pred.dtype)
    logits = y_pred[:, :-1]
    ordinal = -ops.sum(
        above * ops.log_sigmoid(logits) + (1 - above) * (ops.log_sigmoid(logits) - logits), axis=-1
    )
    return ordinal + 0.5 * ops.abs(y_pred[:, -1] - y_true[:, 1])
