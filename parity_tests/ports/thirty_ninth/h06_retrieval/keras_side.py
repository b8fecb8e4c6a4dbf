"""Landmark retrieval: small ConvNet, GeM pooling, unit embeddings; trained with additive angular margins."""

import math

import keras
import numpy as np
import tensorflow as tf
from keras import layers

CLASSES, DIM = 8, 24
SCALE, MARGIN = 12.0, 0.25
RGB_MEAN = np.float32([0.47, 0.45, 0.40])
RGB_STD = np.float32([0.23, 0.22, 0.25])


class GeM(layers.Layer):
    def __init__(self, p=3.0, eps=1e-6, **kw):
        super().__init__(**kw)
        self.p0, self.eps = p, eps

    def build(self, shape):
        self.p = self.add_weight(name="p", shape=(1,), initializer=keras.initializers.Constant(self.p0))

    def call(self, x):
        p = tf.cast(self.p, x.dtype)
        x = tf.pow(tf.maximum(x, tf.cast(self.eps, x.dtype)), p)
        return tf.pow(tf.reduce_mean(x, axis=(1, 2)), 1.0 / p)


class Separable(layers.Layer):
    def __init__(self, filters, stride, **kw):
        super().__init__(**kw)
        self.conv = layers.SeparableConv2D(filters, 3, strides=stride, padding="same", use_bias=False)
        self.bn = layers.BatchNormalization(scale=False, momentum=0.9)

    def call(self, x, training=None):
        return tf.nn.relu6(self.bn(self.conv(x), training=training))


class Retrieval(keras.Model):
    def __init__(self):
        super().__init__(name="retrieval")
        self.mean, self.std = tf.constant(RGB_MEAN), tf.constant(RGB_STD)
        self.stem = layers.Conv2D(12, 3, strides=2, padding="same", name="stem")
        self.blocks = [
            Separable(16, 1, name="sep1"),
            Separable(24, 2, name="sep2"),
            Separable(32, 1, name="sep3"),
        ]
        self.gem = GeM(name="gem")
        self.whiten = layers.Dense(DIM, name="whiten")
        self.prototypes = self.add_weight(
            name="prototypes", shape=(DIM, CLASSES), initializer="glorot_normal"
        )

    def call(self, images, training=False):
        x = (images - tf.cast(self.mean, images.dtype)) / tf.cast(self.std, images.dtype)
        x = tf.nn.elu(self.stem(x))
        for i, block in enumerate(self.blocks):
            y = block(x, training=training)
            x = tf.concat([x, y], axis=-1) if i == 0 else y
        return tf.math.l2_normalize(self.whiten(self.gem(x)), axis=-1)

    def arcface(self, embeddings, labels):
        labels = tf.cast(tf.reshape(labels, (-1,)), tf.int32)
        cos = tf.matmul(embeddings, tf.math.l2_normalize(tf.convert_to_tensor(self.prototypes), axis=0))
        sin = tf.sqrt(tf.maximum(1.0 - cos * cos, 1e-9))
        with_margin = cos * math.cos(MARGIN) - sin * math.sin(MARGIN)
        with_margin = tf.where(cos > math.cos(math.pi - MARGIN), with_margin, cos - MARGIN * math.sin(MARGIN))
        onehot = tf.one_hot(labels, CLASSES, dtype=cos.dtype)
        logits = SCALE * (onehot * with_margin + (1.0 - onehot) * cos)
        return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))

    def train_step(self, data):
        images, labels = data[:2]
        with tf.GradientTape() as tape:
            e = self(images, training=True)
            loss = self.arcface(e, labels)
            off = tf.matmul(e, e, transpose_b=True)
            same = tf.cast(tf.equal(tf.reshape(labels, (-1, 1)), tf.reshape(labels, (1, -1))), e.dtype)
            spread = tf.reduce_sum((1.0 - same) * tf.square(tf.nn.relu(off))) / tf.maximum(
                tf.reduce_sum(1.0 - same), 1.0
            )
            loss += 0.5 * spread
        variables = self.trainable_variables
        self.optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))
        return {"loss": loss}


def build():
    model = Retrieval()
    model(np.zeros((1, 24, 24, 3), "float32"))
    return model
