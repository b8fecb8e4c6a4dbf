"""Grades of scrap metal from spectra, few of them labelled (y = -1: not labelled): a mean teacher."""

import keras
import tensorflow as tf
from keras import layers, ops


def network(name):
    return keras.Sequential(
        [
            keras.Input((40,)),
            layers.Dense(32, name="fc1"),
            layers.LayerNormalization(epsilon=1e-5, name="norm"),
            layers.Activation("silu"),
            layers.Dense(16, activation="silu", name="fc2"),
            layers.Dense(4, name="logits"),
        ],
        name=name,
    )


class MeanTeacher(keras.Model):
    def __init__(self, **kw):
        student, teacher = network("student"), network("teacher")
        teacher.set_weights(student.get_weights())
        teacher.trainable = False
        weak, strong = keras.Input((40,), name="weak"), keras.Input((40,), name="strong")
        super().__init__(inputs=[weak, strong], outputs=[student(strong), teacher(weak)], **kw)
        self.student, self.teacher = student, teacher

    def update_teacher(self):
        step = ops.cast(self.optimizer.iterations, self.compute_dtype)
        decay = ops.minimum(0.99, (1.0 + step) / (10.0 + step))
        for t, s in zip(self.teacher.weights, self.student.weights):
            t.assign(decay * t + (1.0 - decay) * s)

    def train_step(self, data):
        x, y = data
        self.update_teacher()  # from the student as the last step left it
        y = ops.cast(ops.reshape(y, (-1,)), "int32")
        with tf.GradientTape() as tape:
            student, teacher = self(x, training=True)
            labelled = ops.cast(y >= 0, student.dtype)
            ce = ops.sparse_categorical_crossentropy(ops.maximum(y, 0), student, from_logits=True)
            supervised = ops.mean(labelled * ce)
            gap = ops.softmax(student) - ops.stop_gradient(ops.softmax(teacher))
            loss = supervised + 2.0 * ops.mean(ops.square(gap))
        grads = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(grads, self.trainable_variables))
        for metric in self.metrics:
            if metric.name == "loss":
                metric.update_state(loss)
        return {"loss": loss}


def build():
    return MeanTeacher()
