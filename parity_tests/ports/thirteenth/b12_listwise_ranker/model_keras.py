"""Listwise ranking of up to eight documents of a query. Documents see the mean of their list."""

import keras
from keras import layers, ops


class ListContext(layers.Layer):
    """Mean and largest of the documents that are listed, beside each of them."""

    def call(self, x, listed):
        m = ops.expand_dims(listed, -1)
        mean = ops.sum(x * m, axis=1, keepdims=True) / ops.sum(m, axis=1, keepdims=True)
        top = ops.max(ops.where(m > 0, x, -1e3), axis=1, keepdims=True)
        return ops.concatenate([x, x - mean, ops.broadcast_to(top, ops.shape(x))], axis=-1)

    def compute_output_shape(self, x_shape, listed_shape):
        return (*x_shape[:-1], 3 * x_shape[-1])


def build(documents=8, features=5, query_features=3, width=10):
    docs = keras.Input((documents, features), name="docs")
    query = keras.Input((query_features,), name="query")
    listed = keras.Input((documents,), name="listed")
    x = layers.Dense(width, activation="tanh", name="document")(docs)
    gate = layers.Dense(width, activation="sigmoid", name="gate")(query)
    x = layers.Multiply()([x, layers.Reshape((1, width))(gate)])
    x = ListContext(name="context")(x, listed)
    x = layers.Dense(width, activation="swish", name="hidden")(x)
    score = layers.Reshape((documents,))(layers.Dense(1, name="score")(x))
    return keras.Model([docs, query, listed], layers.Multiply(name="scores")([score, listed]))


def ranking_loss(y_true, y_pred):
    """ListNet, and half of a pairwise logistic loss weighted by differences of gains; -1 is no document."""
    valid = ops.cast(y_true >= 0, y_pred.dtype)
    shut = -1e4 * (1 - valid)
    target = ops.softmax(y_true + shut, axis=-1)
    listnet = -ops.sum(target * ops.log_softmax(y_pred + shut, axis=-1) * valid, axis=-1)
    gain = (ops.power(2.0, ops.maximum(y_true, 0)) - 1) / 15.0
    better = ops.maximum(gain[:, :, None] - gain[:, None, :], 0) * valid[:, :, None] * valid[:, None, :]
    margin = y_pred[:, :, None] - y_pred[:, None, :]
    pairs = ops.sum(better * ops.softplus(-margin), axis=(1, 2)) / (ops.sum(better, axis=(1, 2)) + 1e-3)
    return listnet + 0.5 * pairs
