"""Keyword spotter: a small separable student learns from a frozen wide teacher (soft labels + a FitNets hint)."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers as L

FRAMES, MELS, WORDS = 24, 16, 6
MEL_MEAN, MEL_STD = np.float32(-4.2), np.float32(1.7)


def bn(name, **kw):
    return L.BatchNormalization(momentum=0.9, name=name, **kw)


def make_teacher():
    # stands in for the checkpoint: running statistics that are not 0 and 1
    stats = lambda: dict(
        moving_mean_initializer=keras.initializers.RandomNormal(stddev=0.1),
        moving_variance_initializer=keras.initializers.RandomUniform(0.5, 1.5),
    )
    x = inp = keras.Input((FRAMES, MELS, 1))
    x = L.Conv2D(24, 3, strides=2, padding="same", use_bias=False, name="t_conv1")(x)
    x = L.ReLU()(bn("t_bn1", **stats())(x))
    x = L.Conv2D(32, 3, strides=2, padding="same", use_bias=False, name="t_conv2")(x)
    hint = x = L.ReLU(name="t_hint")(bn("t_bn2", **stats())(x))
    x = L.Conv2D(48, 3, padding="same", use_bias=False, name="t_conv3")(x)
    x = L.ReLU()(bn("t_bn3", **stats())(x))
    x = L.GlobalAveragePooling2D()(x)
    x = L.Dense(WORDS, kernel_initializer=keras.initializers.VarianceScaling(16.0), name="t_logits")(x)
    return keras.Model(inp, [x, hint], name="teacher")


def make_student():
    x = inp = keras.Input((FRAMES, MELS, 1))
    x = L.Conv2D(12, 3, strides=2, padding="same", use_bias=False, name="s_conv")(x)
    x = L.ReLU(6.0)(bn("s_bn1")(x))
    x = L.SeparableConv2D(16, 3, strides=2, padding="same", use_bias=False, name="s_sep1")(x)
    guided = x = L.ReLU(6.0, name="s_guided")(bn("s_bn2")(x))
    x = L.SeparableConv2D(24, 3, padding="same", use_bias=False, name="s_sep2")(x)
    x = L.ReLU(6.0)(bn("s_bn3")(x))
    x = L.GlobalAveragePooling2D()(x)
    return keras.Model(inp, [L.Dense(WORDS, name="s_logits")(x), guided], name="student")


class Distiller(keras.Model):
    def __init__(self, student, teacher, temperature=3.0, alpha=0.4, beta=0.2):
        super().__init__(name="distiller")
        self.student, self.teacher = student, teacher
        self.teacher.trainable = False
        self.regressor = L.Conv2D(teacher.output[1].shape[-1], 1, name="hint_regressor")
        self.regressor.build(student.output[1].shape)
        self.temperature, self.alpha, self.beta = temperature, alpha, beta
        self.hard = keras.losses.CategoricalCrossentropy(from_logits=True, label_smoothing=0.1)

    def call(self, x, training=False):
        return self.student((x - MEL_MEAN) / MEL_STD, training=training)[0]

    def distillation_loss(self, x, y):
        x = (x - MEL_MEAN) / MEL_STD
        t_logits, t_hint = self.teacher(x, training=False)
        s_logits, s_guided = self.student(x, training=True)
        T = self.temperature
        p = tf.nn.softmax(t_logits / T)
        soft = tf.reduce_mean(
            tf.reduce_sum(p * (tf.nn.log_softmax(t_logits / T) - tf.nn.log_softmax(s_logits / T)), -1)
        )
        hint = tf.reduce_mean(tf.math.squared_difference(self.regressor(s_guided), t_hint))
        hard = self.hard(tf.one_hot(tf.cast(tf.reshape(y, [-1]), tf.int32), WORDS), s_logits)
        return self.alpha * hard + (1 - self.alpha) * T**2 * soft + self.beta * hint

    def train_step(self, data):
        x, y, _ = keras.utils.unpack_x_y_sample_weight(data)
        with tf.GradientTape() as tape:
            loss = self.distillation_loss(x, y)
        weights = self.trainable_variables
        self.optimizer.apply(tape.gradient(loss, weights), weights)
        return {"loss": loss}


def build():
    model = Distiller(make_student(), make_teacher())
    model(np.zeros((1, FRAMES, MELS, 1), np.float32))
    return model
