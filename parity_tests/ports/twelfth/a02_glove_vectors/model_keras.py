"""GloVe: word vectors from co-occurrence counts. Word 0 is the most frequent one."""

import keras
from keras import layers, ops

WORDS, WIDTH = 40, 6


class Table(layers.Layer):
    """Rows of a table, as a product with one-hot vectors: Adagrad needs the sum of a row's gradients."""

    def __init__(self, width, **kwargs):
        super().__init__(**kwargs)
        self.width = width

    def build(self, shape):
        self.rows = self.add_weight(shape=(WORDS, self.width), initializer="random_uniform", name="rows")

    def compute_output_shape(self, shape):
        return (*shape, self.width)

    def call(self, word):
        return ops.matmul(ops.one_hot(word, WORDS, dtype=self.rows.dtype), self.rows)


def build():
    focus = keras.Input((), dtype="int32", name="focus")
    context = keras.Input((), dtype="int32", name="context")
    v = Table(WIDTH, name="focus_vector")(focus)
    w = Table(WIDTH, name="context_vector")(context)
    b = Table(1, name="focus_bias")(focus)
    c = Table(1, name="context_bias")(context)
    score = ops.sum(v * w, axis=-1) + ops.squeeze(b + c, axis=-1)
    return keras.Model([focus, context], score)


def loss(count, score):
    weight = ops.power(ops.minimum(count / 20.0, 1.0), 0.75)
    return weight * ops.square(score - ops.log(count))


def optimizer():
    return keras.optimizers.Adagrad(learning_rate=0.1, initial_accumulator_value=0.125, epsilon=1e-16)
