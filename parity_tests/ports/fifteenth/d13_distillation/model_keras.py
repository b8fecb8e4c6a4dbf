"""Knowledge distillation (Hinton): a small student learns from a frozen teacher's soft targets."""

import keras
import tensorflow as tf
from keras import layers, ops

CLASSES = 7


def teacher_net():
    x = inputs = keras.Input((16, 16, 3))
    for filters in (12, 20):
        x = layers.Conv2D(filters, 3, padding="same", use_bias=False)(x)
        x = layers.BatchNormalization()(x)
        x = layers.ReLU()(x)
        x = layers.MaxPooling2D()(x)
    x = layers.Conv2D(32, 3, activation="relu")(x)
    x = layers.GlobalAveragePooling2D()(x)
    return keras.Model(inputs, layers.Dense(CLASSES, kernel_initializer="random_normal")(x), name="teacher")


def student_net():
    return keras.Sequential(
        [
            keras.Input((16, 16, 3)),
            layers.Conv2D(6, 3, strides=2, padding="same", activation="relu"),
            layers.BatchNormalization(),
            layers.Conv2D(8, 3, activation="relu"),
            layers.GlobalMaxPooling2D(),
            layers.Dense(CLASSES),
        ],
        name="student",
    )


class Distiller(keras.Model):
    def __init__(self, temperature=4.0, alpha=0.3):
        super().__init__()
        self.teacher, self.student = teacher_net(), student_net()
        self.teacher.trainable = False
        self.temperature, self.alpha = temperature, alpha
        self.hard = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        self.soft = keras.losses.KLDivergence()

    def call(self, x, training=None):
        return self.student(x, training=training)

    def train_step(self, data):
        x, y = data
        t = self.temperature
        targets = ops.softmax(self.teacher(x, training=False) / t)
        with tf.GradientTape() as tape:
            logits = self.student(x, training=True)
            hard = self.hard(y, logits)
            soft = self.soft(targets, ops.softmax(logits / t)) * t**2
            loss = self.alpha * hard + (1.0 - self.alpha) * soft
        variables = self.student.trainable_variables
        self.optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))
        return {"loss": loss}


def build():
    model = Distiller()
    model(ops.zeros((1, 16, 16, 3)))
    model.compile(optimizer=keras.optimizers.Adam(3e-3))
    return model
