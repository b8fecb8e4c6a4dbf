"""A small network for garments learns from a larger, trained one."""

import os

import keras
from keras import layers, ops

TEACHER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "teacher.weights.h5")


def make_teacher():
    x = keras.Input((20, 20, 1))
    h = x
    for i, width in enumerate((12, 24)):
        h = layers.Conv2D(width, 3, padding="same", use_bias=False, name=f"t_conv{i}")(h)
        h = layers.BatchNormalization(epsilon=1e-5, momentum=0.9, name=f"t_bn{i}")(h)
        h = layers.ReLU(name=f"t_relu{i}")(h)
        h = layers.MaxPooling2D(2, name=f"t_pool{i}")(h)
    h = layers.GlobalAveragePooling2D(name="t_gap")(h)
    return keras.Model(x, layers.Dense(6, name="t_logits")(h), name="teacher")


def make_student():
    x = keras.Input((20, 20, 1))
    h = layers.Conv2D(6, 3, strides=2, activation="relu", name="s_conv1")(x)  # 9
    h = layers.DepthwiseConv2D(3, activation="relu", name="s_dw")(h)  # 7
    h = layers.Conv2D(10, 1, activation="relu", name="s_pw")(h)
    h = layers.GlobalAveragePooling2D(name="s_gap")(h)
    h = layers.UnitNormalization(name="s_unit")(h)
    return keras.Model(x, layers.Dense(6, name="s_logits")(h), name="student")


class Distiller(keras.Model):
    def __init__(self, student, teacher, temperature=3.0, alpha=0.3):
        super().__init__()
        self.student, self.teacher = student, teacher
        self.teacher.trainable = False
        self.temperature, self.alpha = temperature, alpha
        self.hard = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        self.soft = keras.losses.KLDivergence()

    def call(self, x, training=None):
        return self.student(ops.expand_dims(x, -1), training=training)

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        t = self.temperature
        told = ops.softmax(self.teacher(ops.expand_dims(x, -1), training=False) / t)
        soft = self.soft(told, ops.softmax(y_pred / t)) * t**2
        return self.alpha * self.hard(y, y_pred) + (1.0 - self.alpha) * soft


def build():
    keras.utils.set_random_seed(37)
    teacher = make_teacher()
    if os.path.exists(TEACHER):
        teacher.load_weights(TEACHER)
    model = Distiller(make_student(), teacher)
    model(keras.Input((20, 20), name="x"))
    model.compile(keras.optimizers.Adam(3e-3))
    return model
