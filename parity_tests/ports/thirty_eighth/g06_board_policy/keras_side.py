"""Policy and value of positions on a 7 x 7 board, taught by a tree search."""

import keras
import tensorflow as tf
from keras import layers, ops

WIDTH = 16


def conv_bn(h, filters, size, name, relu=True):
    h = layers.Conv2D(filters, size, padding="same", use_bias=False, name=name)(h)
    h = layers.BatchNormalization(name=name + "_bn")(h)
    return layers.ReLU(name=name + "_relu")(h) if relu else h


def residual(h, name):
    r = conv_bn(h, WIDTH, 3, name + "_a")
    r = conv_bn(r, WIDTH, 3, name + "_b", relu=False)
    s = layers.GlobalAveragePooling2D(name=name + "_gap")(r)
    s = layers.Dense(4, activation="relu", name=name + "_squeeze")(s)
    s = layers.Dense(2 * WIDTH, name=name + "_excite")(s)
    scale = layers.Lambda(lambda t: ops.sigmoid(t[:, None, None, :WIDTH]), name=name + "_scale")(s)
    shift = layers.Lambda(lambda t: t[:, None, None, WIDTH:], name=name + "_shift")(s)
    r = layers.Multiply(name=name + "_mul")([r, scale])
    r = layers.Add(name=name + "_add")([r, shift, h])
    return layers.ReLU(name=name + "_out")(r)


def build():
    keras.utils.set_random_seed(13)
    x = keras.Input((7, 7, 4), name="x")
    h = conv_bn(x, WIDTH, 3, "stem")
    h = residual(residual(h, "res1"), "res2")
    p = layers.Flatten(name="p_flat")(conv_bn(h, 2, 1, "p_conv"))
    policy = layers.Dense(50, name="policy")(p)
    v = layers.Flatten(name="v_flat")(conv_bn(h, 3, 1, "v_conv"))
    v = layers.Dense(16, activation="relu", name="v_hidden")(v)
    value = layers.Dense(1, activation="tanh", name="value")(v)
    return keras.Model(x, [policy, value])


def policy_loss(target, logits):
    return tf.nn.softmax_cross_entropy_with_logits(labels=target, logits=logits)


def value_loss(target, value):
    return tf.reduce_mean(tf.math.squared_difference(value, target), axis=-1)


def optimizer():
    rate = keras.optimizers.schedules.PiecewiseConstantDecay(
        [19, 34], [0.03, 0.01, 0.003]
    )  # 20, 15, ... steps
    return keras.optimizers.Adagrad(rate)
