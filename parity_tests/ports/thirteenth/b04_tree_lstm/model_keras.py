"""Sentiment of every phrase of a sentence: a binary Tree-LSTM over its parse, bottom up."""

import keras
from keras import layers, ops


class BinaryTreeLSTM(layers.Layer):
    def __init__(self, units, **kwargs):
        super().__init__(**kwargs)
        self.units = units
        self.leaf_gate = layers.Dense(units, activation="sigmoid", name="leaf_gate")
        self.leaf_cell = layers.Dense(units, name="leaf_cell")
        self.input_gate = layers.Dense(units, activation="sigmoid", name="input_gate")
        self.left_gate = layers.Dense(units, activation="sigmoid", bias_initializer="ones", name="left_gate")
        self.right_gate = layers.Dense(
            units, activation="sigmoid", bias_initializer="ones", name="right_gate"
        )
        self.output_gate = layers.Dense(units, activation="sigmoid", name="output_gate")
        self.update = layers.Dense(units, activation="tanh", name="update")

    def build(self, words_shape, left_shape, right_shape):
        self.leaf_gate.build(words_shape)
        self.leaf_cell.build(words_shape)
        for gate in (self.input_gate, self.left_gate, self.right_gate, self.output_gate, self.update):
            gate.build((words_shape[0], 2 * self.units))

    def call(self, words, left, right):
        c = self.leaf_cell(words)
        h = self.leaf_gate(words) * ops.tanh(c)
        for k in range(left.shape[1]):
            a, b = left[:, k : k + 1, None], right[:, k : k + 1, None]
            hl, hr = ops.take_along_axis(h, a, axis=1), ops.take_along_axis(h, b, axis=1)
            cl, cr = ops.take_along_axis(c, a, axis=1), ops.take_along_axis(c, b, axis=1)
            both = ops.concatenate([hl, hr], axis=-1)
            cell = self.input_gate(both) * self.update(both)
            cell = cell + self.left_gate(both) * cl + self.right_gate(both) * cr
            h = ops.concatenate([h, self.output_gate(both) * ops.tanh(cell)], axis=1)
            c = ops.concatenate([c, cell], axis=1)
        return h

    def compute_output_shape(self, words_shape, left_shape, right_shape):
        return (words_shape[0], words_shape[1] + left_shape[1], self.units)


def build(vocabulary=30, length=6, dim=8, units=10, classes=3):
    tokens = keras.Input((length,), dtype="int32", name="tokens")
    left = keras.Input((length - 1,), dtype="int32", name="left")
    right = keras.Input((length - 1,), dtype="int32", name="right")
    words = layers.Embedding(vocabulary, dim, name="words")(tokens)
    h = BinaryTreeLSTM(units, name="tree")(words, left, right)
    return keras.Model([tokens, left, right], layers.Dense(classes, name="sentiment")(h))
