"""Representations of walking from accelerometer windows, without labels: SimSiam on two augmented views."""

import keras
import tensorflow as tf
from keras import layers, ops


def encoder():
    return keras.Sequential(
        [
            keras.Input((32, 3)),
            layers.Conv1D(16, 5, strides=2, activation="relu", name="conv1"),
            layers.Conv1D(24, 3, activation="relu", name="conv2"),
            layers.GlobalMaxPooling1D(),
            layers.Dense(16, use_bias=False, name="proj1"),
            layers.BatchNormalization(name="bn1"),
            layers.ReLU(),
            layers.Dense(12, use_bias=False, name="proj2"),
            layers.BatchNormalization(scale=False, center=False, name="bn2"),
        ],
        name="encoder",
    )


def predictor():
    return keras.Sequential(
        [
            keras.Input((12,)),
            layers.Dense(6, activation="silu", name="pred1"),
            layers.Dense(12, name="pred2"),
        ],
        name="predictor",
    )


def negative_cosine(p, z):
    z = ops.stop_gradient(z)
    p = p / ops.sqrt(ops.sum(ops.square(p), axis=-1, keepdims=True))
    z = z / ops.sqrt(ops.sum(ops.square(z), axis=-1, keepdims=True))
    return -ops.mean(ops.sum(p * z, axis=-1))


class SimSiam(keras.Model):
    def __init__(self):
        super().__init__()
        self.encoder, self.predictor = encoder(), predictor()

    def call(self, inputs, training=False):
        view1, view2 = (inputs["view1"], inputs["view2"]) if isinstance(inputs, dict) else inputs
        z1 = self.encoder(view1, training=training)
        z2 = self.encoder(view2, training=training)
        return self.predictor(z1), self.predictor(z2), z1, z2

    def train_step(self, data):
        x = data[0] if isinstance(data, (tuple, list)) and isinstance(data[0], (dict, tuple, list)) else data
        with tf.GradientTape() as tape:
            p1, p2, z1, z2 = self(x, training=True)
            loss = 0.5 * (negative_cosine(p1, z2) + negative_cosine(p2, z1))
        grads = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(grads, self.trainable_variables))
        for metric in self.metrics:
            if metric.name == "loss":
                metric.update_state(loss)
        return {"loss": loss}


def build():
    model = SimSiam()
    model([ops.zeros((1, 32, 3)), ops.zeros((1, 32, 3))])
    return model
