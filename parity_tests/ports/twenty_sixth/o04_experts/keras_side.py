"""Sparse mixture of experts (top-2) on tabular sensor data, with an importance loss."""

import keras
import tensorflow as tf
from keras import layers, ops

EXPERTS, TOPK, HIDDEN, CLASSES = 5, 2, 16, 4
BALANCE = 0.1


class MoE(layers.Layer):
    def __init__(self, n_out, **kw):
        super().__init__(**kw)
        self.n_out = n_out
        self.gate = layers.Dense(EXPERTS, use_bias=False, name="gate")

    def build(self, shape):
        f = shape[-1]
        init = keras.initializers.RandomNormal(stddev=0.2)
        self.gate.build(shape)
        self.w1 = self.add_weight(shape=(EXPERTS, f, HIDDEN), initializer=init, name="w1")
        self.b1 = self.add_weight(shape=(EXPERTS, HIDDEN), initializer="zeros", name="b1")
        self.w2 = self.add_weight(shape=(EXPERTS, HIDDEN, self.n_out), initializer=init, name="w2")

    def call(self, x):
        scores = self.gate(x)
        top, idx = ops.top_k(scores, TOPK)
        weight = ops.softmax(top, axis=-1)
        onehot = ops.one_hot(idx, EXPERTS, dtype=weight.dtype)
        combine = ops.sum(onehot * weight[..., None], axis=1)
        h = ops.relu(ops.einsum("bf,efh->beh", x, self.w1) + self.b1)
        y = ops.einsum("beh,eho->beo", h, self.w2)
        importance = ops.sum(ops.softmax(scores, axis=-1), axis=0)
        cv2 = ops.var(importance) / ops.square(ops.mean(importance))
        return ops.einsum("be,beo->bo", combine, y), cv2


class Classifier(keras.Model):
    def __init__(self):
        super().__init__()
        self.stem = layers.Dense(20, activation="tanh", name="stem")
        self.moe = MoE(20, name="moe")
        self.head = layers.Dense(CLASSES, name="head")

    def features(self, x):
        h = self.stem(x)
        m, balance = self.moe(h)
        return h + m, balance

    def call(self, x):
        h, _ = self.features(x)
        return self.head(h)

    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            h, balance = self.features(x)
            ce = ops.mean(keras.losses.sparse_categorical_crossentropy(y, self.head(h), from_logits=True))
            loss = ce + BALANCE * balance
        variables = self.trainable_variables
        self.optimizer.apply(tape.gradient(loss, variables), variables)
        return {"loss": loss}


def build():
    model = Classifier()
    model(ops.zeros((2, 18)))
    return model
