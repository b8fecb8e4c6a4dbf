"""2-d keypoints of 15 video frames -> 3-d pose of the middle frame and which foot is on the ground."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops

FRAMES, JOINTS = 15, 13
BONES = [(0, 1), (1, 2), (2, 3), (0, 4), (4, 5), (5, 6), (0, 7), (7, 8), (8, 9), (7, 10), (10, 11), (7, 12)]
CONF_MEAN, CONF_STD = 0.85, 0.15


def partitions():
    """Yan et al. 2018, spatial configuration: the joint itself, neighbours nearer to the hip, those further away."""
    a = np.eye(JOINTS)
    hops = np.zeros(JOINTS, int)
    for p, c in BONES:
        hops[c] = hops[p] + 1
        a[p, c] = a[c, p] = 1
    a = a / a.sum(0, keepdims=True)
    h = hops[:, None] - hops[None, :]
    return np.stack([np.where(h == 0, a, 0), np.where(h < 0, a, 0), np.where(h > 0, a, 0)]).astype("float32")


A = partitions()


class GraphConv(layers.Layer):
    def __init__(self, filters, **kw):
        super().__init__(**kw)
        self.filters = filters
        self.point = layers.Conv2D(filters * len(A), 1, name="point")

    def build(self, shape):
        self.point.build(shape)
        self.importance = self.add_weight(
            name="importance", shape=A.shape, initializer=keras.initializers.RandomUniform(0.8, 1.2)
        )

    def call(self, x):
        y = self.point(x)
        y = ops.reshape(y, (-1, x.shape[1], JOINTS, len(A), self.filters))
        return ops.einsum("btvkc,kvw->btwc", y, self.importance * A)


def block(x, filters, dilation, name):
    y = GraphConv(filters, name=name + "_gcn")(x)
    y = layers.BatchNormalization(name=name + "_bn1")(y)
    y = layers.ReLU()(y)
    y = layers.Conv2D(filters, (3, 1), dilation_rate=(dilation, 1), name=name + "_tcn")(y)
    y = layers.BatchNormalization(name=name + "_bn2")(y)
    r = layers.Cropping2D(((dilation, dilation), (0, 0)))(x)
    if x.shape[-1] != filters:
        r = layers.Conv2D(filters, 1, use_bias=False, name=name + "_res")(r)
        r = layers.BatchNormalization(name=name + "_res_bn")(r)
    return layers.ReLU(name=name)(layers.add([y, r]))


def build():
    kp = keras.Input((FRAMES, JOINTS, 3), name="keypoints")
    xy = kp[..., :2] - kp[:, :, :1, :2]
    conf = (kp[..., 2:] - CONF_MEAN) / CONF_STD
    x = ops.concatenate([xy * ops.sqrt(kp[..., 2:]), conf], axis=-1)
    x = layers.Reshape((FRAMES, JOINTS * 3))(x)
    x = layers.BatchNormalization(momentum=0.95, name="data_bn")(x)
    x = layers.Reshape((FRAMES, JOINTS, 3))(x)
    x = block(x, 16, 1, "b1")
    x = block(x, 24, 3, "b2")
    x = block(x, 24, 3, "b3")
    x = ops.squeeze(x, 1)
    pose = layers.Dense(3, name="xyz")(x)
    pose = layers.Subtract(name="pose")([pose, pose[:, :1]])
    feet = ops.take(x, np.array([3, 6]), axis=1)
    contact = layers.Dense(1, name="touch")(feet)
    return keras.Model(kp, {"pose": pose, "contact": layers.Flatten(name="contact")(contact)})


def mpjpe(y, p):
    d2 = tf.reduce_sum(tf.math.squared_difference(tf.cast(y, p.dtype), p), axis=-1)
    return tf.reduce_mean(tf.sqrt(d2 + 1e-6), axis=-1)
